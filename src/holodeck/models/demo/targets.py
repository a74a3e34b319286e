"""Which todo a phrase points at: "it", "number 2", "the last one", "1 and 3", or words of its title."""

import re

from holodeck.models.demo.intents import Everything, It, Numbers, Target, Titled
from holodeck.models.demo.patterns import one_of, pattern
from holodeck.models.demo.pieces import NUMBERS, ORDINALS

_THING = r"(?: (?:one|ones|task|tasks|todo|todos|item|items|reminder|entry|of them))?"
_PLURAL = "(?:to-?dos?|tasks?|items?|ones?|reminders?)"
_ONE = one_of(
    r"(?:number |no\.? ?|nr\.? ?|item |task |todo |# ?)?\d{1,3}",
    r"\d{1,2}(?:st|nd|rd|th)",
    *ORDINALS,
    "last",
    rf"number {one_of(*NUMBERS)}",
)
_PLACES = pattern(rf"(?:the )?(?P<places>{_ONE}(?:(?:,\s*|\s+and\s+|,\s*and\s+|\s*&\s*)(?:the )?{_ONE})*){_THING}")
_IT = pattern(
    *("it", "that", "this", "them", "its", "the same", "that one", "this one", "the one"),
    "(?:that|this|the) (?:task|todo|item|reminder)",
)
_ALL = pattern(
    r"(?:all|everything|both|every)(?: (?:of )?(?:them|it|those|these|my|the))? ?"
    rf"(?P<done>(?:completed|done|finished) )?{_PLURAL}?",
    rf"(?:the |my )?(?P<only_done>completed|done|finished) {_PLURAL}",
    "them all",
    "(?:my|the) (?:whole |entire )?(?:to-?do )?list",
)
_WRAPPING = pattern(
    r"^(?:(?:the|my|that|our) )?(?:(?:task|todo|item|reminder)s? )?"
    r"(?:(?:called|named|titled|about|to|for|with|saying) )?"
)
_TRAILING = pattern(r"\s+(?:one|task|todo|to-do|item|reminder|thing)$")

REFERENCE = rf"(?:{_IT.pattern}|(?:the )?{_ONE}{_THING})"


def read_target(phrase: str) -> Target:
    words = phrase.strip(" .,!?")
    if _IT.fullmatch(words):
        return It()
    if match := _ALL.fullmatch(words):
        return Everything("completed" if match["done"] or match["only_done"] else None)
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
