"""Signing in at a server that wants OAuth: once by a person, then by what the file keeps."""

import asyncio
import json
import stat

import aiohttp
import pytest
from pydantic import ValidationError

from holodeck.errors import StartError
from holodeck.tools.mcp_oauth import sign_in
from holodeck.tools.mcp_settings import McpSettings, OAuthClient
from holodeck.tools.mcp_toolset import McpToolset
from holodeck.tools.port import ToolContext
from tests.cli.process import Piped
from tests.tools.mcp.oauth_server import Authority, guarded_server


class Browser:
    """Follows the address that a person would open, in the background."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, url: str) -> None:
        self._tasks.append(asyncio.create_task(self._follow(url)))

    async def _follow(self, url: str) -> None:
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            self.pages.append(await answer.text())


def settings_for(url: str, tmp_path, **oauth: str) -> McpSettings:
    client = OAuthClient(file=tmp_path / "oauth" / "x.json", **oauth)
    return McpSettings(name="wiki", url=url, oauth=client, required=True)


async def asked(settings: McpSettings) -> str:
    toolset = McpToolset(settings)
    await toolset.start()
    try:
        return (await toolset.call("whoami", {}, ToolContext(user_id="alice"))).text
    finally:
        await toolset.close()


async def test_a_person_signs_in_once_and_the_agent_uses_it(tmp_path):
    authority, browser = Authority(), Browser()
    async with guarded_server(authority) as url:
        settings = settings_for(url, tmp_path)
        with pytest.raises(StartError, match=r"needs a sign-in\. Run `holodeck login wiki`"):
            await asked(settings)
        await sign_in(settings, browser.open)
        assert await asked(settings) == "you are signed in"
        assert await asked(settings) == "you are signed in"
    assert "You are signed in" in browser.pages[0]
    assert authority.grants == ["authorization_code"]
    assert len(authority.registered) == 1
    file = tmp_path / "oauth" / "x.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_token_that_ends_is_renewed_without_a_person(tmp_path):
    authority, browser = Authority(expires_in=30), Browser()  # ends within the minute in which tokens are renewed
    async with guarded_server(authority) as url:
        settings = settings_for(url, tmp_path)
        await sign_in(settings, browser.open)
        assert await asked(settings) == "you are signed in"
    assert authority.grants[0] == "authorization_code"
    assert set(authority.grants[1:]) == {"refresh_token"}
    assert len(browser.pages) == 1


async def test_tokens_that_are_not_accepted_any_more_need_a_person(tmp_path):
    authority, browser = Authority(), Browser()
    async with guarded_server(authority) as url:
        settings = settings_for(url, tmp_path)
        await sign_in(settings, browser.open)
        authority.tokens.clear()
        with pytest.raises(StartError, match=r"our credentials \(HTTP 401\)\. Run `holodeck login wiki`"):
            await asked(settings)


async def test_a_client_that_was_registered_manually(tmp_path):
    authority, browser = Authority(), Browser()
    async with guarded_server(authority) as url:
        settings = settings_for(url, tmp_path, client_id="mine", client_secret="hush-hush")
        await sign_in(settings, browser.open)
        assert await asked(settings) == "you are signed in"
    assert authority.registered == []
    assert "hush-hush" not in (tmp_path / "oauth" / "x.json").read_text()
    assert "hush-hush" not in repr(settings)


@pytest.mark.req("T28")
def test_settings_do_not_show_credentials():
    credential = {"TOKEN": "hush-hush"}
    for settings in (
        McpSettings(name="x", url="http://127.0.0.1:1", headers=credential),
        McpSettings(name="x", command="x", env=credential),
    ):
        assert "hush-hush" not in repr(settings)
    for wrong in ({"headers": credential}, {"url": "http://127.0.0.1:1", "headers": {"TOKEN": "hush-hush\x00"}}):
        with pytest.raises(ValidationError) as refused:
            McpSettings(name="x", **wrong)
        assert "hush-hush" not in str(refused.value)


async def test_a_person_who_says_no(tmp_path):
    async with guarded_server(Authority(denies=True)) as url:
        browser = Browser()
        with pytest.raises(StartError, match="failed: Ann said no"):
            await sign_in(settings_for(url, tmp_path), browser.open)
    assert not (tmp_path / "oauth" / "x.json").exists() or "tokens" not in (tmp_path / "oauth" / "x.json").read_text()


@pytest.mark.timeout(120)
async def test_holodeck_login_and_check(tmp_path):
    authority = Authority()
    async with guarded_server(authority) as url:
        tool = {"name": "wiki", "type": "mcp", "url": url, "oauth": True}
        agent = {"name": "a", "model": {"provider": "demo"}, "tools": [tool]}
        (tmp_path / "agent.yaml").write_text(json.dumps(agent))
        login = Piped("login", "--no-browser", folder=tmp_path)
        line = (await asyncio.to_thread(login.stdout.readline)).decode()
        async with aiohttp.ClientSession() as client, client.get(line.split()[-1]) as page:
            assert "You are signed in" in await page.text()
        out, err = await asyncio.to_thread(login.communicate)
        assert (out, err) == (b"Signed in to wiki.\n", b"")
        out, err = await asyncio.to_thread(Piped("check", folder=tmp_path).communicate)
        assert "whoami" in out.decode(), err
    kept = list((tmp_path / "data" / "holodeck" / "oauth").iterdir())
    assert len(kept) == 1
