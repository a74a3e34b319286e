"""Files over REST, in JSON and as a form: their text reaches the model, and what is wrong with one is said by name."""

import base64
import json
from io import BytesIO
from typing import Any

import aiohttp
import pytest

from holodeck.core.messages import Message, text_of
from holodeck.files.limits import FileLimits
from holodeck.server.options import ProtocolType, ServerSettings
from tests.server.serving import Served, served

pytest.importorskip("pypdf", reason="needs the extra `files`")
pytest.importorskip("PIL", reason="needs the extra `files`")

from tests.files import documents, hostile

CHAT = "/agent/tester/chat"
REST = ServerSettings(protocols=(ProtocolType.REST,))
PDF, PNG = "application/pdf", "image/png"
MADE = {each.name: each.make for each in hostile.hostile()}


async def as_json(s: Served, name: str, mime_type: str, data: bytes) -> tuple[int, dict[str, Any]]:
    file = {"content": base64.b64encode(data).decode(), "mime_type": mime_type, "filename": name}
    body = BytesIO(json.dumps({"message": "Read it", "files": [file]}).encode())
    async with s.client.post(s.url + CHAT, data=body, headers={"Content-Type": "application/json"}) as answer:
        return answer.status, json.loads(await answer.read())


async def as_form(s: Served, name: str, mime_type: str, data: bytes) -> tuple[int, dict[str, Any]]:
    sent = aiohttp.FormData(quote_fields=False)
    sent.add_field("message", "Read it")
    sent.add_field("files", BytesIO(data), filename=name, content_type=mime_type)
    async with s.client.post(s.url + CHAT, data=sent) as answer:
        return answer.status, json.loads(await answer.read())


GOLDEN = {  # name → type, how it is made, read_as, a text that is in it
    "letter.pdf": (PDF, documents.letter_pdf, "pdf", "the boat is blue"),
    "report.docx": (documents.DOCX, documents.report_docx, "docx", "| May | 1"),
    "accounts.xlsx": (documents.XLSX, documents.accounts_xlsx, "xlsx", "| eggs | 3.5 |"),
    "talk.pptx": (documents.PPTX, documents.talk_pptx, "pptx", "ship the boat"),
    "plain.txt": ("text/plain", lambda: b"xyzzy", "text", "xyzzy"),
    "table.csv": ("text/csv", "Käse,7\n".encode, "text", "Käse,7"),
    "notes.md": ("text/markdown", lambda: b"# Plugh\n\n- plover", "text", "- plover"),
}


@pytest.mark.req("SRV-12", "SRV-13", "SRV-14")
@pytest.mark.parametrize("name", GOLDEN)
async def test_the_text_of_a_file_reaches_the_model_in_both_forms(name: str) -> None:
    mime_type, make, read_as, inside = GOLDEN[name]
    async with served(settings=REST) as s:
        for way in (as_json, as_form):
            status, told = await way(s, name, mime_type, make())
            assert status == 200, told
            (note,) = told["files"]
            assert (note["name"], note["mime_type"], note["read_as"]) == (name, mime_type, read_as)
            assert note["characters"] > 0
            assert not note["truncated"]
        shown: list[Message] = [prompt.messages[-1] for prompt in s.model.prompts]
        assert len(shown) == 2
        for message in shown:
            assert text_of(message.content).startswith("Read it")
            assert inside in text_of(message.content)


BAD = {  # what → name, declared type, bytes, status, code, a word of the detail
    "a PNG that says it is a PDF": ("scan.pdf", PDF, lambda: documents.picture("hi"), 415, "unsupported-media-type", "scan.pdf"),
    "a PDF that says it is text": ("a.txt", "text/plain", documents.letter_pdf, 415, "unsupported-media-type", "a.txt"),
    "a program": ("run.exe", "application/x-msdownload", lambda: b"MZ\x90\x00" * 20, 415, "unsupported-media-type", "run.exe"),
    "an encrypted PDF": ("locked.pdf", PDF, MADE["locked.pdf"], 422, "invalid-request", "locked.pdf"),
    "an empty docx": ("empty.docx", documents.DOCX, MADE["empty.docx"], 422, "invalid-request", "empty.docx"),
    "a zip bomb": ("bomb.docx", documents.DOCX, MADE["bomb.docx"], 413, "payload-too-large", "bomb.docx"),
    "an empty file": ("nothing.txt", "text/plain", bytes, 422, "invalid-request", "nothing.txt"),
}  # fmt: skip


@pytest.mark.req("SRV-13", "SRV-14", "SRV-17")
@pytest.mark.parametrize("what", BAD)
async def test_a_file_that_cannot_be_read_is_a_problem_that_names_it(what: str) -> None:
    name, mime_type, make, status, code, word = BAD[what]
    async with served(settings=REST) as s:
        for way in (as_json, as_form):
            answered, told = await way(s, name, mime_type, make())
            assert (answered, told["status"]) == (status, status), told
            assert told["type"] == f"https://holodeck.dev/errors/{code}"
            assert word in told["detail"]
        assert s.model.prompts == []


@pytest.mark.req("SRV-13")
@pytest.mark.parametrize("name", ["../../etc/passwd", "..\\..\\etc\\passwd", "/etc/passwd"])
async def test_a_name_is_never_a_path(name: str) -> None:
    async with served(settings=REST) as s:
        for way in (as_json, as_form):
            status, told = await way(s, name, "text/plain", b"root:x:0:0")
            assert (status, [note["name"] for note in told["files"]]) == (200, ["passwd"])
        assert not any("etc" in text_of(prompt.messages[-1].content) for prompt in s.model.prompts)


@pytest.mark.req("SRV-13")
async def test_a_file_in_json_may_have_ten_megabytes_and_one_in_a_form_more() -> None:
    async with served(settings=REST) as s:
        data = b"a" * 10_000_001
        status, told = await as_json(s, "large.txt", "text/plain", data)
        assert (status, told["type"].rpartition("/")[2]) == (413, "payload-too-large")
        status, told = await as_form(s, "large.txt", "text/plain", data)
        assert (status, told["files"][0]["truncated"]) == (200, True)
        status, told = await as_form(s, "huge.txt", "text/plain", b"a" * 50_000_001)
        assert (status, "huge.txt" in told["detail"]) == (413, True)


@pytest.mark.req("SRV-12")
@pytest.mark.parametrize(("number", "status"), [(12, 200), (13, 422)])
async def test_the_agent_file_says_how_many_files_there_may_be(number: int, status: int) -> None:
    settings = ServerSettings(protocols=(ProtocolType.REST,), files=FileLimits(max_files=12))
    file = {"content": "eHl6enk=", "mime_type": "text/plain"}
    form = aiohttp.FormData({"message": "Read them"})
    for i in range(number):
        form.add_field("files", b"xyzzy", filename=f"{i}.txt", content_type="text/plain")
    async with served(settings=settings) as s:
        async with s.post({"message": "Read them", "files": [file] * number}, CHAT) as in_json:
            assert in_json.status == status
        async with s.client.post(s.url + CHAT, data=form) as in_form:
            assert in_form.status == status
