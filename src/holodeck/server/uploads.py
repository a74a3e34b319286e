"""The body of a REST request, in either of its forms: JSON with base64, or a form with files as they are (SRV-12).

Forms are read with Starlette's parser, which spools large files to disk; how much of anything is accepted is bounded
here. What a file holds is for `holodeck.files`.
"""

import base64
import binascii
from collections.abc import Sequence

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from holodeck.core.messages import Part
from holodeck.core.request import FileNote
from holodeck.core.text import one_line
from holodeck.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from holodeck.server.options import MB
from holodeck.server.routes.asking import json_body, media_type_of, server_of
from holodeck.server.text_files import Upload
from holodeck.wires.rest.request import MAX_FILES, ChatRequest, FileContent, chat_request, decode

FORM = "multipart/form-data"
MAX_FIELDS = 20
MAX_FIELD_BYTES = 64 * 1024
PARSED_FILES = 4 * MAX_FILES  # beyond this the parser gives up; below it we say what is wrong

MAX_FORM_FILE = 50 * MB
MAX_JSON_FILE = 10 * MB
MAX_BASE64 = -(-MAX_JSON_FILE // 3) * 4

Read = Sequence[tuple[Part, FileNote]]


async def chat_of(request: Request) -> tuple[ChatRequest, Read]:
    """What the user says, and what the model shall see of the files."""
    if media_type_of(request) == FORM:
        chat, uploads = await _form(request)
    else:
        try:
            chat = decode(await json_body(request))
        except UnsupportedMediaType:
            raise UnsupportedMediaType(f"The body has to be JSON or a form: application/json or {FORM}.") from None
        uploads = [_of_json(each, f"files[{i}]") for i, each in enumerate(chat.files)]
    return chat, await server_of(request).files.read(uploads) if uploads else ()


async def _form(request: Request) -> tuple[ChatRequest, list[Upload]]:
    try:
        async with request.form(max_files=PARSED_FILES, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES) as form:
            chat = chat_request(form.get("message"), form.get("session_id") or None)
            return chat, [await _of_form(each, f"files[{i}]") for i, each in enumerate(_files(form))]
    except HTTPException as error:  # how Starlette tells that a form is broken or has too many parts
        raise InvalidRequest(f"The form cannot be read: {error.detail}", status=400) from error


def _files(form: FormData) -> list[UploadFile]:
    """Every part that is a file, whatever its name: none is dropped without a word."""
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    if len(files) > MAX_FILES:
        raise InvalidRequest(f"files has {len(files)} entries; at most {MAX_FILES} are allowed", field="files")
    if any(isinstance(value, str) for value in form.getlist("files")):
        raise InvalidRequest("files has to be a part with a filename", field="files")
    return files


async def _of_form(file: UploadFile, field: str) -> Upload:
    if (file.size or 0) > MAX_FORM_FILE:
        raise _too_large(file.filename, MAX_FORM_FILE)
    return Upload(data=await file.read(), name=file.filename or "", declared_type=file.content_type, field=field)


def _of_json(file: FileContent, field: str) -> Upload:
    if len(file.content) > MAX_BASE64:
        raise _too_large(file.filename, MAX_JSON_FILE)
    try:
        data = base64.b64decode(file.content, validate=True)
    except binascii.Error:
        raise InvalidRequest(f"{field}.content is not valid base64", field=f"{field}.content") from None
    return Upload(data=data, name=file.filename or "", declared_type=file.mime_type, field=field)


def _too_large(name: str | None, limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"{one_line(name or 'The file')} is larger than {limit // MB} MB, the most in this form.")
