"""Authenticates with the operator's function: `async def who(headers, address) -> Principal | None`."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from holodeck.access.failure import Failure
from holodeck.access.principal import SCOPES, Principal, RequestHead, is_user_name
from holodeck.core.owner import is_owner_name
from holodeck.core.text import one_line

log = logging.getLogger(__name__)

SECONDS = 2.0
LINE_SECONDS = 10.0  # between two log lines about failures: clients retry again and again
Who: TypeAlias = Callable[[Mapping[str, str], str | None], Awaitable[Any]]


class Hook:
    """Calls the function. An exception, or no answer within two seconds, is a 503: an error never grants access."""

    def __init__(self, who: Who, seconds: float = SECONDS) -> None:
        self._who, self._seconds = who, seconds
        self._next_line = 0.0  # before this time no further failure is logged

    async def check(self, head: RequestHead) -> Principal | Failure:
        headers: dict[str, str] = {}
        for name, value in head.headers:
            text = value.decode("latin-1")
            key = name.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._who(headers, head.address)
        except TimeoutError:
            return self._unavailable(f"no answer within {self._seconds:g} s")
        except Exception as error:  # noqa: BLE001  the operator's code may raise anything
            return self._unavailable(f"{type(error).__name__}: {one_line(str(error), 200)}")
        if found is None:
            return Failure(kind="invalid", reason="refused", message="This credential is not valid.")
        if not isinstance(found, Principal) or not _is_sound(found):
            return self._unavailable("it returned neither None nor a valid Principal")
        return msgspec.structs.replace(found, via="hook")

    def _unavailable(self, why: str) -> Failure:
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + LINE_SECONDS
            log.error("auth_hook_failed", extra={"details": {"error": why}})
        message = "Identities cannot be checked at the moment."
        return Failure(kind="unavailable", reason="unavailable", message=message, retry_after=5.0)


def _is_sound(found: Principal) -> bool:
    """Checks the types of the members: Python code can put anything into a struct."""
    return (
        isinstance(found.user, str)
        and is_user_name(found.user)
        and isinstance(found.tenant, str)
        and is_owner_name(found.tenant)
        and isinstance(found.scopes, frozenset)
        and found.scopes <= SCOPES
        and (found.expires is None or isinstance(found.expires, int | float))
    )
