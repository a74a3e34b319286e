"""A listener that records what it gets."""

from typing import Any

from holodeck.core.messages import ToolCall


class RecordingListener:
    def __init__(self, *, was_silent: bool = False) -> None:
        """`was_silent`: the time of the step runs out before the model sends anything."""
        self.was_silent = was_silent
        self.recorded: list[tuple[str, ...]] = []
        self.ended: list[ToolCall] = []
        self.raws: list[Any] = []

    def reasoning(self, delta: str) -> None:
        self.recorded.append(("reasoning", delta))

    def text(self, delta: str) -> None:
        self.recorded.append(("text", delta))

    def call_started(self, call_id: str, name: str) -> None:
        self.recorded.append(("started", call_id, name))

    def call_arguments(self, call_id: str, delta: str) -> None:
        self.recorded.append(("arguments", call_id, delta))

    def call_ended(self, call: ToolCall) -> None:
        self.recorded.append(("ended", call.id))
        self.ended.append(call)

    def call_answered(self, call_id: str, content: Any, *, failed: bool = False) -> None:
        self.recorded.append(("answered", call_id, content, "failed" if failed else "ok"))

    def timed_out_without_output(self) -> bool:
        return self.was_silent

    def warning(self, code: str, message: str) -> None:
        self.recorded.append(("warning", code, message))

    def raw(self, event: Any) -> None:
        self.raws.append(event)

    @property
    def words(self) -> str:
        return "".join(piece[1] for piece in self.recorded if piece[0] == "text")

    @property
    def thoughts(self) -> str:
        return "".join(piece[1] for piece in self.recorded if piece[0] == "reasoning")

    @property
    def warnings(self) -> list[str]:
        return [piece[1] for piece in self.recorded if piece[0] == "warning"]

    @property
    def answered(self) -> list[tuple[str, str, Any]]:
        """The calls that the provider has made itself: name, arguments, result."""
        results = {piece[1]: piece[2] for piece in self.recorded if piece[0] == "answered"}
        return [(call.name, call.arguments, results[call.id]) for call in self.ended if call.id in results]

    def arguments_of(self, call_id: str) -> str:
        return "".join(piece[2] for piece in self.recorded if piece[:2] == ("arguments", call_id))
