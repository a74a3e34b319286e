"""Gets the bytes of a media part: from the part, from a data URL, or (if the operator allows) from an address."""

import re
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from holodeck.core.messages import MediaPart
from holodeck.errors import InvalidRequest, PayloadTooLarge
from holodeck.files.fetch import Fetcher
from holodeck.files.limits import FileLimits
from holodeck.files.upload import Upload, display_name

_DATA_URL = re.compile(r"data:(?P<type>[^,;]*)(?P<parameters>(?:;[^,;]*)*),", re.IGNORECASE)
_HANDLE = "urn:"


async def upload_of(part: MediaPart, *, field: str, limits: FileLimits, fetcher: Fetcher | None) -> Upload:
    """Returns the file of a part. If its bytes are not available, raises a RequestError that says what to do."""
    name = name_of(part)
    if part.data is not None:
        return await Upload.from_base64(
            part.data, limit=limits.max_base64_bytes, field=field, name=name, declared_type=part.mime_type
        )
    url = part.url or ""
    if url[:5].lower() == "data:":
        return await _of_data_url(url, name, field, limits)
    if url[:4].lower() == _HANDLE:
        raise InvalidRequest(
            f"{name} names a file in a file store that this server does not know; send its bytes",
            status=400,
            field=field,
        )
    if fetcher is None:
        raise InvalidRequest(
            f"{name} is given by URL, and this server fetches no files (files.allow_hosts); send its bytes",
            status=400,
            field=field,
        )
    fetched = await fetcher.fetch(url, field=field)
    declared = None if part.mime_type.endswith("/octet-stream") else part.mime_type
    return Upload(data=fetched.data, name=name, declared_type=declared or fetched.declared_type, field=field)


def name_of(part: MediaPart) -> str:
    """Returns the name that a client gave, or the end of an address."""
    if part.filename or not part.url or part.url[:5].lower() == "data:":
        return display_name(part.filename)
    try:
        return display_name(unquote(urlsplit(part.url).path))
    except ValueError:
        return display_name(None)


async def _of_data_url(url: str, name: str, field: str, limits: FileLimits) -> Upload:
    head = _DATA_URL.match(url[:1_000])
    if head is None:
        raise InvalidRequest(f"{name} is not a valid data URL", field=field)
    payload, limit, declared = url[head.end() :], limits.max_base64_bytes, head["type"] or "text/plain"
    if head["parameters"].lower().endswith(";base64"):
        return await Upload.from_base64(payload, limit=limit, field=field, name=name, declared_type=declared)
    if len(payload) > limit:
        raise PayloadTooLarge(f"{name} has more than {limit:,} bytes, the limit for files in JSON")
    return Upload(data=unquote_to_bytes(payload), name=name, declared_type=declared, field=field)
