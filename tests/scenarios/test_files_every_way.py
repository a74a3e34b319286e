"""Seven kinds of documents, three ways to send each, one server: their text is in what the model's endpoint received."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.server.options import ServerSettings
from tests.models.endpoint import ModelEndpoint, text_stream
from tests.scenarios.uploading import QUESTION, WAYS, File
from tests.server.serving import Served, served

pytest.importorskip("pypdf", reason="needs the extra `files`")
pytest.importorskip("PIL", reason="needs the extra `files`")
pytest.importorskip("rapidocr", reason="needs the extra `files`")

from tests.files import documents

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOLDEN = {  # name → type, how it is made, read_as, what is in it: something of every page, sheet, slide and table
    "letter.pdf": ("application/pdf", documents.letter_pdf, "pdf", ["Dear harbour master", "the boat is blue", "Yours, Ann"]),
    "report.docx": (documents.DOCX, documents.report_docx, "docx", ["# Quarterly report", "- eggs", "| June | 990 |"]),
    "accounts.xlsx": (documents.XLSX, documents.accounts_xlsx, "xlsx", ["Shopping", "| eggs | 3.5 |", "Places", "Lisbon"]),
    "talk.pptx": (documents.PPTX, documents.talk_pptx, "pptx", ["Roadmap 2027", "ship the boat", "| Ann | sails |"]),
    "sign.png": ("image/png", lambda: documents.picture("PLUGH 42", size=(240, 100)), "ocr", ["PLUGH 42"]),
    "prices.csv": ("text/csv", "Käse,7\n".encode, "text", ["Käse,7"]),
    "notes.md": ("text/markdown", lambda: b"# Plugh\n\n- plover", "text", ["# Plugh\n\n- plover"]),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoint() -> AsyncIterator[ModelEndpoint]:
    async with ModelEndpoint(text_stream("I have read it.")) as endpoint:
        yield endpoint


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(endpoint: ModelEndpoint) -> AsyncIterator[Served]:
    model = OpenAIChatModel(EndpointSettings(name="m", endpoint=endpoint.url))
    settings = ServerSettings(protocols=("rest", "ag-ui"))
    async with served(model=model, settings=settings) as s:
        yield s


def text_for_the_model(request: dict[str, Any]) -> str:
    """Every text of the newest message in a request to the endpoint."""
    content = request["messages"][-1]["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


@pytest.mark.req("SRV-07", "SRV-12", "SRV-13", "SRV-14", "USE-04")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", GOLDEN)
async def test_the_text_of_a_file_reaches_the_endpoint(
    server: Served, endpoint: ModelEndpoint, name: str, way: str
) -> None:
    mime_type, make, read_as, inside = GOLDEN[name]
    before = len(endpoint.requests)
    reply = await WAYS[way](server, File(name, mime_type, make()))
    assert reply.status == 200, reply.problem
    (request,) = endpoint.requests[before:]
    shown = text_for_the_model(request.json)
    assert shown.startswith(QUESTION)
    for expected in inside:
        assert expected in shown
    (note,) = reply.files
    assert (note["name"], note["mime_type"], note["read_as"]) == (name, mime_type, read_as)
    assert len("".join(inside)) <= note["characters"] < len(shown)
    assert not note["truncated"]
