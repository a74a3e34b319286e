"""The server's side of SigV4, by its specification: what a request must be signed with. Knows nothing of botocore."""

import hashlib
import hmac
import re

from tests.models.endpoint import Received

KEY_ID, SECRET = "AKIAPLANTED0123456789", "planted/secret+0123456789abcdef"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>(?P<day>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request), "
    r"SignedHeaders=(?P<headers>[\w;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)
_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~/"


def is_signed(request: Received, *, region: str, secret: str = SECRET, key_id: str = KEY_ID) -> bool:
    """Whether the request's own bytes have this signature, for Bedrock in this region."""
    parts = _AUTHORIZATION.fullmatch(request.headers["authorization"])
    assert parts is not None, request.headers["authorization"]
    assert (parts["key"], parts["region"], parts["service"]) == (key_id, region, "bedrock")
    names = parts["headers"].split(";")
    has_to_be = {name for name in request.headers if name in ("host", "content-type") or name.startswith("x-amz-")}
    assert has_to_be <= set(names), has_to_be
    path, _, query = request.path.partition("?")
    canonical = "\n".join(
        [
            request.method,
            "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in path.encode()),  # escaped once more
            "&".join(sorted(query.split("&"))) if query else "",
            *(f"{name}:{' '.join(request.headers[name].split())}" for name in names),
            "",
            parts["headers"],
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    moment = request.headers["x-amz-date"]
    assert moment.startswith(parts["day"])
    text = "\n".join(["AWS4-HMAC-SHA256", moment, parts["scope"], hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for word in (parts["day"], region, "bedrock", "aws4_request", text):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return hmac.compare_digest(key.hex(), parts["signature"])
