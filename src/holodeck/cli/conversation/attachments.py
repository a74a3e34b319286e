"""Files that go with the next message: named with /attach, or dropped on the terminal, which types their paths.

What is read of a file, and how safely, is `holodeck.files`' business; it is loaded when the first file is attached.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from holodeck.config.schema import FileSettings
from holodeck.core.messages import Content, Part, TextPart
from holodeck.core.request import FileNote
from holodeck.errors import InvalidRequest

MB = 1_000_000


@dataclass
class Attachments:
    settings: FileSettings
    paths: list[Path] = field(default_factory=list)
    _reader: Any = None  # a holodeck.files.reader.FileReader

    def add(self, text: str) -> Path:
        """Raises InvalidRequest with a sentence for the user."""
        path = _path(text.strip())
        if not path.is_file():
            raise InvalidRequest(f"There is no file {text.strip()}.")
        if len(self.paths) >= self.settings.max_files:
            raise InvalidRequest(f"{self.settings.max_files} files are the limit (files.max_files).")
        if path.stat().st_size > self.settings.max_file_mb * MB:
            raise InvalidRequest(f"{path.name} is larger than {self.settings.max_file_mb:g} MB (files.max_file_mb).")
        self.paths.append(path)
        return path

    async def with_text(self, text: str) -> tuple[Content, Sequence[FileNote]]:
        """The message with its files, which are not attached any more then; they still are if one cannot be read."""
        if not self.paths:
            return text, ()
        read = await self._read(self.paths)
        self.paths.clear()
        parts: list[Part] = [each.part for each in read]
        return (TextPart(text), *parts), [each.note for each in read]

    async def _read(self, paths: Iterable[Path]) -> Sequence[Any]:
        if self._reader is None:
            limits = import_module("holodeck.files.limits").FileLimits(
                max_files=self.settings.max_files,
                max_file_bytes=round(self.settings.max_file_mb * MB),
                max_request_bytes=round(self.settings.max_request_mb * MB),
            )
            self._reader = import_module("holodeck.files.reader").FileReader(limits)
        upload = import_module("holodeck.files.upload").Upload
        uploads = [upload(data=path.read_bytes(), name=path.name, declared_type=None, field="files") for path in paths]
        read: Sequence[Any] = await self._reader.read(uploads)
        return read


def dropped_files(line: str) -> list[str]:
    """The paths on a line that holds nothing else, as terminals type them: quoted, escaped, or as file:// addresses."""
    if not line.startswith(("/", "'/", '"/', "file://", "~/")):
        return []
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    return words if words and all(_is_file(word) for word in words) else []


def _is_file(word: str) -> bool:
    path = _path(word)
    try:
        return path.is_absolute() and path.is_file()
    except OSError:  # longer than a name may be
        return False


def _path(text: str) -> Path:
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return Path(text).expanduser()
