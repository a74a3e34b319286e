"""Sources of an issuer's keys, and how they stay fresh.

Keys from a URL are fetched in the background and cached on disk, so that a restart works while the issuer is down. An
unknown key id, or a wrong signature if keys have no id, may trigger an early fetch, at most once in 30 seconds. A fetch
that fails never removes existing keys.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin

import msgspec

from holodeck.access.jwk import BadKey, KeySet, NotStrict, key_set_of, key_set_of_pem, object_of
from holodeck.access.private_file import Stamp, read_private, stamp_of, write_private
from holodeck.http.address import Address, address_of
from holodeck.http.client import Client
from holodeck.http.failures import HttpError, Unsendable

log = logging.getLogger(__name__)

MAX_DOCUMENT = 256 * 1024
MAX_REDIRECTS = 3
DISCOVERY = "/.well-known/openid-configuration"
_OK = 200
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_COMPLAIN_EVERY = 60.0


class KeySource:
    """The keys of one issuer, over time. Keys that never change need none of the methods."""

    @property
    def current(self) -> KeySet | None:
        """The keys. None if no keys are known, or the known ones are too old."""
        return None

    @property
    def age(self) -> float | None:
        """Seconds since the issuer last confirmed the keys, or None if there is no issuer to ask."""
        return None

    async def start(self) -> None:
        pass

    async def look_again(self) -> None:
        """Called for an unknown key id, or for a wrong signature if the key has no id."""

    async def refresh(self) -> None:
        """Called about every second."""

    async def close(self) -> None:
        pass


class FixedKeys(KeySource):
    """Keys that never change: a shared secret."""

    current: KeySet | None = None

    def __init__(self, keys: KeySet) -> None:
        self.current = keys


class FileKeys(FixedKeys):
    """Public keys in a file, JWKS or PEM, read again when it changes. A bad file leaves the last good keys in force."""

    def __init__(self, path: Path, *, pem: bool) -> None:
        """Raises BadKey or OSError if the file cannot be used."""
        self._path = path
        self._parse = key_set_of_pem if pem else key_set_of
        self._stamp: Stamp | None = stamp_of(path)
        super().__init__(self._read())

    async def refresh(self) -> None:
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.current = self._read()
        except (OSError, BadKey) as error:
            log.error("keys_unreadable", extra={"details": {"file": self._path.name, "error": str(error)}})  # noqa: TRY400
        else:
            log.info("jwks_refreshed", extra={"details": {"file": self._path.name, "keys": len(self.current.keys)}})

    def _read(self) -> KeySet:
        with self._path.open("rb") as stream:
            data = stream.read(MAX_DOCUMENT + 1)
        if len(data) > MAX_DOCUMENT:
            raise BadKey(f"{self._path.name} has more than {MAX_DOCUMENT:,} bytes")
        return self._parse(data)


class Times(msgspec.Struct, frozen=True):
    """Intervals in seconds."""

    refresh: float = 300.0  # ± 10 %, so that replicas do not ask at the same time
    retry: float = 30.0  # after a failure, while keys are available
    retry_without_keys: float = 2.0
    ask_again: float = 30.0  # between two fetches for unknown keys
    fetch: float = 5.0
    max_age: float = 86_400.0


class CachedDocument(msgspec.Struct, frozen=True):
    """A JWKS document as cached on disk."""

    url: str
    time: float
    document: str


class RemoteKeys(KeySource):
    """The keys at a URL, or at the URL in the issuer's discovery document."""

    def __init__(
        self,
        issuer: str,
        url: str | None = None,
        *,
        cache: Path | None = None,
        times: Times | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without `url`, the issuer's discovery document names it.

        Raises NotPrivate if others may write or read the cache.
        """
        self._issuer, self._url = issuer, url
        self._cache, self._times, self._clock = cache, times or Times(), clock
        self._keys: KeySet | None = None
        self._confirmed = 0.0  # by `clock`
        self._asked = -self._times.ask_again  # for an unknown key id, by the monotonic clock
        self._complained = -_COMPLAIN_EVERY
        self._fetching: asyncio.Task[bool] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._load_cache()

    @property
    def current(self) -> KeySet | None:
        age = self.age
        return self._keys if age is not None and age <= self._times.max_age else None

    @property
    def age(self) -> float | None:
        return None if self._keys is None else max(0.0, self._clock() - self._confirmed)

    async def start(self) -> None:
        """Waits for the first fetch, which takes at most five seconds, but not for its success."""
        first = self._fetch()
        self._refreshing = asyncio.create_task(self._refresh_for_ever(), name="jwks")
        await asyncio.shield(first)

    async def close(self) -> None:
        for task in (self._refreshing, self._fetching):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def look_again(self) -> None:
        if self._fetching is None:
            now = time.monotonic()
            if now - self._asked < self._times.ask_again:
                return
            self._asked = now
        await asyncio.shield(self._fetch())

    async def _refresh_for_ever(self) -> None:
        while True:
            fresh = await asyncio.shield(self._fetch())
            if fresh:
                wait = self._times.refresh * random.uniform(0.9, 1.1)  # noqa: S311  spreads requests, protects nothing
            else:
                wait = self._times.retry if self.current is not None else self._times.retry_without_keys
            await asyncio.sleep(wait)

    def _fetch(self) -> "asyncio.Task[bool]":
        """Returns the fetch in progress, or starts one."""
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch_once(), name="jwks-fetch")
            self._fetching.add_done_callback(lambda _: setattr(self, "_fetching", None))
        return self._fetching

    async def _fetch_once(self) -> bool:
        """Fetches the keys. Returns whether they are fresh now. A failure leaves the existing keys."""
        try:
            async with asyncio.timeout(self._times.fetch):
                url = self._url or await self._discovered()
                document = await get_document(url)
            keys = key_set_of(document)
        except (HttpError, OSError, BadKey, NotStrict) as error:  # TimeoutError is an OSError
            self._complain(error)
            return False
        self._note(keys)
        self._keys, self._confirmed = keys, self._clock()
        await self._store(document)
        return True

    async def _discovered(self) -> str:
        document = object_of(await get_document(self._issuer.rstrip("/") + DISCOVERY))
        if document.get("issuer") != self._issuer:
            raise BadKey("the discovery document names another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not is_safe_url(url):
            raise BadKey("the discovery document has no jwks_uri with https")
        return url

    def _note(self, keys: KeySet) -> None:
        if self._keys is not None and keys.thumbprints == self._keys.thumbprints:
            return
        details = {"issuer": self._issuer, "keys": len(keys.keys), "skipped": list(keys.skipped)}
        log.info("jwks_refreshed", extra={"details": details})

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._complained < _COMPLAIN_EVERY:
            return
        self._complained = now
        why = f"{type(error).__name__}: {error}".removesuffix(": ")
        details = {"issuer": self._issuer, "error": why, "age_seconds": self.age}
        log.warning("jwks_failed", extra={"details": details})

    def _load_cache(self) -> None:
        if self._cache is None:
            return
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, BadKey):
            kept = msgspec.json.decode(read_private(self._cache, 2 * MAX_DOCUMENT), type=CachedDocument)
            if kept.url == self._name and kept.time <= self._clock():
                self._keys, self._confirmed = key_set_of(kept.document.encode()), kept.time

    async def _store(self, document: bytes) -> None:
        """Caches the document for a start without the issuer. A full disk must not stop the server."""
        if self._cache is None:
            return
        try:
            kept = CachedDocument(self._name, self._confirmed, document.decode())
            await asyncio.to_thread(_write, self._cache, msgspec.json.encode(kept))
        except OSError as error:
            log.warning("jwks_not_kept", extra={"details": {"issuer": self._issuer, "error": error.strerror}})

    @property
    def _name(self) -> str:
        return self._url or self._issuer.rstrip("/") + DISCOVERY


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, data)


async def get_document(url: str) -> bytes:
    """Fetches a document of at most 256 kB. Follows a redirect within the same origin only."""
    client = Client({"Accept": "application/json"}, connect_timeout=5.0)
    try:
        for _ in range(MAX_REDIRECTS + 1):
            async with client.get(url) as response:
                if response.status not in _REDIRECTS:
                    if response.status != _OK:
                        raise BadKey(f"HTTP {response.status}")
                    data = await response.read(MAX_DOCUMENT)
                    if len(data) > MAX_DOCUMENT:
                        raise BadKey(f"the document has more than {MAX_DOCUMENT:,} bytes")
                    return data
                target = urljoin(url, response.headers.get("location", ""))
            if _origin(address_of(target)) != _origin(address_of(url)):
                raise BadKey("the document is redirected to another origin")
            url = target
    finally:
        await client.close()
    raise BadKey("the document has too many redirects")


def _origin(address: Address) -> tuple[str, str, int]:
    return address.scheme, address.host, address.port


def is_safe_url(url: str) -> bool:
    """Returns whether keys from this URL may be trusted: https, or this machine."""
    try:
        address = address_of(url)
    except Unsendable:
        return False
    return address.user is None and (address.secure or address.host in ("localhost", "127.0.0.1", "::1"))
