"""Files inside a body: `data:` URLs and base64. `holodeck.files` decodes the bytes and checks their type."""

from holodeck.core.messages import MediaPart
from holodeck.errors import InvalidRequest
from holodeck.wires.body import text

UNKNOWN_TYPE = "application/octet-stream"


def media_of_data_url(url: str, path: str, filename: str | None = None) -> MediaPart:
    """The file in a `data:` URL, which has to be in base64."""
    head, comma, data = url.partition(",")
    kind, *parameters = head.removeprefix("data:").split(";")
    if not comma or "base64" not in parameters:
        raise InvalidRequest(f"{path} has to be a data: URL in base64", field=path)
    return MediaPart(mime_type=text(kind, path) or UNKNOWN_TYPE, data=base64_text(data, path), filename=filename)


def base64_text(data: str, path: str) -> str:
    """Base64 may be megabytes: it is not cleaned, only known to be harmless."""
    if not data.isascii():
        raise InvalidRequest(f"{path} has to be base64", field=path)
    return data
