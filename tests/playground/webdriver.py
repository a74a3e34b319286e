"""A real Chromium, driven by selenium in a thread: the server under test runs in the test's own event loop.

chromedriver keeps a log of what the browser asked of the network; that log is how a test knows that nothing left.
"""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-default-browser-check",
    "--window-size=1280,860", "--force-device-scale-factor=1", "--lang=en-US", "--no-pings", "--mute-audio",
    "--force-prefers-reduced-motion",
)  # fmt: skip
PATIENCE = 45.0
REDRAWN = 5  # how often an element may be drawn anew between finding it and acting on it
ENTER, ESCAPE, CONTROL = Keys.ENTER, Keys.ESCAPE, Keys.CONTROL
T = TypeVar("T")


def missing(what: str) -> None:
    """Skips here, fails in CI: there a page that is not tested is an error."""
    reason = f"{what} is not installed: run tests/playground/setup.sh"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def chromium(folder: Path, *flags: str) -> Iterator["Browser"]:
    """A browser with an empty profile in `folder`, and a driver of its own."""
    program, binary = shutil.which("chromedriver"), shutil.which("chromium")
    if program is None or binary is None:
        missing("Chromium")
    options = webdriver.ChromeOptions()
    options.binary_location = str(binary)
    for flag in (*FLAGS, *flags, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options, Service(str(program), log_output=str(folder / "driver.log")))
    driver.set_script_timeout(60)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


class Browser:
    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    async def _do(self, action: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(action, *arguments)

    async def open(self, url: str) -> None:
        await self._do(self._driver.get, url)

    async def run(self, script: str, *arguments: Any) -> Any:
        return await self._do(self._driver.execute_script, script, *arguments)

    async def run_async(self, script: str, *arguments: Any) -> Any:
        return await self._do(self._driver.execute_async_script, script, *arguments)

    async def cdp(self, command: str, **parameters: Any) -> Any:
        return await self._do(self._driver.execute_cdp_cmd, command, parameters)

    async def until(self, script: str, *arguments: Any, seconds: float = PATIENCE) -> Any:
        """The first true value of an expression in the page."""
        deadline = time.monotonic() + seconds
        while True:
            value = await self.run(f"return ({script})", *arguments)
            if value:
                return value
            assert time.monotonic() < deadline, f"waited {seconds} s for {script}; the page:\n{await self.page()}"
            await asyncio.sleep(0.02)

    async def find(self, css: str) -> WebElement:
        """The first element that matches, once it is visible."""
        await self.until(f"document.querySelector({css!r})?.checkVisibility()")
        return await self._do(self._driver.find_element, By.CSS_SELECTOR, css)

    async def click(self, css: str) -> None:
        await self._on(css, lambda element: element.click())

    async def type(self, css: str, text: str) -> None:
        await self._on(css, lambda element: element.send_keys(text))

    async def _on(self, css: str, action: Callable[[WebElement], None]) -> None:
        """Acts on an element. One that the page has drawn anew since it was found is looked for again; nothing was done to it."""
        for _ in range(REDRAWN):
            with suppress(StaleElementReferenceException):
                return await self._do(action, await self.find(css))
        return await self._do(action, await self.find(css))

    async def choose_file(self, css: str, file: Path) -> None:
        await self.until(f"document.querySelector({css!r})")  # a file input may be hidden behind a button
        element = await self._do(self._driver.find_element, By.CSS_SELECTOR, css)
        await self._do(element.send_keys, str(file))

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
        actions = ActionChains(self._driver, duration=0)
        for key in keys:
            actions.key_down(key)
        for key in keys:
            actions.key_up(key)
        await self._do(actions.perform)

    async def page(self) -> str:
        return str(await self.run("return document.body?.innerText ?? ''"))[:3000]

    async def reload(self) -> None:
        await self._do(self._driver.refresh)

    async def new_tab(self) -> str:
        """Opens a tab and stays in this one."""
        here = await self.tab()
        await self._do(self._driver.switch_to.new_window, "tab")
        made = await self.tab()
        await self.switch(here)
        return made

    async def switch(self, tab: str) -> None:
        await self._do(self._driver.switch_to.window, tab)

    async def tab(self) -> str:
        return await self._do(lambda: self._driver.current_window_handle)

    async def close_tab(self) -> None:
        await self._do(self._driver.close)

    async def resize(self, width: int, height: int) -> None:
        await self.cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def screenshot(self) -> bytes:
        return await self._do(self._driver.get_screenshot_as_png)

    async def requests(self) -> list[str]:
        """What the browser asked for since the last call, DNS not included."""
        entries = await self._do(self._driver.get_log, "performance")
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    async def console(self) -> list[str]:
        return [entry["message"] for entry in await self._do(self._driver.get_log, "browser")]
