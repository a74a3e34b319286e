"""Small talk: the topic of a sentence that asks for nothing, and the replies. Markdown, as all replies are."""

import re
from collections.abc import Collection, Sequence

from holodeck.core.tools import ToolSchema
from holodeck.models.demo.tools_by_name import signature

MOST_TOOLS = 5  # tools named in one reply

_SENTENCES = {
    "no": r"n|no(?:pe)?(?: thanks)?|cancel(?: (?:it|that))?|never ?mind|don't|stop|keep (?:it|them)",
    "yes": r"y|(?:yes|yep|yeah|sure|ok|okay)(?:,? (?:please|do it|go ahead|(?:delete|remove) (?:it|them)))?"
    r"|confirm|do it|go ahead",
    "greeting": r"(?:hi|hello|hey|good (?:morning|afternoon|evening|day))(?: there| all| holodeck)?",
    "thanks": r"(?:ok |great |many )?(?:thanks|thank you|thx)(?: (?:a lot|so much|very much|for .+))?|great|perfect",
    "bye": r"(?:good ?)?bye|good ?night|see you(?: .+)?|quit|exit",
    "identity": r"(?:who|what) are you|what(?:'s| is) your name|are you .*\b(?:chatgpt|ai|bot|human|model|claude)\b.*",
    "help": r"/?help(?: me)?|commands|examples?|\?+|what can (?:you|i) (?:do|say|ask)(?: .+)?|.*\bwhat you can do\b.*"
    r"|how (?:do|does|can) (?:you|this|it|i) (?:work|use .+)",
    "wellbeing": r"how are you(?: doing)?(?: today)?|what's up",
}
_NO_QUESTION = "All right; there is no question open."
_REPLIES = {
    "no": _NO_QUESTION,
    "yes": _NO_QUESTION,
    "thanks": "You are welcome!",
    "bye": "Goodbye!",
    "identity": "I am HoloDeck's offline demo model. I am not a language model, and no AI service is behind me: I follow "
    "a set of rules, and I call the same tools that a real model would.",
    "wellbeing": "All rules in working order, thank you! I am only a demo, not a language model.",
    "kept": "All right, nothing was deleted.",
    "dropped": "All right, I leave it as it is.",
}
_MORE_WITH_TODOS = {
    "no": "Ask me to do something with your list.",
    "yes": "Ask me to do something with your list.",
    "bye": "Your todos stay where they are.",
}
_NO_MODEL = "I am a rule-based demo, not a language model."
_REPLIES_WITH_ABILITIES = {
    "greeting": "Hello! I am HoloDeck's demo model: a set of rules, not a language model.",
    "help": _NO_MODEL,
    "too_long": f"That is a lot of text, and I read one short request at a time. {_NO_MODEL}",
    "no_words": f"I can only read words, and that message has no words. {_NO_MODEL}",
    "attached": f"Your file arrived, but I do not read files. {_NO_MODEL} Name a model in agent.yaml, and it gets the text.",
    "unknown": f"I did not understand that. {_NO_MODEL}",
    "no_todo_tools": f"No todo tools are connected. {_NO_MODEL}",
}
_NO_TOOLS = "This agent has no tools that I could call: add tools to `agent.yaml`, or name a model there."
_ABILITIES = {
    "create_todo": ["add todos with due dates, priorities and tags"],
    "list_todos": ["show them"],
    "update_todo": ["change them", "tick them off"],
    "delete_todo": ["delete them"],
}
_EXAMPLES = {
    "create_todo": "Remind me to buy eggs tomorrow at 3pm, urgent #home",
    "list_todos": "What's on my list this week?",
    "update_todo": "Mark the first one as done",
}


def read_topic(line: str) -> str | None:
    words = line.rstrip(" .!,;:?") or line
    return next((topic for topic, phrases in _SENTENCES.items() if re.fullmatch(phrases, words, re.IGNORECASE)), None)


def reply_to(topic: str, tools: Sequence[ToolSchema], todo_tools: Collection[str]) -> str:
    """The reply. Greetings and help end with what can be done with the todo tools and with the other `tools`."""
    if topic in _REPLIES:
        return " ".join(
            [_REPLIES[topic], *([_MORE_WITH_TODOS[topic]] if todo_tools and topic in _MORE_WITH_TODOS else [])]
        )
    text = _REPLIES_WITH_ABILITIES[topic]
    if todo_tools:
        text += f" {_todo_abilities(todo_tools)}"
    if not tools:
        return text if todo_tools else f"{text} {_NO_TOOLS}"
    named = [f"- `{tool.name}`: {signature(tool) or 'no arguments'}" for tool in tools[:MOST_TOOLS]]
    more = [f"- … and {len(tools) - MOST_TOOLS} more"] if len(tools) > MOST_TOOLS else []
    return "\n".join([f"{text}\n\nI call a tool by its name, with its arguments after it:\n", *named, *more])


def _todo_abilities(todo_tools: Collection[str]) -> str:
    """What these of the todo tools can do, with examples."""
    first, *rest = [ability for name, abilities in _ABILITIES.items() if name in todo_tools for ability in abilities]
    able = [first.replace("them", "your todos"), *rest]
    text = f"I can {' and '.join(filter(None, (', '.join(able[:-1]), able[-1])))}."
    examples = [f'- "{example}"' for name, example in _EXAMPLES.items() if name in todo_tools]
    return "\n".join([f"{text} Try, for example:\n", *examples]) if examples else text
