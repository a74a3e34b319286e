"""Decides the next step of a conversation by replaying it.

The demo model keeps nothing between two replies. For every reply it reads the history as turns (the user's words, the
results of tools) and runs a script for each: a generator that yields calls, is sent their results and returns the reply.
The first call without a result, or the last text, is the next step. That is also how "it", "the second one" and "yes"
get their meaning.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from holodeck.core.messages import AssistantMessage, Message, TextPart, ToolMessage, UserMessage, text_of
from holodeck.core.tools import Approval, ToolSchema
from holodeck.models.demo import sentences, todos, wording
from holodeck.models.demo.sentences import Request
from holodeck.models.demo.todos import Todo
from holodeck.models.demo.tools_by_name import Call, ToolUse, read_tool_use, with_arguments

HORIZON = 12  # turns that "it" and "the second one" may reach back to; each is replayed for every reply


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A reply that asks: a yes lets `then` go ahead, or the answer completes it."""

    line: str
    then: Request | ToolUse
    choices: tuple[Todo, ...] = ()
    confirms: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReply:
    text: str
    shown: tuple[Todo, ...] | None = None  # the list that positions refer to from now on
    focus: Todo | None = None  # what "it" is from now on
    question: OpenQuestion | None = None


@dataclass(slots=True)
class DemoTurn:
    words: str
    attached: bool = False  # files came with the words
    results: list[ToolMessage] = field(default_factory=list)
    reply: str = ""


Script: TypeAlias = Generator[tuple[Call, ...], list[str], DemoReply]


def next_step(
    messages: Sequence[Message], tools: Sequence[ToolSchema], timezone: str | None, now: datetime
) -> DemoReply | tuple[Call, ...]:
    turns = _turns(messages)[-HORIZON:] or [DemoTurn("hello")]
    player = _Player(tools, timezone, now)
    for turn in turns[:-1]:
        player.recall(turn)
    return player.play(turns[-1], turns[-1].results)


def _turns(messages: Sequence[Message]) -> list[DemoTurn]:
    turns: list[DemoTurn] = []
    for message in messages:
        if isinstance(message, UserMessage):
            parts = [TextPart(message.content)] if isinstance(message.content, str) else message.content
            texts = [part.text.strip() for part in parts if isinstance(part, TextPart)]
            turns.append(
                DemoTurn(texts[0] if texts else "", attached=len(parts) > 1)
            )  # the text of a file is no request
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
        self.focus: Todo | None = None
        self.shown: tuple[Todo, ...] = ()
        self.question: OpenQuestion | None = None

    def recall(self, turn: DemoTurn) -> None:
        """Replays a turn that is over, for what it established. Another model may have answered it."""
        results = list(turn.results)
        step = self.play(turn, results)
        if self.question and self.question.line not in turn.reply:
            self.question = None
        for result in turn.results if results or not isinstance(step, DemoReply) else ():
            try:
                found, many = todos.read_result(text_of(result.content))
            except msgspec.DecodeError:
                continue
            self.shown, self.focus = (found, self.focus) if many else (self.shown, found[0])

    def play(self, turn: DemoTurn, results: list[ToolMessage]) -> DemoReply | tuple[Call, ...]:
        """Goes through a turn as far as it can, taking the results that it needs out of the list."""
        request = self._understood(turn.words)
        if turn.attached and isinstance(request, Request) and request.action in {"unknown", "no_words"}:
            request = Request("attached")
        step = self._run(self._script(request), results)
        if isinstance(step, DemoReply):
            self.focus, self.question = step.focus or self.focus, step.question
            self.shown = self.shown if step.shown is None else step.shown
        return step

    def _understood(self, words: str) -> Request | ToolUse:
        if len(words) > sentences.LONGEST or not words:
            return Request("too_long" if words else "no_words")
        request = self._read(words)
        question, self.question = self.question, None
        return self._answer(question, words, request) or request if question else request

    def _read(self, words: str) -> Request | ToolUse:
        """Todo sentences come first if there are todo tools; a guess ("buy eggs") comes after the names of tools."""
        request = sentences.bare_request(words)
        use = read_tool_use(request, list(self.tools.values()))
        command = sentences.read_talk(words) or sentences.read_command(request, self.now)
        known = (command or use) if self.has_todos else (use or command)
        return known or sentences.guess(request, self.now) or sentences.UNKNOWN

    def _answer(self, question: OpenQuestion, words: str, request: Request | ToolUse) -> Request | ToolUse | None:
        """What a message means as the answer to a question; None if it is about something else."""
        then, action = question.then, request.action if isinstance(request, Request) else ""
        if action == "no":
            return Request("kept" if question.confirms else "dropped")
        if isinstance(then, ToolUse):
            return with_arguments(then, words) if request == sentences.UNKNOWN else None
        if question.confirms:
            return replace(then, chosen=question.choices, confirmed=True) if action == "yes" else None
        if then.action == "create":
            return sentences.read_todo(words, self.now) if request == sentences.UNKNOWN else None
        chosen = todos.at_positions(todos.positions(words), question.choices)
        if action in {"unknown", "create"}:
            chosen = chosen or todos.matching(words, question.choices)
        chosen = question.choices if todos.is_all(words) else chosen[: len(todos.positions(words)) or 1]
        return replace(then, chosen=chosen) if chosen else None

    def _run(self, script: Script, results: list[ToolMessage]) -> DemoReply | tuple[Call, ...]:
        answers: list[ToolMessage | None] = []
        try:
            calls = next(script)
            while True:
                if missing := next((call.name for call in calls if call.name not in self.tools), None):
                    return DemoReply(text=f"I would need the tool `{missing}` for that, and it is not connected.")
                answers = [_take(results, call.name) for call in calls]
                if failed := next((answer for answer in answers if answer and answer.failed), None):
                    problem = text_of(failed.content).strip() or "nothing at all"
                    return DemoReply(text=f"That did not work. The tool says: {problem}")
                if waiting := tuple(call for call, answer in zip(calls, answers, strict=True) if answer is None):
                    return waiting
                calls = script.send([text_of(answer.content) for answer in answers if answer])
        except StopIteration as end:
            reply: DemoReply = end.value
            return reply
        except msgspec.DecodeError:  # not the JSON of a todo server; its text may still be useful to a person
            return DemoReply(text="\n".join(text_of(answer.content) for answer in answers if answer))

    # Scripts

    def _script(self, request: Request | ToolUse) -> Script:
        if isinstance(request, ToolUse):
            return _use(request)
        scripts = {"create": self._create, "list": self._list, "update": self._update, "delete": self._delete}
        if script := scripts.get(request.action):
            return script(request) if self.has_todos else self._talk("no_todo_tools")
        return self._talk(request.action)

    def _talk(self, topic: str) -> Script:
        text = wording.talk(topic, self.others, with_todos=self.has_todos or not self.others)
        return _without_calls(DemoReply(text=text))

    def _create(self, request: Request) -> Script:
        if not request.fields.get("title"):
            return DemoReply(text=wording.WHAT_TO_ADD, question=OpenQuestion(wording.WHAT_TO_ADD, request))
        (answer,) = yield (todos.create_call(request.fields, self.now),)
        (todo,), _ = todos.read_result(answer)
        return DemoReply(text=wording.created(todo, self.now), focus=todo)

    def _list(self, request: Request) -> Script:
        (answer,) = yield (self._list_call(request.fields),)
        found, _ = todos.read_result(answer)
        focus = found[0] if len(found) == 1 else None
        return DemoReply(text=wording.listed(found, request.fields, self.now), shown=found, focus=focus)

    def _list_call(self, fields: dict[str, Any]) -> Call:
        tool = self.tools.get("list_todos")
        needs_zone = "due_date_filter" in fields and tool and "timezone" in tool.parameters.get("properties", {})
        given = fields | {"timezone": self.timezone if needs_zone else None}
        return Call("list_todos", {name: value for name, value in given.items() if value})

    def _update(self, request: Request) -> Script:
        found = yield from self._find(request)
        if isinstance(found, DemoReply):
            return found
        answers = yield tuple(todos.update_call(todo, request.fields, self.now) for todo in found)
        changed = [todo for answer in answers for todo in todos.read_result(answer)[0]]
        return DemoReply(text=wording.changed(changed, request.fields, self.now), focus=changed[-1])

    def _delete(self, request: Request) -> Script:
        found = yield from self._find(request)
        if isinstance(found, DemoReply):
            return found
        tool = self.tools.get("delete_todo")
        if not request.confirmed and not (tool and tool.approval is Approval.ALWAYS):  # then the runtime asks the user
            line = wording.confirm_deletion(found)
            return DemoReply(text=line, focus=found[-1], question=OpenQuestion(line, request, found, confirms=True))
        yield tuple(todos.delete_call(todo) for todo in found)
        self.focus = None
        return DemoReply(text=f"Deleted {', '.join(f'**{todo.title}**' for todo in found)}.")

    def _find(self, request: Request) -> Generator[tuple[Call, ...], list[str], DemoReply | tuple[Todo, ...]]:
        """The todos that are meant, or the reply instead. Lists them only when the conversation does not name them."""
        words, numbers = request.target, todos.positions(request.target)
        is_it, is_all = todos.is_it(words), todos.is_all(words)
        if request.chosen:
            return request.chosen
        if is_it and self.focus:
            return (self.focus,)
        if numbers and self.shown:
            problem = f"There is no number {max(numbers) + 1}: the list I showed you has {len(self.shown)}."
            return todos.at_positions(numbers, self.shown) or DemoReply(text=problem)
        (answer,) = yield (Call("list_todos", {"status": "all"}),)
        every, _ = todos.read_result(answer)
        status = "completed" if request.fields.get("status") == "pending" else "pending"
        likely = tuple(todo for todo in every if todo.status == status)
        if not (is_it or is_all or numbers):
            likely = todos.matching(words, likely) or todos.matching(words, every)
        if not likely:
            missing = f"I found no todo like “{words}”. Say “show my todos” to see what is there."
            return DemoReply(text=wording.EMPTY if is_it or is_all or numbers else missing)
        if is_all or (len(likely) == 1 and not numbers):
            return likely
        text = f"{wording.WHICH}\n\n{wording.numbered(likely, self.now)}\n\nSay its number."
        return DemoReply(text=text, shown=likely, question=OpenQuestion(wording.WHICH, request, likely))


def _without_calls(reply: DemoReply) -> Script:
    yield from ()
    return reply


def _use(use: ToolUse) -> Script:
    if problem := wording.cannot_use(use):
        return DemoReply(text=problem, question=OpenQuestion(problem, use))
    (answer,) = yield (Call(use.tool.name, use.arguments),)
    return DemoReply(text=answer.strip() or wording.NO_RESULT)


def _take(results: list[ToolMessage], name: str) -> ToolMessage | None:
    """The next result of that tool. Other results in between belong to another model's calls."""
    index = next((index for index, result in enumerate(results) if result.name == name), None)
    return None if index is None else results.pop(index)
