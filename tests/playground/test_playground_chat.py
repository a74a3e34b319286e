"""The playground in a real browser: talk to the agent, see what it does, answer its questions."""

import pytest

from holodeck.core.usage import TokenUsage
from holodeck.models.scripted import Turn, calls, says
from tests.playground.stage import Tap, staged
from tests.playground.webdriver import ENTER, Browser

MESSAGE = "#message"
MARKDOWN = "## Plan\n\nSome **bold** and `code`:\n\n- one\n- two\n\n```python\nprint('hi')\n```\n\nDone."


async def say(browser: Browser, text: str) -> None:
    await browser.type(MESSAGE, text + ENTER)


async def test_an_answer_is_streamed_as_markdown(browser):
    reply = says(MARKDOWN, usage=TokenUsage(prompt_tokens=12, completion_tokens=5))
    async with staged(reply) as stage:
        await browser.open(stage.url)
        await say(browser, "Plan something")
        await browser.shows(".turn", "12 in, 5 out")
        assert await browser.texts("[data-kind=text] h4") == ["Plan"]
        assert await browser.texts("[data-kind=text] li") == ["one", "two"]
        assert await browser.text("[data-kind=text] strong") == "bold"
        assert await browser.text("[data-kind=text] pre") == "print('hi')"
        assert await browser.texts(".said") == ["Plan something"]
        assert "first token" in await browser.text(".marks")
        assert await browser.console() == []
