"""What comes next in a conversation, found by playing it again.

The demo model remembers nothing between two replies. For every reply it reads the history as a row of turns (what the
user said, what the tools answered) and plays its scripts over them: what they have been answered already is fed to
them, and the first call without an answer, or the last words, is the reply. That is also how "it", "the second one"
and "yes" find their meaning.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holodeck.core.messages import AssistantMessage, Message, TextPart, ToolMessage, UserMessage, text_of
from holodeck.core.tools import ToolSchema
from holodeck.models.demo import wording
from holodeck.models.demo.details import read_details
from holodeck.models.demo.intents import Agree, Create, Decline, Everything, Intent, Numbers, Talk, Unknown
from holodeck.models.demo.reading import read_message
from holodeck.models.demo.scripts import Calls, Desk, Memory, Question, Say, Script, script_for, talk, with_target
from holodeck.models.demo.targets import read_target
from holodeck.models.demo.todos import Todo, Unreadable, find, read_todo, read_todos
from holodeck.models.demo.vocabulary import Vocabulary, choose

HORIZON = 12  # turns that "it" and "the second one" may reach back to; each is read again for every reply


@dataclass(slots=True)
class Turn:
    words: str
    results: list[ToolMessage] = field(default_factory=list)
    said: str = ""


def next_move(
    messages: Sequence[Message], tools: Sequence[ToolSchema], timezone: str | None, now: datetime
) -> Say | Calls:
    turns = _turns(messages)[-HORIZON:]
    if not turns:
        return talk(Talk("greeting"))
    player = _Player(choose(tools, timezone), tuple(tool.name for tool in tools), now)
    for turn in turns[:-1]:
        player.recall(turn)
    return player.play(turns[-1].words, turns[-1].results)


def _turns(messages: Sequence[Message]) -> list[Turn]:
    turns: list[Turn] = []
    for message in messages:
        if isinstance(message, UserMessage):
            turns.append(Turn(_words(message)))
        elif turns and isinstance(message, AssistantMessage):
            turns[-1].said = message.content
        elif turns and isinstance(message, ToolMessage):
            turns[-1].results.append(message)
    return turns


def _words(message: UserMessage) -> str:
    if isinstance(message.content, str):
        return message.content.strip()
    return "\n".join(part.text for part in message.content if isinstance(part, TextPart)).strip()


class _Player:
    def __init__(self, tools: Vocabulary | None, offered: tuple[str, ...], now: datetime) -> None:
        self.tools = tools
        self.offered = offered
        self.now = now
        self.memory = Memory()

    def recall(self, turn: Turn) -> None:
        """Plays a turn that is over, for what it established. Another model may have answered it."""
        before, results = self.memory, list(turn.results)
        move = self.play(turn.words, results)
        if not isinstance(move, Say) or results:
            self.memory = _learned(before, turn.results)
        elif move.question and move.question.line not in turn.said:
            self.memory = before.after(Say(text=turn.said))

    def play(self, words: str, results: list[ToolMessage]) -> Say | Calls:
        """Goes through a turn as far as it can, taking the results it needs out of the list."""
        said: list[str] = []
        for intent in self._understood(words):
            move = self._carry_out(intent, results)
            if not isinstance(move, Say):
                return move
            self.memory = self.memory.after(move)
            said.append(move.text)
            if move.question:
                break
        return Say(text="\n\n".join(said), question=self.memory.question)

    def _understood(self, words: str) -> tuple[Intent, ...]:
        if not words:
            return (Talk("no_words"),)
        intents = read_message(words, self.now)
        question = self.memory.question
        answer = _answer(question, words, intents[0], self.now) if question and len(intents) == 1 else None
        return (answer,) if answer else intents

    def _carry_out(self, intent: Intent, results: list[ToolMessage]) -> Say | Calls:
        if isinstance(intent, Talk | Agree | Decline | Unknown):
            return talk(intent)
        if self.tools is None:
            return Say(text=wording.no_todo_tools(self.offered))
        script = script_for(intent, Desk(tools=self.tools, now=self.now, memory=self.memory))
        return script if isinstance(script, Say) else self._run(script, results)

    def _run(self, script: Script, results: list[ToolMessage]) -> Say | Calls:
        try:
            calls = next(script)
            while True:
                if missing := next((call.name for call in calls if call.name not in self.offered), None):
                    return Say(text=wording.tool_missing(missing))
                answers = [_take(results, call.name) for call in calls]
                failed = next((answer for answer in answers if answer and answer.failed), None)
                if failed is not None:
                    return Say(text=wording.tool_failed(text_of(failed.content)))
                if open_calls := tuple(call for call, answer in zip(calls, answers, strict=True) if answer is None):
                    return open_calls
                calls = script.send([text_of(answer.content) for answer in answers if answer])
        except StopIteration as end:
            said: Say = end.value
            return said
        except Unreadable as other:
            return Say(text=str(other))


def _take(results: list[ToolMessage], name: str) -> ToolMessage | None:
    """The next answer of that tool. Others in between are some other model's business."""
    for index, result in enumerate(results):
        if result.name == name:
            return results.pop(index)
    return None


def _answer(question: Question, words: str, intent: Intent, now: datetime) -> Intent | None:
    """What a message means as the answer to our question; None if it is about something else."""
    if isinstance(intent, Decline):
        return Talk("dropped" if question.choices or isinstance(question.then, Create) else "kept")
    if question.choices:
        chosen = _chosen(question.choices, words, intent)
        return with_target(question.then, chosen) if chosen and question.then else None
    if isinstance(question.then, Create):
        return Create(read_details(words, now)) if isinstance(intent, Unknown | Create) else None
    return question.then if isinstance(intent, Agree) else None


def _chosen(choices: tuple[Todo, ...], words: str, intent: Intent) -> tuple[Todo, ...]:
    target = read_target(words)
    if isinstance(target, Everything):
        return choices
    if isinstance(target, Numbers):
        inside = [place for place in target.places if place == -1 or 1 <= place <= len(choices)]
        return tuple(choices[place - 1 if place > 0 else -1] for place in inside)
    commanded = re.match(r"(?:add|create|remind|new)\b", words, re.IGNORECASE)
    if commanded or not isinstance(intent, Unknown | Create):
        return ()
    found = find(words, choices)
    return tuple(found) if len(found) == 1 else ()


def _learned(memory: Memory, results: Sequence[ToolMessage]) -> Memory:
    """What tool results tell by themselves, when the turn did not go the way our scripts go."""
    for result in results:
        if result.failed:
            continue
        text = text_of(result.content)
        try:
            memory = memory.after(Say(text="", shown=tuple(read_todos(text))))
        except Unreadable:
            memory = _focused(memory, text)
    return memory


def _focused(memory: Memory, text: str) -> Memory:
    try:
        return memory.after(Say(text="", focus=read_todo(text)))
    except Unreadable:
        return memory
