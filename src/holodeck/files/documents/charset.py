"""Guesses the encoding of text that is neither UTF-8 nor UTF-16. The header names the guess.

charset-normalizer guesses well for Cyrillic, Greek and East Asian text, and wrongly for most short Western European
files. It takes "Größe;Preis" in Windows-1252, as Excel writes it, for the encoding of an Icelandic Macintosh. So text
that reads as Western European in Windows-1252 is decoded as that first.
"""

import re

from charset_normalizer import from_bytes

from holodeck.files.documents.document import Document, DocumentRefused

WESTERN = "cp1252"
SAMPLE = 65_536  # bytes that the guess is based on
CANDIDATES = [  # encodings of real files; Python's other codecs only add wrong guesses
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp850", "mac_roman"),
    *("iso8859_2", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949", "tis_620"),
]
NAMES = {"cp932": "Shift JIS", "cp949": "Korean (cp949)", "gb18030": "GB 18030", "koi8_r": "KOI8-R", "big5": "Big5"}
MAX_SHARE = 0.42  # largest share of characters beyond ASCII: "coração não é só" has 41 %
_SYMBOLS = frozenset(
    bytes([*range(0x80, 0x8A), 0x8B, *range(0x91, 0x9A), 0x9B, *range(0xA0, 0xC0), 0xD7, 0xF7]).decode(
        WESTERN, "ignore"
    )
)
_IN_WORDS = frozenset(b"\x92\x96\x97\xa0\xad\xb4\xb7".decode(WESTERN))  # apostrophes, dashes, hyphens, the middle dot
_FOREIGN = re.compile(r"[À-ÿŒœŠšŽžŸ]{3}")  # three in a row: letters of another alphabet


def read(data: bytes) -> Document:
    encoding = _guess(data[:SAMPLE])
    text = data.decode(encoding, "replace").replace("\r\n", "\n")
    return Document(iter([text]), [f"read as {_named(encoding)}"])


def _guess(sample: bytes) -> str:
    if is_western(sample):
        return WESTERN
    best = from_bytes(sample, cp_isolation=CANDIDATES).best()
    if best is None:
        raise DocumentRefused("not_text", "is not text in any known encoding; save it as UTF-8")
    return best.encoding


def is_western(sample: bytes) -> bool:
    """Returns whether this reads as a Western European language in Windows-1252."""
    try:
        text = sample.decode(WESTERN)
    except UnicodeDecodeError:
        return False
    beyond = [character for character in text if character > "\x7f"]
    if len(beyond) > MAX_SHARE * sum(not character.isspace() for character in text) or _FOREIGN.search(text):
        return False
    return all(map(_plausible, f" {text}", text, f"{text[1:]} "))


def _plausible(before: str, character: str, after: str) -> bool:
    """Returns whether a character is a letter, or a symbol in its usual position: misread Polish has them in words."""
    if character <= "\x7f" or (character.isalpha() and character not in _SYMBOLS):
        return True
    between = before.isalpha() and after.isalpha()
    return character in _SYMBOLS and (not between or character in _IN_WORDS)


def _named(encoding: str) -> str:
    if encoding.startswith("cp125"):
        return f"Windows-{encoding[2:]}"
    return NAMES.get(encoding, encoding)
