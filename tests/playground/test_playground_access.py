"""Everybody can use the page: axe-core finds nothing serious in any of its faces, and the keyboard reaches all of it."""

from pathlib import Path

import pytest

from holodeck.core.messages import ToolCall
from holodeck.models.scripted import Turn, says
from tests.playground.acting import ANSWER, say, see_answer
from tests.playground.page_server import Tap, counting, serving_page
from tests.playground.webdriver import CONTROL, ESCAPE, missing

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
RICH = "# Title\n\nText with `code`, a [link](https://ok.example/) and ![image](https://ok.example/p.png).\n\n- [x] task\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\n```py\nx = 1\n```"  # fmt: skip
FOUND = """
    const done = arguments[arguments.length - 1];
    axe.run(document, {resultTypes: ["violations"]}).then(({violations}) => done(
        violations.filter(({impact}) => impact === "serious" || impact === "critical")
            .map(({id, nodes}) => id + ": " + nodes.map((node) => node.target.join(" ") + " " + (node.any[0]?.message ?? "")).join("; "))),
        (error) => done([String(error)]))"""


async def violations(browser) -> list[str]:
    if not await browser.run("return typeof axe === 'object'"):
        await browser.run(AXE.read_text() + ";window.axe = axe")
    return list(await browser.run_async(FOUND))


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_nothing_serious(browser, theme):
    if not AXE.exists():
        missing("axe-core")
    asked = [
        ToolCall(id="c1", name="get_weather", arguments='{"city": "Oslo"}'),
        ToolCall(id="c2", name="broken", arguments="{}"),
        ToolCall(id="c3", name="delete_file", arguments='{"name": "a.txt"}'),
    ]
    async with serving_page(
        Turn(reasoning=["hm"], text=[RICH], calls=asked), says("done"), state={"n": 1}
    ) as page_server:
        await browser.open(page_server.url)
        await browser.until("document.querySelector('.tools')")
        for _ in range(["auto", "light", "dark"].index(theme)):
            await browser.click("#theme")
        assert await violations(browser) == []
        await say(browser, "everything")
        await browser.shows(".call .status", "needs your approval")
        await browser.press(CONTROL, "i")
        await browser.click(".reasoning summary")
        await browser.until("document.querySelector('.event')?.click() ?? document.querySelector('.event-detail pre')")
        assert await violations(browser) == []
        await browser.click("#tab-State")
        await browser.resize(390, 780)
        try:
            assert await violations(browser) == []
            await browser.click("#open-inspector")
            await browser.click("#open-sessions")
            await browser.click("[aria-label='Delete session']")
            assert await violations(browser) == []
        finally:
            await browser.cdp("Emulation.clearDeviceMetricsOverride")


async def test_the_keyboard_reaches_everything_and_escape_stops(browser):
    tap = Tap(3)
    async with serving_page(counting(0, 50, pause=tap)) as page_server:
        await browser.open(page_server.url)
        await browser.until("document.activeElement?.id === 'message'")
        await say(browser, "count")
        await browser.shows(ANSWER, "0 1")
        await browser.press(ESCAPE)
        await browser.shows(".turn", "Stopped.")
        seen = set()
        for _ in range(40):
            await browser.press("\ue004")
            seen.add(await browser.run("const e = document.activeElement; return e.getAttribute('aria-label') || e.textContent.trim() || e.id"))  # fmt: skip
        assert {"Send", "Message", "Attach files", "Retry", "Edit and send again", "New session", "Rename session", "Inspector"} <= seen  # fmt: skip


async def test_screen_readers_are_notified_when_an_answer_begins_and_ends(browser):
    tap = Tap()  # without it, question and answer may come between two frames, and there is nothing to announce
    async with serving_page(says("fine", pause=tap)) as page_server:
        await browser.open(page_server.url)
        await browser.until("document.querySelector('#health.well')")
        await browser.run(
            """window.heard = [];
            new MutationObserver(() => heard.push(document.querySelector("#announcer").textContent))
                .observe(document.querySelector("#announcer"), {childList: true})"""
        )
        await say(browser, "hello")
        await browser.until("window.heard.length")
        tap.grant(1)
        await see_answer(browser, "fine")
        await browser.until("window.heard.length > 1")
        assert await browser.run("return window.heard") == ["The agent is answering.", "The answer is complete."]
