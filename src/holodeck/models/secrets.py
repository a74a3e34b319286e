"""Keeps secrets out of what people read: the values we know, and what looks like one.

Endpoints echo headers and keys in their error messages; those messages reach logs, screens and clients.
"""

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "[secret]"
_SHORTEST = 6  # "x" and "none" are what people write for servers that need no key; masking them would ruin every text

_LOOKS_SECRET = re.compile(
    r"""
      \b(?:bearer|basic)\s+[^\s"',;<>]+
    | \b(?:sk|pk|rk|gsk|xai|hf|nvapi|ghp|gho|glpat|key|csk|fw|pplx|tgp|r8)[-_][\w.*-]{6,}
    | \bAIza[\w*-]{10,}
    | \beyJ[\w-]+\.[\w-]+(?:\.[\w-]+)?
    | (?<![\w+/=-])[\w+/-]{40,}={0,2}
    """,
    re.VERBOSE | re.IGNORECASE,
)


class Redactor:
    """Masks known secrets, plain, in base64 and URL-encoded, and anything that has the shape of one."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        known = {form for secret in secrets if secret and len(secret) >= _SHORTEST for form in _forms(secret)}
        longest_first = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return _LOOKS_SECRET.sub(MASK, text)


def _forms(secret: str) -> set[str]:
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return {secret, encoded, quote(secret, safe=""), quote(secret)}
