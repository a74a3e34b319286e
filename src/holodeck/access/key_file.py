"""The file of API keys: the owner of each key, and what it may do. It contains hashes, never a key.

`holodeck keys` writes it. The server reads it again whenever it changes.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from pydantic import Field, ValidationError

from holodeck.access.api_key import digest, id_of, is_key_id, new_key
from holodeck.access.principal import SCOPES, is_user_name
from holodeck.access.private_file import NotPrivate, locked, read_private, write_private
from holodeck.blocks import Block
from holodeck.core.owner import is_owner_name
from holodeck.errors import StartError

MAX_BYTES = 8 * 1024 * 1024
MAX_NAME = 100
REVOKED_KEPT = timedelta(days=90)  # so that ids in old log lines can still be looked up
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
Done = TypeVar("Done")
Requests = Annotated[int, Field(ge=1, le=10_000_000)]
TokenCount = Annotated[int, Field(ge=1, le=10**12)]
Money = Annotated[float, Field(gt=0, le=10**9)]


class KeyFileError(StartError):
    """The file cannot be used. The text says why and what to do."""


class KeyLimits(Block):
    """The limits of one key. None: no limit of its own."""

    requests_per_minute: Requests | None = Field(
        None,
        description="Runs that may start in a minute; an empty conversation (`POST /v1/conversations`) counts as one",
    )
    tokens_per_day: TokenCount | None = Field(None, description="Tokens in 24 hours, over all runs")
    money_per_day: Money | None = Field(None, description="Money in 24 hours; needs model.price")


class StoredKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One key. `user=None` is a user of the key's own; `tenant` and `scopes` of None are the server's defaults."""

    id: str
    name: str
    sha256: str
    user: str | None = None
    tenant: str | None = None
    scopes: tuple[str, ...] | None = None
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None
    limits: KeyLimits | None = None

    def state(self, now: datetime) -> str:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "active"

    def described(self) -> dict[str, object]:
        """Describes the key for people, without its hash. None is the server's default."""
        return {
            "id": self.id,
            "name": self.name,
            "user": self.user or f"key:{self.id}",
            "tenant": self.tenant,
            "scopes": None if self.scopes is None else list(self.scopes),
            "created": self.created.isoformat(),
            "expires": self.expires.isoformat() if self.expires else None,
            "state": self.state(_now()),
        }


class KeyFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    version: int = 1
    keys: list[StoredKey] = []

    def find(self, key_id: str) -> StoredKey:
        found = next((key for key in self.keys if key.id == key_id), None)
        if found is None:
            raise KeyFileError(f"there is no key with the id {key_id}; `holodeck keys list` shows all ids")
        return found

    def add(self, **about: object) -> tuple[StoredKey, str]:
        taken = {key.id for key in self.keys}
        text = new_key()
        while id_of(text) in taken:
            text = new_key()
        stored = StoredKey(id=id_of(text), sha256=digest(text), created=_now(), **about)  # type: ignore[arg-type]
        _check(stored)
        self.keys.append(stored)
        return stored, text

    def replace(self, key: StoredKey) -> None:
        self.keys = [key if each.id == key.id else each for each in self.keys]

    def revoke(self, key_id: str) -> StoredKey:
        key = self.find(key_id)
        if key.revoked is None:
            key = msgspec.structs.replace(key, revoked=_now())
            self.replace(key)
        return key

    def rotate(self, key_id: str, grace: timedelta) -> tuple[StoredKey, str]:
        """Replaces a key by one with a new id and secret. The old one expires after `grace`."""
        old = self.find(key_id)
        if old.state(_now()) != "active":
            raise KeyFileError(f"{key_id} is {old.state(_now())}; create a new key instead")
        end = _now() + grace
        lifetime = None if old.expires is None else old.expires - old.created
        new, text = self.add(
            name=old.name,
            user=old.user or f"key:{old.id}",  # the conversations stay with the user
            tenant=old.tenant,
            scopes=old.scopes,
            expires=None if lifetime is None else _now() + lifetime,
            limits=old.limits,
        )
        self.replace(
            msgspec.structs.replace(old, expires=end if old.expires is None or end < old.expires else old.expires)
        )
        return new, text


def read_key_file(path: Path) -> KeyFile:
    try:
        return _decoded(read_private(path, MAX_BYTES))
    except FileNotFoundError:
        raise KeyFileError(
            f"there is no key file {path.name}; make one: holodeck keys create --name me --file {path.name}"
        ) from None
    except OSError as error:
        raise KeyFileError(f"{path.name} cannot be read: {error.strerror}") from error
    except NotPrivate as error:
        raise KeyFileError(str(error)) from error


def change_key_file(path: Path, change: Callable[[KeyFile], Done]) -> Done:
    """Reads, changes and writes the file while no other command can."""
    try:
        with locked(path):
            file = read_key_file(path) if path.exists() else KeyFile()
            done = change(file)
            oldest = _now() - REVOKED_KEPT
            file.keys = [key for key in file.keys if key.revoked is None or key.revoked > oldest]
            write_private(path, msgspec.json.format(msgspec.json.encode(file, enc_hook=_dumped)) + b"\n")
    except OSError as error:
        raise KeyFileError(f"{path.name} cannot be written: {error.strerror}") from error
    return done


def _decoded(data: bytes) -> KeyFile:
    try:
        file = msgspec.json.decode(data, type=KeyFile, dec_hook=_validated)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise KeyFileError(f"the key file is not valid: {error}") from error
    if file.version != 1:
        raise KeyFileError(f"the key file has version {file.version}, this HoloDeck reads version 1")
    for key in file.keys:
        _check(key)
    ids = [key.id for key in file.keys]
    if len(set(ids)) != len(ids):
        raise KeyFileError("the key file has the same id twice")
    return file


def _dumped(limits: KeyLimits) -> dict[str, Any]:
    return limits.model_dump(exclude_none=True)


def _validated(kind: type[KeyLimits], value: Any) -> KeyLimits:
    try:
        return kind.model_validate(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, ("limits", *first["loc"])))
        raise ValueError(f"{place}: {first['msg']}") from error


def _check(key: StoredKey) -> None:
    """Checks what msgspec's types do not express."""
    own_name = f"key:{key.id}"
    if not is_key_id(key.id):
        raise KeyFileError("an id in the key file is not valid: 8 letters and digits")
    if not _SHA256.fullmatch(key.sha256):
        raise KeyFileError(f"key {key.id}: sha256 is not valid")
    if not is_owner_name(key.name) or len(key.name) > MAX_NAME:
        raise KeyFileError(f"key {key.id}: its name must be 1 to {MAX_NAME} printable characters")
    if key.user is not None and not is_user_name(key.user) and not is_user_of_key(key.user):
        raise KeyFileError(f"key {key.id}: this user name cannot be used; leave it out for {own_name}")
    if key.tenant is not None and not is_owner_name(key.tenant):
        raise KeyFileError(f"key {key.id}: this tenant name cannot be used")
    unknown = sorted(set(key.scopes or ()) - SCOPES)
    if unknown:
        raise KeyFileError(f"key {key.id}: unknown scope {unknown[0]!r}; known: {', '.join(sorted(SCOPES))}")
    for time in (key.created, key.expires, key.revoked):
        if time is not None and time.tzinfo is None:
            raise KeyFileError(f"key {key.id}: a time has no time zone; end it with Z")


def is_user_of_key(name: str) -> bool:
    """Returns whether a name is `key:<id>`, which a rotated key keeps."""
    return name.startswith("key:") and is_key_id(name.removeprefix("key:"))


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
