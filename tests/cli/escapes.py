"""Control sequences as a hostile model or tool could send them: more than 500, each with nothing of it to be seen."""

from itertools import product

STRING_STARTS = ("\x1b]", "\x1bP", "\x1b_", "\x1b^", "\x1bX", "\x9d", "\x90", "\x9f", "\x9e", "\x98")
STRING_ENDS = ("\x07", "\x1b\\", "\x9c")
STRINGS = (
    "0;evil title",
    "2;t",
    "8;;http://evil.example",
    "52;c;ZXZpbA==",
    "4;1;rgb:ff/00/00",
    "1337;File=:AAAA",
    'q"1;1',
)
CSI_STARTS = ("\x1b[", "\x9b")
CSI_PARAMETERS = ("", "2", "31;1", "?25", "?1049", "6", "38;2;255;0;0", ">0", "999;999", "1;2 ", "!")
CSI_FINALS = "ABCDHJKLMPSTXfhlmnprsuq@`~c"
TWO_CHARACTERS = [f"\x1b{middle}{end}" for middle, end in product(("", "(", ")", "#", " "), "78BDEHMNOZc0=>")]
CONTROLS = [
    chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t" + "\x1b\x90\x98\x9b\x9d\x9e\x9f"
]
BIDI = list("\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\u061c")

SEQUENCES = [
    *("".join(parts) for parts in product(STRING_STARTS, STRINGS, STRING_ENDS)),
    *("".join(parts) for parts in product(CSI_STARTS, CSI_PARAMETERS, CSI_FINALS)),
    *TWO_CHARACTERS,
    *CONTROLS,
    *BIDI,
    "\x1b]0;a\x1b[31mb\x07",  # a sequence inside another
    "\x1b\x1b\x1b[A",
    "\x1b[3\x1b[31m",
    "\x1b[31\x18",  # cancelled by CAN
]
