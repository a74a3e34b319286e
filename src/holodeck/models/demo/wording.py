"""The texts of the demo model's replies. Markdown, because clients render it and terminals can show it as it is."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holodeck.core.text import one_line
from holodeck.core.tools import ToolSchema
from holodeck.models.demo.dates import DAY, END_OF_DAY, MONTHS, WEEKDAYS, is_over
from holodeck.models.demo.todos import Todo
from holodeck.models.demo.tools_by_name import ToolUse, signature

LONGEST_LIST = 30
LONGEST_DESCRIPTION = 60
MOST_NAMED = 5  # todos in a question, tools in a text

TODO_ABILITIES = """\
I can add todos with due dates, priorities and tags, show them, change them, tick them off and delete them. \
Try, for example:

- "Remind me to buy eggs tomorrow at 3pm, urgent #home"
- "What's on my list this week?"
- "Mark the first one as done\""""
NO_MODEL = "I am a rule-based demo, not a language model."
NO_QUESTION = "All right; there is no question open. Ask me to do something with your list."
TALK = {
    "thanks": "You are welcome!",
    "bye": "Goodbye! Your todos stay where they are.",
    "identity": "I am HoloDeck's offline demo model. I am not a language model, and no AI service is behind me: I follow "
    "a set of rules, and I call the same tools that a real model would.",
    "wellbeing": "All rules in working order, thank you! I am only a demo, not a language model.",
    "yes": NO_QUESTION,
    "no": NO_QUESTION,
    "kept": "All right, nothing was deleted.",
    "dropped": "All right, I leave it as it is.",
}
TALK_BEFORE_ABILITIES = {
    "greeting": "Hello! I am HoloDeck's demo model: a set of rules, not a language model.",
    "help": NO_MODEL,
    "too_long": "That is a lot of text. I am a set of rules that read one short request at a time, not a language model.",
    "no_words": f"I can only read words, and that message has no words. {NO_MODEL}",
    "attached": "Your file arrived, but I do not read files: I am a set of rules, not a language model. "
    "Name a model in agent.yaml, and it gets the text.",
    "unknown": "I did not understand that: I am a set of rules, not a language model.",
    "no_todo_tools": f"No todo tools are connected. {NO_MODEL}",
}
WHICH = "Which one do you mean?"
WHAT_TO_ADD = "What shall I add?"
NO_RESULT = "Done. The tool returned nothing."
EMPTY = "Your list is empty. Ask me to remind you of something."


def date_text(when: datetime, now: datetime) -> str:
    """Mon 16 Nov, 15:00. Not by strftime, which takes the names from the machine's locale."""
    text = f"{WEEKDAYS[when.weekday()].title()} {when.day} {MONTHS[when.month - 1].title()}"
    if when.year != now.year:
        text += f" {when.year}"
    return text if when.time() == END_OF_DAY else f"{text}, {when:%H:%M}"


def _hashed(tags: Sequence[str]) -> str:
    return " ".join(f"#{tag}" for tag in tags)


def describe(todo: Todo, now: datetime) -> str:
    """One todo in one line."""
    due, is_done = todo.due(now), todo.status == "completed"
    verb = "was due" if due and not is_done and is_over(due, now) else "due"
    facts = (
        f"{verb} {date_text(due, now)}" if due else "",
        f"{todo.priority} priority" if todo.priority in {"high", "low"} else "",
        _hashed(todo.tags),
        one_line(todo.description or "", LONGEST_DESCRIPTION),
        "done" if is_done else "",
    )
    return " — ".join(part for part in (f"**{todo.title}**", " · ".join(fact for fact in facts if fact)) if part)


def numbered(todos: Sequence[Todo], now: datetime) -> str:
    lines = [f"{number}. {describe(todo, now)}" for number, todo in enumerate(todos[:LONGEST_LIST], 1)]
    if len(todos) > LONGEST_LIST:
        lines.append(f"\n… and {len(todos) - LONGEST_LIST} more.")
    return "\n".join(lines)


def created(todo: Todo, now: datetime) -> str:
    due = todo.due(now)
    return f"Added {describe(todo, now)}.{' Note that this is already over.' if due and is_over(due, now) else ''}"


def listed(todos: Sequence[Todo], fields: dict[str, Any], now: datetime) -> str:
    due, priority, tags, search = (fields.get(name) for name in ("due_date_filter", "priority", "tags", "search"))
    if not todos and due == "overdue":
        return "Nothing is overdue. Well done!"
    if not todos and fields["status"] != "completed" and not (due or priority or tags or search):
        return EMPTY
    status = "overdue" if due == "overdue" else {"pending": "open", "all": ""}.get(fields["status"], "completed")
    tomorrow = (now.date() + DAY).isoformat()
    days = {None: "", "overdue": "", "today": "due today", "this_week": "due this week", tomorrow: "due tomorrow"}
    heading = (
        f"You have {len(todos) or 'no'}",
        status,
        f"{priority}-priority" if priority else "",
        "todo" if len(todos) == 1 else "todos",
        days.get(due, f"due on {due}"),
        f"tagged {_hashed(tags)}" if tags else "",
        f"about “{search}”" if search else "",
    )
    text = " ".join(words for words in heading if words)
    return f"{text}:\n\n{numbered(todos, now)}" if todos else f"{text}."


def changed(todos: Sequence[Todo], fields: dict[str, Any], now: datetime) -> str:
    verb = {"completed": "Done! I ticked off", "pending": "Reopened"}.get(fields.get("status", ""))
    verb = verb or ("Renamed it to" if "title" in fields else "Moved" if fields.get("due") else "Updated")
    if len(todos) == 1:
        return f"{verb} {f'**{todos[0].title}**' if fields.get('status') == 'completed' else describe(todos[0], now)}."
    return f"{verb} {len(todos)} todos:\n\n{numbered(todos, now)}"


def confirm_deletion(todos: Sequence[Todo]) -> str:
    titles = ", ".join(f"“{todo.title}”" for todo in todos[:MOST_NAMED])
    more = f" and {len(todos) - MOST_NAMED} more" if len(todos) > MOST_NAMED else ""
    return f"Delete {titles if len(todos) == 1 else f'{len(todos)} todos ({titles}{more})'}? Say yes to confirm."


def talk(topic: str, tools: Sequence[ToolSchema], *, with_todos: bool) -> str:
    """Small talk; greetings and help end with what can be done with the todo tools and with the other `tools`."""
    if topic in TALK:
        return TALK[topic]
    text = TALK_BEFORE_ABILITIES[topic]
    text += f" {TODO_ABILITIES}" if with_todos else ""
    if not tools:
        return text
    named = [f"- `{tool.name}`: {signature(tool) or 'no arguments'}" for tool in tools[:MOST_NAMED]]
    more = [f"- … and {len(tools) - MOST_NAMED} more"] if len(tools) > MOST_NAMED else []
    return "\n".join([f"{text}\n\nI call tools by their names, with the arguments behind:\n", *named, *more])


def cannot_use(use: ToolUse) -> str:
    """Which arguments are missing or wrong; empty when the call is complete."""
    name, takes = use.tool.name, signature(use.tool)
    if use.unfit:
        return f"{name} cannot take {', '.join(use.unfit)}: it takes {takes or 'no arguments'}."
    return f"{name} needs {signature(use.tool, use.missing)}." if use.missing else ""
