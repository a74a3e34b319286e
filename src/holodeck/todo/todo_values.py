"""The plain values of a todo list: todos, their fields, and filters.

Standard library only, so that describing the tools does not import a database toolkit.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypedDict

Priority = Literal["low", "medium", "high"]
Status = Literal["pending", "completed"]
DEFAULT_TENANT = "default"


class TodoError(ValueError):
    """An error that the model, or the person behind it, can fix. The text says how and is sent to the client."""


def checked_user(user_id: str) -> str:
    # Refused rather than cleaned: cleaning could turn one user into another.
    if not user_id.isprintable() or not user_id.strip():
        raise TodoError("user_id must be printable text")
    return user_id


def owner_name(tenant: str, user_id: str) -> str:
    """Returns the name of the user in rows. Users of the default tenant are named as on a server without tenants.

    A line break separates tenant and user. Neither may contain one (`checked_user`), so no user can pass for another
    tenant's.
    """
    return user_id if tenant == DEFAULT_TENANT else f"{tenant}\n{user_id}"


class TodoAttributes(TypedDict, total=False):
    """The validated input of create and update. An absent key leaves the attribute as it is."""

    title: str
    description: str
    due_date: datetime | None
    priority: Priority
    status: Status
    tags: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TodoFilter:
    """A filter of todos. Every given part narrows the answer; a todo must have all tags."""

    status: Status | None = None
    priority: Priority | None = None
    due_from: datetime | None = None
    due_before: datetime | None = None
    tags: tuple[str, ...] = ()
    search: str = ""
