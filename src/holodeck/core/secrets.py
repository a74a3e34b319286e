"""Masks secrets in text that people read: known values, and everything that looks like one (T28).

Endpoints and tool servers echo keys in their error messages, which reach logs, screens and clients. The mask keeps JSON
text valid, so that no secret can hide in a nested value.
"""

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"
MIN_SECRET = 6  # shorter values are words: "x", "none", "demo"; masking them would hide more than it protects

# A text may be a megabyte that looks like the beginning of a secret. So no pattern backtracks, or looks far ahead, at
# each position.
_LOOKS_SECRET = re.compile(
    r"""
      \b(?:sk|pk|rk)-[A-Za-z0-9_-]{12,}          # OpenAI and those who copied its form
    | \bAIza[0-9A-Za-z_-]{20,}                   # Google
    | \bgh[pousr]_[A-Za-z0-9]{20,}               # GitHub
    | \bxox[abprs]-[A-Za-z0-9-]{10,}             # Slack
    | hdk_[0-9A-Z]{8}_[0-9A-Za-z]{20,}            # HoloDeck's own API keys
    | aGRrX[0-9A-Za-z+/_-]{40,}={0,2}            # the same in base64
    | hdp_[0-9A-Za-z_.=-]{20,}                    # the playground's own tokens
    | \bAKIA[0-9A-Z]{16}\b                       # AWS
    # JSON web tokens: of any length where nothing of their letters stands before them, so each letter is read once as a part
    | (?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+
    | \beyJ[A-Za-z0-9_-]{8,500}+\.[A-Za-z0-9_-]{8,8000}+\.[A-Za-z0-9_-]*+        # after a hyphen
    """,
    re.VERBOSE,
)
_NAMED = re.compile(
    r"""
    ( (?:api[_-]?key|access[_-]?token|auth[_-]?token|secret|passwd|password|authorization|cookie) \w{0,60}+
      (?: (?P<quote>\\?") \s*+:\s*+ (?P=quote)        # a member of an object; null and numbers are no strings
        | \s*+[:=]\s*+ (?:\\"|')? )                    # inside a text
      \s*+ (?:(?:bearer|basic)\s++)? )
    [^\s"'\\,;&}\]]+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BEARER = re.compile(r"\b(bearer\s++)[^\s\"'\\,;]{6,}", re.IGNORECASE)

# Every pattern above needs one of these words, and words are found much faster than patterns. They are as long as
# possible, since a false alarm costs ten times the search: "token" alone is in every line that counts tokens. The
# common part of several words is searched first. That halves the work for a line that has none, which is nearly every
# line.
_SHAPES = (
    ("k-", ("sk-", "pk-", "rk-")),
    ("I", ("AIza", "AKIA")),
    ("gh", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    ("x", ("xox",)),
    ("hd", ("hdk_", "hdp_")),
    ("aGRrX", ("aGRrX",)),
    ("eyJ", ("eyJ",)),
)
_NAMES = (  # in lower case
    ("api", ("apikey", "api_key", "api-key")),
    ("access", ("accesstoken", "access_token", "access-token")),
    ("auth", ("authtoken", "auth_token", "auth-token", "authoriz")),
    ("secret", ("secret",)),
    ("passw", ("passw",)),
    ("cookie", ("cookie",)),
    ("bearer", ("bearer",)),
)

# For text from outside, in which no name or path matters as much as a key: shorter, starred out, or just long.
_SUSPICIOUS = re.compile(
    r"""
      \b(?:bearer|basic)\s+[^\s"',;<>]+
    | \b(?:sk|pk|rk|gsk|xai|hf|nvapi|ghp|gho|glpat|key|csk|fw|pplx|tgp|r8)[-_][\w.*-]{6,}
    | \bAIza[\w*-]{10,}
    | \beyJ[\w-]{1,500}+\.[\w-]{1,8000}+(?:\.[\w-]++)?
    | (?<![\w+/=-])[\w+/-]{40,}={0,2}
    """,
    re.VERBOSE | re.IGNORECASE,
)


class Redactor:
    """Masks known secrets in every form that they may have, and everything that has the shape of one."""

    def __init__(self, secrets: Iterable[str | None] = (), *, wary: bool = False) -> None:
        """`wary` is for text from outside: it masks too much rather than too little."""
        forms = {form for secret in secrets if secret and len(secret) >= MIN_SECRET for form in _forms(secret)}
        self._known = sorted(forms, key=len, reverse=True)  # longest first: one secret may contain another
        self._wary = wary

    def __call__(self, text: str) -> str:
        for form in self._known:
            if form in text:
                text = text.replace(form, MASK)
        if self._wary:
            text = _SUSPICIOUS.sub(MASK, text)
        for part, shapes in _SHAPES:  # plain loops: any() over a generator costs more, for every line and text
            if part in text and _has_any(text, shapes):
                text = _LOOKS_SECRET.sub(MASK, text)
                break
        lowered = text.lower()
        for part, names in _NAMES:
            if part in lowered and _has_any(lowered, names):
                return _BEARER.sub(rf"\1{MASK}", _NAMED.sub(rf"\1{MASK}", text))
        return text


def _has_any(text: str, words: Iterable[str]) -> bool:
    for word in words:  # noqa: SIM110  faster than any() over a generator
        if word in text:
            return True
    return False


def _forms(secret: str) -> set[str]:
    """The forms in which a value may appear: plain, inside JSON, in a URL, in base64."""
    encoded = base64.b64encode(secret.encode("utf-8", "replace")).decode().rstrip("=")
    return {
        secret,
        json.dumps(secret)[1:-1],
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        encoded,
    }
