"""What all processes that share a store know: a secret to sign with, and which sign-in codes were used."""

import os

from holodeck.access.page_session import CODE_SECONDS
from holodeck.core.owner import Owner
from holodeck.sessions.values import KeptValue, ValueStore

_SERVER = Owner("system", "system:server")  # no credential can name it
_SECRET, _CODE = "secret", "page-code"


async def shared_secret(values: ValueStore) -> bytes:
    """The secret of the store; the first process that asks makes it."""
    await values.put_first(KeptValue(kind=_SECRET, name="signing", body=os.urandom(32)), owner=_SERVER)
    (found,) = await values.of_topic(_SECRET, owner=_SERVER)
    return found.body


async def spend_code(values: ValueStore, name: str) -> bool:
    """Whether no process has used this sign-in code before."""
    return await values.put_first(KeptValue(kind=_CODE, name=name), owner=_SERVER, seconds=2 * CODE_SECONDS)
