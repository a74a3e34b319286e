"""Restrictions of an endpoint, learned from its refusals: members of a request to leave out, and how many tokens it allows.

A refusal may quote the user's text, so it proves nothing about the endpoint by itself. A restriction first applies to the
repeated request only. It applies to all further requests once the endpoint has accepted the repeated one.
"""

import re
from collections.abc import Iterable

import msgspec


class Restrictions(msgspec.Struct, frozen=True, kw_only=True):
    """Members to leave out, and the largest max_tokens. Pure values: `|` joins two."""

    without: frozenset[str] = frozenset()
    most_tokens: int | None = None
    most_tokens_now: int | None = None  # for this prompt: a shorter prompt may allow more

    def __or__(self, other: "Restrictions") -> "Restrictions":
        """The restrictions of both, without those that hold for one request only."""
        most = self.most_tokens if other.most_tokens is None else other.most_tokens
        return Restrictions(without=self.without | other.without, most_tokens=most)

    def and_without(self, member: str) -> "Restrictions":
        return msgspec.structs.replace(self, without=self.without | {member})

    def beyond(self, known: "Restrictions") -> list[str]:
        """The new restrictions in it, in words for the log."""
        words = sorted(self.without - known.without)
        if self.most_tokens is not None and self.most_tokens != known.most_tokens:
            words.append(f"more than {self.most_tokens} max_tokens")
        return words


def any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


NOTHING = Restrictions()
_REMEMBERED = 10_000  # messages and turns


class RefusedMessages(dict[str, None]):
    """Ids of messages that an endpoint refused a part of. The oldest are dropped when there are too many."""

    def learn(self, ids: Iterable[str]) -> int:
        """Adds the ids. Returns how many of them are new: if none is, repeating the request does not help."""
        new = dict.fromkeys(each for each in ids if each not in self)
        self.update(new)
        while len(self) > _REMEMBERED:
            del self[next(iter(self))]
        return len(new)
