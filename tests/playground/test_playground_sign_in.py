"""Signing in: one field, memory only, and nothing of the credential anywhere it does not belong (A57)."""

import pytest

from holodeck.core.messages import ToolCall
from holodeck.models.scripted import Turn, says
from tests.playground.acting import say, see_answer
from tests.playground.page_server import serving_page
from tests.playground.test_playground_access import AXE, violations
from tests.playground.webdriver import CONTROL, ENTER, missing
from tests.server.keyed import KeyHolders


@pytest.fixture
def holders(tmp_path):
    made = KeyHolders(tmp_path / "keys.json")
    made.create()
    return made


def key_of(headers):
    return headers["Authorization"].removeprefix("Bearer ")


async def sign_in(browser, key, *, keep=False):
    await browser.until("document.querySelector('dialog[open] #credential')")
    if keep:
        await browser.click("#keep-credential")
    await browser.type("#credential", key + ENTER)


async def test_a_key_opens_the_page_and_signing_out_closes_it(browser, holders):
    key = key_of(holders.headers(user="ann", tenant="acme"))
    async with serving_page(says("Hello."), access=holders.authenticator()) as page_server:
        await browser.open(page_server.url)
        await sign_in(browser, key)
        await browser.shows("#identity span", "ann · acme")
        await say(browser, "hi")
        await see_answer(browser, "Hello.")
        assert await browser.text("#agent-name") == "stage"
        await browser.click("#identity button")
        await browser.until("document.querySelector('dialog[open]') && document.querySelector('#identity').hidden")
        await browser.reload()
        await browser.until("document.querySelector('dialog[open]')")


async def test_a_wrong_key_is_explained_and_can_be_typed_again(browser, holders):
    key = key_of(holders.headers(user="ann"))
    async with serving_page(access=holders.authenticator()) as page_server:
        await browser.open(page_server.url)
        await sign_in(browser, "hdk_wrong")
        await browser.shows("dialog .field-problem", "This key is not valid.")
        await sign_in(browser, key)
        await browser.shows("#identity span", "ann · default")


async def test_the_credential_is_in_no_place_that_keeps_it(browser, holders):
    """A57."""
    key = key_of(holders.headers(user="ann"))
    everywhere = """return JSON.stringify([location.href, document.referrer, document.cookie, document.documentElement.outerHTML,
        {...localStorage}, {...sessionStorage}, history.state, [...document.querySelectorAll('input')].map((each) => each.value)])"""
    async with serving_page(says("Hello."), access=holders.authenticator()) as page_server:
        await browser.open(page_server.url)
        await sign_in(browser, key)
        await browser.shows("#identity span", "ann · default")
        await say(browser, "hi")
        await see_answer(browser, "Hello.")
        assert key not in await browser.run(everywhere)
        assert key not in str(await browser.console())
        await browser.press(CONTROL, "i")
        await browser.until("document.querySelector('.event')?.click() ?? document.querySelector('.event-detail pre')")
        await browser.run(
            "window.copied = ''; Object.defineProperty(navigator, 'clipboard', "
            "{value: {writeText: async (text) => { window.copied = text; }}, configurable: true})"
        )
        await browser.click("[aria-label='Copy request as curl']")
        command = await browser.until("window.copied")
        assert '-H "Authorization: Bearer $HOLODECK_KEY"' in command
        assert key not in command


async def test_it_is_kept_in_this_tab_if_the_user_wants_that(browser, holders):
    key = key_of(holders.headers(user="ann"))
    async with serving_page(access=holders.authenticator()) as page_server:
        await browser.open(page_server.url)
        await sign_in(browser, key, keep=True)
        await browser.shows("#identity span", "ann · default")
        await browser.reload()
        await browser.shows("#identity span", "ann · default")
        assert key not in await browser.run("return JSON.stringify({...localStorage})")
        await browser.click("#identity button")
        await browser.until("document.querySelector('dialog[open]') && sessionStorage.length === 0")


async def test_what_a_scope_does_not_allow_is_greyed_out(browser, holders):
    chats = key_of(holders.headers("chat", "runs:read", "sessions:read", user="ann"))
    reads = key_of(holders.headers("sessions:read", user="ann"))
    asked = Turn(text=["May I?"], calls=[ToolCall(id="c", name="delete_file", arguments='{"name": "a"}')])
    async with serving_page(asked, access=holders.authenticator()) as page_server:
        await browser.open(page_server.url)
        await sign_in(browser, chats)
        await browser.shows("#identity span", "ann · default")
        await say(browser, "delete it")
        await browser.shows(".call .status", "needs your approval")
        assert await browser.run(
            "return [...document.querySelectorAll('.question button')].every((each) => each.disabled)"
        )
        assert await browser.run("return document.querySelector(\"[aria-label='Delete session']\").disabled")
        await browser.click("#identity button")
        await sign_in(browser, reads)
        await browser.until("document.querySelector('#message').disabled && document.querySelector('.send').disabled")


async def test_a_revoked_key_brings_the_field_back(browser, holders):
    key_id, headers = holders.create(user="ann")
    async with serving_page(says("Hello."), access=holders.authenticator()) as page_server:
        await browser.open(page_server.url)
        await sign_in(browser, key_of(headers))
        await browser.shows("#identity span", "ann · default")
        holders.revoke(key_id)
        await page_server.server.access.refresh()
        await say(browser, "hi")
        await browser.until("document.querySelector('dialog[open]')")


async def test_axe_finds_nothing_serious_in_the_dialog(browser, holders):
    if not AXE.exists():
        missing("axe-core")
    async with serving_page(access=holders.authenticator()) as page_server:
        await browser.open(page_server.url)
        await browser.until("document.querySelector('dialog[open] #credential')")
        assert await violations(browser) == []


async def test_without_auth_no_user_is_asked(browser):
    async with serving_page(says("Hello.")) as page_server:
        await browser.open(page_server.url)
        await say(browser, "hi")
        await see_answer(browser, "Hello.")
        assert await browser.run(
            "return document.querySelector('#identity').hidden && !document.querySelector('dialog')"
        )


async def test_the_code_of_open_signs_in_once_and_leaves_the_address(browser, holders):
    access = holders.authenticator()
    async with serving_page(says("Hello."), access=access) as page_server:
        address = f"{page_server.url}?opened#code={access.page.new_code()}"
        await browser.open(address)
        await browser.shows("#identity span", "system:playground")
        assert "code=" not in await browser.run("return location.href")
        await say(browser, "hi")
        await see_answer(browser, "Hello.")
        await browser.reload()
        await see_answer(browser, "Hello.")
        await browser.click("#identity button")
        await browser.until("document.querySelector('dialog[open]')")
        await browser.open("about:blank")
        await browser.open(address)  # from the history, by another person
        await browser.until("document.querySelector('dialog[open]')")
        assert "code=" not in await browser.run("return location.href")
