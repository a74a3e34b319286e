"""What is around the conversation: sessions, the inspector, themes, keys."""

import json

from holodeck.models.scripted import says
from tests.playground.acting import press, say, see_answer
from tests.playground.page_server import counting, serving_page
from tests.playground.webdriver import CONTROL, ENTER

TITLES = ".session-list a"


async def test_sessions_are_listed_renamed_opened_by_link_and_deleted(browser):
    async with serving_page(says("one"), says("two")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "the first session")
        await see_answer(browser, "one")
        link = await browser.run("return location.href")
        await press(browser, "New session")
        await browser.until("document.querySelector('.empty')")
        await say(browser, "the second session")
        await see_answer(browser, "two")
        assert await browser.texts(TITLES) == ["the second session", "the first session"]
        await browser.click("[aria-label='Rename session']")
        await browser.run("document.querySelector('.session-list input').value = ''")
        await browser.type(".session-list input", "renamed" + ENTER)
        assert await browser.texts(TITLES) == ["renamed", "the first session"]
        await browser.open("about:blank")
        await browser.open(link)
        await see_answer(browser, "one")
        await browser.click("[aria-label='Delete session']")
        await press(browser, "Delete")
        await browser.until("document.querySelectorAll('.session-list li').length === 1")
        await see_answer(browser, "two")
        assert await page_server.server.store.count() == 1


async def test_a_session_is_exported_as_json(browser, tmp_path):
    async with serving_page(says("one")) as page_server:
        await browser.open(page_server.url)
        await browser.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        await say(browser, "hello")
        await see_answer(browser, "one")
        await browser.click("[aria-label='Export session as JSON']")
        await browser.until("true")
        for _ in range(200):
            done = list(tmp_path.glob("*.json"))
            if done and done[0].stat().st_size:
                break
            await browser.run("return 1")
        report = json.loads(done[0].read_text())
        assert report["title"] == "hello"
        assert [message["content"] for message in report["messages"]] == ["hello", "one"]


async def test_a_run_continues_while_another_session_is_looked_at(browser):
    async with serving_page(counting(0, 3), says("two"), detach_grace=0.05) as page_server:
        await browser.open(page_server.url)
        await say(browser, "first")
        await see_answer(browser, "0 1 2")
        await press(browser, "New session")
        await say(browser, "second")
        await see_answer(browser, "two")
        await browser.click(".session-list li:last-child a")
        await see_answer(browser, "0 1 2")


async def test_the_inspector_shows_filters_and_copies_every_event(browser):
    async with serving_page(counting(0, 40)) as page_server:
        await browser.open(page_server.url)
        await browser.cdp(
            "Browser.grantPermissions",
            permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
            origin=page_server.url,
        )
        await say(browser, "count")
        await see_answer(browser, " ".join(str(n) for n in range(40)))
        await browser.press(CONTROL, "i")
        shown = await browser.text(".event-bar .quiet")
        assert shown == "46 of 46"
        await browser.type(".event-bar input", "text_message -content")
        await browser.until("document.querySelectorAll('.event').length === 2")
        assert await browser.texts(".event .type") == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]
        await browser.click(".event")
        raw = json.loads(await browser.text(".event-detail pre"))
        assert raw["type"] == "TEXT_MESSAGE_START"
        await browser.click("[aria-label='Copy request as curl']")
        await browser.find("[aria-label='Copied']")
        script = "navigator.clipboard.readText().then(arguments[0], (e) => arguments[0](String(e)))"
        command = await browser.run_async(script)
        assert command.startswith(f"curl -N '{page_server.url}awp' -H 'Content-Type: application/json' -d '{{")
        body = json.loads(command.partition(" -d '")[2].removesuffix("'"))
        assert body["messages"][0]["content"] == "count"


async def test_five_thousand_events_cost_a_few_rows(browser):
    async with serving_page(counting(0, 5000)) as page_server:
        await browser.open(page_server.url)
        await browser.press(CONTROL, "i")
        await say(browser, "count")
        await browser.shows(".turn", "Retry")
        await browser.shows(".event-bar .quiet", "5,006")
        assert await browser.run("return document.querySelectorAll('.event').length") < 80
        words = (await browser.text("[data-kind=text]")).split()
        assert words == [str(n) for n in range(5000)]


async def test_escape_stops_and_the_theme_stays(browser):
    async with serving_page() as page_server:
        await browser.open(page_server.url)
        await browser.until("document.querySelector('#theme svg')")
        for theme in ("light", "dark"):
            await browser.click("#theme")
            assert await browser.run("return document.documentElement.dataset.theme") == theme
        await browser.reload()
        await browser.until("document.documentElement.dataset.theme === 'dark'")
        ground = await browser.run("return getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(22, 24, 29)"


async def test_a_phone_has_sessions_and_inspector_as_sheets(browser):
    async with serving_page() as page_server:
        await browser.resize(390, 780)
        try:
            await browser.open(page_server.url)
            await browser.until("document.querySelector('.tools')")
            wide = await browser.run("return document.documentElement.scrollWidth")
            assert wide == 390
            hidden = "return getComputedStyle(document.querySelector('#sessions')).visibility"
            assert await browser.run(hidden) == "hidden"
            await browser.click("#open-sessions")
            await browser.until("getComputedStyle(document.querySelector('#sessions')).visibility === 'visible'")
            await press(browser, "New session")
            await browser.until("!document.body.classList.contains('drawer')")
            await browser.click("#open-inspector")
            assert await browser.run("return document.querySelector('#inspector').getBoundingClientRect().width") == 390
        finally:
            await browser.cdp("Emulation.clearDeviceMetricsOverride")
