"""E-mails (.eml): the main header lines, the text, and the names of attachments, which are not read."""

from collections.abc import Iterator
from email import policy
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser

from holodeck.core.text import one_line
from holodeck.files.documents import hypertext, markdown
from holodeck.files.documents.document import Document, DocumentRefused

HEADERS = ("From", "To", "Cc", "Bcc", "Reply-To", "Date", "Subject")
MAX_PARTS = 500


def read(data: bytes) -> Document:
    message = BytesParser(policy=policy.default).parsebytes(data)
    if not any(message.get(name) for name in HEADERS):
        raise DocumentRefused("damaged", "is not an e-mail: it has no From, To or Subject line")
    return Document(_blocks(message))


def _blocks(message: EmailMessage) -> Iterator[str]:
    yield "\n".join(f"{name}: {one_line(str(message[name]), 2_000)}" for name in HEADERS if message.get(name))
    body = message.get_body(preferencelist=("plain", "html"))
    if body is not None:
        text = _text(body)
        if body.get_content_subtype() == "html":
            yield from hypertext.blocks(text)
        else:
            yield text.replace("\r\n", "\n").strip()
    attached = [_described(part) for part in message.iter_attachments()]
    if attached:
        yield "\n".join(
            ["Attachments, which are not read:", *(markdown.item(0, line) for line in attached[:MAX_PARTS])]
        )
    if len(attached) > MAX_PARTS:
        yield f"[{len(attached) - MAX_PARTS:,} more attachments are not listed.]"


def _text(part: MIMEPart) -> str:
    try:
        return str(part.get_content())
    except (LookupError, UnicodeError):  # a charset that Python does not know
        raw = part.get_payload(decode=True)
        return raw.decode("cp1252", "replace") if isinstance(raw, bytes) else ""


def _described(part: MIMEPart) -> str:
    name = one_line(part.get_filename() or "without a name", 120)
    if part.get_content_type() == "message/rfc822":
        inner = part.get_content()
        return f"{name} (e-mail: {one_line(str(inner.get('Subject', '')), 200)})"
    content = part.get_payload(decode=True)
    size = f", {len(content):,} bytes" if isinstance(content, bytes) else ""
    return f"{name} ({part.get_content_type()}{size})"
