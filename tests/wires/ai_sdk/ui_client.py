"""The rules of the AI SDK's client (`processUIMessageStream`), in Python: chunks in, the message that a page shows out."""

from typing import Any

Json = dict[str, Any]
MEMBERS: dict[str, set[str]] = {
    "start": {"messageId", "messageMetadata"},
    "start-step": set(),
    "finish-step": set(),
    "text-start": {"id"},
    "text-delta": {"id", "delta"},
    "text-end": {"id"},
    "reasoning-start": {"id"},
    "reasoning-delta": {"id", "delta"},
    "reasoning-end": {"id"},
    "tool-input-start": {"toolCallId", "toolName"},
    "tool-input-delta": {"toolCallId", "inputTextDelta"},
    "tool-input-available": {"toolCallId", "toolName", "input"},
    "tool-output-available": {"toolCallId", "output"},
    "tool-output-error": {"toolCallId", "errorText"},
    "tool-output-denied": {"toolCallId"},
    "tool-approval-request": {"approvalId", "toolCallId", "reason"},
    "finish": {"finishReason", "messageMetadata"},
    "abort": {"reason"},
    "error": {"errorText"},
}
OF_TOOLS = {"dynamic", "providerExecuted"}
FINISH_REASONS = {"stop", "length", "content-filter", "tool-calls", "error", "other"}


class Refused(AssertionError):
    """The client would end the stream here."""


class UiClient:
    """Builds one message. `parts` may hold what the client has of it already."""

    def __init__(self, parts: list[Json] | None = None) -> None:
        self.parts: list[Json] = parts or []
        self.metadata: Json = {}
        self.notes: list[Json] = []
        self.errors: list[str] = []
        self.id: str | None = None
        self.finish_reason: str | None = None
        self._open: dict[str, Json] = {}

    def read(self, chunk: Json) -> None:
        kind = chunk["type"]
        if kind.startswith("data-"):
            self._data(chunk)
            return
        members = MEMBERS.get(kind)
        extra = set(chunk) - {"type"} - (members or set())
        if members is None or members - set(chunk) or extra - (OF_TOOLS if kind.startswith("tool-") else set()):
            raise Refused(chunk)
        if any(value is None for key, value in chunk.items() if key not in {"input", "output"}):
            raise Refused(chunk)
        getattr(self, kind.replace("-", "_"), self._nothing)(chunk)

    def _nothing(self, _chunk: Json) -> None: ...

    def _data(self, chunk: Json) -> None:
        if chunk.get("transient"):
            self.notes.append(chunk)
            return
        same = [p for p in self.parts if p["type"] == chunk["type"] and "id" in chunk and p.get("id") == chunk["id"]]
        if same:
            same[0]["data"] = chunk["data"]
        else:
            self.parts.append(chunk)

    def start(self, chunk: Json) -> None:
        self.id = chunk["messageId"]
        self.metadata |= chunk["messageMetadata"]

    def finish(self, chunk: Json) -> None:
        self.finish_reason = chunk["finishReason"]
        if self.finish_reason not in FINISH_REASONS:
            raise Refused(chunk)
        self.metadata |= chunk["messageMetadata"]

    def error(self, chunk: Json) -> None:
        self.errors.append(chunk["errorText"])

    def start_step(self, _chunk: Json) -> None:
        self.parts.append({"type": "step-start"})

    def text_start(self, chunk: Json) -> None:
        kind = chunk["type"].partition("-")[0]
        self._open[kind + chunk["id"]] = part = {"type": kind, "text": ""}
        self.parts.append(part)

    def text_delta(self, chunk: Json) -> None:
        self._opened(chunk)["text"] += chunk["delta"]

    def text_end(self, chunk: Json) -> None:
        self._opened(chunk)
        del self._open[chunk["type"].partition("-")[0] + chunk["id"]]

    reasoning_start, reasoning_delta, reasoning_end = text_start, text_delta, text_end

    def _opened(self, chunk: Json) -> Json:
        found = self._open.get(chunk["type"].partition("-")[0] + chunk["id"])
        if found is None:
            raise Refused(chunk)
        return found

    def tool_input_start(self, chunk: Json) -> None:
        self.parts.append({**chunk, "type": "tool", "state": "input-streaming", "raw": ""})

    def tool_input_delta(self, chunk: Json) -> None:
        self._tool(chunk)["raw"] += chunk["inputTextDelta"]

    def tool_input_available(self, chunk: Json) -> None:
        step = max((i for i, part in enumerate(self.parts) if part["type"] == "step-start"), default=-1)
        here = [p for p in self.parts[step + 1 :] if p["type"] == "tool" and p["toolCallId"] == chunk["toolCallId"]]
        if here:
            here[0].update(chunk, type="tool", state="input-available")
        else:
            self.parts.append({**chunk, "type": "tool", "state": "input-available"})

    def tool_output_available(self, chunk: Json) -> None:
        self._tool(chunk).update(chunk, type="tool", state="output-available")

    def tool_output_error(self, chunk: Json) -> None:
        self._tool(chunk).update(chunk, type="tool", state="output-error")

    def tool_output_denied(self, chunk: Json) -> None:
        self._tool(chunk)["state"] = "output-denied"

    def tool_approval_request(self, chunk: Json) -> None:
        self._tool(chunk).update(state="approval-requested", approval=chunk["approvalId"])

    def _tool(self, chunk: Json) -> Json:
        found = [p for p in self.parts if p["type"] == "tool" and p["toolCallId"] == chunk["toolCallId"]]
        if not found:
            raise Refused(chunk)
        return found[-1]

    def texts(self, kind: str = "text") -> str:
        return "".join(part["text"] for part in self.parts if part["type"] == kind)

    def tools(self) -> list[Json]:
        return [part for part in self.parts if part["type"] == "tool"]
