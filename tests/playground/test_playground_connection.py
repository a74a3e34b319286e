"""A run belongs to the server: pages that reload, lose the network, or come second follow it all the same."""

import aiohttp
import pytest

from holodeck.core.messages import UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.errors import RunInterrupted
from holodeck.models.scripted import Turn, calls, says
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.port import ToolsetHealth
from tests.playground.acting import ANSWER, press, say, see_answer
from tests.playground.page_server import Tap, counted, counting, serving_page
from tests.server.test_server_restart import on_file

WHOLE = counted(0, 60)


async def test_a_reload_in_mid_answer_loses_and_doubles_nothing(browser):
    tap = Tap(20)
    thinks = Turn(reasoning=["hm ", "hm"], text=[f"{n} " for n in range(60)], pause=tap)
    async with serving_page(says("before"), thinks) as page_server:
        await browser.open(page_server.url)
        await say(browser, "hello")
        await see_answer(browser, "before")
        await say(browser, "count")
        for granted in (10, 10):
            await browser.shows(".reasoning", "hm hm")
            await browser.until(
                f"document.querySelectorAll('{ANSWER}')[1]?.textContent.trim().split(' ').length >= arguments[0]", 10
            )
            await browser.reload()
            tap.grant(granted)
        await browser.until(f"document.querySelectorAll('{ANSWER}').length === 2")
        tap.grant(60)
        await see_answer(browser, WHOLE)
        assert await browser.texts(ANSWER) == ["before", WHOLE]
        assert await browser.texts(".user-text") == ["hello", "count"]
        assert await browser.texts(".thoughts") == ["hm hm"]
        await browser.reload()
        await see_answer(browser, WHOLE)
        assert await browser.texts(ANSWER) == ["before", WHOLE]
        assert await browser.texts(".thoughts") == ["hm hm"]


async def test_a_network_that_breaks_in_mid_answer_loses_and_doubles_nothing(browser):
    tap = Tap(5)
    async with serving_page(counting(0, 60, pause=tap)) as page_server:
        await browser.open(page_server.url)
        await say(browser, "count")
        for seen in (4, 14, 24):
            await browser.shows(ANSWER, counted(0, seen))
            page_server.cut()
            tap.grant(10)
        tap.grant(60)
        await see_answer(browser, WHOLE)
        assert await browser.texts(ANSWER) == [WHOLE]


async def test_a_browser_that_is_offline_says_so_and_continues(browser):
    tap = Tap(5)
    async with serving_page(counting(0, 60, pause=tap)) as page_server:
        await browser.open(page_server.url)
        await say(browser, "count")
        await browser.shows(ANSWER, counted(0, 4))
        offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        await browser.cdp("Network.enable")
        await browser.cdp("Network.emulateNetworkConditions", offline=True, **offline)
        try:
            page_server.cut()
            tap.grant(60)
            await browser.shows("#banner", "The connection is lost")
        finally:
            await browser.cdp("Network.emulateNetworkConditions", offline=False, **offline)
        await see_answer(browser, WHOLE)
        await browser.until("!document.querySelector('#banner').checkVisibility()")


async def test_two_tabs_follow_the_same_run_live(browser):
    tap = Tap(0)
    async with serving_page(counting(0, 60, pause=tap), says("from the second")) as page_server:
        await browser.open(page_server.url)
        first = await browser.tab()
        await say(browser, "count")
        link = await browser.run("return location.href")
        second = await browser.new_tab()
        await browser.switch(second)
        try:
            await browser.open(link)
            for seen in (10, 30):
                tap.grant(seen)
                for tab in (first, second):
                    await browser.switch(tab)
                    await browser.shows(ANSWER, counted(0, seen - 1))
            tap.grant(60)
            for tab in (first, second):
                await browser.switch(tab)
                await see_answer(browser, WHOLE)
                assert await browser.texts(".user-text") == ["count"]
            await say(browser, "and you?")
            for tab in (second, first):
                await browser.switch(tab)
                await see_answer(browser, "from the second")
                assert await browser.texts(".user-text") == ["count", "and you?"]
        finally:
            await browser.switch(second)
            await browser.close_tab()
            await browser.switch(first)


async def test_a_question_that_another_tab_answers_is_answered_here_too(browser):
    async with serving_page(calls(("delete_file", '{"name": "a.txt"}')), says("Done.")) as page_server:
        await browser.open(page_server.url)
        first = await browser.tab()
        await say(browser, "delete it")
        await browser.find(".question .danger")
        link = await browser.run("return location.href")
        second = await browser.new_tab()
        await browser.switch(second)
        try:
            await browser.open(link)
            await browser.click(".question .primary")
            await see_answer(browser, "Done.")
            await browser.switch(first)
            await see_answer(browser, "Done.")
            assert await browser.texts(".question button") == []
            assert (await browser.text(".call .result")) == "a.txt is deleted"
        finally:
            await browser.switch(second)
            await browser.close_tab()
            await browser.switch(first)


async def test_a_server_that_restarts_is_waited_for(browser):
    store, tap = MemorySessionStore(), Tap(3)
    async with serving_page(says("before"), counting(0, 60, pause=tap), store=store) as page_server:
        await browser.open(page_server.url)
        await say(browser, "hello")
        await see_answer(browser, "before")
        await say(browser, "count")
        await browser.shows(ANSWER, "0 1")
        await page_server.end()
        await browser.shows("#banner", "does not answer")
        async with serving_page(says("after"), store=store):
            await browser.until("document.querySelector('#health.well')")
            await press(browser, "Retry")
            await see_answer(browser, "after")
            assert await browser.texts(".user-text") == ["hello", "count"]
            assert await browser.texts(ANSWER) == ["before", "after"]


@pytest.mark.parametrize("is_loaded_again", [False, True])
async def test_the_rest_of_an_answer_that_a_restart_cut_is_continued(browser, tmp_path, is_loaded_again):
    file, first, second = tmp_path / "sessions.db", Tap(3), Tap(3)
    async with serving_page(counting(0, 60, pause=first), **on_file(file)) as page_server:
        await browser.open(page_server.url)
        await say(browser, "count")
        await browser.shows(ANSWER, counted(0, 4))
        await page_server.end()
        await browser.shows(".turn .error", "shutting-down")
    async with serving_page(counting(4, 60, pause=second), **on_file(file)) as page_server:
        if is_loaded_again:
            await browser.reload()
            await browser.shows(".turn", "This answer is not complete.")
        await press(browser, "Continue")
        await browser.shows(f"{ANSWER} ~ {ANSWER}", "4 5")
        page_server.cut()  # the page reconnects by the id that the server gave the continuation
        second.grant(60)
        await see_answer(browser, counted(4, 60))
        assert await browser.texts(ANSWER) == [counted(0, 4), counted(4, 60)]
        assert await browser.texts(".user-text") == ["count"]
        assert await browser.texts(".turn .error") == []
        (prompt,) = page_server.model.prompts
        assert [each.content for each in prompt.messages if isinstance(each, UserMessage)] == ["count"]


async def test_a_message_that_the_server_refuses_for_now_is_shown_with_the_reason(browser, tmp_path):
    """The banner was "The server does not answer", while it answered what is wrong."""
    file, away = tmp_path / "sessions.db", tmp_path / "away.db"
    async with serving_page(says("One."), **on_file(file)) as page_server:
        await browser.open(page_server.url)
        await say(browser, "hello")
        await see_answer(browser, "One.")
        await page_server.end()
    async with serving_page(says("Two."), **on_file(file)):
        await browser.until("document.querySelector('#health.well')")
        file.rename(away)
        await say(browser, "again")
        await browser.shows("#banner", "sessions.db was deleted or replaced while it was in use")
        assert "does not answer" not in await browser.text("#banner")
        away.rename(file)
        await see_answer(browser, "Two.")
        assert await browser.texts(".user-text") == ["hello", "again"]


async def test_the_rest_of_an_answer_can_be_stopped(browser):
    cut = Turn(text=["Half of it."], error=RunInterrupted("The process ended."))
    async with serving_page(cut, counting(0, 60, pause=Tap(3))) as page_server:
        await browser.open(page_server.url)
        await say(browser, "count")
        await browser.shows(".turn .error", "Continue asks the agent for the rest")
        await press(browser, "Continue")
        await browser.shows(f"{ANSWER} ~ {ANSWER}", counted(0, 4))
        await browser.click("button.send[aria-label=Stop]")
        await browser.shows(".turn", "Stopped.")
        assert page_server.server.runs.busy == 0
        assert await browser.texts(ANSWER) == ["Half of it.", counted(0, 4)]


async def test_a_message_to_a_server_that_is_gone_can_be_given_up_or_arrives_later(browser):
    async with serving_page(says("before")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "hello")
        await see_answer(browser, "before")
        await page_server.end()
        await browser.run(SUBMIT, "is anybody there?")
        await browser.shows("#banner", "Your message is not accepted yet.")
        await browser.click("button.send[aria-label=Stop]")
        await browser.shows(".turn:last-child", "Stopped.")
        await press(browser, "Retry")
        async with serving_page(says("I am back")) as new:
            await see_answer(browser, "I am back")
            texts = [message.content for message in new.model.prompts[0].messages]
            assert texts == [
                "hello",
                "before",
                "is anybody there?",
            ]  # the page brings the history that the server lacks


SUBMIT = "document.querySelector('#message').value = arguments[0]; document.querySelector('#composer').requestSubmit()"


async def test_a_server_that_forgot_the_session_says_so(browser):
    async with serving_page(says("before")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "hello")
        await see_answer(browser, "before")
        await page_server.end()
        async with serving_page(says("after")) as new:
            await browser.reload()
            await browser.shows("#banner", "does not know this session")
            await say(browser, "hello again")
            await see_answer(browser, "after")
            assert await browser.texts(".user-text") == ["hello again"]
            assert len(new.model.prompts[0].messages) == 1


PATIENT = """
const wait = setTimeout;
window.setTimeout = (act, delay, ...more) => wait(act, delay === 1000 ? 60000 : delay, ...more);
"""  # the page asks for messages of other devices for a second, then it sends; a busy machine may need longer


async def test_a_message_from_another_device_is_not_taken_back_by_the_next_one_here(browser):
    """The page sent a history that ended before it, which the server takes for an edit."""
    async with serving_page(says("one"), says("two"), says("three")) as page_server:
        await browser.open(page_server.url)
        await browser.run(PATIENT)
        await say(browser, "first")
        await see_answer(browser, "one")
        thread = (await browser.run("return location.hash")).partition("session=")[2]
        message = {"id": "elsewhere", "role": "user", "content": "second"}
        body = {"threadId": thread, "runId": "elsewhere", "protocolVersion": "1.0", "messages": [message]}
        async with aiohttp.ClientSession() as client, client.post(page_server.url + "awp", json=body) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        await say(browser, "third")
        await see_answer(browser, "three")
        assert await browser.texts(".user-text") == ["first", "second", "third"]
        assert await browser.texts(ANSWER) == ["one", "two", "three"]
        last = page_server.model.prompts[-1].messages
        assert [each.content for each in last] == ["first", "one", "second", "two", "third"]


async def test_a_link_to_a_session_that_has_expired_says_so_and_a_new_one_is_not_reported(browser):
    async with serving_page() as page_server:
        await browser.open(f"{page_server.url}#session=from-last-month")
        await browser.until("document.querySelector('#health.well')")
        await browser.run("dispatchEvent(new Event('focus'))")  # the page asks for the session again
        await browser.shows("#banner", "does not know this session")
        await browser.open(page_server.url)
        await browser.reload()
        await browser.until("document.querySelector('#health.well')")
        assert await browser.run("return document.querySelector('#banner').hidden")


async def test_an_open_page_learns_that_its_session_is_gone(browser):
    async with serving_page(says("before")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "hello")
        await see_answer(browser, "before")
        (session,) = await page_server.server.store.sessions_of(owner=ANONYMOUS_OWNER)
        await page_server.server.store.delete(session.session_id, owner=ANONYMOUS_OWNER)
        await browser.run("dispatchEvent(new Event('focus'))")
        await browser.shows("#banner", "does not know this session")


async def test_a_server_that_forgot_the_session_in_mid_answer_gives_each_reason_once(browser):
    tap = Tap(3)
    async with serving_page(counting(0, 60, pause=tap)) as page_server:
        await browser.open(page_server.url)
        await say(browser, "count")
        await browser.shows(ANSWER, "0 1")
        page_server.cut()
        await page_server.end()
        async with serving_page(says("after")):
            await browser.shows(".notice", "The server was restarted and no longer has this session.")
            assert (await browser.page()).count("The server was restarted, or the run ended too long ago.") == 1
            await press(browser, "Ask again")
            await see_answer(browser, "after")


async def test_the_page_waits_for_an_agent_that_starts(browser):
    async with serving_page(says("here"), ready=False) as page_server:
        await browser.open(page_server.url)
        await browser.shows("#banner", "The agent is starting")
        await page_server.server.start()
        page_server.server.serve()
        await say(browser, "hello")
        await see_answer(browser, "here")


async def test_a_tool_server_that_is_down_is_named(browser):
    async with serving_page() as page_server:
        page_server.tools.down = (
            ToolsetHealth(name="todos", ready=False, required=False, detail="It exited with code 1."),
        )
        await browser.open(page_server.url)
        await browser.shows("#banner", "Tool server down: todos.")
        await browser.shows("#banner", "exited with code 1. The agent continues without its tools")
        await say(browser, "hello")
        await see_answer(browser, "Hello there.")
