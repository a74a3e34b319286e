"""Identifiers: ULIDs for sessions and runs, UUIDs for messages, and the shapes we accept from outside."""

import os
import re
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]  # ten bits at a time: half the work
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.IGNORECASE | re.ASCII)  # else the Kelvin sign is a K
_REQUEST_ID = re.compile(r"req_[0-9a-f]{12}")
_RANDOM_BITS = 80
_UUID_FIXED = 0xF << 76 | 0b11 << 62  # the bits of version and variant
_UUID_VERSION_7 = 0x7 << 76 | 0b10 << 62
MAX_FOREIGN_ID = 128


def new_ulid() -> str:
    """26 characters that sort by time of creation, 80 bits of them random."""
    value = (time.time_ns() // 1_000_000) << _RANDOM_BITS | int.from_bytes(os.urandom(_RANDOM_BITS // 8), "big")
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def new_message_id() -> str:
    """A UUID of version 7 (RFC 9562): sorts by time of creation. Some AG-UI clients read ids of messages as UUIDs only."""
    value = (time.time_ns() // 1_000_000) << _RANDOM_BITS | int.from_bytes(os.urandom(_RANDOM_BITS // 8), "big")
    value = value & ~_UUID_FIXED | _UUID_VERSION_7
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_ulid(text: str) -> bool:
    return _ULID.fullmatch(text) is not None


def new_call_id() -> str:
    """For tool calls of models that send none (Ollama)."""
    return f"call_{new_ulid()}"


def new_request_id() -> str:
    return f"req_{os.urandom(6).hex()}"


def is_request_id(text: str) -> bool:
    return _REQUEST_ID.fullmatch(text) is not None


def is_foreign_id(text: str) -> bool:
    """Whether a thread, conversation or run id from a client is acceptable: 1 to 128 printable characters."""
    return 0 < len(text) <= MAX_FOREIGN_ID and text.isprintable()
