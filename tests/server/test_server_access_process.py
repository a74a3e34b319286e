"""`holodeck serve` with server.auth, as a process: refusals at the start, tokens of a real issuer, a unix socket."""

import asyncio
import json
import os
import re
import signal
import time
from subprocess import PIPE

import aiohttp
import pytest

from tests.access.issuer import running
from tests.access.signing import claims, header, jwks, rsa_key, token
from tests.server.serving import ask, frames
from tests.server.test_server_process import PATIENCE, holodeck

KEY = "k" * 40
AGENT = "name: talker\nmodel: {provider: demo}\n"


@pytest.mark.req("ACC-06")
@pytest.mark.parametrize(
    ("arguments", "environment", "agent", "words"),
    [
        (("--host", "0.0.0.0"), {}, AGENT, "HOLODECK_API_KEY="),
        (("--host", "::"), {}, AGENT, "--insecure-no-auth"),
        (("--host", "192.0.2.7"), {}, AGENT, "HOLODECK_API_KEY="),
        (("--cors-origins", "*"), {"HOLODECK_API_KEY": KEY}, AGENT, "--cors-origins"),
        ((), {"HOLODECK_API_KEY": "short"}, AGENT, "32"),
        ((), {}, AGENT + "server: {auth: {mode: api_key}}\n", "holodeck keys create"),
        (("--uds", "/no/such/folder/socket"), {}, AGENT, "--uds"),
    ],
)
@pytest.mark.req("T08", "T09")
async def test_unsafe_starts_end_with_a_sentence(tmp_path, arguments, environment, agent, words):
    """A71, A72, T09."""
    async with holodeck(tmp_path, *arguments, agent=agent, **environment) as server:
        error = await asyncio.wait_for(server.process.stderr.read(), PATIENCE)
        assert await server.exit_code() == 2
        assert error.count(b"\n") == 1
        assert words in error.decode()
        assert KEY.encode() not in error


async def test_the_one_liner_opens_the_server_to_holders_of_the_key(tmp_path):
    async with (
        holodeck(tmp_path, "--host", "0.0.0.0", HOLODECK_API_KEY=KEY) as server,
        aiohttp.ClientSession() as client,
    ):
        await server.until_ready()
        assert b"warning" not in server.banner
        for headers, status in (({}, 401), ({"X-Api-Key": KEY}, 200), ({"X-Api-Key": KEY + "x"}, 401)):
            async with client.get(server.url + "/me", headers=headers) as answer:
                assert answer.status == status


async def test_the_banner_shows_a_command_that_works(tmp_path):
    async with holodeck(tmp_path, HOLODECK_API_KEY=KEY) as server:
        await server.until_ready()
        text = server.banner.decode()
        assert KEY not in text
        command = re.search(r"curl .*", text)[0]
        curl = await asyncio.create_subprocess_exec(
            "bash", "-c", command, stdout=PIPE, stderr=PIPE, env={**os.environ, "HOLODECK_API_KEY": KEY}
        )
        received, _ = await curl.communicate()
        assert frames(received)[-1][1]["type"] == "RUN_FINISHED"


async def test_a_unix_socket(tmp_path):
    path = tmp_path / "s"
    for _ in range(2):  # the second finds the socket that a killed server left
        async with holodeck(tmp_path, "--uds", str(path)) as server:
            banner = await asyncio.wait_for(server.process.stderr.readuntil(b"Ctrl+C"), PATIENCE)
            assert str(path).encode() in banner
            assert path.stat().st_mode & 0o777 == 0o600
            async with (
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as client,
                client.post("http://localhost/awp", json=ask()) as answer,
            ):
                assert frames(await answer.read())[-1][1]["type"] == "RUN_FINISHED"
            server.process.kill()
            await server.process.wait()
    async with holodeck(tmp_path, "--uds", str(path)) as server:
        await asyncio.wait_for(server.process.stderr.readuntil(b"Ctrl+C"), PATIENCE)
        server.process.send_signal(signal.SIGTERM)
        assert await server.exit_code() == 0
        assert not path.exists()


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    async with holodeck(tmp_path, "--uds", str(path)) as server:
        error = await asyncio.wait_for(server.process.stderr.read(), PATIENCE)
        assert await server.exit_code() == 3
        assert b"--uds" in error
    assert path.read_text() == "precious"


def with_jwt(issuer, more=""):
    return (
        AGENT
        + f"""
server:
  public_url: https://agent.example.com
  auth:
    mode: [api_key, jwt]
    jwt:
      issuer: {issuer.url}
      audience: holodeck
      keys: {{url: "{issuer.certs}"}}
      claims: {{tenant: org_id}}
{more}"""
    )


def signed(issuer, **more):
    now = int(time.time())
    return token(claims(iss=issuer.url, iat=now, exp=now + 600, org_id="acme", **more), header(), key=rsa_key())


async def test_tokens_of_a_real_issuer(tmp_path):
    with running() as issuer:
        issuer.serve(jwks())
        environment = {"HOLODECK_API_KEY": KEY, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        async with (
            holodeck(tmp_path, "--protocol", "all", agent=with_jwt(issuer), **environment) as server,
            aiohttp.ClientSession() as client,
        ):
            await server.until_ready()
            good = {"Authorization": f"Bearer {signed(issuer, scope='chat runs:read')}"}
            async with client.get(server.url + "/me", headers=good) as answer:
                result = await answer.json()
            assert (result["tenant"], result["user"], result["scopes"]) == ("acme", "ann", ["chat", "runs:read"])
            watcher = {"Authorization": f"Bearer {signed(issuer, scope='metrics')}"}
            async with client.get(server.url + "/metrics", headers=watcher) as answer:
                assert "\nholodeck_jwks_age_seconds " in await answer.text()
            async with client.get(server.url + "/me", headers={"Authorization": "Bearer a.b.c"}) as answer:
                challenge = answer.headers["WWW-Authenticate"]
            metadata = "https://agent.example.com/.well-known/oauth-protected-resource"
            assert challenge == f'Bearer realm="talker", resource_metadata="{metadata}", error="invalid_token"'
            async with client.get(server.url + "/.well-known/oauth-protected-resource") as answer:  # A74
                document = await answer.json()
            assert document["resource"] == "https://agent.example.com"
            assert document["authorization_servers"] == [issuer.url]
            asked = server.url + "/.well-known/oauth-protected-resource/mcp"
            async with client.get(asked, headers={"Host": "localhost:1"}) as answer:
                assert (await answer.json())["resource"] == "https://agent.example.com/mcp"
            async with client.get(server.url + "/.well-known/agent-card.json") as answer:
                card = await answer.json()
            assert card["securitySchemes"]["openid"]["openIdConnectSecurityScheme"] == {
                "openIdConnectUrl": f"{issuer.url}/.well-known/openid-configuration"
            }
            assert [list(each["schemes"]) for each in card["securityRequirements"]] == [["bearer"], ["openid"]]
            assert card["url"] == "https://agent.example.com/a2a"


async def test_an_issuer_that_is_away_is_503_and_keys_still_work(tmp_path):
    """A35."""
    with running() as gone:
        agent, made = with_jwt(gone), signed(gone)
    environment = {"HOLODECK_API_KEY": KEY, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    async with holodeck(tmp_path, agent=agent, **environment) as server, aiohttp.ClientSession() as client:
        await asyncio.wait_for(server.process.stderr.readuntil(b"Ctrl+C"), PATIENCE)
        async with client.get(server.url + "/me", headers={"Authorization": f"Bearer {made}"}) as answer:
            assert answer.status == 503
            assert json.loads(await answer.read())["type"].endswith("/auth-unavailable")
            assert int(answer.headers["Retry-After"]) > 0
        async with client.get(server.url + "/ready") as answer:
            assert answer.status == 503
        async with client.get(server.url + "/me", headers={"X-Api-Key": KEY}) as answer:
            assert answer.status == 200
