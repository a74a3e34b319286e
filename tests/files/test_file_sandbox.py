"""What a worker can still do once it has given everything up: tried from the inside, with its limits and its Python."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from holodeck.errors import InvalidRequest
from holodeck.files import landlock
from holodeck.files.extraction import MAX_ANSWER, Extraction
from holodeck.files.limits import FileLimits, WorkerLimits
from holodeck.files.reader import FileReader
from holodeck.files.upload import Upload
from tests.files import documents as d
from tests.files.hostile import LAUGHS
from tests.processes import NewChildren

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

PROBE = """
import ctypes, json, os, socket, sys
from holodeck.files import sandbox
canary, port = sys.argv[1], int(sys.argv[2])
in_place = sandbox.enter(parent=os.getppid(), memory=500_000_000, cpu=5, wall=5.0)
found = {}
def attempt(name, action):
    try:
        action()
        found[name] = "done"
    except (OSError, MemoryError) as error:
        found[name] = type(error).__name__
def fork():
    if os.fork() == 0:
        os._exit(0)
attempt("read a file", lambda: open(canary).read())
attempt("read /etc/passwd", lambda: open("/etc/passwd").read())
attempt("list a folder", lambda: os.listdir(os.path.dirname(canary)))
attempt("write a file", lambda: open(canary + ".new", "w"))
attempt("change a file", lambda: open(canary, "a"))
attempt("remove a file", lambda: os.remove(canary))
attempt("make a folder", lambda: os.mkdir(canary + ".d"))
attempt("TCP", lambda: socket.create_connection(("127.0.0.1", port), 1))
attempt("UDP", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port)))
attempt("unix socket", lambda: socket.socket(socket.AF_UNIX))
attempt("fork", fork)
attempt("exec", lambda: os.execv("/bin/true", ["true"]))
attempt("signal the parent", lambda: os.kill(os.getppid(), 0))
attempt("a gigabyte", lambda: bytearray(1_000_000_000))
attempt("a library", lambda: __import__("xml.dom.minidom"))
attempt("random", lambda: os.urandom(8))
import threading
thread = threading.Thread(target=lambda: found.update(thread="done"))
thread.start(); thread.join()
sys.stdout.write(json.dumps({"in_place": in_place, "found": found}))
"""
ALLOWED = {"a library", "random", "thread"}


@linux
@pytest.mark.req("T19", "T20")
def test_the_worker_can_do_nothing_but_read_libraries(tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        command = [sys.executable, "-I", "-c", PROBE, str(canary), str(listener.getsockname()[1])]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        with pytest.raises(BlockingIOError):
            listener.accept()
    report = json.loads(ran.stdout)
    assert {name for name, outcome in report["found"].items() if outcome == "done"} == ALLOWED
    assert report["found"]["a gigabyte"] == "MemoryError"
    assert canary.read_text() == "secret"
    assert list(tmp_path.iterdir()) == [canary]
    assert "seccomp" in report["in_place"]


def test_a_kernel_without_landlock_is_no_reason_to_fail():
    class OldKernel:
        def syscall(self, *_arguments):
            return -1

    assert landlock.allow_only_reading(OldKernel(), ["/usr/lib"]) == 0


def _entity(target: str) -> str:
    return f'<!DOCTYPE x [<!ENTITY e SYSTEM "{target}">]>'


def xxe_files(target: str) -> dict[str, bytes]:
    """More than twelve ways to ask an XML parser for what lies elsewhere."""
    asks = "<w:p><w:r><w:t>&e;</w:t></w:r></w:p>"
    document = f'<?xml version="1.0"?>{_entity(target)}<w:document xmlns:w="{d.W}"><w:body>{asks}</w:body></w:document>'
    parameter = f'<!DOCTYPE x [<!ENTITY % e SYSTEM "{target}"> %e;]>'
    declared = _entity(target)

    def with_part(name: str, xml: str) -> bytes:
        return d.docx(d.paragraph("hello"), extra={name: xml})

    return {
        "entity.docx": d.docx(asks, prolog=declared),
        "parameter.docx": d.docx(d.paragraph("x"), prolog=parameter),
        "dtd.docx": d.docx(d.paragraph("x"), prolog=f'<!DOCTYPE x SYSTEM "{target}">'),
        "public.docx": d.docx(d.paragraph("x"), prolog=f'<!DOCTYPE x PUBLIC "a" "{target}">'),
        "utf16.docx": d.docx("", extra={"word/document.xml": document.encode("utf-16")}),
        "styles.docx": with_part(
            "word/styles.xml", f'<?xml version="1.0"?>{declared}<styles><style>&e;</style></styles>'
        ),
        "numbering.docx": with_part("word/numbering.xml", f"{declared}<numbering>&e;</numbering>"),
        "relations.docx": with_part("word/_rels/document.xml.rels", f"{declared}<Relationships>&e;</Relationships>"),
        "root.docx": with_part("_rels/.rels", f"{declared}<Relationships>&e;</Relationships>"),
        "sheet.xlsx": d.xlsx({"s": f"{declared}<worksheet><row><c><v>&e;</v></c></row></worksheet>"}),
        "strings.xlsx": d.xlsx(
            {"s": d.sheet(d.row(d.cell(0, kind="s")))},
            extra={"xl/sharedStrings.xml": f"{declared}<sst><si><t>&e;</t></si></sst>"},
        ),
        "slide.pptx": d.pptx([f"{declared}<sld><sp><txBody><p><t>&e;</t></p></txBody></sp></sld>"]),
        "laughs.pptx": d.pptx([f"{LAUGHS}<sld><t>&a9;</t></sld>"]),
    }


@pytest.mark.req("T20")
@pytest.mark.timeout(120)
async def test_no_document_makes_the_worker_look_elsewhere(tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("canary-7351")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        for target in (canary.as_uri(), f"http://127.0.0.1:{listener.getsockname()[1]}/x"):
            for name, data in xxe_files(target).items():
                with pytest.raises(InvalidRequest, match=f"{name} declares a document type") as caught:
                    await FileReader().read([Upload(name=name, data=data)])
                assert "canary-7351" not in caught.value.message
        with pytest.raises(BlockingIOError):
            listener.accept()


# a worker that has been taken over

ROGUES = {
    "says too much": f"import os\nwhile True: os.write(1, b'x' * {MAX_ANSWER})",
    "says nonsense": "print('{not json')",
    "says another shape": "print('{\"text\": 7}')",
    "says nothing": "pass",
    "crashes": "import os; os.abort()",
    "exits": "raise SystemExit(3)",
}


@pytest.mark.req("T19")
@pytest.mark.parametrize("rogue", ROGUES)
async def test_a_worker_that_was_taken_over_gets_nowhere(rogue):
    extraction = Extraction(1_000, command=(sys.executable, "-c", ROGUES[rogue]))
    answer = await extraction.read("pdf", b"x", WorkerLimits(wall=10.0))
    assert (answer.refused, answer.text) == ("damaged", "")


async def test_what_a_worker_says_is_cleaned_and_cut():
    script = r"import json; print(json.dumps({'text': 'a\x00\x1b\x9b' + 'b' * 5000, 'sandbox': []}))"
    answer = await Extraction(100, command=(sys.executable, "-c", script)).read("pdf", b"x", WorkerLimits())
    assert answer.text == "a" + "b" * 99


async def test_an_incomplete_sandbox_is_logged_once(caplog):
    script = "import json; print(json.dumps({'text': 'x', 'sandbox': ['seccomp']}))"
    extraction = Extraction(100, command=(sys.executable, "-c", script))
    for _ in range(2):
        await extraction.read("pdf", b"x", WorkerLimits())
    assert [record.message for record in caplog.records] == ["file_sandbox_incomplete"]
    assert caplog.records[0].details == {"missing": ["landlock", "no-network"]}


@pytest.mark.req("T19")
async def test_a_silent_worker_and_its_children_are_ended(tmp_path):
    note = tmp_path / "grandchild"  # by its number: an orphan is not our child
    script = f"""
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(60)"])
pathlib.Path({str(note)!r}).write_text(str(child.pid))
time.sleep(60)
"""
    children = NewChildren()
    command = (sys.executable, "-IS", "-c", script)  # which has begun long before its time is over
    answer = await Extraction(100, command=command).read("pdf", b"x", WorkerLimits(wall=2))
    assert answer.refused == "too_slow"
    assert children.now() == []
    grandchild = int(note.read_text())
    async with asyncio.timeout(20):
        while _lives(grandchild):  # it was killed, and its end is not reported to us
            await asyncio.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # dead; its new parent has not reaped it
    except psutil.NoSuchProcess:
        return False


def _slow() -> bytes:
    return d.pdf([d.flate(d.show("word") * 500_000)])


async def test_a_reader_that_leaves_takes_the_worker_along():
    children = NewChildren()
    reading = asyncio.create_task(FileReader().read([Upload(name="slow.pdf", data=_slow())]))
    while not (started := children.now()):
        await asyncio.sleep(0.01)
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    assert not started[0].is_running()
    assert children.now() == []


SERVER = """
import asyncio, sys
from holodeck.files.reader import FileReader
from holodeck.files.upload import Upload
asyncio.run(FileReader().read([Upload(name="slow.pdf", data=open(sys.argv[1], "rb").read())]))
"""


def _confined(process: psutil.Process) -> bool:
    """Whether it has given everything up, and with it asked to die with its parent."""
    with contextlib.suppress(OSError):
        return "Seccomp:\t2" in Path(f"/proc/{process.pid}/status").read_text()
    return False


@linux
async def test_a_worker_dies_with_its_server(tmp_path):
    (tmp_path / "slow.pdf").write_bytes(_slow())
    server = psutil.Popen([sys.executable, "-c", SERVER, str(tmp_path / "slow.pdf")])
    while not any(map(_confined, server.children())):
        await asyncio.sleep(0.01)
    [worker] = server.children()
    server.kill()
    server.wait(20)
    gone, alive = psutil.wait_procs([worker], timeout=20)
    assert alive == []
    assert [process.pid for process in gone] == [worker.pid]


async def test_what_was_read_before_time_ran_out_is_kept():
    pages = [d.stream(d.show("the first page")), d.flate(d.show("word") * 500_000)]
    limits = FileLimits(documents=WorkerLimits(cpu=1, wall=20.0))
    [(part, note)] = await FileReader(limits).read([Upload(name="slow.pdf", data=d.pdf(pages))])
    assert note.truncated
    assert "the first page" in part.text


async def test_the_environment_does_not_reach_the_worker(monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "hush")
    script = "import json, os; print(json.dumps({'text': ' '.join(os.environ), 'sandbox': []}))"
    answer = await Extraction(1_000, command=(sys.executable, "-I", "-c", script)).read("pdf", b"x", WorkerLimits())
    assert "OMP_NUM_THREADS" in answer.text
    assert "SECRET_KEY" not in answer.text
    assert os.environ["SECRET_KEY"] == "hush"
