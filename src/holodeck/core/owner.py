"""The owner of stored things: sessions, runs, idempotency keys and quotas are all keyed by it.

Two owners are equal only if both names are, so the same user name in two tenants is two owners.
"""

from typing import TypeAlias

import msgspec

from holodeck.core.text import clean

MAX_NAME = 255


class Owner(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A user of a tenant. A hashable value, to be used as (part of) a key."""

    tenant: str
    user: str

    @property
    def is_anonymous(self) -> bool:
        return self == ANONYMOUS_OWNER


OwnedId: TypeAlias = tuple[Owner, str]
"""The key of a session or a run: its id is unique within its owner only."""


DEFAULT_TENANT = "default"
ANONYMOUS = "anonymous"
ANONYMOUS_OWNER = Owner(DEFAULT_TENANT, ANONYMOUS)
"""The owner of everything while the server asks for no credentials."""


def is_owner_name(text: str) -> bool:
    """Whether a text may name a user or a tenant: 1 to 255 printable characters, no space at either end."""
    return 0 < len(text) <= MAX_NAME and text.isprintable() and text == text.strip() and text == clean(text)
