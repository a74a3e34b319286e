"""The form of an API key: `hdk_` + 8 characters id + `_` + 43 characters secret + 6 characters checksum.

The prefix lets secret scanners find a leaked key, the id finds it in the key file without comparing secrets, and the
checksum refuses a mistyped key without a look-up. The secret holds 256 random bits, so a plain SHA-256 protects it.
"""

import hashlib
import re
import secrets
import zlib

PREFIX = "hdk_"
ID_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"  # no characters that look alike
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 8, 43, 6
_KEY = re.compile(r"hdk_([0-9A-Z]{8})_[0-9A-Za-z]{43}[0-9A-Za-z]{6}", re.ASCII)
_ID = re.compile(r"[0-9A-Z]{8}", re.ASCII)


def new_key() -> str:
    """Makes a key. It is shown once and stored nowhere."""
    key_id = "".join(secrets.choice(ID_ALPHABET) for _ in range(_ID_LENGTH))
    body = f"{PREFIX}{key_id}_{_base62(secrets.randbits(256), _SECRET_LENGTH)}"
    return body + _checksum(body)


def id_of(text: str) -> str | None:
    """Returns the id inside a key, or None unless the text has a key's form and checksum."""
    found = _KEY.fullmatch(text)
    if found is None or _checksum(text[:-_CHECKSUM_LENGTH]) != text[-_CHECKSUM_LENGTH:]:
        return None
    return found[1]


def is_key_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def digest(text: str) -> str:
    """Returns the hash of a key, which is what we store. `surrogateescape`: a header may contain any byte."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, rest = divmod(number, 62)
        digits.append(_BASE62[rest])
    return "".join(reversed(digits))
