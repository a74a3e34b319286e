"""Signs in to MCP servers that require OAuth, with the official SDK's client, and stores the tokens in a file.

A person signs in once (`holodeck login`): the browser opens, the authorization server redirects it to a port of this
machine, and the tokens go to a file that only its owner can read. A running agent uses the file and renews tokens, but
never opens a browser. Without tokens its server cannot be started, and the error names the command to run.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from holodeck._version import __version__
from holodeck.errors import StartError
from holodeck.tools.mcp_link import CannotConnect
from holodeck.tools.mcp_settings import McpSettings, OAuthClient
from holodeck.tools.mcp_wire import hello

SIGN_IN_SECONDS = 300.0  # for a person to sign in
EARLY = 60.0  # a token is renewed this many seconds before it expires
CALLBACK = "/callback"
MAX_HEAD = 16_384
DONE = "<!doctype html><title>HoloDeck</title><p>You are signed in. You can close this window."
FAILED = "<!doctype html><title>HoloDeck</title><p>The sign-in failed. The terminal shows the reason."

FAILURES = (OAuthFlowError, OAuthRegistrationError, OAuthTokenError, httpx2.HTTPError, ValidationError, ValueError)


class TokenFile:
    """The tokens and registration of one server: the SDK's token storage, in a file of mode 600."""

    def __init__(self, client: OAuthClient) -> None:
        self._client = client
        self._kept: dict[str, Any] = _read(client.file)

    @property
    def signed_in(self) -> bool:
        return "tokens" in self._kept

    async def get_tokens(self) -> OAuthToken | None:
        return OAuthToken.model_validate(self._kept["tokens"]) if self.signed_in else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        kept = tokens.model_dump(mode="json", exclude_none=True)
        before = self._kept.get("tokens", {})
        if "refresh_token" not in kept and "refresh_token" in before:
            # Servers need not repeat a refresh token that stays the same.
            kept["refresh_token"] = before["refresh_token"]
        self._kept["tokens"] = kept
        self._kept["expires_at"] = None if tokens.expires_in is None else time.time() + tokens.expires_in
        self._write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if "client" in self._kept:
            return OAuthClientInformationFull.model_validate(self._kept["client"])
        if self._client.client_id is None:
            return None
        method = "client_secret_post" if self._client.client_secret else "none"
        return OAuthClientInformationFull(
            client_id=self._client.client_id,
            client_secret=self._client.client_secret,
            token_endpoint_auth_method=method,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._kept["client"] = client_info.model_dump(mode="json", exclude_none=True)
        self._write()

    def restore(self, provider: OAuthClientProvider) -> None:
        """Restores what the SDK does not store itself: when the token expires, and where to renew it."""
        if (ends := self._kept.get("expires_at")) is not None:
            provider.context.token_expiry_time = ends - EARLY
        if metadata := self._kept.get("metadata"):
            provider.context.oauth_metadata = OAuthMetadata.model_validate(metadata)

    def keep_metadata(self, provider: OAuthClientProvider) -> None:
        if provider.context.oauth_metadata is not None:
            self._kept["metadata"] = provider.context.oauth_metadata.model_dump(mode="json", exclude_none=True)
            self._write()

    def forget(self) -> None:
        """Drops the registration, so that the next sign-in registers again: its redirect address has another port."""
        self._kept = {}

    def _write(self) -> None:
        path = self._client.file
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = path.with_suffix(f".{os.getpid()}.new")
            with open(temporary, "w", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
                json.dump(self._kept, file)
            temporary.replace(path)
        except OSError as error:
            raise StartError(f"{path} cannot be written: {error.strerror}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def stored_auth(settings: McpSettings) -> httpx2.Auth | None:
    """The authentication for requests of a running agent. Raises CannotConnect before the first sign-in."""
    if settings.oauth is None:
        return None
    tokens = TokenFile(settings.oauth)
    if not tokens.signed_in:
        raise CannotConnect("needs a sign-in", f"Run `holodeck login {settings.name}`.")
    provider = _provider(settings, tokens, _refuse, _refuse, "http://127.0.0.1" + CALLBACK)
    tokens.restore(provider)
    return provider


async def _refuse(*_url: str) -> NoReturn:
    raise OAuthFlowError("a running agent does not open a browser")


def _provider(
    settings: McpSettings,
    tokens: TokenFile,
    show: Callable[[str], Awaitable[None]],
    wait: Callable[[], Awaitable[AuthorizationCodeResult]],
    redirect: str,
) -> OAuthClientProvider:
    client = settings.oauth
    metadata = OAuthClientMetadata(
        client_name="HoloDeck",
        software_version=__version__,
        redirect_uris=[AnyUrl(redirect)],
        scope=client.scope if client else None,
    )
    return OAuthClientProvider(settings.url or "", metadata, tokens, show, wait)


async def sign_in(settings: McpSettings, show: Callable[[str], None]) -> None:
    """Signs in to a server. `show` gets the address that a person has to open. Raises StartError."""
    if settings.oauth is None:
        raise StartError(f"The tool server '{settings.name}' has no `oauth`.")
    tokens = TokenFile(settings.oauth)
    tokens.forget()
    async with _Callback() as callback:

        async def shown(url: str) -> None:
            show(url)

        provider = _provider(settings, tokens, shown, callback.result, callback.address)
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
        accepted = {"accept": "application/json, text/event-stream"}
        try:
            async with (
                asyncio.timeout(SIGN_IN_SECONDS),
                httpx2.AsyncClient(auth=provider, trust_env=False, timeout=SIGN_IN_SECONDS) as client,
                client.stream("POST", settings.url or "", json=body, headers=accepted) as answer,
            ):
                status = answer.status_code
        except TimeoutError:
            raise StartError(f"The sign-in was not completed within {SIGN_IN_SECONDS:g} s.") from None
        except FAILURES as error:
            reason = settings.masked(str(error)) or type(error).__name__
            raise StartError(f"The sign-in to the tool server '{settings.name}' failed: {reason}.") from error
    if status in {401, 403}:
        raise StartError(f"The tool server '{settings.name}' does not accept its own token (HTTP {status}).")
    if not tokens.signed_in:
        raise StartError(
            f"The tool server '{settings.name}' did not ask for a sign-in (HTTP {status}); leave out `oauth`."
        )
    tokens.keep_metadata(provider)


@dataclass
class _Redirect:
    code: str = ""
    state: str | None = None
    iss: str | None = None
    error: str = ""


class _Callback:
    """The local port to which the browser is redirected."""

    async def __aenter__(self) -> Self:
        self._answer: asyncio.Future[_Redirect] = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MAX_HEAD)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{port}{CALLBACK}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def result(self) -> AuthorizationCodeResult:
        answer = await self._answer
        if answer.error or not answer.code:
            raise OAuthFlowError(answer.error or "the browser came back without a code")
        return AuthorizationCodeResult(code=answer.code, state=answer.state, iss=answer.iss)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readline()).decode("latin-1").split(" ")
            target = urlsplit(line[1]) if len(line) > 1 else urlsplit("")
            if target.path == CALLBACK:
                answer = _answer_in(target.query)
                _respond(writer, 200, FAILED if answer.error else DONE)
                if not self._answer.done():
                    self._answer.set_result(answer)
            else:
                _respond(writer, 404, "")
            await writer.drain()
        except (OSError, ValueError):
            pass  # a port scan, or a browser that was closed
        finally:
            writer.close()


def _answer_in(query: str) -> _Redirect:
    values = {name: each[0] for name, each in parse_qs(query).items()}
    error = values.get("error_description") or values.get("error", "")
    return _Redirect(values.get("code", ""), values.get("state"), values.get("iss"), error[:300])


def _respond(writer: asyncio.StreamWriter, status: int, page: str) -> None:
    body = page.encode()
    head = f"HTTP/1.1 {status} OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + body)
