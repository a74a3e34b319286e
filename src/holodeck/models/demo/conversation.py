"""Decides the next step of a conversation by replaying it.

The demo model keeps nothing between two replies. For every reply it reads the history as turns (the user's words, the
results of tools) and plays each: a script that calls tools, reads their results from the turn, and returns a reply. The
first call without a result, or the last reply, is the next step. That is also how "it", "the second one" and "yes" get
their meaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from holodeck.core.messages import AssistantMessage, Message, TextPart, ToolMessage, UserMessage, text_of
from holodeck.core.tools import Approval, ToolSchema
from holodeck.models.demo import sentences, small_talk, todos
from holodeck.models.demo.sentences import Request
from holodeck.models.demo.todos import Todo
from holodeck.models.demo.tools_by_name import Call, ToolUse, read_tool_use, with_arguments

WHICH = "Which one do you mean?"
WHAT_TO_ADD = "What shall I add?"
HORIZON = 12  # turns that "it" and "the second one" may reach back to; each is replayed for every reply


@dataclass(slots=True)
class DemoTurn:
    words: str
    attached: bool = False  # files came with the words
    results: list[ToolMessage] = field(default_factory=list)
    reply: str = ""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A reply that asks a question. A yes runs `then`, or the answer completes it."""

    line: str
    then: Request | ToolUse
    choices: tuple[Todo, ...] = ()
    confirms: bool = False


class ScriptEnd(Exception):
    """Ends a script early, with pending calls or another reply."""

    def __init__(self, step: str | tuple[Call, ...]) -> None:
        self.step = step


def next_step(
    messages: Sequence[Message], tools: Sequence[ToolSchema], timezone: str | None, now: datetime
) -> str | tuple[Call, ...]:
    turns = _turns(messages)[-HORIZON:] or [DemoTurn("hello")]
    player = _Player(tools, timezone, now)
    for turn in turns[:-1]:
        player.recall(turn)
    return player.play(turns[-1])


def _turns(messages: Sequence[Message]) -> list[DemoTurn]:
    turns: list[DemoTurn] = []
    for message in messages:
        if isinstance(message, UserMessage):
            parts = [TextPart(message.content)] if isinstance(message.content, str) else message.content
            texts = [part.text.strip() for part in parts if isinstance(part, TextPart)]
            words = texts[0] if texts else ""  # further texts are those of files, and no request
            turns.append(DemoTurn(words, attached=len(parts) > 1))
        elif turns and isinstance(message, AssistantMessage):
            turns[-1].reply = message.content
        elif turns and isinstance(message, ToolMessage):
            turns[-1].results.append(message)
    return turns


class _Player:
    def __init__(self, tools: Sequence[ToolSchema], timezone: str | None, now: datetime) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.timezone = timezone
        self.now = now
        self.others = [tool for tool in tools if tool.name not in todos.TODO_TOOLS]
        self.has_todos = len(self.others) < len(tools)
        self.focus: Todo | None = None  # what "it" is
        self.shown: tuple[Todo, ...] = ()  # the list that positions refer to
        self.question: OpenQuestion | None = None
        self.results: list[ToolMessage] = []  # results of the current turn that its script has not read yet
        self.read = ""  # the results that its script has read last

    def recall(self, turn: DemoTurn) -> None:
        """Replays a turn that is over, for what it established. Another model may have answered it."""
        step = self.play(turn)
        if self.question and self.question.line not in turn.reply:
            self.question = None
        for result in turn.results if self.results or not isinstance(step, str) else ():
            try:
                found, many = todos.read_result(text_of(result.content))
            except msgspec.DecodeError:
                continue
            self.shown, self.focus = (found, self.focus) if many else (self.shown, found[0])

    def play(self, turn: DemoTurn) -> str | tuple[Call, ...]:
        self.results = list(turn.results)
        request = self._understood(turn.words)
        if turn.attached and request.action in {"unknown", "no_words"}:
            request = Request("attached")
        try:
            return self._script(request)
        except ScriptEnd as end:
            return end.step
        except msgspec.DecodeError:  # not the JSON of a todo server; its text may still be useful to a person
            return self.read

    def _understood(self, words: str) -> Request | ToolUse:
        """Todo sentences come first if there are todo tools; a guess ("buy eggs") comes after the names of tools."""
        if len(words) > sentences.LONGEST or not words:
            return Request("too_long" if words else "no_words")
        line = sentences.one_line(words)
        bare, topic = sentences.bare_request(line), small_talk.read_topic(line)
        use = read_tool_use(bare, list(self.tools.values()))
        command = Request(topic) if topic else sentences.read_command(bare, self.now)
        known = (command or use) if self.has_todos else (use or command)
        request = known or sentences.guess(bare, self.now) or Request("unknown")
        question, self.question = self.question, None
        return self._answer(question, words, request) or request if question else request

    def _answer(self, question: OpenQuestion, words: str, request: Request | ToolUse) -> Request | ToolUse | None:
        """The meaning of a message as the answer to a question. None if it is about something else."""
        then, action = question.then, request.action
        if action == "no":
            return Request("kept" if question.confirms else "dropped")
        if isinstance(then, ToolUse):
            return with_arguments(then, words) if action == "unknown" else None
        if question.confirms:
            return replace(then, chosen=question.choices, confirmed=True) if action == "yes" else None
        if then.action == "create":
            return sentences.read_todo(words, self.now) if action == "unknown" else None
        numbers = todos.positions(words)
        chosen = question.choices if todos.is_all(words) else todos.at_positions(numbers, question.choices)
        if action in {"unknown", "create"} and not chosen:
            chosen = todos.matching(words, question.choices)[:1]
        return replace(then, chosen=chosen) if chosen else None

    def _call(self, *calls: Call) -> list[str]:
        """The results of the calls. Ends the script if a tool is missing, has failed, or was not called yet."""
        if missing := next((call.name for call in calls if call.name not in self.tools), None):
            raise ScriptEnd(f"I would need the tool `{missing}` for that, and it is not connected.")
        answers = [self._take_result(call.name) for call in calls]
        if failed := next((answer for answer in answers if answer and answer.failed), None):
            raise ScriptEnd(f"That did not work. The tool says: {text_of(failed.content).strip() or 'nothing at all'}")
        if waiting := tuple(call for call, answer in zip(calls, answers, strict=True) if answer is None):
            raise ScriptEnd(waiting)
        texts = [text_of(answer.content) for answer in answers if answer]
        self.read = "\n".join(texts)
        return texts

    def _take_result(self, name: str) -> ToolMessage | None:
        """The next result of that tool. Other results in between belong to another model's calls."""
        index = next((index for index, result in enumerate(self.results) if result.name == name), None)
        return None if index is None else self.results.pop(index)

    # Scripts: each returns its reply, and keeps what the reply is about.

    def _script(self, request: Request | ToolUse) -> str:
        if isinstance(request, ToolUse):
            return self._use(request)
        scripts = {"create": self._create, "list": self._list, "update": self._update, "delete": self._delete}
        script = scripts.get(request.action)
        if script and self.has_todos:
            return script(request)
        topic = request.action if not script else "no_todo_tools" if self.tools else "unknown"
        return small_talk.reply_to(topic, self.others, [name for name in self.tools if name in todos.TODO_TOOLS])

    def _use(self, use: ToolUse) -> str:
        if use.problem:
            return self._ask(OpenQuestion(use.problem, use))
        (answer,) = self._call(Call(use.tool.name, use.arguments))
        return answer.strip() or "Done. The tool returned nothing."

    def _ask(self, question: OpenQuestion) -> str:
        self.question = question
        return question.line

    def _create(self, request: Request) -> str:
        if not request.fields.get("title"):
            return self._ask(OpenQuestion(WHAT_TO_ADD, request))
        (answer,) = self._call(Call("create_todo", todos.arguments(request.fields, self.now)))
        (self.focus,), _ = todos.read_result(answer)
        return todos.created(self.focus, self.now)

    def _list(self, request: Request) -> str:
        tool = self.tools.get("list_todos")
        needs_zone = (
            "due_date_filter" in request.fields and tool and "timezone" in tool.parameters.get("properties", {})
        )
        filters = request.fields | {"timezone": self.timezone if needs_zone else None}
        (answer,) = self._call(Call("list_todos", {name: value for name, value in filters.items() if value}))
        self.shown, _ = todos.read_result(answer)
        self.focus = self.shown[0] if len(self.shown) == 1 else self.focus
        return todos.listed(self.shown, request.fields, self.now)

    def _update(self, request: Request) -> str:
        found = self._find(request)
        calls = ({"todo_id": todo.id} | todos.arguments(request.fields, self.now, todo) for todo in found)
        answers = self._call(*(Call("update_todo", arguments) for arguments in calls))
        changed = [todo for answer in answers for todo in todos.read_result(answer)[0]]
        self.focus = changed[-1]
        return todos.changed(changed, request.fields, self.now)

    def _delete(self, request: Request) -> str:
        found = self._find(request)
        tool = self.tools.get("delete_todo")
        if not request.confirmed and not (tool and tool.approval is Approval.ALWAYS):  # then the runtime asks the user
            self.focus = found[-1]
            return self._ask(OpenQuestion(todos.confirm_deletion(found), request, found, confirms=True))
        self._call(*(Call("delete_todo", {"todo_id": todo.id, "confirmation": True}) for todo in found))
        self.focus = None
        return f"Deleted {', '.join(f'**{todo.title}**' for todo in found)}."

    def _find(self, request: Request) -> tuple[Todo, ...]:
        """The todos that are meant. Lists them only when the conversation does not name them."""
        words, numbers = request.target, todos.positions(request.target)
        is_it, is_all = todos.is_it(words), todos.is_all(words)
        if request.chosen:
            return request.chosen
        if is_it and self.focus:
            return (self.focus,)
        if numbers and self.shown:
            if chosen := todos.at_positions(numbers, self.shown):
                return chosen
            raise ScriptEnd(f"There is no number {max(numbers) + 1}: the list I showed you has {len(self.shown)}.")
        (answer,) = self._call(Call("list_todos", {"status": "all"}))
        every, _ = todos.read_result(answer)
        status = "completed" if request.fields.get("status") == "pending" else "pending"
        likely = tuple(todo for todo in every if todo.status == status)
        if not (is_it or is_all or numbers):
            likely = todos.matching(words, likely) or todos.matching(words, every)
        if not likely:
            missing = f"I found no todo like “{words}”. Say “show my todos” to see what is there."
            raise ScriptEnd(todos.EMPTY if is_it or is_all or numbers else missing)
        if is_all or (len(likely) == 1 and not numbers):
            return likely
        self.shown, self.question = likely, OpenQuestion(WHICH, request, likely)
        raise ScriptEnd(f"{WHICH}\n\n{todos.numbered(likely, self.now)}\n\nSay its number.")
