"""Predictive state: shows a tool's argument in the shared state while the model is still writing it (SRV-22).

The predictor is a listener between the model and the emitter. The tool itself is not involved; its real effect follows
when it runs.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holodeck.agent.emitter import RunEmitter
from holodeck.agent.settings import Prediction
from holodeck.core.events import CustomSent, StatePatched
from holodeck.core.json_values import MAX_DEPTH, depth_exceeds
from holodeck.core.messages import ToolCall

GROWTH = 20  # the text is parsed again when it has grown by a twentieth, so that the cost stays linear


def announcement(predictions: Sequence[Prediction]) -> CustomSent:
    """The event that maps tool arguments to state keys, under the name that AG-UI clients expect."""
    return CustomSent(
        "PredictState",
        [{"state_key": p.state_key, "tool": p.tool, "tool_argument": p.tool_argument} for p in predictions],
    )


def argument_so_far(text: str, argument: str) -> Any:
    """The value of a top-level argument in JSON text that may stop anywhere. None while there is nothing to show.

    A string is shown as far as it has arrived, any other value when it is complete. A value that nests too deeply for an
    encoder is not shown.
    """
    key = re.search(rf"[{{,]\s*{re.escape(json.dumps(argument))}\s*:\s*", text)
    if key is None:
        return None
    rest = text[key.end() :]
    try:
        value = json.JSONDecoder().raw_decode(rest)[0]
    except ValueError:
        return _open_string(rest)
    except RecursionError:
        return None
    return None if depth_exceeds(value, MAX_DEPTH) else value


def _open_string(text: str) -> str | None:
    if not text.startswith('"'):
        return None
    for cut in range(len(text), max(len(text) - 12, 0), -1):  # an escape at the end may be up to 12 characters long
        try:
            shown = str(json.loads(text[:cut] + '"'))
        except ValueError:
            continue
        half = "\ud800" <= shown[-1:] <= "\udbff"  # half of an emoji, whose other half is still to come
        return shown[:-1] if half else shown
    return None


@dataclass
class _Watched:
    prediction: Prediction
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    looked_at: int = -1  # the length when it was last parsed


@dataclass
class Predictor:
    """A listener that forwards every call to the emitter and patches the state with arguments as they arrive."""

    emitter: RunEmitter
    predictions: Sequence[Prediction]
    watched: dict[str, list[_Watched]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.text = self.emitter.text
        self.reasoning = self.emitter.reasoning
        self.warning = self.emitter.warning
        self.call_answered = self.emitter.call_answered
        self.raw = self.emitter.raw
        self.timed_out_without_output = self.emitter.timed_out_without_output

    def call_started(self, call_id: str, name: str) -> None:
        self.watched[call_id] = [_Watched(p) for p in self.predictions if p.tool == name]
        self.emitter.call_started(call_id, name)

    def call_arguments(self, call_id: str, delta: str) -> None:
        self.emitter.call_arguments(call_id, delta)
        for watched in self.watched.get(call_id, ()):
            watched.pieces.append(delta)
            watched.length += len(delta)
            if watched.length - watched.looked_at > watched.looked_at // GROWTH:
                watched.looked_at = watched.length
                self._patch(watched, "".join(watched.pieces))

    def call_ended(self, call: ToolCall) -> None:
        for watched in self.watched.pop(call.id, ()):
            self._patch(watched, call.arguments)
        self.emitter.call_ended(call)

    def _patch(self, watched: _Watched, text: str) -> None:
        value = argument_so_far(text, watched.prediction.tool_argument)
        if value is None:
            return
        path = "/" + watched.prediction.state_key.replace("~", "~0").replace("/", "~1")
        self.emitter.emit(StatePatched([{"op": "add", "path": path, "value": value}]))
