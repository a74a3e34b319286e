"""What differs between AG-UI clients: the version they understand, the spelling of keys, the form of content parts.

AG-UI sorts media by kind and names the source of the bytes: inline (`data`), a URL (`url`), or a handle in a provider's
file store (`file`). A core MediaPart has data or a URL, so a handle becomes a URN, which no code mistakes for something to
fetch. `holodeck.files` checks whether the bytes match their media type.
"""

import re
from enum import Enum, auto
from typing import Any
from urllib.parse import quote, unquote

from holodeck.core.messages import Content, MediaPart, Part, TextPart, text_of
from holodeck.core.text import clean
from holodeck.wires.client_values import UNKNOWN_TYPE

PROTOCOL_VERSION = "1.0"
_VERSION = re.compile(r"(\d{1,4})(\.\d{1,4})*")

FILE_URN = "urn:ag-ui:file:"
MEDIA_KINDS = ("image", "audio", "video", "document")


class Profile(Enum):
    """Clients before 1.0 never send a version, and three shapes of 1.0 end their run.

    These are: a tool result as a list of parts, `pendingToolCallIds`, and the outcome `cancelled`.
    """

    FULL = auto()
    LEGACY = auto()


def profile_of(protocol_version: Any) -> Profile:
    match = _VERSION.fullmatch(protocol_version) if isinstance(protocol_version, str) else None
    return Profile.FULL if match and int(match[1]) >= 1 else Profile.LEGACY


_CAMEL_CASE = {
    "thread_id": "threadId",
    "run_id": "runId",
    "parent_run_id": "parentRunId",
    "protocol_version": "protocolVersion",
    "forwarded_props": "forwardedProps",
    "tool_calls": "toolCalls",
    "tool_call_id": "toolCallId",
    "interrupt_id": "interruptId",
    "mime_type": "mimeType",
}


def camel_case(raw: dict[str, Any]) -> dict[str, Any]:
    """The same members, spelled as AG-UI does; that spelling wins where both are there.

    The official Python SDK takes `thread_id` as well, so clients in Python send either; Microsoft's sends that.
    """
    if raw.keys().isdisjoint(_CAMEL_CASE):
        return raw
    return {_CAMEL_CASE.get(key, key): value for key, value in raw.items()} | {
        key: raw[key] for key in _CAMEL_CASE.values() if key in raw
    }


def read_part(part: Any) -> Part | None:
    """A part of a message, or None for one that cannot be used: a run must not fail because of it (1.0 specification)."""
    if not isinstance(part, dict):
        return None
    kind = part.get("type")
    if kind == "text":
        return TextPart(clean(part["text"])) if isinstance(part.get("text"), str) else None
    if kind == "binary":
        return _read_binary(camel_case(part))
    if kind in MEDIA_KINDS:
        return _read_media(kind, part)
    return None


def _read_media(kind: str, part: dict[str, Any]) -> MediaPart | None:
    source = part.get("source")
    value = source.get("value") if isinstance(source, dict) else None
    if not isinstance(source, dict) or not isinstance(value, str):
        return None
    if not value and source.get("type") != "data":  # an empty file is kept, so that the client gets an error for it
        return None
    source, metadata = camel_case(source), part.get("metadata")
    return _media(
        place=source.get("type"),
        value=value,
        mime_type=_text(source.get("mimeType")) or (UNKNOWN_TYPE if kind == "document" else f"{kind}/*"),
        filename=_text(metadata.get("filename")) if isinstance(metadata, dict) else None,
    )


def _read_binary(part: dict[str, Any]) -> MediaPart | None:
    """The part of clients up to 0.0.47: one flat object with data, url or id."""
    for place, key in (("data", "data"), ("url", "url"), ("file", "id")):
        value = _text(part.get(key))
        if value:
            mime_type = _text(part.get("mimeType")) or UNKNOWN_TYPE
            return _media(place=place, value=value, mime_type=mime_type, filename=_text(part.get("filename")))
    return None


def _media(*, place: Any, value: str, mime_type: str, filename: str | None) -> MediaPart | None:
    if place == "data":
        return MediaPart(mime_type=mime_type, data=clean(value), filename=filename)
    if place == "url":
        return MediaPart(mime_type=mime_type, url=clean(value), filename=filename)
    if place == "file":
        return MediaPart(mime_type=mime_type, url=FILE_URN + quote(clean(value), safe=""), filename=filename)
    return None


def _text(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) else None


def write_content(content: Content, profile: Profile) -> str | list[dict[str, Any]]:
    """Content of a user message: text, or parts where there are media."""
    if isinstance(content, str) or not any(isinstance(part, MediaPart) for part in content):
        return text_of(content)
    return [_write_part(part, profile) for part in content]


def write_result(content: Content, profile: Profile) -> str | list[dict[str, Any]]:
    """Content of a tool message: only 1.0 knows parts there."""
    return write_content(content, profile) if profile is Profile.FULL else text_of(content)


def _write_part(part: Part, profile: Profile) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    source = _source(part)
    if source["type"] == "file" and profile is Profile.LEGACY:
        return {"type": "text", "text": text_of((part,))}  # the source `file` came with 1.0
    kind = part.mime_type.partition("/")[0]
    written = {"type": kind if kind in MEDIA_KINDS else "document", "source": source}
    if part.filename:
        written["metadata"] = {"filename": part.filename}
    return written


def _source(part: MediaPart) -> dict[str, str]:
    if part.data is not None:
        return {"type": "data", "value": part.data, "mimeType": part.mime_type}
    url = part.url or ""
    if url.startswith(FILE_URN):
        source = {"type": "file", "value": unquote(url.removeprefix(FILE_URN))}
    else:
        source = {"type": "url", "value": url}
    if not part.mime_type.endswith("/*"):
        source["mimeType"] = part.mime_type
    return source
