"""What people do every day: read tables on a phone, scroll, search, edit with the keyboard, export; and what the page reports."""

import json

import aiohttp
import pytest

from holodeck.agent import pending
from holodeck.core.events import ActivityPatched, ActivityShown
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.sessions.memory import MemorySessionStore
from tests.files.slow_scan import SlowScan
from tests.playground.acting import ANSWER, press, say, see_answer
from tests.playground.page_server import Tap, serving_page
from tests.server.serving import ask

DELETE = calls(("delete_file", '{"name": "a.txt"}'))
TABLE = """
| Region | January | February | March | April | Total revenue |
|---|--:|--:|--:|--:|--:|
| Northwest | 1,200 | 1,300 | 900 | 1,000 | 4,400 |
"""
UP = "\ue013"


async def test_a_table_scrolls_on_a_phone_and_its_words_stay_whole(browser):
    async with serving_page(says(TABLE)) as page_server:
        await browser.resize(390, 720)
        try:
            await browser.open(page_server.url)
            await say(browser, "revenue?")
            await browser.shows(f"{ANSWER} td", "Northwest")
            widths = "const t = document.querySelector('.table'); return [t.scrollWidth > t.clientWidth, document.documentElement.scrollWidth <= innerWidth]"
            assert await browser.run(widths) == [True, True]
            lines = "return [...document.querySelectorAll('td, th')].map((cell) => cell.getClientRects().length && Math.round(cell.clientHeight / parseFloat(getComputedStyle(cell).lineHeight)))"
            assert max(await browser.run(lines)) <= 2  # "Total revenue" has two words
        finally:
            await browser.resize(1280, 860)


async def test_what_is_sent_is_scrolled_to(browser):
    long = says("\n\n".join(f"Paragraph {number}." for number in range(60)))
    async with serving_page(long, DELETE, says("Done.")) as page_server:
        await browser.open(page_server.url)
        await browser.find(".empty h2")
        assert await browser.run("return document.querySelector('#scroll').scrollTop") == 0, (
            "the start page is read from its top"
        )
        await say(browser, "talk")
        await browser.shows(".turn", "Retry")
        await browser.run("document.querySelector('#scroll').scrollTop = 0")
        await browser.until("!document.querySelector('#jump').hidden")
        await say(browser, "delete it")
        await browser.find(".question .primary")
        seen = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom <= document.querySelector('#composer').getBoundingClientRect().top"
        await browser.until(f"(() => {{ {seen} }})()", ".question")
        await browser.until("document.querySelector('#jump').hidden")
        await browser.run("document.querySelector('.question .primary').focus()")
        await browser.press("\ue007")
        await browser.until("document.activeElement.id === 'message'")


async def test_the_live_region_says_how_an_answer_ended(browser):
    tap = Tap(1)
    async with serving_page(Turn(text=["One", "two"], pause=tap), says("fine")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "go")
        await browser.shows(ANSWER, "One")
        await browser.press("\ue00c")
        await browser.shows("#announcer", "The answer was stopped.")
        await say(browser, "again")
        await browser.shows("#announcer", "The answer is complete.")


async def test_a_message_that_no_server_took_is_reported_as_not_accepted(browser):
    store = MemorySessionStore()
    async with serving_page(says("first"), store=store) as page_server:
        await browser.open(page_server.url)
        await say(browser, "hello")
        await see_answer(browser, "first")
    await browser.run("dispatchEvent(new Event('offline'))")  # the page looks at once instead of within 20 seconds
    await browser.until("document.querySelector('#health.unwell')")
    await browser.run(
        "document.querySelector('#message').value = 'are you there?'; document.querySelector('#composer').requestSubmit()"
    )
    await browser.shows("#banner", "Your message is not accepted yet.")
    async with serving_page(says("second"), store=store):
        await see_answer(browser, "second")
        await browser.until("!document.querySelector('#banner').checkVisibility()")


@pytest.mark.req("DUR-05")
async def test_a_session_that_the_server_no_longer_has_is_reported_as_new(browser):
    async with serving_page(says("Hello Ann.")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "my name is Ann")
        await see_answer(browser, "Hello Ann.")
    async with serving_page(says("Ann.")) as again:  # a store of its own
        await say(browser, "who am I?")
        await see_answer(browser, "Ann.")
        await browser.shows(".notice", "The server does not know this session")
        await browser.shows(".notice", "2 messages that this page had")
        assert len(again.model.prompts[-1].messages) == 3


async def test_a_rejected_call_is_no_failure(browser):
    assert pending.REFUSED.startswith("The user refused this call.")
    assert pending.UNDECIDED == "Not carried out: the user continued without approving it."
    async with serving_page(DELETE, says("As you wish."), DELETE, says("So be it.")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "delete it")
        await press(browser, "Reject")
        await see_answer(browser, "As you wish.")
        assert await browser.texts(".call .status") == ["you rejected it"]
        await say(browser, "delete it again")
        await browser.find(".question .danger")
        await say(browser, "never mind")
        await see_answer(browser, "So be it.")
        await browser.open(await browser.run("return location.href"))
        await browser.until("document.querySelectorAll('.call .status').length === 2")
        assert (await browser.texts(".call .status"))[1] == "not carried out: you continued without approving it"


async def test_activities_are_shown_in_words(browser):
    tap = Tap(1)
    async with serving_page(Turn(text=["a", "b"], pause=tap)) as page_server:
        await browser.open(page_server.url)
        await say(browser, "work")
        await browser.shows(ANSWER, "a")
        (run,) = page_server.server.runs.active
        run.emit(ActivityShown("p1", "tool_progress", {"tool": "load", "progress": 1, "total": 4, "message": "rows"}))
        await browser.shows(".activity", "load: 25 %, rows")
        run.emit(ActivityPatched("p1", "tool_progress", [{"op": "replace", "path": "/progress", "value": 2}]))
        await browser.shows(".activity", "load: 50 %, rows")
        assert await browser.run("return document.querySelector('.activity progress').value") == 0.5
        tap.grant(5)
        await browser.shows(".turn", "Retry")


async def test_the_page_of_a_scan_that_is_being_read_is_shown(browser, tmp_path):
    (tmp_path / "scan.txt").write_text("as good as a scan")
    reader = SlowScan()
    async with serving_page(says("Read.")) as page_server:
        page_server.server.files = reader
        await browser.open(page_server.url)
        await browser.choose_file("input[type=file]", tmp_path / "scan.txt")
        await browser.shows(".chips", "scan.txt")
        await say(browser, "what is in it?")
        await browser.shows(".activity", "Reading scan.pdf, page 1 of 2")
        reader.second.set()
        await browser.shows(".activity", "Reading scan.pdf, page 2 of 2")
        reader.over.set()
        await browser.shows(ANSWER, "Read.")
        assert len(await browser.texts(".activity")) == 1
        assert await browser.console() == []


async def test_arrow_up_edits_the_last_message(browser):
    async with serving_page(says("one"), says("two")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "first")
        await see_answer(browser, "one")
        await browser.type("#message", UP)
        await browser.until("document.activeElement.getAttribute('aria-label') === 'Edit message'")
        await browser.run("document.activeElement.value = 'changed'; document.activeElement.form.requestSubmit()")
        await see_answer(browser, "two")
        assert await browser.texts(".user-text") == ["changed"]


async def test_sessions_are_searched_by_their_titles(browser):
    known = [{"id": f"s{number}", "title": f"Plan number {number}", "at": number} for number in range(8)]
    async with serving_page() as page_server:
        await browser.open(page_server.url)
        await browser.run("localStorage.setItem('holodeck.sessions', arguments[0])", json.dumps(known))
        await browser.open(page_server.url + "?again")
        await browser.until("document.querySelectorAll('.session-list li').length >= 8")
        await browser.type(".session-search", "plan 3")
        await browser.until("document.querySelectorAll('.session-list li').length === 1")
        await browser.type(".session-search", "x")
        await browser.shows(".sessions [role=status]", "No session has these words")


async def test_a_session_is_exported_as_markdown(browser):
    async with serving_page(calls(("get_weather", '{"city": "Oslo"}')), says("It is **cold**.")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "weather?")
        await browser.shows(ANSWER, "It is cold.")
        await browser.run("""window.saved = null;
            URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = [blob.type, text]; }); return "#"; };""")  # fmt: skip
        await browser.click("[aria-label='Export session as Markdown']")
        await browser.until("window.saved")
        kind, text = await browser.run("return window.saved")
        assert kind == "text/markdown"
        assert "## You\n\nweather?" in text
        assert "> Tool `get_weather`" in text
        assert "It is **cold**." in text


async def test_entities_are_characters_and_never_markup(browser):
    async with serving_page(says("Fish &amp; chips &lt;b&gt;now&lt;/b&gt; &#8364;5 &unknown;")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "eat")
        await see_answer(browser, "Fish & chips <b>now</b> €5 &unknown;")
        assert await browser.run("return document.querySelectorAll('[data-kind=text] b').length") == 0


CODE = "Look:\n\n```python\ndef f(x):  # why\n    return 'a'\n```\n\nand $x^2 + \\frac{1}{2}$, for $5 and $6:\n\n$$\n\\sum_{i=1}^n i\n$$"


async def test_code_is_coloured_and_formulas_are_drawn(browser):
    async with serving_page(says(CODE)) as page_server:
        await browser.open(page_server.url)
        await say(browser, "explain")
        await browser.shows(".turn", "Retry")
        assert await browser.text(f"{ANSWER} pre") == "def f(x):  # why\n    return 'a'"
        assert await browser.texts(f"{ANSWER} .of-keyword") == ["def", "return"]
        assert await browser.texts(f"{ANSWER} .of-comment") == ["# why"]
        drawn = "return [...document.querySelectorAll('math')].map((each) => [each.dataset.source, each.getBoundingClientRect().height > 5])"
        assert await browser.run(drawn) == [["x^2 + \\frac{1}{2}", True], ["\\sum_{i=1}^n i", True]]
        assert "for $5 and $6" in await browser.text(ANSWER)
        assert await browser.console() == []


async def test_the_page_works_under_a_path(browser):
    async with serving_page(says("Here I am."), settings=ServerSettings(root_path="/agents/one")) as page_server:
        await browser.open(f"{page_server.url}agents/one")
        await say(browser, "hello")
        await see_answer(browser, "Here I am.")
        assert "/agents/one/#session=" in await browser.run("return location.href")
        await browser.run("location.reload()")
        await see_answer(browser, "Here I am.")
        assert await browser.run("return Object.keys(localStorage).filter((key) => key.includes('sessions'))") == ["holodeck.sessions:/agents/one"]  # fmt: skip
        assert await browser.run("return document.querySelector('.side-links a').pathname") == "/agents/one/docs"
        await browser.open(f"{page_server.url}agents/one/docs")
        await browser.shows("#operations code", "/awp")
        assert await browser.console() == []


async def test_the_servers_sessions_are_listed_and_named_when_they_are_opened(browser):
    store = MemorySessionStore()
    async with serving_page(says("Noted."), says("You did."), store=store) as page_server:
        async with aiohttp.ClientSession() as client:
            asked = {**ask("buy milk", thread="from-a-terminal")}
            async with client.post(f"{page_server.url}awp", json=asked) as answer:
                await answer.read()
        await browser.open(page_server.url)
        await browser.shows(".session-list a", "buy milk")
        await browser.run(
            "[...document.querySelectorAll('.session-list a')].find((a) => a.textContent.includes('buy milk')).click()"
        )
        await browser.shows(ANSWER, "Noted.")
        await browser.shows(".session-list .current", "buy milk")
        await say(browser, "did I?")
        await see_answer(browser, "You did.")
        assert len(page_server.model.prompts[-1].messages) == 3


async def test_the_start_page_has_a_command_for_each_protocol_and_explains_its_own_tool(browser):
    painted = calls(("change_background", '{"colour": "lightblue"}'))
    settings = ServerSettings(protocols=tuple(WIRES))
    async with serving_page(painted, says("It is blue now."), settings=settings) as page_server:
        await browser.open(page_server.url)
        await browser.until("document.querySelectorAll('.command').length > 0")
        shown = await browser.texts(".command pre")
        assert len(shown) == len(WIRES)
        assert shown[0].startswith(f"curl -N {page_server.url}awp -H 'Content-Type: application/json' -d '{{")
        assert not any("{base}" in each for each in shown)
        await browser.shows(".start-part", "change_background")
        await press(browser, "Try it: let the agent paint this page")
        await see_answer(browser, "It is blue now.")
        assert await browser.run("return document.querySelector('#page-tools').checked")
