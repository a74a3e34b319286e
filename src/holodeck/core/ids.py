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
MAX_ID_LENGTH = 128  # characters
_CHUNK, _CHUNKS = _RANDOM_BITS // 8, 256

# Random bytes from the system, many at a time. `os.urandom` releases the interpreter lock: in a busy process, the
# thread that makes an id would wait each time for the threads of the store and of the log. No chunk is used twice, not
# even after a fork.
_chunks: list[bytes] = []
os.register_at_fork(after_in_child=_chunks.clear)


def _draw() -> bytes:
    """Fills the list and returns one more chunk."""
    drawn = os.urandom(_CHUNK * (_CHUNKS + 1))
    _chunks.extend([drawn[start : start + _CHUNK] for start in range(_CHUNK, len(drawn), _CHUNK)])
    return drawn[:_CHUNK]


def _random() -> bytes:
    try:
        return _chunks.pop()
    except IndexError:  # another thread may have taken the last one
        return _draw()


def new_ulid() -> str:
    """A new ULID: 26 characters that sort by time of creation, 80 bits of them random."""
    value = (time.time_ns() // 1_000_000) << _RANDOM_BITS | int.from_bytes(_random(), "big")
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def new_message_id() -> str:
    """A new UUID of version 7 (RFC 9562), which sorts by time of creation.

    Some AG-UI clients accept only UUIDs here.
    """
    value = (time.time_ns() // 1_000_000) << _RANDOM_BITS | int.from_bytes(_random(), "big")
    value = value & ~_UUID_FIXED | _UUID_VERSION_7
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_ulid(text: str) -> bool:
    return _ULID.fullmatch(text) is not None


def new_call_id() -> str:
    """A new id for a tool call of a model that sends none (Ollama)."""
    return f"call_{new_ulid()}"


def new_request_id() -> str:
    return f"req_{_random()[:6].hex()}"


def is_request_id(text: str) -> bool:
    return _REQUEST_ID.fullmatch(text) is not None


def is_valid_id(text: str) -> bool:
    """Whether a thread, conversation or run id from a client is acceptable: 1 to 128 printable characters."""
    return 0 < len(text) <= MAX_ID_LENGTH and text.isprintable()
