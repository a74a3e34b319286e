"""CopilotKit's React packages in a real browser, with the hooks of v1 and of v2, straight at the server: no Node between.

The page comes from another loopback port, as a development server's does. One browser plays all scenes.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from tests.clients.driving import HERE, missing
from tests.playground.webdriver import ENTER, Browser, chromium

pytestmark = [pytest.mark.req("SRV-05", "SRV-07"), pytest.mark.timeout(180)]

REACT = HERE / "react"
SECONDS = 40.0
ANSWER = "[data-testid=copilot-assistant-message], .copilotKitAssistantMessage"
QUESTION = "[data-testid=copilot-user-message], .copilotKitUserMessage"
INPUT, SEND = "[data-testid=copilot-chat-textarea]", "[data-testid=copilot-send-button]"
ALL = pytest.mark.parametrize("hooks", ["v1", "v2", "v2-single"])
V2 = pytest.mark.parametrize("hooks", ["v2", "v2-single"])
_threads = count()


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return None


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    if not (REACT / "node_modules" / ".page" / "v2.js").is_file():
        missing("the page with CopilotKit's React packages")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(REACT)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder: Path = tmp_path_factory.mktemp("chromium")
    with chromium(folder) as browser:
        yield browser


@dataclass
class Page:
    browser: Browser
    address: str
    server: str
    thread: str

    async def open(self) -> None:
        await self.browser.open(self.address)
        await self.browser.until(f"document.querySelector('{INPUT}')", seconds=SECONDS)

    async def say(self, text: str) -> None:
        await self.browser.until("globalThis.connected && globalThis.running === false", seconds=SECONDS)
        await self.browser.type(INPUT, text + ENTER)

    async def shows(self, *answers: str) -> None:
        """Waits until the page shows exactly these answers, in order; messages without text are not counted."""
        script = (
            "(() => { const shown = [...document.querySelectorAll(arguments[0])].map((n) => n.innerText.trim())"
            ".filter((text) => text && !text.startsWith('{')); return shown.length === arguments[1].length"
            " && shown.every((text, i) => text.includes(arguments[1][i])); })()"
        )
        await self.browser.until(script, ANSWER, list(answers), seconds=SECONDS)

    async def answer(self, before: str) -> str:
        """The one answer that is shown, once it is complete and another than before."""
        script = (
            "(() => { const shown = [...document.querySelectorAll(arguments[0])].map((n) => n.innerText.trim());"
            " return shown.length === 1 && /^Answer number \\d+\\.$/.test(shown[0]) && shown[0] !== arguments[1] && shown[0]; })()"
        )
        return str(await self.browser.until(script, ANSWER, before, seconds=SECONDS))

    async def sees(self, css: str) -> Any:
        return await self.browser.until(f"document.querySelector('{css}')?.outerHTML", seconds=SECONDS)

    async def keeps(self, *texts: str) -> None:
        """Waits until the server keeps messages with exactly these texts; `...` stands for any."""
        deadline = time.monotonic() + SECONDS
        while True:
            async with aiohttp.ClientSession() as http, http.get(f"{self.server}/sessions/{self.thread}") as answer:
                result = await answer.json()
            kept = [message.get("content", "") for message in result.get("messages", ())]
            if len(kept) == len(texts) and all(
                text == "..." or text in each for each, text in zip(kept, texts, strict=True)
            ):
                return
            assert time.monotonic() < deadline, f"the server keeps {kept}"
            await asyncio.sleep(0.05)


@pytest.fixture
async def page(one_browser: Browser, pages: str, addresses: dict[str, str], hooks: str) -> Page:
    version, _, transport = hooks.partition("-")
    thread = f"react-{next(_threads)}"
    query = {"server": f"{addresses['plain']}/copilotkit", "thread": thread, "transport": transport}
    made = Page(one_browser, f"{pages}/{version}.html?{urlencode(query)}", addresses["plain"], thread)
    await made.open()
    return made


@ALL
async def test_chat_and_reload(page: Page) -> None:
    await page.say("hello")
    await page.shows("Hello there, how are you?")
    await page.say("what did I say")
    await page.shows("Hello there, how are you?", "You said: hello | what did I say")
    await page.open()
    await page.shows("Hello there, how are you?", "You said: hello | what did I say")
    await page.say("what did I say")
    await page.shows("Hello there", "You said: hello", "You said: hello | what did I say | what did I say")


@ALL
async def test_tools_of_server_and_page(page: Page) -> None:
    await page.say("weather")
    assert "Oslo" in await page.sees("[data-weather=complete]")
    await page.shows("It is 4 degrees in Oslo.")
    await page.say("paint it blue")
    await page.sees("[data-colour=blue]")
    await page.shows("It is 4 degrees in Oslo.", "It is blue now.")


@pytest.mark.parametrize("hooks", ["v1"])
async def test_an_action_of_the_page(page: Page) -> None:
    await page.say("keep a note")
    await page.sees("[data-note=milk]")
    await page.shows("I kept it.")


@ALL
async def test_a_human_in_the_loop(page: Page) -> None:
    await page.say("let me choose")
    await page.sees("[data-choose]")
    await page.browser.click("[data-choose]")
    await page.sees("[data-chosen=complete]")
    await page.browser.shows(ANSWER, "Tea it is.")
    await page.keeps("let me choose", "", "tea", "Tea it is.")


@V2
@pytest.mark.req("ACC-07")
@pytest.mark.parametrize(("answer", "result"), [("allow", "a.txt is deleted"), ("deny", "The user refused")])
async def test_an_interrupt(page: Page, answer: str, result: str) -> None:
    """The hook resumes under the id of the run that waits."""
    await page.say("delete it")
    await page.sees("[data-interrupt]")
    await page.browser.click(f"[data-{answer}]")
    await page.browser.shows(ANSWER, "As you wish.")
    await page.keeps("delete it", "", result, "As you wish.")
    await page.say("hello")
    await page.browser.shows(ANSWER, "Hello there, how are you?")


@ALL
async def test_stop_and_continue(page: Page) -> None:
    await page.say("stop me")
    await page.shows("One moment")
    await page.browser.click(SEND)
    await page.say("hello")
    await page.browser.shows(ANSWER, "Hello there, how are you?")


@pytest.mark.parametrize("hooks", ["v1"])
async def test_regenerate_with_the_button(page: Page) -> None:
    await page.say("answer me")
    before = await page.answer("")
    await page.browser.until("globalThis.running === false", seconds=SECONDS)
    await page.browser.run("document.querySelector('[aria-label=\"Regenerate response\"]').click()")
    await page.keeps("answer me", await page.answer(before))


@V2
async def test_regenerate_and_edit(page: Page) -> None:
    await page.say("answer me")
    before = await page.answer("")
    await page.browser.until("globalThis.running === false", seconds=SECONDS)
    await page.browser.run("goBack(messages().slice(0, 1))")
    await page.keeps("answer me", await page.answer(before))
    await page.browser.until("globalThis.running === false", seconds=SECONDS)
    await page.browser.run("goBack([{ ...messages()[0], content: 'hello' }])")
    await page.shows("Hello there, how are you?")
    await page.keeps("hello", "Hello there, how are you?")
