"""Small talk and short answers: whole sentences that ask for no tool."""

import re

from holodeck.models.demo.intents import Agree, Decline, Intent, Talk

_YES = (
    r"(?:y|yes|yep|yeah|yup|sure|ok|okay|of course|absolutely|certainly|confirm(?:ed)?|correct|right|do it|do that"
    r"|go ahead|please do|go for it|i'?m sure|i am sure|definitely)"
)
_NO = (
    r"(?:n|no|nope|nah|cancel(?: (?:it|that))?|never ?mind|don'?t|do not|stop|abort|neither|none|not now"
    r"|forget (?:it|about it)|keep (?:it|them)|leave (?:it|them))"
)
_FILLED = r"(?:[\s,.!]+(?:please|thanks|thank you|delete (?:it|them|that)|remove (?:it|them)|keep (?:it|them)|do it|don'?t|i am|i'?m sure))*"

_ANSWERS: tuple[tuple[re.Pattern[str], Intent], ...] = tuple(
    (re.compile(rf"{word}(?:[\s,]+{word})*{_FILLED}", re.IGNORECASE), intent)
    for word, intent in ((_NO, Decline()), (_YES, Agree()))
)
_TOPICS = tuple(
    (topic, re.compile(pattern, re.IGNORECASE))
    for topic, pattern in (
        (
            "greeting",
            (
                r"(?:hi+|hello+|hey+|hiya|howdy|yo|greetings|good (?:morning|afternoon|evening|day)|moin|servus)"
                r"(?: there| all| holodeck| demo| everyone| you| again| bot)?"
            ),
        ),
        (
            "thanks",
            (
                r"(?:many |ok |okay |great |cool |nice |perfect )*(?:thanks|thank you|thx|ty|cheers)(?: (?:a lot|so much|very much|again|for .+|you|!))*"
                r"|(?:great|cool|nice|perfect|awesome|wonderful|good job|well done|good bot)"
            ),
        ),
        (
            "bye",
            r"(?:good ?)?(?:bye(?: ?bye)?|night)|see (?:you|ya)(?: .+)?|cya|ciao|farewell|quit|exit|have a .+ (?:day|evening|weekend)",
        ),
        (
            "identity",
            (
                r"(?:who|what)(?: exactly)? are you|what'?s your name|what is your name|(?:and )?who (?:made|built) you"
                r"|are you (?:an? )?(?:.*\b(?:chat ?gpt|gpt\S*|ai|llm|language model|bot|robot|human|person|real|claude|gemini|machine|model|demo)\b.*)"
                r"|which (?:ai |language )?model (?:are you|is this)|is this (?:an? )?(?:ai|llm|chat ?gpt|demo)"
            ),
        ),
        (
            "help",
            (
                r"help(?: me)?|what can (?:you|i) (?:do|say|ask)(?: .+)?|how (?:do|does|can) (?:you|this|i)(?: .+)? (?:work|use .+)|how does (?:it|this) work"
                r"|what (?:do|are) you(?:r)? (?:do|capabilities|features|good at)|commands|usage|\?+|/help|examples?"
            ),
        ),
        (
            "wellbeing",
            r"how(?:'s it going| are you(?: doing)?(?: today)?| do you do| is it going)|what'?s up|sup|you ok",
        ),
    )
)


def read_answer(sentence: str) -> Intent | None:
    """Yes or no."""
    return next((intent for pattern, intent in _ANSWERS if pattern.fullmatch(sentence)), None)


def read_talk(sentence: str) -> Talk | None:
    words = sentence.strip(" .!,;:)(") or sentence.strip()
    words = re.sub(r"(?<=\w)\s*\?+$", "", words)
    greeting = re.match(r"(?:hi|hello|hey)\b[\s,!.]+(?=\w)", words, re.IGNORECASE)
    for text in (words, words[greeting.end() :] if greeting else ""):
        for topic, pattern in _TOPICS:
            if text and pattern.fullmatch(text):
                return Talk(topic)
    return None
