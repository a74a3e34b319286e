"""All that can be wrong with a chat request, in one table: what was sent, the status, the problem's type.

Files that cannot be read are sent in every way, and the problem must name them.
"""

import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from holodeck.errors import PROBLEM_BASE
from holodeck.server.options import ServerSettings
from tests.scenarios.uploading import CHAT, JSON, WAYS, File
from tests.server.serving import Served, served

pytest.importorskip("pypdf", reason="needs the extra `files`")
pytest.importorskip("PIL", reason="needs the extra `files`")

from tests.files import documents, hostile

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAM = f"{CHAT}/stream"
PDF = "application/pdf"
MADE = {each.name: each.make for each in hostile.hostile()}
FILE = {"content": "eHl6enk=", "mime_type": "text/plain"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Served]:
    settings = ServerSettings(protocols=("rest", "ag-ui"))
    async with served(settings=settings) as s:
        yield s
        assert s.model.prompts == [], "something bad reached the model"


class Bad(NamedTuple):
    """A request that is refused. A dict is sent as JSON, a form as multipart, bytes as they are."""

    body: Any
    status: int
    code: str = "invalid-request"
    path: str = CHAT
    method: str = "POST"
    headers: dict[str, str] = JSON


def files(*given: dict[str, str]) -> dict[str, Any]:
    return {"message": "hi", "files": list(given)}


def form(fields: dict[str, str], uploads: int = 0) -> Callable[[], aiohttp.FormData]:
    """Made when it is sent: a form can be sent once."""

    def made() -> aiohttp.FormData:
        sent = aiohttp.FormData(default_to_multipart=True)
        sent.add_field("_", "")
        for name, value in fields.items():
            sent.add_field(name, value)
        for i in range(uploads):
            sent.add_field("files", b"x", filename=f"{i}.txt", content_type="text/plain")
        return sent

    return made


def typed(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type}


HI = {"message": "hi"}
CUT_OFF = (
    b'--x\r\nContent-Disposition: form-data; name="message"\r\n\r\nhi\r\n'
    b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nhalf of a fi'
)
BAD = {
    "no JSON": Bad(b"{", 400),
    "no object": Bad(b"[]", 422),
    "no message": Bad({}, 422),
    "a blank message": Bad({"message": " \n"}, 422),
    "a blank message, streamed": Bad({"message": " \n"}, 422, path=STREAM),
    "too long a message": Bad({"message": "x" * 10_001}, 422),
    "eleven files": Bad(files(*[FILE] * 11), 422),
    "wrong base64": Bad(files({**FILE, "content": "a=b"}), 422),
    "base64 without padding": Bad(files({**FILE, "content": "aGk"}), 422),
    "a malformed session id": Bad({**HI, "session_id": "a\nb"}, 422),
    "a malformed session id in the path": Bad(None, 400, path="/sessions/%00", method="DELETE"),
    "an unknown agent": Bad(HI, 404, "agent-not-found", path="/agent/nobody/chat"),
    "an unknown agent, streamed": Bad(HI, 404, "agent-not-found", path="/agent/nobody/chat/stream"),
    "method GET": Bad(None, 405, "method-not-allowed", method="GET"),
    "method PUT": Bad(HI, 405, "method-not-allowed", method="PUT"),
    "method DELETE, streamed": Bad(None, 405, "method-not-allowed", path=STREAM, method="DELETE"),
    "no content type": Bad(HI, 415, "unsupported-media-type", headers={}),
    "an empty content type": Bad(HI, 415, "unsupported-media-type", headers=typed("")),
    "plain text": Bad(b"hi", 415, "unsupported-media-type", headers=typed("text/plain")),
    "a web form": Bad(b"message=hi", 415, "unsupported-media-type", headers=typed("application/x-www-form-urlencoded")),
    "a form without boundary": Bad(b"hi", 400, headers=typed("multipart/form-data")),
    "a broken form": Bad(b"nonsense", 400, headers=typed("multipart/form-data; boundary=x")),
    "a form that breaks off": Bad(CUT_OFF, 400, headers=typed("multipart/form-data; boundary=x")),
    "an empty form": Bad(b"", 400, headers=typed("multipart/form-data; boundary=x")),
    "a compressed body": Bad(gzip.compress(b"{}"), 415, "unsupported-media-type", headers={**JSON, "Content-Encoding": "gzip"}),
    "a form: no message": Bad(form({}, 1), 422),
    "a form: a blank message": Bad(form({"message": " "}, 1), 422),
    "a form: too long a message": Bad(form({"message": "x" * 10_001}), 422),
    "a form: far too long a message": Bad(form({"message": "x" * 70_000}), 400),
    "a form: eleven files": Bad(form(HI, 11), 422),
    "a form: files without end": Bad(form(HI, 41), 400),
    "a form: fields without end": Bad(form({f"f{i}": "x" for i in range(21)}), 400),
    "a form: a file that is text": Bad(form({**HI, "files": "text"}), 422),
    "a decision about nothing": Bad({"resume": [{"interrupt_id": "i", "approved": True}]}, 422),
    "neither a message nor a decision": Bad({"resume": []}, 422),
    "a blank message with a decision": Bad({"message": "", "resume": [{"interrupt_id": "i", "approved": True}]}, 422),
    "a form: a decision that is no JSON": Bad(form({**HI, "resume": "yes"}), 422),
    "a form: a decision that is no list": Bad(form({**HI, "resume": "{}"}), 422),
    "a form: a decision nested without end": Bad(form({**HI, "resume": "[" * 60_000}), 422),
    "a form: a decision about nothing": Bad(form({"resume": '[{"interrupt_id": "i", "approved": true}]'}), 422),
    "a form: a malformed session id": Bad(form({**HI, "session_id": "x" * 129}), 422),
}  # fmt: skip


@pytest.mark.req("SRV-08", "SRV-11", "SRV-12", "SRV-13", "SRV-17")
@pytest.mark.parametrize("what", BAD)
async def test_a_bad_request_is_a_problem(server: Served, what: str) -> None:
    bad = BAD[what]
    is_form = callable(bad.body)
    data = bad.body() if is_form else json.dumps(bad.body).encode() if isinstance(bad.body, dict) else bad.body
    async with server.client.request(
        bad.method,
        URL(server.url + bad.path, encoded=True),
        data=data,
        headers={} if is_form else bad.headers,
        skip_auto_headers=() if is_form else ("Content-Type",),
    ) as answer:
        problem = await answer.json(content_type="application/problem+json")
    assert (answer.status, problem["status"], problem["type"]) == (bad.status, bad.status, PROBLEM_BASE + bad.code), (
        problem
    )
    assert problem["instance"] == answer.headers["X-Request-ID"]
    if bad.status == 405:
        assert answer.headers["Allow"] == "POST"


UNREADABLE = {  # what → name, declared type, bytes, status, code
    "a PNG that says it is a PDF": ("scan.pdf", PDF, lambda: documents.picture("hi"), 415, "unsupported-media-type"),
    "a PDF that says it is text": ("a.txt", "text/plain", documents.letter_pdf, 415, "unsupported-media-type"),
    "a program": ("run.exe", "application/x-msdownload", lambda: b"MZ\x90\x00" * 20, 415, "unsupported-media-type"),
    "an encrypted PDF": ("locked.pdf", PDF, MADE["locked.pdf"], 422, "invalid-request"),
    "an empty docx": ("empty.docx", documents.DOCX, MADE["empty.docx"], 422, "invalid-request"),
    "a zip bomb": ("bomb.docx", documents.DOCX, MADE["bomb.docx"], 413, "payload-too-large"),
    "an empty file": ("nothing.txt", "text/plain", bytes, 422, "invalid-request"),
    "a path for a name": ("../../etc/passwd", PDF, lambda: b"root:x:0:0", 415, "unsupported-media-type"),
}


@pytest.mark.req("SRV-13", "SRV-14", "SRV-17")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", UNREADABLE)
async def test_a_file_that_cannot_be_read_is_a_problem_that_names_it(server: Served, what: str, way: str) -> None:
    name, mime_type, make, status, code = UNREADABLE[what]
    reply = await WAYS[way](server, File(name, mime_type, make()))
    assert (reply.status, reply.problem["status"], reply.problem["type"]) == (status, status, PROBLEM_BASE + code)
    assert name.rpartition("/")[2] in reply.problem["detail"]
    assert "etc" not in reply.problem["detail"]
