"""Files that are plain text, shown to the model as they are. Everything else is refused, never dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holodeck.core.messages import Part, TextPart
from holodeck.core.request import FileNote
from holodeck.core.text import clean, one_line
from holodeck.errors import UnsupportedMediaType

MAX_NAME = 120


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A file as it came. The name is for people: it is never a path. `field` is where the request had it."""

    data: bytes
    name: str
    declared_type: str | None
    field: str


class FileReading(Protocol):
    """Turns files into what the model is shown, in their order."""

    async def read(self, uploads: Sequence[Upload]) -> Sequence[tuple[Part, FileNote]]: ...


class TextFiles:
    async def read(self, uploads: Sequence[Upload]) -> Sequence[tuple[Part, FileNote]]:
        return [_read(upload) for upload in uploads]


def _read(upload: Upload) -> tuple[Part, FileNote]:
    name = one_line(upload.name.replace("\\", "/").rpartition("/")[2], MAX_NAME) or "file"
    declared = upload.declared_type or ""
    if not declared.startswith("text/"):
        raise UnsupportedMediaType(f"{name}: {one_line(declared) or 'a file without a type'} cannot be read.")
    try:
        text = clean(upload.data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise UnsupportedMediaType(f"{name} says it is text, but is not UTF-8.") from None
    note = FileNote(name=name, mime_type=declared, read_as="text", characters=len(text))
    return TextPart(f"File {name}:\n{text}"), note
