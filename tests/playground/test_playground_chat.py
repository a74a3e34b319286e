"""The playground in a real browser: talk to the agent, see what it does, answer its questions."""

import json

import aiohttp
import pytest

from holodeck.core.messages import ToolCall, text_of
from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelAuthFailed
from holodeck.models.scripted import Turn, calls, says
from tests.playground.acting import ANSWER, press, say, see_answer, type_in
from tests.playground.page_server import Tap, counting, serving_page, until

MARKDOWN = "## Plan\n\nSome **bold** and `code`:\n\n- one\n- two\n\n```python\nprint('hi')\n```\n\nDone."
DELETE = calls(("delete_file", '{"name": "a.txt"}'))


async def test_an_answer_is_streamed_as_markdown(browser):
    reply = says(MARKDOWN, usage=TokenUsage(prompt_tokens=12, completion_tokens=5))
    async with serving_page(reply) as page_server:
        await browser.open(page_server.url)
        await type_in(browser, "Plan something")
        await browser.shows(".turn", "12 in, 5 out")
        assert await browser.texts(f"{ANSWER} h4") == ["Plan"]
        assert await browser.texts(f"{ANSWER} li") == ["one", "two"]
        assert await browser.text(f"{ANSWER} strong") == "bold"
        assert await browser.text(f"{ANSWER} pre") == "print('hi')"
        assert await browser.texts(".user-text") == ["Plan something"]
        assert "first token" in await browser.text(".marks")
        assert await browser.console() == []


async def test_blocks_that_are_settled_stay_the_same_while_the_rest_streams(browser):
    tap = Tap(2)
    async with serving_page(Turn(text=["# One\n\nfirst ", "paragraph\n\nsec", "ond `co", "de` end\n\n```\nx = 1", "\ny = 2\n```\n"], pause=tap)) as page_server:  # fmt: skip
        await browser.open(page_server.url)
        await say(browser, "go")
        await browser.shows(f"{ANSWER} p", "sec")
        await browser.run("window.first = document.querySelector('[data-kind=text] p')")
        tap.grant(3)
        await browser.shows(".turn", "Retry")
        assert await browser.run("return window.first.isConnected && window.first.textContent") == "first paragraph"
        assert await browser.texts(f"{ANSWER} pre") == ["x = 1\ny = 2"]
        assert await browser.texts(f"{ANSWER} p code") == ["code"]


async def test_a_tool_call_is_a_card_with_arguments_result_duration_and_error(browser):
    tap = Tap(1)
    asked = [ToolCall(id="c1", name="get_weather", arguments='{"city": "Oslo"}'), ToolCall(id="c2", name="broken", arguments="{}")]  # fmt: skip
    async with serving_page(Turn(text=["Looking."], calls=asked, pause=tap), says("It is cold.")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "weather?")
        await browser.shows('.call[data-status="writing"] .call-summary', "Oslo")
        tap.grant(10)
        await see_answer(browser, "It is cold.")
        weather, failed = await browser.texts(".call .status")
        assert weather.startswith("done, ")
        assert failed.startswith("failed")
        assert json.loads((await browser.texts(".call .result"))[0]) == {"city": "Oslo", "celsius": 4}
        assert "the disk is full" in (await browser.texts(".call .result"))[1]
        assert await browser.run("return [...document.querySelectorAll('.call details')].map((d) => d.open)") == [False, True]  # fmt: skip


async def test_reasoning_is_folded(browser):
    async with serving_page(Turn(reasoning=["Two plus ", "two."], text=["Four."])) as page_server:
        await browser.open(page_server.url)
        await say(browser, "2+2?")
        await see_answer(browser, "Four.")
        assert await browser.text(".thoughts") == "Two plus two."
        assert not await browser.run("return document.querySelector('.thoughts').checkVisibility()")
        await browser.click(".reasoning summary")
        assert await browser.run("return document.querySelector('.thoughts').checkVisibility()")


@pytest.mark.parametrize(
    ("choice", "result", "status"),
    [("Approve", "a.txt is deleted", "done"), ("Edit", "b.txt is deleted", "done"), ("Reject", "refused", "rejected")],
)
async def test_an_approval_is_given_edited_or_refused(browser, choice, result, status):
    async with serving_page(DELETE, says("As you wish.")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "delete it")
        await browser.shows(".call .status", "needs your approval")
        await press(browser, choice)
        if choice == "Edit":
            field = ".question textarea"
            await browser.run("document.querySelector(arguments[0]).value = '[1]'", field)
            await press(browser, "Approve with these")
            assert "JSON object" in await browser.text(".field-problem[role=alert]:not(:empty)")
            await browser.run("document.querySelector(arguments[0]).value = arguments[1]", field, '{"name": "b.txt"}')
            await press(browser, "Approve with these")
        await see_answer(browser, "As you wish.")
        assert result in await browser.text(".call .result")
        assert await browser.run("return document.querySelector('.call').dataset.status") == status


async def approve_elsewhere(browser, page_server):
    """Another client approves what the page asks."""
    session = await browser.run("return new URLSearchParams(location.hash.slice(1)).get('session')")
    async with aiohttp.ClientSession(page_server.url) as client:
        async with client.get(f"sessions/{session}") as answer:
            (question,) = (await answer.json())["pending"]["questions"]
        resume = [{"interruptId": question["interrupt_id"], "status": "resolved", "payload": {"approved": True}}]
        body = {"threadId": session, "runId": "elsewhere", "messages": [], "resume": resume}
        async with client.post("awp", json=body) as answer:
            assert "RUN_FINISHED" in await answer.text()


@pytest.mark.parametrize(
    "act", ["dispatchEvent(new Event('focus'))", "document.querySelector('.question .danger').click()"]
)
async def test_a_question_that_was_answered_elsewhere_is_not_asked_any_more(browser, act):
    """The page went on asking, and a click on Reject showed "not carried out" for a call that had been carried out."""
    async with serving_page(DELETE, says("As you wish.")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "delete it")
        await browser.shows(".call .status", "needs your approval")
        await approve_elsewhere(browser, page_server)
        await browser.run(act)
        await browser.shows(".call .status", "done")
        assert await browser.texts(ANSWER) == ["As you wish."]
        assert await browser.texts(".question button") == []


async def test_a_turn_without_text_offers_nothing_to_copy(browser):
    async with serving_page(DELETE, says("As you wish.")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "delete it")
        await browser.shows(".call .status", "needs your approval")
        await say(browser, "never mind")
        await see_answer(browser, "As you wish.")
        await browser.reload()
        await see_answer(browser, "As you wish.")
        turns = "return [...document.querySelectorAll('.turn')].map((e) => !!e.querySelector('[aria-label=\"Copy answer\"]'))"
        assert await browser.run(turns) == [False, True]


async def test_several_approvals_are_answered_together_and_survive_a_reload(browser):
    both = calls(("delete_file", '{"name": "a.txt"}'), ("delete_file", '{"name": "b.txt"}'))
    async with serving_page(both, says("Done.")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "delete both")
        await browser.until("document.querySelectorAll('.question .danger').length === 2")
        await browser.reload()
        await browser.until("document.querySelectorAll('.question .danger').length === 2")
        await browser.click(".call .danger")
        assert page_server.server.runs.busy == 0
        await browser.click(".call .question .primary")
        await see_answer(browser, "Done.")
        assert await browser.run("return [...document.querySelectorAll('.call')].map((c) => c.dataset.status)") == ["rejected", "done"]  # fmt: skip


async def test_stop_ends_the_run_and_keeps_the_text(browser):
    tap = Tap(3)
    async with serving_page(counting(0, 100, pause=tap), says("again")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "count")
        await browser.shows(ANSWER, "0 1 2")
        await browser.click("button.send[aria-label=Stop]")
        await browser.shows(".turn", "Stopped.")
        assert page_server.server.runs.busy == 0
        assert await browser.run("return document.querySelector('.send').getAttribute('aria-label')") == "Send"
        assert (await browser.text(ANSWER)).startswith("0 1 2")


async def test_retry_asks_again_and_forgets_the_first_answer(browser):
    async with serving_page(says("first try"), says("second try"), says("third")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "question")
        await see_answer(browser, "first try")
        await press(browser, "Retry")
        await see_answer(browser, "second try")
        assert await browser.texts(".user-text") == ["question"]
        assert await browser.texts(ANSWER) == ["second try"]
        assert [len(prompt.messages) for prompt in page_server.model.prompts] == [1, 1]


async def test_an_edited_message_takes_back_all_that_followed(browser):
    async with serving_page(says("one"), says("two"), says("three")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "first")
        await see_answer(browser, "one")
        await say(browser, "second")
        await see_answer(browser, "two")
        await browser.click(".user [aria-label='Edit and send again']")
        await browser.run("document.querySelector('.user textarea').value = 'changed'")
        await press(browser, "Send")
        await see_answer(browser, "three")
        assert await browser.texts(".user-text") == ["changed"]
        (message,) = page_server.model.prompts[-1].messages
        assert message.content == "changed"


async def test_a_failure_says_what_to_do_and_can_be_tried_again(browser):
    async with serving_page(Turn(error=ModelAuthFailed("401 from the endpoint")), says("fine now")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "hello")
        await browser.shows(".turn .error", "Set the key")
        await browser.shows(".turn .error", "upstream_auth")
        await press(browser, "Retry")
        await see_answer(browser, "fine now")
        assert await browser.texts(".turn .error") == []
        assert await browser.texts(".user-text") == ["hello"]


async def test_state_is_shown_with_what_changed(browser):
    patch = [{"op": "add", "path": "/steps/-", "value": "buy milk"}, {"op": "replace", "path": "/done", "value": True}]
    plan = calls(("update_state", json.dumps({"patch": patch})))
    async with serving_page(plan, says("Planned."), state={"steps": [], "done": False}) as page_server:
        await browser.open(page_server.url)
        await browser.press("\ue009", "i")
        await browser.click("#tab-State")
        await say(browser, "plan")
        await see_answer(browser, "Planned.")
        await browser.shows(".state-tree", '"buy milk"')
        assert await browser.texts(".changes li") == ['/steps/0"buy milk"', "/donefalsetrue"]
        assert await browser.run("return document.querySelector('.line.added').textContent.trim()") == '"buy milk"'
        await browser.reload()
        await browser.until("document.querySelector('.state-tree')?.textContent.includes('buy milk')")


async def test_a_frontend_tool_is_carried_out_by_the_page(browser):
    paint = calls(("change_background", '{"colour": "lightblue"}'))
    async with serving_page(paint, says("It is blue."), says("Again.")) as page_server:
        await browser.open(page_server.url)
        await browser.click("#page-tools")
        await say(browser, "paint it")
        await see_answer(browser, "It is blue.")
        assert await browser.text(".call .result") == "The background is now lightblue."
        assert (
            await browser.run("return document.querySelector('#chat').style.getPropertyValue('--tint')") == "lightblue"
        )
        assert [tool.name for tool in page_server.model.prompts[0].tools][-1] == "change_background"
        assert page_server.model.prompts[1].messages[-1].content == "The background is now lightblue."


async def test_files_come_by_button_paste_and_drop_and_their_reading_is_reported(browser, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("remember the milk")
    async with serving_page(says("Read.")) as page_server:
        await browser.open(page_server.url)
        await browser.choose_file("input[type=file]", notes)
        await browser.shows(".chips", "notes.txt")
        for kind, target in (("paste", "#message"), ("drop", "#chat")):
            await browser.run(HAND_OVER, kind, target)
            await browser.shows(".chips", f"{kind}.md")
        await browser.click(".chips [aria-label='Remove drop.md']")
        await say(browser, "look")
        await see_answer(browser, "Read.")
        shown = ["notes.txt17 B · read as text, 17 characters", "paste.md13 B · read as text, 13 characters"]
        assert await browser.texts(".user .file") == shown
        shown = text_of(page_server.model.prompts[0].messages[-1].content)
        assert shown.startswith("look\n")
        assert "remember the milk" in shown
        assert "text of paste" in shown
        await browser.reload()
        await see_answer(browser, "Read.")
        assert "remember the milk" in await browser.text(".user details pre")


HAND_OVER = """
    const data = new DataTransfer();
    data.items.add(new File(["text of " + arguments[0]], arguments[0] + ".md", {type: "text/markdown"}));
    const init = {bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data};
    const event = arguments[0] === "paste" ? new ClipboardEvent("paste", init) : new DragEvent("drop", init);
    document.querySelector(arguments[1]).dispatchEvent(event)"""


async def test_a_file_that_cannot_be_sent_is_named(browser, tmp_path):
    huge, wrong = tmp_path / "huge.txt", tmp_path / "wrong.png"
    huge.write_bytes(b"x" * 8_000_000)
    wrong.write_text("this is no picture")
    async with serving_page(says("Read.")) as page_server:
        await browser.open(page_server.url)
        await browser.choose_file("input[type=file]", huge)
        await browser.shows(".composer .field-problem", "huge.txt has 8.0 MB; the limit is 7.5 MB.")
        await browser.choose_file("input[type=file]", wrong)
        await browser.shows(".chips", "wrong.png")
        await say(browser, "look")
        await browser.shows(".turn .error", "wrong.png")
        assert page_server.model.prompts == []


async def test_a_second_message_waits_for_the_first_answer(browser):
    tap = Tap(1)
    async with serving_page(counting(0, 3, pause=tap), says("next")) as page_server:
        await browser.open(page_server.url)
        await type_in(browser, "one")
        await browser.shows(ANSWER, "0")
        await type_in(browser, "two")
        assert await browser.run("return document.querySelector('#message').value") == "two"
        tap.grant(10)
        await browser.shows(".turn", "Retry")
        await type_in(browser, "")
        await see_answer(browser, "next")
        await until(lambda: len(page_server.model.prompts) == 2)
