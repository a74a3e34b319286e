"""Which todo a phrase points at: "it", "number 2", "the last one", "1 and 3", or words of its title."""

import re

from holodeck.models.demo.intents import Everything, It, Numbers, Target, Titled
from holodeck.models.demo.pieces import NUMBERS, ORDINALS

_ORDINAL = "|".join(ORDINALS)
_THING = r"(?: (?:one|ones|task|tasks|todo|todos|item|items|reminder|entry|of them))?"
_ONE = rf"(?:(?:number |no\.? ?|nr\.? ?|item |task |todo |# ?)?\d{{1,3}}|(?:{_ORDINAL}|last)|(?:number )(?:{'|'.join(NUMBERS)})|\d{{1,2}}(?:st|nd|rd|th))"
_PLACES = re.compile(
    rf"(?:the )?(?P<places>{_ONE}(?:(?:,\s*|\s+and\s+|,\s*and\s+|\s*&\s*)(?:the )?{_ONE})*){_THING}", re.IGNORECASE
)
_IT = re.compile(
    r"(?:it|that|this|them|its|the same|that one|this one|the one|(?:that|this|the) (?:task|todo|item|reminder))",
    re.IGNORECASE,
)
_ALL = re.compile(
    r"(?:(?:all|everything|both|every)(?: (?:of )?(?:them|it|those|these|my|the))?(?: (?:to-?dos?|tasks?|items?|ones?|reminders?))?|them all|my (?:whole |entire )?list|the (?:whole|entire) list)",
    re.IGNORECASE,
)
_WRAPPING = re.compile(
    r"^(?:(?:the|my|that|our) )?(?:(?:task|todo|item|reminder)s? )?(?:(?:called|named|titled|about|to|for|with|saying) )?",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"\s+(?:one|task|todo|to-do|item|reminder|thing)$", re.IGNORECASE)

REFERENCE = rf"(?:{_IT.pattern}|(?:the )?{_ONE}{_THING})"


def read_target(phrase: str) -> Target:
    words = phrase.strip(" .,!?")
    if _IT.fullmatch(words):
        return It()
    if _ALL.fullmatch(words):
        return Everything()
    if match := _PLACES.fullmatch(words):
        return Numbers(tuple(_place(one) for one in re.findall(_ONE, match["places"], re.IGNORECASE)))
    bare = _TRAILING.sub("", _WRAPPING.sub("", words)) or words
    return Titled(bare.strip("\"'“” ") or words)


def _place(word: str) -> int:
    cleaned = word.lower().removeprefix("number ").strip()
    if cleaned == "last":
        return -1
    digits = re.search(r"\d+", cleaned)
    return int(digits[0]) if digits else ORDINALS.get(cleaned) or NUMBERS.get(cleaned, 0)
