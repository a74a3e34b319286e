"""A disk without room (D10), for everybody who writes to one: uploads, documents, saved chats, the todo list.

A limit on the size of files stands for it: a write beyond it fails in the middle, as on a full disk, and needs no root.
What the log does is shown in `tests/telemetry/test_full_disk.py` and by the matrix.
"""

import resource
import sys
from base64 import b64encode
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import aiohttp
import psutil
import pytest

from holodeck.cli.conversation.archive import ChatFileError, load_chat, save_chat
from holodeck.cli.conversation.session import ChatSession
from holodeck.core.messages import UserMessage
from holodeck.sessions.transcript import Transcript
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_toolset import McpToolset
from holodeck.tools.port import ToolContext
from tests.processes import NewChildren
from tests.server.test_server_process import holodeck

MIB = 2**20
ROOM = 2 * MIB
CHAT = "/agent/talker/chat"


@contextmanager
def full(process: psutil.Process, room: int = ROOM):
    before = process.rlimit(resource.RLIMIT_FSIZE)
    process.rlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        process.rlimit(resource.RLIMIT_FSIZE, before)


def form(*sizes: int) -> aiohttp.FormData:
    sent = aiohttp.FormData()
    sent.add_field("message", "Read them")
    for number, size in enumerate(sizes):
        sent.add_field("files", BytesIO(b"words " * (size // 6)), filename=f"{number}.txt", content_type="text/plain")
    return sent


def left_behind(process: psutil.Process) -> list[str]:
    """Files without a name that are still open."""
    links = Path(f"/proc/{process.pid}/fd").iterdir()
    return [str(link.readlink()) for link in links if "deleted" in str(link.readlink())]


@pytest.mark.req("D10", "SRV-17")
async def test_an_upload_onto_a_full_disk_is_a_507_and_leaves_nothing(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with (
        holodeck(tmp_path, "--protocol", "rest", TMPDIR=str(scratch), cold=True) as server,
        aiohttp.ClientSession() as client,
    ):
        await server.until_ready()
        process = psutil.Process(server.process.pid)
        before = left_behind(process)
        with full(process):
            async with client.post(server.url + CHAT, data=form(100_000, 3 * MIB)) as answer:
                result = await answer.json(content_type=None)
            assert (answer.status, result["status"], result["type"].rpartition("/")[2]) == (507, 507, "storage-full")
            assert str(tmp_path) not in result["detail"]
            assert (list(scratch.iterdir()), left_behind(process)) == ([], before)
            async with client.post(server.url + CHAT, data=form(500_000)) as answer:
                assert answer.status == 200, "what fits into memory needs no disk"
        async with client.post(server.url + CHAT, data=form(100_000, 3 * MIB)) as answer:
            assert answer.status == 200, await answer.text()


@pytest.mark.req("D10")
async def test_a_document_that_cannot_be_handed_to_its_worker_is_a_507(tmp_path):
    pdf = b"%PDF-1.7\n" + b"%" * (3 * MIB) + b"\n%%EOF"
    async with holodeck(tmp_path, "--protocol", "rest", cold=True) as server, aiohttp.ClientSession() as client:
        await server.until_ready()
        process = psutil.Process(server.process.pid)
        open_files = process.num_fds()
        with full(process, 3 * MIB + 100_000), BytesIO(pdf) as data:  # the form has room for it
            sent = aiohttp.FormData()
            sent.add_field("message", "Read it")
            sent.add_field("files", data, filename="a.pdf", content_type="application/pdf")
            async with client.post(server.url + CHAT, data=sent) as answer:
                assert answer.status == 422, "it is read, and is no PDF"
        with full(process, MIB // 4):
            body = {"message": "Read it", "files": [_in_json(pdf[: MIB // 2])]}
            async with client.post(server.url + CHAT, json=body) as answer:
                result = await answer.json(content_type=None)
                assert (answer.status, result["type"].rpartition("/")[2]) == (507, "storage-full")
        async with client.get(server.url + "/health") as answer:
            assert answer.status == 200
        assert process.num_fds() <= open_files + 2, "the client's connection, and no document"


def _in_json(data: bytes) -> dict[str, str]:
    return {"content": b64encode(data).decode(), "mime_type": "application/pdf", "filename": "a.pdf"}


@pytest.mark.req("D10", "CHT-04")
def test_a_chat_that_cannot_be_saved_leaves_the_one_before(tmp_path):
    path = tmp_path / "chat.json"
    chat = ChatSession(agent_name="a", transcript=Transcript([UserMessage(content="hello")]))
    save_chat(chat, path)
    before = path.read_bytes()
    longer = ChatSession(
        agent_name="a",
        session_id=chat.session_id,
        transcript=Transcript([UserMessage(content="hello"), UserMessage(content="x" * ROOM)]),
    )
    with full(psutil.Process(), ROOM // 2), pytest.raises(ChatFileError, match="cannot be written: File too large"):
        save_chat(longer, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path], "nothing half-written beside it"
    save_chat(longer, path)
    assert len(load_chat(path).transcript.messages) == 2


@pytest.mark.req("D10", "ORC-05")
async def test_a_todo_list_that_cannot_be_written_informs_the_model_and_keeps_what_it_has(tmp_path):
    settings = McpSettings(
        name="todo",
        command=sys.executable,
        args=("-m", "holodeck.todo", "--db", str(tmp_path / "todo.db")),
        cwd=str(tmp_path),
    )
    tools = McpToolset(settings)
    context = ToolContext(user_id="ann", session_id="s", run_id="r", timezone="UTC")

    async def call(name: str, **arguments):
        return await tools.call(name, {"user_id": "ann", **arguments}, context)

    children = NewChildren()
    await tools.start()
    try:
        assert not (await call("create_todo", title="eggs")).failed
        (server,) = children.now()
        with full(server, 1024):
            refused = await call("create_todo", title="milk")
            assert refused.failed
            assert "nothing was changed" in refused.text
            assert str(tmp_path) not in refused.text
        listed = (await call("list_todos")).text
        assert "eggs" in listed
        assert "milk" not in listed
        assert not (await call("create_todo", title="milk")).failed
        assert "milk" in (await call("list_todos")).text
    finally:
        await tools.close()
