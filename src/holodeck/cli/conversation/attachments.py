"""Files for the next message: named with /attach, or dropped on the terminal, which types their paths.

`holodeck.files` reads them safely; it is imported when the first file is attached.
"""

import shlex
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holodeck.cli.conversation.archive import typed_path
from holodeck.config.build import build_files
from holodeck.config.load import LoadedConfig
from holodeck.core.messages import Content, Part, TextPart
from holodeck.core.request import FileNote
from holodeck.core.sizes import MB
from holodeck.core.text import one_line
from holodeck.errors import InvalidRequest
from holodeck.tools.port import ServerDocument

LONGEST_SHOWN = 200
STDIN = "stdin.txt"  # the name of piped input that the model is shown


class Attachments:
    def __init__(self, config: LoadedConfig) -> None:
        self.files: list[Path | ServerDocument] = []  # those of this machine, then resources of tool servers
        self.piped: bytes = b""  # standard input, sent with the first message
        self.settings = config.agent.files
        self._config = config
        self._read: Callable[..., Awaitable[Sequence[tuple[Part, FileNote]]]] | None = None

    def add(self, text: str) -> Path:
        """Attaches a file. Raises InvalidRequest with a sentence for the user."""
        path = named_file(text)
        if path not in self.files:
            self._add(path, path.stat().st_size)
        return path

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.files]

    @property
    def any(self) -> bool:
        return bool(self.files or self.piped)

    def add_document(self, document: ServerDocument) -> None:
        """Attaches a document of a tool server. Raises InvalidRequest."""
        self._add(document, len(document.data))

    def _add(self, file: Path | ServerDocument, size: int) -> None:
        if len(self.files) >= self.settings.max_files:
            raise InvalidRequest(f"At most {self.settings.max_files} files can be attached (files.max_files).")
        if size > self.settings.max_file_mb * MB:
            raise InvalidRequest(f"{file.name} is larger than {self.settings.max_file_mb:g} MB (files.max_file_mb).")
        self.files.append(file)
        self.files.sort(key=lambda each: isinstance(each, ServerDocument))

    def remove(self, name: str) -> list[str]:
        """Detaches files by name, path or number, or all of them. Raises InvalidRequest if there is no such file."""
        path = _path(name).absolute()
        numbered = enumerate(self.files, 1)
        removed = [each for n, each in numbered if not name or name in {str(n), each.name} or each == path]
        if name and not removed:
            raise InvalidRequest(f"{one_line(name, LONGEST_SHOWN)} is not attached.")
        self.files = [each for each in self.files if each not in removed]
        return [each.name for each in removed]

    def take_input(self, data: bytes) -> None:
        if len(data) > self.settings.max_file_mb * MB:
            raise InvalidRequest(
                f"The piped input is larger than {self.settings.max_file_mb:g} MB (files.max_file_mb)."
            )
        self.piped = data if data.strip() else b""

    async def with_text(
        self, text: str, progress: Callable[[str, int, int], None]
    ) -> tuple[Content, Sequence[FileNote]]:
        """Returns the message with its files, and detaches them. If one cannot be read, they stay attached.

        `progress` is called while a scan is read, page by page.
        """
        if self._read is None:
            self._read = build_files(self._config, self.settings.limits).read
        upload = import_module("holodeck.files.upload").Upload
        uploads = [
            upload(data=each.data, name=each.name, declared_type=each.mime_type)
            if isinstance(each, ServerDocument)
            else upload(data=file_bytes(each), name=each.name)
            for each in self.files
        ]
        if self.piped:
            uploads.append(upload(data=self.piped, name=STDIN))
        read = await self._read(uploads, progress=progress)
        self.files.clear()
        self.piped = b""
        return (TextPart(text), *(part for part, _ in read)), [note for _, note in read]


def file_bytes(path: Path) -> bytes:
    """Reads a file. Raises InvalidRequest with a sentence for the user."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path.name} cannot be read: {error.strerror}") from error


def named_file(text: str) -> Path:
    """Returns the file that a user typed or dropped. Raises InvalidRequest with a sentence for the user."""
    path = _file(text.strip())
    if path is None:
        shown = one_line(text, LONGEST_SHOWN)
        raise InvalidRequest(f"{shown} is a folder; name a file." if _is_folder(text) else f"There is no file {shown}.")
    return path


def dropped_files(line: str) -> list[str]:
    """Returns the paths on a line without other text, as terminals type them: quoted, escaped, or as file:// URLs."""
    if not line.startswith(("/", "'/", '"/', "file://", "~/")):
        return []
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    return words if words and all(word.startswith(("/", "~", "file://")) and _file(word) for word in words) else []


def _file(text: str) -> Path | None:
    try:
        path = _path(text).absolute()
        return path if path.is_file() else None
    except OSError:  # the word is too long for a file name
        return None


def _is_folder(text: str) -> bool:
    try:
        return _path(text.strip()).is_dir()
    except OSError:
        return False


def _path(text: str) -> Path:
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return typed_path(text)
