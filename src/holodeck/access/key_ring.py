"""The valid keys: a file that is read again when it changes, and one key of the environment.

If the file cannot be read or parsed, or vanishes, the last good version stays in force: an editing mistake must neither
lock every client out nor let one in.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from holodeck.access.api_key import digest, id_of
from holodeck.access.failure import BAD_KEY, Failure, Reason
from holodeck.access.key_file import KeyFileError, KeyLimits, StoredKey, read_key_file
from holodeck.access.principal import Defaults, Principal
from holodeck.access.private_file import Stamp, stamp_of

log = logging.getLogger(__name__)

ENVIRONMENT_ID = "env"
ENVIRONMENT_USER = "default"
MIN_ENVIRONMENT_KEY = 32
_DUMMY = digest("")  # compared with if no such key exists, so that both cases take the same time
_LARGE = 256 * 1024  # bytes: a larger file is read in a thread
_COMPLAIN_EVERY = 60.0


class KeyInForce(msgspec.Struct, frozen=True):
    sha256: str
    principal: Principal
    revoked: bool = False
    limits: KeyLimits | None = None


class KeyRing:
    """Checks API keys. Call `refresh` from time to time; the server does it every second."""

    def __init__(
        self,
        *,
        path: Path | None,
        environment_key: str | None,
        defaults: Defaults,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Reads the file immediately. Raises KeyFileError if that fails."""
        self._path, self._defaults, self._clock = path, defaults, clock
        self._environment = _of_environment(environment_key, defaults) if environment_key else None
        self._stamp: Stamp | None = None
        self._complained = -_COMPLAIN_EVERY
        self._entries: dict[str, KeyInForce] = {}
        if path is not None:
            self._stamp = stamp_of(path)
            self._entries = self._of_file(read_key_file(path).keys)

    def check(self, text: str) -> Principal | Failure:
        key_id = id_of(text)
        given = digest(text)
        if self._environment is not None and hmac.compare_digest(given, self._environment.sha256):
            return self._environment.principal
        entry = self._entries.get(key_id) if key_id is not None else None
        right = hmac.compare_digest(given, entry.sha256 if entry is not None else _DUMMY)
        if entry is None or not right:
            return _refused("unknown" if key_id else "malformed", key_id if entry else None)
        if entry.revoked:
            return _refused("revoked", key_id)
        if entry.principal.expires is not None and entry.principal.expires <= self._clock():
            return Failure(kind="expired", reason="expired", message="This key has expired.", credential_id=key_id)
        return entry.principal

    def in_force(self, key_id: str) -> bool:
        """Returns whether such a key exists, neither revoked nor removed."""
        if key_id == ENVIRONMENT_ID:
            return self._environment is not None
        entry = self._entries.get(key_id)
        return entry is not None and not entry.revoked

    def expires(self, key_id: str) -> float | None:
        entry = self._entries.get(key_id)
        return entry.principal.expires if entry is not None else None

    def limits_of(self, key_id: str) -> KeyLimits | None:
        entry = self._entries.get(key_id)
        return entry.limits if entry is not None else None

    async def refresh(self) -> frozenset[str]:
        """Reads the file again if it changed. Returns the ids whose keys are no longer valid: revoked or removed."""
        if self._path is None:
            return frozenset()
        stamp = stamp_of(self._path)
        if stamp == self._stamp and stamp is not None:
            return frozenset()
        try:
            large = stamp is not None and stamp.size > _LARGE
            file = await asyncio.to_thread(read_key_file, self._path) if large else read_key_file(self._path)
            entries = self._of_file(file.keys)
        except KeyFileError as error:
            self._complain(error)
            return frozenset()
        self._stamp = stamp
        before, self._entries = self._entries, entries
        ended = frozenset(key_id for key_id in _valid(before) if key_id not in _valid(entries))
        added = len(entries.keys() - before.keys())
        log.info("keys_reloaded", extra={"details": {"added": added, "revoked": len(ended), "total": len(entries)}})
        return ended

    def _complain(self, error: KeyFileError) -> None:
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN_EVERY:
            self._complained = now
            log.error("keys_unreadable", extra={"details": {"error": str(error), "in_force": len(self._entries)}})

    def _of_file(self, keys: Iterable[StoredKey]) -> dict[str, KeyInForce]:
        return {key.id: self._entry(key) for key in keys}

    def _entry(self, key: StoredKey) -> KeyInForce:
        principal = Principal(
            tenant=key.tenant or self._defaults.tenant,
            user=key.user or f"key:{key.id}",
            scopes=self._defaults.scopes if key.scopes is None else frozenset(key.scopes),
            via="api_key",
            credential_id=key.id,
            expires=None if key.expires is None else key.expires.timestamp(),
        )
        return KeyInForce(key.sha256, principal, key.revoked is not None, key.limits)


def _valid(entries: dict[str, KeyInForce]) -> set[str]:
    return {key_id for key_id, entry in entries.items() if not entry.revoked}


def _of_environment(text: str, defaults: Defaults) -> KeyInForce:
    principal = Principal(
        tenant=defaults.tenant,
        user=ENVIRONMENT_USER,
        scopes=defaults.scopes,
        via="api_key",
        credential_id=ENVIRONMENT_ID,
    )
    return KeyInForce(digest(text), principal)


def _refused(reason: Reason, key_id: str | None) -> Failure:
    """Makes the same message for unknown, wrong and revoked keys."""
    return Failure(kind="invalid", reason=reason, message=BAD_KEY, credential_id=key_id)
