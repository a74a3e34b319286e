"""A real Chromium, driven over WebDriver: the few commands that these tests need, and nothing to install for them.

chromedriver keeps a log of what the browser asked of the network; that log is how a test knows that nothing left.
"""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the name that the standard gives to a reference
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-default-browser-check",
    "--window-size=1280,860", "--force-device-scale-factor=1", "--lang=en-US", "--no-pings", "--mute-audio",
    "--force-prefers-reduced-motion",
)  # fmt: skip
PATIENCE = 20.0
ENTER, ESCAPE, CONTROL = "\ue007", "\ue00c", "\ue009"


def missing(what: str) -> None:
    """Skips here, fails in CI: there a page that is not tested is an error."""
    reason = f"{what} is not installed: run tests/playground/setup.sh"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def chromedriver(log: Path) -> Iterator[str]:
    """The address of a driver of our own."""
    program, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if program is None or browser is None:
        missing("Chromium")
    with log.open("wb") as output:
        driver = subprocess.Popen([str(program), "--port=0"], stdout=subprocess.PIPE, stderr=output)
        with driver:
            assert driver.stdout is not None
            try:
                yield f"http://127.0.0.1:{_port(driver.stdout)}"
            finally:
                driver.terminate()


def _port(output: Any) -> int:
    for line in output:
        words = line.decode().strip().rstrip(".").split()
        if "successfully" in words and words[-1].isdigit():
            return int(words[-1])
    raise AssertionError("chromedriver did not start")


@dataclass
class Browser:
    http: aiohttp.ClientSession
    address: str

    async def command(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method == "GET" else json.dumps(body or {})
        async with self.http.request(method, self.address + path, data=data) as answer:
            value = (await answer.json(content_type=None))["value"]
        if isinstance(value, dict) and "error" in value and "stacktrace" in value:
            raise AssertionError(f"{path}: {value['error']}: {value['message']}")
        return value

    async def open(self, url: str) -> None:
        await self.command("POST", "/url", {"url": url})

    async def run(self, script: str, *arguments: Any) -> Any:
        return await self.command("POST", "/execute/sync", {"script": script, "args": arguments})

    async def run_async(self, script: str, *arguments: Any) -> Any:
        return await self.command("POST", "/execute/async", {"script": script, "args": arguments})

    async def cdp(self, command: str, **parameters: Any) -> Any:
        return await self.command("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    async def until(self, script: str, *arguments: Any, seconds: float = PATIENCE) -> Any:
        """The first true value of an expression in the page."""
        deadline = time.monotonic() + seconds
        while True:
            value = await self.run(f"return ({script})", *arguments)
            if value:
                return value
            assert time.monotonic() < deadline, f"waited {seconds} s for {script}; the page:\n{await self.page()}"
            await asyncio.sleep(0.02)

    async def find(self, css: str) -> str:
        await self.until(f"document.querySelector({css!r})?.checkVisibility()")
        found: dict[str, str] = await self.command("POST", "/element", {"using": "css selector", "value": css})
        return found[ELEMENT]

    async def click(self, css: str) -> None:
        await self.command("POST", f"/element/{await self.find(css)}/click")

    async def type(self, css: str, text: str) -> None:
        await self.command("POST", f"/element/{await self.find(css)}/value", {"text": text})

    async def choose_file(self, css: str, file: Path) -> None:
        await self.until(f"document.querySelector({css!r})")
        found: dict[str, str] = await self.command("POST", "/element", {"using": "css selector", "value": css})
        await self.command("POST", f"/element/{found[ELEMENT]}/value", {"text": str(file)})

    async def text(self, css: str) -> str:
        return str(await self.run("return document.querySelector(arguments[0]).textContent", css))

    async def texts(self, css: str) -> list[str]:
        return list(
            await self.run("return [...document.querySelectorAll(arguments[0])].map((n) => n.textContent)", css)
        )

    async def shows(self, css: str, text: str) -> None:
        """Waits until an element holds a text."""
        script = "[...document.querySelectorAll(arguments[0])].some((n) => n.textContent.includes(arguments[1]))"
        await self.until(script, css, text)

    async def press(self, *keys: str) -> None:
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp") for key in keys]
        await self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    async def page(self) -> str:
        return str(await self.run("return document.body?.innerText ?? ''"))[:3000]

    async def reload(self) -> None:
        await self.command("POST", "/refresh")

    async def new_tab(self) -> str:
        made: dict[str, str] = await self.command("POST", "/window/new", {"type": "tab"})
        return made["handle"]

    async def switch(self, tab: str) -> None:
        await self.command("POST", "/window", {"handle": tab})

    async def tab(self) -> str:
        return str(await self.command("GET", "/window"))

    async def close_tab(self) -> None:
        await self.command("DELETE", "/window")

    async def resize(self, width: int, height: int) -> None:
        await self.cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def screenshot(self) -> bytes:
        return base64.b64decode(await self.command("GET", "/screenshot"))

    async def requests(self) -> list[str]:
        """What the browser asked for since the last call, DNS not included."""
        entries = await self.command("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    async def console(self) -> list[str]:
        return [entry["message"] for entry in await self.command("POST", "/se/log", {"type": "browser"})]


@contextmanager
def chromium(driver: str, profile: Path, *flags: str) -> Iterator[str]:
    """The address of a browser's session; `Browser` talks to it from whichever event loop."""
    options = {"binary": shutil.which("chromium"), "args": [*FLAGS, *flags, f"--user-data-dir={profile}"]}
    wanted = {
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        "timeouts": {"script": 60_000},
    }
    made = _ask("POST", f"{driver}/session", {"capabilities": {"alwaysMatch": wanted}})
    address = f"{driver}/session/{made['sessionId']}"
    try:
        yield address
    finally:
        _ask("DELETE", address, {})


def _ask(method: str, url: str, body: Any) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["value"]


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession() as http:
        yield Browser(http, address)
