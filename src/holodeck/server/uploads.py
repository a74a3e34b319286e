"""The body of a REST request, in either form: JSON with base64, or a form with plain files (SRV-12).

Forms are read with Starlette's parser, which spools large files to disk. This module limits the number of parts and the
size of texts. `holodeck.files` reads what a file contains and decides what the model is shown of it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from holodeck.errors import InvalidRequest, PayloadTooLarge, StorageFull, UnsupportedMediaType
from holodeck.files.limits import FileLimits
from holodeck.files.upload import Upload, decode_base64, display_name
from holodeck.server.intake import json_body, media_type_of
from holodeck.telemetry.log_context import current
from holodeck.wires import sse
from holodeck.wires.body import refuse_repeated_names
from holodeck.wires.rest.request import ChatRequest, FileContent, chat_request, decode

log = logging.getLogger(__name__)

FORM = "multipart/form-data"
MAX_FIELDS = 20
MAX_FIELD_BYTES = 64 * 1024
PARSED_FILES = 30  # more than are allowed; beyond this the parser gives up, below it we can explain the error


PostedChat: TypeAlias = tuple[ChatRequest, list[Upload]]
"""The user's message, and the files as they arrived."""


@dataclass(slots=True, eq=False)
class ChatBody:
    """The body of one request, which may have large files: it is read when it is first needed."""

    _request: Request
    _limits: FileLimits
    _posted: PostedChat | None = None

    async def posted(self) -> PostedChat:
        if self._posted is None:
            form = media_type_of(self._request) == FORM
            self._posted = await (_of_form if form else _of_json)(self._request, self._limits)
            current().conversation_id = self._posted[0].session_id
        return self._posted

    async def fingerprint(self) -> bytes:
        """Returns a hash that is equal for two deliveries of one request. Large files are hashed in a thread."""
        chat, uploads = await self.posted()
        return await asyncio.to_thread(_digest, chat, uploads) if uploads else _digest(chat, uploads)


def _digest(chat: ChatRequest, uploads: Sequence[Upload]) -> bytes:
    files = [(each.name, each.declared_type, sha256(each.data).hexdigest()) for each in uploads]
    return sha256(sse.json_bytes((chat.message, chat.session_id, chat.resume, files))).digest()


async def _of_json(request: Request, limits: FileLimits) -> PostedChat:
    try:
        chat = decode(await json_body(request), limits.max_files)
    except UnsupportedMediaType:
        raise UnsupportedMediaType(f"The body must be JSON or a form: application/json or {FORM}.") from None
    return chat, [await _decoded(each, f"files[{i}]", limits) for i, each in enumerate(chat.files)]


async def _decoded(file: FileContent, field: str, limits: FileLimits) -> Upload:
    name = display_name(file.filename)
    data = await decode_base64(file.content, limit=limits.max_base64_bytes, field=f"{field}.content", name=name)
    return Upload(data=data, name=name, declared_type=file.mime_type, field=field, base64=file.content)


async def _of_form(request: Request, limits: FileLimits) -> PostedChat:
    try:
        async with _form(request, max_files=limits.max_files + PARSED_FILES) as form:
            chat = chat_request(form.get("message"), form.get("session_id") or None, _decisions(form))
            found = _files(form, limits.max_files)
            return chat, [await _uploaded(each, f"files[{i}]", limits) for i, each in enumerate(found)]
    except OSError as error:  # a temporary file could not be written
        log.error("no temporary file for a form: %s", error.strerror)  # noqa: TRY400  no defect of ours
        raise StorageFull("The server has no disk space for the files while it reads them.") from error
    except MultiPartException as error:  # Starlette's error for a broken form or too many parts
        raise InvalidRequest(f"The form cannot be read: {error.message}", status=400) from error


class WholeForm(MultiPartParser):
    """A form parser that raises for a form without its end. Starlette accepts one, and drops the truncated file (SRV-14)."""

    _whole = False

    def on_end(self) -> None:
        self._whole = True

    async def parse(self) -> FormData:
        form = await super().parse()
        if not self._whole:
            for file in self._files_to_close_on_error:
                file.close()
            raise MultiPartException("It is incomplete.")
        return form


@asynccontextmanager
async def _form(request: Request, *, max_files: int) -> AsyncIterator[FormData]:
    limits = {"max_files": max_files, "max_fields": MAX_FIELDS, "max_part_size": MAX_FIELD_BYTES}
    async with aclosing(request.stream()) as body:
        form = await WholeForm(request.headers, body, **limits).parse()
    try:
        yield form
    finally:
        await form.close()


def _decisions(form: FormData) -> Any:
    """Reads `resume`, which is JSON text in a form. Its content is checked together with the request."""
    if len(form.getlist("resume")) > 1:
        raise InvalidRequest("The form field resume appears twice; no approval was recorded.", field="resume")
    given = form.get("resume") or None
    if given is None:
        return None
    try:
        decisions = msgspec.json.decode(given) if isinstance(given, str) else given
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest("resume must be a list in JSON", field="resume") from error
    if isinstance(given, str):
        refuse_repeated_names(given)
    return decisions


def _files(form: FormData, allowed: int) -> list[UploadFile]:
    """Returns every part that is a file, whatever its name: none is dropped silently."""
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    if len(files) > allowed:
        raise InvalidRequest(f"files has {len(files)} entries; at most {allowed} are allowed", field="files")
    if any(isinstance(value, str) for value in form.getlist("files")):
        raise InvalidRequest("files must be a part with a filename", field="files")
    return files


async def _uploaded(file: UploadFile, field: str, limits: FileLimits) -> Upload:
    name = display_name(file.filename)
    if (file.size or 0) > limits.max_file_bytes:  # before it is in memory
        raise PayloadTooLarge(f"{name} has {file.size:,} bytes; {limits.max_file_bytes:,} is the limit")
    return Upload(data=await file.read(), name=name, declared_type=file.content_type, field=field)
