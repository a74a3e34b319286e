"""Turns the files of a request into what the model is shown of them, with a note about each for the user.

It knows neither wires nor models: the caller says whether the model accepts images. A file that cannot be read is an
error that names it. Only a file of an earlier turn becomes a line of text instead, because the conversation must
continue.
"""

import asyncio
import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from holodeck.core.messages import AssistantMessage, MediaPart, Message, Part, TextPart, UserMessage
from holodeck.core.owner import DEFAULT_TENANT
from holodeck.core.request import FileNote
from holodeck.core.text import clean, one_line, strip_controls
from holodeck.errors import InvalidRequest, PayloadTooLarge, RateLimited, RequestError, UnsupportedMediaType
from holodeck.files.documents.document import scan_mark
from holodeck.files.extraction import MAX_ANSWER, Extraction, WorkerAnswer
from holodeck.files.fetch import Fetcher
from holodeck.files.limits import FileLimits, WorkerLimits
from holodeck.files.sniff import HEAD, encoding_of, identify, image_size, is_unicode, sniff_audio
from holodeck.files.source import name_of, upload_of
from holodeck.files.types import JPEG, MODEL_IMAGES, FileType
from holodeck.files.upload import Upload, encode_base64

T = TypeVar("T")
ReportProgress: TypeAlias = Callable[[str, int, int], None]  # a file, the page that is read now, how many there are


class FileRead(NamedTuple):
    part: Part
    note: FileNote


READ_IN_LOOP = 64 * 1024  # bytes of a text file
MAX_CHARACTERS = 4_000_000
MAX_DOCUMENTS = 1_000
_PASSING = {"too_slow", "no_reader"}  # a retry may succeed


class DocumentKey(NamedTuple):
    tenant: str
    kind: str
    digest: bytes


class Recall:
    """A cache of documents read lately. Chat clients send the whole conversation, with all its files, every turn.

    The key is the tenant and the content. So a client gets back only what its own tenant has sent, and cannot learn
    from the time of an answer whether another tenant has sent the same document.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[DocumentKey, WorkerAnswer] = OrderedDict()
        self._characters = 0

    async def key(self, tenant: str, kind: str, data: bytes) -> DocumentKey:
        return DocumentKey(tenant, kind, await asyncio.to_thread(lambda: hashlib.sha256(data).digest()))

    def get(self, key: DocumentKey) -> WorkerAnswer | None:
        if key in self._answers:
            self._answers.move_to_end(key)
        return self._answers.get(key)

    def put(self, key: DocumentKey, answer: WorkerAnswer) -> None:
        if key not in self._answers and answer.refused not in _PASSING:
            self._answers[key] = answer
            self._characters += len(answer.text)
        while self._characters > MAX_CHARACTERS or len(self._answers) > MAX_DOCUMENTS:
            _, oldest = self._answers.popitem(last=False)
            self._characters -= len(oldest.text)


class FileReader:
    def __init__(
        self,
        limits: FileLimits | None = None,
        *,
        vision: bool = False,
        native: Collection[str] = (),
        fetcher: Fetcher | None = None,
    ) -> None:
        """`native` are kinds that the model reads itself: pdf, audio. Without a `fetcher`, files at a URL are refused."""
        self._native = frozenset(native)
        self._limits = limits or FileLimits()
        self._vision = vision
        self._fetcher = fetcher
        self._extraction = Extraction(self._limits.max_characters)
        self._recall = Recall()
        self._workers = asyncio.Semaphore(self._limits.workers)

    async def read(
        self, uploads: Sequence[Upload], *, tenant: str = DEFAULT_TENANT, progress: ReportProgress | None = None
    ) -> list[FileRead]:
        """Reads every file of a tenant, in order. Raises for the first that cannot be read.

        Reading a scan takes seconds for each page; `progress` is called before each.
        """
        self._check_count(len(uploads), "files")
        if sum(len(upload.data) for upload in uploads) > self._limits.max_request_bytes:
            raise PayloadTooLarge(f"The files have more than {self._limits.max_request_bytes:,} bytes in total")
        return await _in_order(self._read(upload, tenant, progress) for upload in uploads)

    async def resolve(
        self,
        messages: Sequence[Message],
        *,
        first: int = 0,
        tenant: str = DEFAULT_TENANT,
        progress: ReportProgress | None = None,
    ) -> tuple[tuple[Message, ...], tuple[FileNote, ...]]:
        """Returns messages in which every file has been read, and notes about those of the newest turn.

        Files before message `first` are only named: the model is not shown them, and extraction is the most expensive
        step.
        """
        if not any(has_files(message) for message in messages):
            return tuple(messages), ()
        newest = max((i for i, message in enumerate(messages) if isinstance(message, UserMessage)), default=0)
        resolved = await _in_order(
            self._resolve_message(message, f"messages[{number}]", tenant, progress, fresh=number >= newest)
            for number, message in enumerate(messages)
            if number >= first
        )
        notes = [note for _, found in resolved[max(newest - first, 0) :] for note in found]
        return (*map(_named, messages[:first]), *(message for message, _ in resolved)), tuple(notes)

    async def _resolve_message(
        self, message: Message, field: str, tenant: str, progress: ReportProgress | None, *, fresh: bool
    ) -> tuple[Message, list[FileNote]]:
        if isinstance(message, AssistantMessage) or isinstance(message.content, str):
            return message, []
        if fresh:
            self._check_count(sum(isinstance(part, MediaPart) for part in message.content), f"{field}.content")
        resolved = await _in_order(
            self._resolve_part(part, f"{field}.content[{i}]", tenant, progress, fresh=fresh)
            for i, part in enumerate(message.content)
        )
        content = tuple(part for part, _ in resolved)
        return msgspec.structs.replace(message, content=content), [note for _, note in resolved if note]

    async def _resolve_part(
        self, part: Part, field: str, tenant: str, progress: ReportProgress | None, *, fresh: bool
    ) -> tuple[Part, FileNote | None]:
        if isinstance(part, TextPart):
            return part, None
        try:
            upload = await upload_of(part, field=field, limits=self._limits, fetcher=self._fetcher)
            return await self._read(upload, tenant, progress)
        except (InvalidRequest, PayloadTooLarge, UnsupportedMediaType) as error:
            if fresh:
                raise
            return TextPart(f"[The file {name_of(part)} of this message could not be read: {error.message}]"), None

    def _check_count(self, number: int, field: str) -> None:
        if number > self._limits.max_files:
            raise InvalidRequest(f"{number} files are too many; {self._limits.max_files} is the limit", field=field)

    async def _read(self, upload: Upload, tenant: str, progress: ReportProgress | None = None) -> FileRead:
        if len(upload.data) > self._limits.max_file_bytes:
            raise PayloadTooLarge(
                f"{upload.name} has {len(upload.data):,} bytes; {self._limits.max_file_bytes:,} is the limit"
            )
        if (sound := sniff_audio(upload.data)) is not None:
            return await self._audio(upload, sound)
        type_ = identify(upload)
        if type_.is_image:
            return await self._read_image(upload, type_, tenant)
        if type_.read_as in self._native and len(upload.data) <= self._limits.max_native_bytes:
            return await self._as_it_is(upload, type_.mime)
        if type_.read_as == "text" and is_unicode(upload.data[:HEAD], whole=len(upload.data) <= HEAD):
            return _shown(upload, type_, type_.read_as, await self._plain_text(upload))
        answer = await self._extract(upload, type_.read_as, self._limits.documents, tenant)
        if answer.scans:
            answer = await self._recognized(upload, answer, tenant, progress)
        return _shown(upload, type_, type_.read_as, answer)

    async def _plain_text(self, upload: Upload) -> WorkerAnswer:
        """Reads a text file: a long one in a thread, because ten of them would hold the event loop for 25 ms."""
        if len(upload.data) <= READ_IN_LOOP:
            return _text(upload, self._limits.max_characters)
        return await asyncio.to_thread(_text, upload, self._limits.max_characters)

    async def _audio(self, upload: Upload, mime: str) -> FileRead:
        """Returns audio for models that accept it. We cannot read it ourselves."""
        if "audio" not in self._native:
            raise UnsupportedMediaType(f"{upload.name} is audio, which the model of this agent does not accept")
        if len(upload.data) > self._limits.max_native_bytes:
            limit = self._limits.max_native_bytes
            raise PayloadTooLarge(f"{upload.name} has {len(upload.data):,} bytes; {limit:,} is the limit for audio")
        return await self._as_it_is(upload, mime)

    async def _as_it_is(self, upload: Upload, mime: str) -> FileRead:
        """Returns the file itself, for a model that reads such files."""
        part = MediaPart(mime_type=mime, data=upload.base64 or await encode_base64(upload.data), filename=upload.name)
        return FileRead(part, FileNote(name=upload.name, mime_type=mime, read_as="native"))

    async def _recognized(
        self, upload: Upload, answer: WorkerAnswer, tenant: str, progress: ReportProgress | None
    ) -> WorkerAnswer:
        """Returns the document with the text of its scanned pages. An unreadable page becomes a line that says why."""
        text, rest, found = answer.text, answer.text, False
        first, later = answer.scans[: self._limits.max_scans], answer.scans[self._limits.max_scans :]
        for number, page in enumerate(first, 1):
            if progress is not None:
                progress(upload.name, number, len(first))
            try:
                scan = await self._extract(upload, "scan", self._limits.pictures, tenant, page=page)
                shown = scan.text.strip() or "[No text was found on this page.]"
                found = found or bool(scan.text.strip())
            except (InvalidRequest, PayloadTooLarge) as error:
                shown = f"[This page is a scan that could not be read: {error.message}.]"
            text = text.replace(scan_mark(page), f"Page {page} (a scan, read by text recognition)\n{shown}", 1)
            rest = rest.replace(scan_mark(page), "", 1)
        if not found and not rest.strip():
            raise InvalidRequest(
                f"{upload.name} is a scan, and text recognition found no text on its pages", field=upload.field
            )
        if later:
            text += f"\n\n[{len(later):,} more scanned pages were not read; {self._limits.max_scans} is the limit.]"
        limit = self._limits.max_characters
        truncated = answer.truncated or len(text) > limit
        return msgspec.structs.replace(answer, text=text[:limit], truncated=truncated)

    async def _read_image(self, upload: Upload, type_: FileType, tenant: str) -> FileRead:
        if type_ in MODEL_IMAGES:
            self._check_pixels(upload, type_)
        if self._vision:
            shown = await self._image_part(upload, type_, tenant)
            if shown is not None:
                return shown
        answer = await self._extract(upload, "ocr", self._limits.pictures, tenant)
        return _shown(upload, type_, "ocr", answer)

    def _check_pixels(self, upload: Upload, type_: FileType) -> None:
        """Refuses an image by its header, before anything decodes it. The worker checks other formats."""
        size = image_size(upload.data, type_)
        if size is None or not all(size):
            raise InvalidRequest(f"{upload.name} is damaged: it cannot be decoded as an image", field=upload.field)
        if size[0] * size[1] > self._limits.max_pixels:
            raise PayloadTooLarge(
                f"{upload.name} has {size[0]:,} x {size[1]:,} pixels; {self._limits.max_pixels:,} in all is the limit"
            )

    async def _image_part(self, upload: Upload, type_: FileType, tenant: str) -> FileRead | None:
        """Returns the image as the model gets it, or None if it has several pages, which are read as text."""
        if len(upload.data) > self._limits.max_image_bytes:
            limit = self._limits.max_image_bytes
            raise PayloadTooLarge(f"{upload.name} has {len(upload.data):,} bytes; {limit:,} is the limit for images")
        mime = type_.mime
        if type_ in MODEL_IMAGES:
            encoded = upload.base64 or await encode_base64(upload.data)
        else:
            answer = await self._extract(upload, "jpeg", self._limits.pictures, tenant, characters=MAX_ANSWER // 2)
            if not answer.text:
                return None
            encoded, mime = _checked_jpeg(upload, answer), JPEG.mime
        part = MediaPart(mime_type=mime, data=encoded, filename=upload.name)
        return FileRead(part, FileNote(name=upload.name, mime_type=type_.mime, read_as="image"))

    async def _extract(
        self,
        upload: Upload,
        kind: str,
        limits: WorkerLimits,
        tenant: str,
        *,
        page: int | None = None,
        characters: int | None = None,
    ) -> WorkerAnswer:
        key = await self._recall.key(tenant, kind if page is None else f"{kind} {page}", upload.data)
        answer = self._recall.get(key)
        if answer is None:
            await self._wait_for_worker()
            try:
                answer = await self._extraction.read(kind, upload.data, limits, page=page, characters=characters)
            finally:
                self._workers.release()
            self._recall.put(key, answer)
        if answer.refused:
            raise _refusal(upload, answer)
        return answer

    async def _wait_for_worker(self) -> None:
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await self._workers.acquire()
        except TimeoutError as error:
            raise RateLimited("Too many files are being read at the moment; try again in a moment") from error


def has_files(message: Message) -> bool:
    return not isinstance(message.content, str) and any(isinstance(part, MediaPart) for part in message.content)


def _named(message: Message) -> Message:
    if isinstance(message, AssistantMessage) or isinstance(message.content, str):
        return message
    parts = (TextPart(f"[File {name_of(part)}]") if isinstance(part, MediaPart) else part for part in message.content)
    return msgspec.structs.replace(message, content=tuple(parts))


def _text(upload: Upload, characters: int) -> WorkerAnswer:
    """Reads text without a worker: decodes only as much as is shown, and interprets nothing."""
    head = upload.data[: characters * 4 + 4]  # no character has more bytes
    text = strip_controls(clean(head.decode(encoding_of(head), "replace"))).replace("\r\n", "\n")
    cut = len(text) > characters or len(head) < len(upload.data)
    shown = text[:characters].rstrip("\ufffd") if cut else text
    return WorkerAnswer(text=shown, truncated=cut, detail="with bytes that are not text" if "\ufffd" in shown else "")


def _checked_jpeg(upload: Upload, answer: WorkerAnswer) -> str:
    """Checks the image that the worker made, which is not trusted: it must be base64 of a JPEG."""
    try:
        head = base64.b64decode(answer.text, validate=True)[:3]
    except binascii.Error:
        head = b""
    if head != b"\xff\xd8\xff" or answer.truncated:
        raise InvalidRequest(
            f"{upload.name} cannot be converted for the model; send it as PNG or JPEG", field=upload.field
        )
    return answer.text


def _shown(upload: Upload, type_: FileType, read_as: str, answer: WorkerAnswer) -> FileRead:
    text = answer.text.strip()
    if not text and read_as != "ocr":
        raise InvalidRequest(f"{upload.name} holds no text", field=upload.field)
    detail = one_line(answer.detail)
    lines = [
        f"File {upload.name} ({type_.label}{', ' + detail if detail else ''}):",
        text or "[No text was found in it.]",
    ]
    if answer.truncated:
        lines.append(f"[{upload.name} is longer; only its first {len(text):,} characters are shown.]")
    lines.append(f"[End of {upload.name}]")
    note = FileNote(
        name=upload.name, mime_type=type_.mime, read_as=read_as, characters=len(text), truncated=answer.truncated
    )
    return FileRead(TextPart("\n".join(lines)), note)


def _refusal(upload: Upload, answer: WorkerAnswer) -> RequestError:
    sentence = f"{upload.name} {one_line(answer.sentence, 200)}"
    error: RequestError
    if answer.refused == "too_large":
        error = PayloadTooLarge(sentence)
    elif answer.refused in {"no_reader", "not_text"}:
        error = UnsupportedMediaType(sentence)
    else:
        error = InvalidRequest(sentence, field=upload.field)
    error.reason = answer.refused
    return error


async def _in_order(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns all results in order. When one fails the others are stopped, so that no worker outlives the request."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
