"""The texts of the demo model's replies. Markdown, because clients render it and terminals can show it as it is."""

from collections.abc import Sequence
from datetime import datetime

from holodeck.core.text import one_line
from holodeck.core.tools import ToolSchema
from holodeck.models.demo.dates import END_OF_DAY, MONTHS, WEEKDAYS, is_over
from holodeck.models.demo.intents import Create, ListedTodo, Show, TodoChange
from holodeck.models.demo.tools_by_name import UseTool, signature

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
    "identity": "I am HoloDeck's offline demo model. I am no language model and no AI service stands behind me: I follow "
    "a set of rules, and I call the same tools that a real model would.",
    "wellbeing": "All rules in working order, thank you! I am only a demo and no language model.",
    "yes": NO_QUESTION,
    "no": NO_QUESTION,
    "how_to_change": "Say what to change, for example “rename it to buy ham”, “move it to friday 10am”, “make it urgent” "
    "or “tag it #work”.",
    "kept": "All right, nothing was deleted.",
    "dropped": "All right, I leave it as it is.",
}
TALK_BEFORE_ABILITIES = {
    "greeting": "Hello! I am HoloDeck's demo model: a set of rules, not a language model.",
    "help": NO_MODEL,
    "too_long": "That is a lot of text. I am no language model, only rules that read one short request at a time.",
    "no_words": f"I can only read words, and that message has no words. {NO_MODEL}",
    "unknown": "I did not understand that: I am no language model, only a set of rules.",
    "no_todo_tools": f"No todo tools are connected. {NO_MODEL}",
}
WHICH = "Which one do you mean?"
WHAT_TO_ADD = "What shall I add?"
NO_RESULT = "Done. The tool returned nothing."
EMPTY = "Your list is empty. Ask me to remind you of something."


def date_text(when: datetime, *, timed: bool, now: datetime, year: bool = False) -> str:
    """Mon 16 Nov, 15:00. Not by strftime, which takes the names from the machine's locale."""
    local = when.astimezone(now.tzinfo)
    text = f"{WEEKDAYS[local.weekday()][:3].title()} {local.day} {MONTHS[local.month - 1].title()}"
    if year or local.year != now.year:
        text += f" {local.year}"
    return f"{text}, {local:%H:%M}" if timed else text


def attributes(wanted: Create) -> str:
    """Due date, priority and tags in words, for tools that can only keep words."""
    due = wanted.due
    when = f"due {date_text(due.when, timed=due.timed, now=due.when, year=True)}" if due else ""
    return _facts(when, wanted.priority and f"{wanted.priority} priority", _hashed(wanted.tags))


def _facts(*facts: str | None) -> str:
    return " · ".join(fact for fact in facts if fact)


def _hashed(tags: Sequence[str]) -> str:
    return " ".join(f"#{tag}" for tag in tags)


def describe(todo: ListedTodo, now: datetime) -> str:
    """One todo in one line."""
    due = ""
    if todo.due:
        late = todo.status != "completed" and is_over(todo.due, now)
        timed = todo.due.astimezone(now.tzinfo).time() != END_OF_DAY
        due = f"{'was due' if late else 'due'} {date_text(todo.due, timed=timed, now=now)}"
    facts = _facts(
        due,
        f"{todo.priority} priority" if todo.priority in {"high", "low"} else "",
        _hashed(todo.tags),
        one_line(todo.description, LONGEST_DESCRIPTION),
        "done" if todo.status == "completed" else "",
    )
    return f"**{todo.title}** — {facts}" if facts else f"**{todo.title}**"


def numbered(todos: Sequence[ListedTodo], now: datetime) -> str:
    lines = [f"{number}. {describe(todo, now)}" for number, todo in enumerate(todos[:LONGEST_LIST], 1)]
    if len(todos) > LONGEST_LIST:
        lines.append(f"\n… and {len(todos) - LONGEST_LIST} more.")
    return "\n".join(lines)


def created(todo: ListedTodo, wanted: Create, now: datetime) -> str:
    text = f"Added {describe(todo, now)}."
    return f"{text} Note that this is already over." if wanted.due and is_over(wanted.due.when, now) else text


def listed(todos: Sequence[ListedTodo], wanted: Show, now: datetime) -> str:
    if not todos and wanted in {Show(), Show(status="all")}:
        return EMPTY
    if not todos and wanted.due_filter == "overdue":
        return "Nothing is overdue. Well done!"
    status = (
        "overdue "
        if wanted.due_filter == "overdue"
        else {"pending": "open ", "all": ""}.get(wanted.status, "completed ")
    )
    level = f"{wanted.priority}-priority " if wanted.priority else ""
    period = f" due {wanted.period_name}" if wanted.period else ""
    tags = f" tagged {_hashed(wanted.tags)}" if wanted.tags else ""
    search = f" about “{wanted.search}”" if wanted.search else ""
    noun = "todo" if len(todos) == 1 else "todos"
    heading = f"You have {len(todos) or 'no'} {status}{level}{noun}{period}{tags}{search}"
    return f"{heading}:\n\n{numbered(todos, now)}" if todos else f"{heading}."


def changed(todos: Sequence[ListedTodo], change: TodoChange, now: datetime) -> str:
    verb = {"completed": "Done! I ticked off", "pending": "Reopened"}.get(change.status or "")
    verb = verb or ("Renamed it to" if change.title else "Moved" if change.due else "Updated")
    if len(todos) == 1:
        return f"{verb} {f'**{todos[0].title}**' if change.status == 'completed' else describe(todos[0], now)}."
    return f"{verb} {len(todos)} todos:\n\n{numbered(todos, now)}"


def already(todo: ListedTodo) -> str:
    return f"**{todo.title}** is already {'ticked off' if todo.status == 'completed' else 'open'}."


def deleted(todos: Sequence[ListedTodo]) -> str:
    return f"Deleted {', '.join(f'**{todo.title}**' for todo in todos)}."


def confirm_deletion(todos: Sequence[ListedTodo]) -> str:
    titles = ", ".join(f"“{todo.title}”" for todo in todos[:MOST_NAMED])
    more = f" and {len(todos) - MOST_NAMED} more" if len(todos) > MOST_NAMED else ""
    return f"Delete {titles if len(todos) == 1 else f'{len(todos)} todos ({titles}{more})'}? Say yes to confirm."


def which(todos: Sequence[ListedTodo], now: datetime) -> str:
    return f"{WHICH}\n\n{numbered(todos, now)}\n\nSay its number."


def not_found(words: str) -> str:
    return f"I found no todo like “{words}”. Say “show my todos” to see what is there."


def out_of_range(positions: Sequence[int], shown: Sequence[ListedTodo]) -> str:
    return f"There is no number {max(positions)}: the list I showed you has {len(shown)}."


def cannot(change: TodoChange) -> str:
    wanted = {
        "due dates": change.due or change.undated,
        "priorities": change.priority,
        "tags": change.add_tags or change.remove_tags,
        "reopening": change.status == "pending",
    }
    missing = " or ".join(name for name, asked in wanted.items() if asked)
    return f"The connected task tools know no {missing}; they can only add, list, complete, rename and delete."


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


def cannot_use(use: UseTool) -> str:
    """Which arguments are missing or wrong; empty when the call is complete."""
    name, takes = use.tool.name, signature(use.tool)
    if use.unfit:
        return f"{name} cannot take {', '.join(use.unfit)}: it takes {takes or 'no arguments'}."
    return f"{name} needs {signature(use.tool, use.missing)}." if use.missing else ""


def tool_missing(name: str) -> str:
    return f"I would need the tool `{name}` for that, and it is not connected."


def tool_failed(text: str) -> str:
    return f"That did not work. The tool says: {text.strip() or 'nothing at all'}"
