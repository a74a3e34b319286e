"""Every sentence the demo model says. Markdown, because clients render it and terminals can read it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from holodeck.core.text import one_line
from holodeck.models.demo import zones
from holodeck.models.demo.dates import Due
from holodeck.models.demo.days import MONTHS, WEEKDAYS
from holodeck.models.demo.details import Details
from holodeck.models.demo.intents import Change, Show
from holodeck.models.demo.todos import Todo

LONGEST_LIST = 30
LONGEST_DESCRIPTION = 60

EXAMPLES = """\
- "Remind me to buy eggs tomorrow at 3pm, urgent #home"
- "What's on my list this week?"
- "Mark the first one as done" """.rstrip()

ABILITIES = (
    "I can add todos with due dates, priorities and tags, show them, change them, tick them off and delete them. "
    f"Try, for example:\n\n{EXAMPLES}"
)
TALK = {
    "greeting": f"Hello! I am HoloDeck's demo model: a set of rules, not a language model. {ABILITIES}",
    "thanks": "You are welcome!",
    "bye": "Goodbye! Your todos stay where they are.",
    "identity": "I am HoloDeck's offline demo model. I am no language model and no AI service stands behind me: I follow "
    "a set of rules for todo lists, and I ask the same tools that a real model would.",
    "help": f"I am a rule-based demo, not a language model. {ABILITIES}",
    "wellbeing": "All rules in working order, thank you! I am only a demo and no language model, but I keep todo lists well.",
    "too_long": "That is a lot of text. I am no language model, only rules that read one short request at a time. "
    f"{ABILITIES}",
    "no_words": "I can only read words, and there were none in that message. I am a rule-based demo, not a language model. "
    f"{ABILITIES}",
    "unknown": f"I did not understand that: I am no language model, only a set of rules for todo lists. {ABILITIES}",
    "no_question": "All right; there is no question open between us. Just tell me what to do with your list.",
    "how_to_change": "Say what to change, for example “rename it to buy ham”, “move it to friday 10am”, “make it urgent” "
    "or “tag it #work”.",
    "kept": "All right, nothing was deleted.",
    "dropped": "All right, I leave it as it is.",
}
WHICH = "Which one do you mean?"
WHAT_TO_ADD = "What shall I add?"


def date_text(when: datetime, *, timed: bool, now: datetime, year: bool = False) -> str:
    """Mon 16 Nov, 15:00. The names are ours: strftime would take them from the machine's locale."""
    local = when.astimezone(now.tzinfo)
    text = f"{WEEKDAYS[local.weekday()][:3].title()} {local.day} {MONTHS[local.month - 1][:3].title()}"
    if year or local.year != now.year:
        text += f" {local.year}"
    return f"{text}, {local:%H:%M}" if timed else text


def _is_timed(when: datetime, now: datetime) -> bool:
    return when.astimezone(now.tzinfo).time() != zones.END_OF_DAY


def attributes(due: Due | None, priority: str | None, tags: Sequence[str]) -> str:
    """What was said about a new todo, in words, for tools that can only keep words."""
    when = due and f"due {date_text(due.when, timed=due.timed, now=due.when, year=True)}"
    level = priority and f"{priority} priority"
    return " · ".join(part for part in (when, level, _hashed(tags)) if part)


def _hashed(tags: Sequence[str]) -> str:
    return " ".join(f"#{tag}" for tag in tags)


def describe(todo: Todo, now: datetime) -> str:
    """One todo in one line."""
    facts = [_due_text(todo, now)]
    if todo.priority in {"high", "low"}:
        facts.append(f"{todo.priority} priority")
    facts.append(_hashed(todo.tags))
    facts.append(one_line(todo.description, LONGEST_DESCRIPTION))
    facts.append("done" if todo.status == "completed" else "")
    told = " · ".join(fact for fact in facts if fact)
    return f"**{todo.title}** — {told}" if told else f"**{todo.title}**"


def _due_text(todo: Todo, now: datetime) -> str:
    if todo.due is None:
        return ""
    late = todo.status != "completed" and todo.due.astimezone(UTC) < now.astimezone(UTC)
    return f"{'was due' if late else 'due'} {date_text(todo.due, timed=_is_timed(todo.due, now), now=now)}"


def numbered(todos: Sequence[Todo], now: datetime) -> str:
    lines = [f"{number}. {describe(todo, now)}" for number, todo in enumerate(todos[:LONGEST_LIST], 1)]
    if len(todos) > LONGEST_LIST:
        lines.append(f"\n… and {len(todos) - LONGEST_LIST} more.")
    return "\n".join(lines)


def created(todo: Todo, details: Details, now: datetime) -> str:
    told = f"Added {describe(todo, now)}."
    if details.due and todo.due is None and not todo.description:
        told += f" Its due date was not kept: {attributes(details.due, None, ())}."
    if details.due and details.due.when.astimezone(UTC) < now.astimezone(UTC):
        told += " Note that this is already over."
    return told


def listed(todos: Sequence[Todo], wanted: Show, now: datetime) -> str:
    if not todos:
        return _nothing(wanted)
    heading = f"You have {_count(len(todos), wanted)}"
    return f"{heading}." if wanted.count_only else f"{heading}:\n\n{numbered(todos, now)}"


def _count(number: int, wanted: Show) -> str:
    status = {"pending": "open ", "completed": "completed ", "all": ""}[wanted.status]
    level = f"{wanted.priority}-priority " if wanted.priority else ""
    late = "overdue " if wanted.overdue else ""
    return f"{number} {late or status}{level}{'todo' if number == 1 else 'todos'}{_qualified(wanted)}"


def _qualified(wanted: Show) -> str:
    period = f" due {wanted.period.label}" if wanted.period else ""
    tags = f" tagged {_hashed(wanted.tags)}" if wanted.tags else ""
    search = f" about “{wanted.search}”" if wanted.search else ""
    return period + tags + search


def _nothing(wanted: Show) -> str:
    if wanted in {Show(), Show(status="all"), Show(count_only=True)}:
        return "Your list is empty. Enjoy it, or tell me what to remember."
    if wanted.overdue:
        return "Nothing is overdue. Well done!"
    status = {"pending": "open ", "completed": "completed ", "all": ""}[wanted.status]
    level = f"{wanted.priority}-priority " if wanted.priority else ""
    return f"You have no {status}{level}todos{_qualified(wanted)}."


def changed(todos: Sequence[Todo], change: Change, now: datetime) -> str:
    verb = _change_verb(change)
    if len(todos) == 1:
        shown = f"**{todos[0].title}**" if change.status == "completed" else describe(todos[0], now)
        return f"{verb} {shown}."
    return f"{verb} {len(todos)} todos:\n\n{numbered(todos, now)}"


def _change_verb(change: Change) -> str:
    if change.status == "completed":
        return "Done! I ticked off"
    if change.status == "pending":
        return "Reopened"
    if change.title:
        return "Renamed it to"
    return "Moved" if change.due or change.shift else "Updated"


def already(todos: Sequence[Todo]) -> str:
    state = "ticked off" if todos[0].status == "completed" else "open"
    return f"**{todos[0].title}** is already {state}."


def deleted(todos: Sequence[Todo]) -> str:
    return f"Deleted {', '.join(f'**{todo.title}**' for todo in todos)}."


def confirm_deletion(todos: Sequence[Todo]) -> str:
    if len(todos) == 1:
        return f"Delete “{todos[0].title}”? Say yes to confirm."
    titles = ", ".join(f"“{todo.title}”" for todo in todos[:5])
    more = f" and {len(todos) - 5} more" if len(todos) > 5 else ""  # noqa: PLR2004, as many as are named
    return f"Delete {len(todos)} todos ({titles}{more})? Say yes to confirm."


def which(todos: Sequence[Todo], now: datetime) -> str:
    return f"{WHICH}\n\n{numbered(todos, now)}\n\nSay its number."


def not_found(words: str) -> str:
    return f"I found no todo like “{words}”. Say “show my todos” to see what is there."


def out_of_range(place: int, length: int) -> str:
    return f"There is no number {place}: the list I showed you has {length}."


def empty_list() -> str:
    return _nothing(Show())


def no_todo_tools(names: Sequence[str]) -> str:
    others = f" Connected are: {', '.join(f'`{name}`' for name in names)}." if names else ""
    return (
        "No todo tools are connected, and without them I can only chat a little: I am a rule-based demo, not a language "
        f"model.{others}"
    )


def tool_missing(name: str) -> str:
    return f"I would need the tool `{name}` for that, and it is not connected."


def cannot(change: Change) -> str:
    wanted = {
        "due dates": change.due or change.shift or change.undated,
        "priorities": change.priority,
        "tags": change.add_tags or change.remove_tags,
        "reopening": change.status == "pending",
    }
    missing = " or ".join(name for name, asked in wanted.items() if asked)
    return f"The connected task tools know no {missing}; they can only add, list, complete, rename and delete."


def tool_failed(text: str) -> str:
    return f"That did not work. The tool says: {text.strip() or 'nothing at all'}"
