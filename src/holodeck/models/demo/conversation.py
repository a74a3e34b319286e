"""Decides the next step of a conversation by replaying it.

The demo model keeps nothing between two replies. For every reply it reads the history as turns (the user's words, the
results of tools) and runs its scripts over them. It feeds them the results that are there; the first call without a
result, or the last text, is the reply. That is also how "it", "the second one" and "yes" get their meaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from holodeck.core.messages import AssistantMessage, Message, TextPart, ToolMessage, UserMessage, text_of
from holodeck.core.tools import ToolSchema
from holodeck.models.demo import sentences, todos, wording
from holodeck.models.demo.intents import Create, Delete, Everything, Intent, ListedTodo, Numbers, Talk
from holodeck.models.demo.todos import Memory, OpenQuestion, Say, Script, Unreadable
from holodeck.models.demo.tools_by_name import Call, UseTool, read_tool_use, with_arguments

HORIZON = 12  # turns that "it" and "the second one" may reach back to; each is replayed for every reply


@dataclass(slots=True)
class DemoTurn:
    words: str
    results: list[ToolMessage] = field(default_factory=list)
    reply: str = ""


def next_step(
    messages: Sequence[Message], tools: Sequence[ToolSchema], timezone: str | None, now: datetime
) -> Say | tuple[Call, ...]:
    turns = _turns(messages)[-HORIZON:]
    if not turns:
        return Say(text=wording.talk("greeting", (), with_todos=True))
    player = _Player(tools, timezone, now)
    for turn in turns[:-1]:
        player.recall(turn)
    return player.play(turns[-1].words, turns[-1].results)


def _turns(messages: Sequence[Message]) -> list[DemoTurn]:
    turns: list[DemoTurn] = []
    for message in messages:
        if isinstance(message, UserMessage):
            parts = [TextPart(message.content)] if isinstance(message.content, str) else message.content
            turns.append(DemoTurn("\n".join(part.text for part in parts if isinstance(part, TextPart)).strip()))
        elif turns and isinstance(message, AssistantMessage):
            turns[-1].reply = message.content
        elif turns and isinstance(message, ToolMessage):
            turns[-1].results.append(message)
    return turns


class _Player:
    def __init__(self, tools: Sequence[ToolSchema], timezone: str | None, now: datetime) -> None:
        self.todo_tools = todos.todo_tools(tools, timezone)
        self.tools = tools
        self.others = [tool for tool in tools if self.todo_tools is None or tool.name not in self.todo_tools.names]
        self.now = now
        self.memory = Memory()

    def recall(self, turn: DemoTurn) -> None:
        """Replays a turn that is over, for what it established. Another model may have answered it."""
        before, results = self.memory, list(turn.results)
        step = self.play(turn.words, results)
        if not isinstance(step, Say) or results:
            self.memory = _learned(before, turn.results)
        elif step.question and step.question.line not in turn.reply:
            self.memory = before.after(Say(text=turn.reply))

    def play(self, words: str, results: list[ToolMessage]) -> Say | tuple[Call, ...]:
        """Goes through a turn as far as it can, taking the results that it needs out of the list."""
        intent, confirmed = self._understood(words)
        script = self._script(intent, confirmed=confirmed)
        step = script if isinstance(script, Say) else self._run(script, results)
        if isinstance(step, Say):
            self.memory = self.memory.after(step)
        return step

    def _understood(self, words: str) -> tuple[Intent | UseTool, bool]:
        """What the turn asks for, and whether it is the yes to an open question."""
        if len(words) > sentences.LONGEST or not words:
            return Talk("too_long" if words else "no_words"), False
        intent = self._read(words)
        question, self.memory = self.memory.question, replace(self.memory, question=None)
        if question is None:
            return intent, False
        if intent == Talk("no"):
            return Talk("kept" if _confirms(question) else "dropped"), False
        if _confirms(question):
            self.memory = replace(self.memory, chosen=question.choices if intent == Talk("yes") else ())
            return (question.then, True) if intent == Talk("yes") else (intent, False)
        return self._answer(question, words, intent) or intent, False

    def _answer(self, question: OpenQuestion, words: str, intent: Intent | UseTool) -> Intent | UseTool | None:
        """What a message means as the answer to a question; None if it is about something else."""
        unclear = intent == Talk("unknown")
        if isinstance(question.then, UseTool):
            return with_arguments(question.then, words) if unclear else None
        if isinstance(question.then, Create):
            return sentences.read_todo(words, self.now) if unclear else None
        self.memory = replace(self.memory, chosen=_chosen(question.choices, words, plain=unclear or _is_guess(intent)))
        return question.then if self.memory.chosen else None

    def _read(self, words: str) -> Intent | UseTool:
        """Todo sentences come first if there are todo tools; a guess ("buy eggs") comes after the names of tools."""
        request = sentences.bare_request(words)
        if self.todo_tools is None:
            use = read_tool_use(words, self.others) or read_tool_use(request, self.others)
            known = use or sentences.read_talk(words) or sentences.read_command(request, self.now)
        else:
            known = sentences.read_talk(words) or sentences.read_command(request, self.now)
            known = known or read_tool_use(request, self.tools)
        return known or sentences.guess(request, self.now) or Talk("unknown")

    def _script(self, intent: Intent | UseTool, *, confirmed: bool) -> Script | Say:
        if isinstance(intent, Talk):
            return self._talk(intent.topic)
        if isinstance(intent, UseTool):
            return _use(intent)
        if self.todo_tools is None:
            return self._talk("no_todo_tools")
        desk = todos.TodoDesk(self.todo_tools, self.now, self.memory)
        return (
            todos.delete(intent, desk, confirmed=confirmed)
            if isinstance(intent, Delete)
            else todos.script(intent, desk)
        )

    def _talk(self, topic: str) -> Say:
        with_todos = self.todo_tools is not None or not self.others
        return Say(text=wording.talk(topic, self.others, with_todos=with_todos))

    def _run(self, script: Script, results: list[ToolMessage]) -> Say | tuple[Call, ...]:
        offered = {tool.name for tool in self.tools}
        try:
            calls = next(script)
            while True:
                if missing := next((call.name for call in calls if call.name not in offered), None):
                    return Say(text=wording.tool_missing(missing))
                answers = [_take(results, call.name) for call in calls]
                if failed := next((answer for answer in answers if answer and answer.failed), None):
                    return Say(text=wording.tool_failed(text_of(failed.content)))
                if waiting := tuple(call for call, answer in zip(calls, answers, strict=True) if answer is None):
                    return waiting
                calls = script.send([text_of(answer.content) for answer in answers if answer])
        except StopIteration as end:
            say: Say = end.value
            return say
        except Unreadable as other:
            return Say(text=str(other))


def _use(intent: UseTool) -> Script:
    if problem := wording.cannot_use(intent):
        return Say(text=problem, question=OpenQuestion(line=problem, then=intent))
    (answer,) = yield (Call(intent.tool.name, intent.arguments),)
    return Say(text=answer.strip() or wording.NO_RESULT)


def _confirms(question: OpenQuestion) -> bool:
    return isinstance(question.then, Delete) and question.line != wording.WHICH


def _is_guess(intent: Intent | UseTool) -> bool:
    return isinstance(intent, Create) and not (intent.due or intent.tags)


def _chosen(choices: tuple[ListedTodo, ...], words: str, *, plain: bool) -> tuple[ListedTodo, ...]:
    target = sentences.read_target(words)
    if isinstance(target, Everything):
        return choices
    if isinstance(target, Numbers):
        return todos.at_positions(target, choices)
    found = todos.matching(words, choices) if plain else ()
    return found if len(found) == 1 else ()


def _take(results: list[ToolMessage], name: str) -> ToolMessage | None:
    """The next result of that tool. Other results in between belong to another model's calls."""
    index = next((index for index, result in enumerate(results) if result.name == name), None)
    return None if index is None else results.pop(index)


def _learned(memory: Memory, results: Sequence[ToolMessage]) -> Memory:
    """What the results of tools show by themselves, when the turn did not go the way of our scripts."""
    for result in results:
        text = "" if result.failed else text_of(result.content)
        try:
            memory = memory.after(Say(text="", shown=todos.read_todos(text)))
        except Unreadable:
            try:
                memory = memory.after(Say(text="", focus=todos.read_todo(text)))
            except Unreadable:
                continue
    return memory
