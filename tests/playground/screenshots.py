"""Makes the pictures of the playground in docs/: the bundled demo agent, served by the real command, in light, dark and on a phone.

Run it as `python -m tests.playground.screenshots`. It needs Chromium; nothing leaves the machine.
"""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.playground.acting import say
from tests.playground.webdriver import Browser, chromium

DOCS = Path(__file__).parents[2] / "docs"
MAX_BYTES = 150_000
DESKTOP, PHONE = (1180, 720), (390, 720)
TALK = ("Add buy milk to my list for tomorrow", "Remind me to call the dentist on Friday", "What is on my list?")


@contextmanager
def demo(place: Path) -> Iterator[str]:
    """The address of a demo server of our own, with its data in `place`."""
    environment = {**os.environ, "XDG_DATA_HOME": str(place), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "holodeck", "serve", "--demo", "--banner", "--port", "8765"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            for line in server.stderr:
                found = re.search(r"(http://\S+)/health", line)
                if found:
                    yield f"{found[1]}/"
                    return
            raise RuntimeError("the demo did not start")
        finally:
            server.terminate()


async def talk(browser: Browser, address: str) -> None:
    await browser.open(address)
    for number, text in enumerate(TALK, 1):
        await say(browser, text)
        await browser.until(
            f"document.querySelectorAll('.turn').length === {number} && !document.querySelector('.streaming')"
        )


async def save(browser: Browser, name: str) -> None:
    picture = await browser.screenshot()
    if len(picture) > MAX_BYTES:
        raise RuntimeError(f"{name} has {len(picture):,} bytes; at most {MAX_BYTES:,} go into docs/")
    (DOCS / f"playground-{name}.png").write_bytes(picture)
    print(f"docs/playground-{name}.png: {len(picture):,} bytes")  # noqa: T201  the command's answer


async def main(browser: Browser, address: str) -> None:
    await browser.resize(*DESKTOP)
    await talk(browser, address)
    await browser.click("#theme")
    await browser.click("#open-inspector")
    await browser.type(".event-bar input", "-message_content")
    await browser.run("document.activeElement.blur()")
    await browser.run("document.querySelector('#scroll').scrollTop = 1e9")
    await browser.until("document.querySelector('.event-list').scrollTop > 0")
    await save(browser, "light")
    await browser.click("#theme")
    await browser.run("[...document.querySelectorAll('.call details')].at(-1).open = true")
    await browser.run("document.querySelector('#scroll').scrollTop = 1e9")
    await save(browser, "dark")
    await browser.click("#open-inspector")
    await browser.resize(*PHONE)
    await browser.click("#theme")
    await browser.click("#theme")
    await browser.run("for (const each of document.querySelectorAll('.call details')) each.open = false")
    await browser.run("document.querySelector('#scroll').scrollTop = 1e9")
    await save(browser, "phone")


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        demo(Path(folder)) as url,
        chromium(Path(folder)) as browser,
    ):
        asyncio.run(main(browser, url))
