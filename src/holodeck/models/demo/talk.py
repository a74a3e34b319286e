"""Small talk and short answers: whole sentences that ask for no tool."""

import re

from holodeck.models.demo.intents import Agree, Decline, Intent, Talk
from holodeck.models.demo.patterns import one_of, pattern

_YES = one_of(
    *("y", "yes", "yep", "yeah", "yup", "sure", "ok", "okay", "of course", "absolutely", "certainly", "definitely"),
    *(
        "confirm(?:ed)?",
        "correct",
        "right",
        "do it",
        "do that",
        "go ahead",
        "please do",
        "go for it",
        "i'?m sure",
        "i am sure",
    ),
)
_NO = one_of(
    *("n", "no", "nope", "nah", "cancel(?: (?:it|that))?", "never ?mind", "don'?t", "do not", "stop", "abort"),
    *("neither", "none", "not now", "forget (?:it|about it)", "keep (?:it|them)", "leave (?:it|them)"),
)
_MORE = one_of(
    "please", "thanks", "thank you", "(?:delete|remove|keep) (?:it|them|that)", "do it", "don'?t", "i am", "i'?m sure"
)

_ANSWERS: tuple[tuple[re.Pattern[str], Intent], ...] = tuple(
    (pattern(rf"{word}(?:[\s,]+{word})*(?:[\s,.!]+{_MORE})*"), intent)
    for word, intent in ((_NO, Decline()), (_YES, Agree()))
)
_SOMEBODY = one_of(
    *(
        "chat ?gpt",
        r"gpt\S*",
        "ai",
        "llm",
        "language model",
        "bot",
        "robot",
        "human",
        "person",
        "real",
        "claude",
        "gemini",
    ),
    *("machine", "model", "demo"),
)
_TOPICS = {
    "greeting": pattern(
        one_of(
            *("hi+", "hello+", "hey+", "hiya", "howdy", "yo", "greetings", "moin", "servus"),
            "good (?:morning|afternoon|evening|day)",
        )
        + "(?: there| all| holodeck| demo| everyone| you| again| bot)?",
    ),
    "thanks": pattern(
        r"(?:many |ok |okay |great |cool |nice |perfect )*(?:thanks|thank you|thx|ty|cheers)"
        r"(?: (?:a lot|so much|very much|again|for .+|you))*",
        *("great", "cool", "nice", "perfect", "awesome", "wonderful", "good job", "well done", "good bot"),
    ),
    "bye": pattern(
        *(
            "(?:good ?)?bye(?: ?bye)?",
            "good ?night",
            "see (?:you|ya)(?: .+)?",
            "cya",
            "ciao",
            "farewell",
            "quit",
            "exit",
        ),
        "have a .+ (?:day|evening|weekend)",
    ),
    "identity": pattern(
        "(?:who|what)(?: exactly)? are you",
        "what(?:'?s| is) your name",
        "(?:and )?who (?:made|built) you",
        rf"are you .*\b{_SOMEBODY}\b.*",
        "which (?:ai |language )?model (?:are you|is this)",
        "is this (?:an? )?(?:ai|llm|chat ?gpt|demo)",
    ),
    "help": pattern(
        *("help(?: me)?", "/help", "commands", "usage", "examples?", r"\?+"),
        "what can (?:you|i) (?:do|say|ask)(?: .+)?",
        "how (?:do|does|can) (?:you|this|it|i) (?:work|use .+)",
        "what (?:do you do|are you good at|are your (?:capabilities|features))",
    ),
    "wellbeing": pattern(
        "how(?:'s it going| are you(?: doing)?(?: today)?| do you do| is it going)", "what'?s up", "sup", "you ok"
    ),
}


def read_answer(sentence: str) -> Intent | None:
    """Yes or no."""
    return next((intent for words, intent in _ANSWERS if words.fullmatch(sentence)), None)


def read_talk(sentence: str) -> Talk | None:
    words = sentence.strip(" .!,;:)(") or sentence.strip()
    words = re.sub(r"(?<=\w)\s*\?+$", "", words)
    greeting = re.match(r"(?:hi|hello|hey)\b[\s,!.]+(?=\w)", words, re.IGNORECASE)
    for text in (words, words[greeting.end() :] if greeting else ""):
        for topic, phrases in _TOPICS.items():
            if text and phrases.fullmatch(text):
                return Talk(topic)
    return None
