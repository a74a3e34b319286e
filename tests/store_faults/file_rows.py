"""The store itself is full, damaged, of another version, in use or away: S21, S22, S23, S26, S27."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.errors import HoloDeckError
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.cli.process import Result, environment
from tests.ports import free_port
from tests.store_faults.fault_rig import SQLITE, FaultRig, Node, Witness
from tests.store_faults.replica_rows import only

START_FAILED = 2
REFUSED_SECONDS = 30.0  # for a server that does not start to say why
DISK = "2m"
BODIES = (b"[{", b'[{"role":"user"}]', b'{"a":1}', b"\xff\xfe", b"[" * 100_000, b'[{"role":"nobody"}]')


async def starts(rig: FaultRig) -> Result:
    """`holodeck serve` where it is expected not to start. One that serves is ended."""
    words = ("-m", "holodeck", "serve", "--protocol", "rest", "--port", str(free_port()))
    sources = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}  # a planted fault is in other sources
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        cwd=rig.folder,
        env={**environment(rig.folder), **rig.nodes[0].variables, **sources},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    reading = asyncio.create_task(process.communicate())
    await asyncio.wait({reading}, timeout=REFUSED_SECONDS)
    if process.returncode is None:
        process.kill()
    out, err = await reading
    return Result(process.returncode or 0, out.decode(), err.decode())


def refused(rig: FaultRig, done: Result, *words: str) -> None:
    rig.require(done.code == START_FAILED, f"exit code {done.code}: {done.err[-300:]}")
    rig.require(any(word in done.err for word in words), f"the sentence is: {done.err[-300:]}")


async def disk_fills_up(rig: FaultRig) -> None:
    """S21: the file is on a small disk of its own, which a stranger's file fills; then there is space again."""
    async with rig.serving(start=False) as (node,):
        disk = rig.folder / ".holodeck"
        disk.mkdir()
        if not await _mounts("-t", "tmpfs", "-o", f"size={DISK}", "none", str(disk)):
            rig.figures.not_played = "no right to mount a disk of its own"
            return
        try:
            await node.start()
            for number in range(rig.rounds):
                before = rig.witness(rig.script(say=20), thread=f"before{number}")
                await before.see_through(only(node))
                _fill(disk / "stranger")
                full = Witness(rig.script(say=4000), thread=f"full{number}")
                await asyncio.wait_for(full.post(node), 60)
                ended = full.types[-1:] == ["RUN_ERROR"] and full.events[-1].get("code")
                rig.require(
                    full.status in (503, 507) or ended in ("storage-full", "store-unavailable"),
                    f"on a full disk: {full.status} {full.events[-1:]}",
                )
                (disk / "stranger").unlink()
                await _fills_in_the_middle(rig, node, disk / "stranger", f"middle{number}")
                after = rig.witness(rig.script(say=20), thread=f"after{number}")
                await after.see_through(only(node))
                rig.require(after.types[-1] == "RUN_FINISHED", f"with space again: {after.events[-1]}")
                rig.figures.rounds += 1
            sound = await rig.rows("PRAGMA integrity_check")
            rig.require(sound == [("ok",)], f"the file is damaged: {sound[:3]}")
            await rig.settle(node)
            await node.kill()
        finally:
            await node.kill()
            await asyncio.to_thread(subprocess.run, ["umount", "-l", str(disk)], check=False)


async def _fills_in_the_middle(rig: FaultRig, node: Node, stranger: Path, thread: str) -> None:
    """The user's message is stored, the answer is not; the row gets the ending that the client saw when there is space."""
    client = rig.witness(rig.script(say=4000, ms=0.5), thread=thread)
    reading = asyncio.create_task(client.post(node))
    await client.until_tokens(20)
    _fill(stranger)
    await asyncio.wait_for(reading, 60)
    code = client.events[-1].get("code")
    rig.require(code in ("storage-full", "store-unavailable"), f"a disk that fills in mid-run: {client.events[-1]}")
    stored = await rig.rows("SELECT state FROM runs WHERE id = ? AND ended IS NOT NULL", (client.run_id,))
    rig.figures.notes["endings refused"] = int(str(rig.figures.notes.get("endings refused", 0))) + (not stored)
    await asyncio.to_thread(stranger.unlink)


async def _mounts(*words: str) -> bool:
    """Whether the mount succeeded; it needs the rights of root."""
    return (await asyncio.to_thread(subprocess.run, ["mount", *words], check=False)).returncode == 0


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


async def rows_are_damaged(rig: FaultRig) -> None:
    """S22: bodies that cannot be read, of a newer version; in a file also bits that flip. A second process writes."""
    async with rig.serving() as (node,):
        names = [f"bad{number}" for number in range(len(BODIES))]
        for name in ("good", "newer", *names):
            await rig.witness(rig.script(), thread=name).see_through(only(node))
        key = "(SELECT key FROM holodeck.sessions WHERE id = ?)"
        for name, body in zip(names, BODIES, strict=True):
            await rig.change(f"UPDATE holodeck.steps SET body = ? WHERE session = {key}", (body, name))
        await rig.change(f"UPDATE holodeck.steps SET v = 99 WHERE session = {key}", ("newer",))
        await node.restart()
        for name in names:
            status = (await node.get(f"/sessions/{name}"))["status"]
            rig.require(status == 500, f"a session that cannot be read answers {status}")
            witness = rig.witness(rig.script(), thread=name)
            await witness.post(node)
            rig.require("RUN_FINISHED" not in witness.types, "a run went on in a session that cannot be read")
        rig.require((await node.get("/sessions/newer"))["status"] == 503, "a session of a newer version is served")
        kept = [bytes(body) for (body,) in await rig.rows("SELECT body FROM holodeck.steps")]
        rig.require(all(body in kept for body in BODIES), "the bytes of a broken session are gone")
        await rig.change("UPDATE holodeck.sessions SET broken = NULL WHERE id = ?", ("good",))  # by another process
        good = rig.witness(rig.script(), thread="good")
        await good.see_through(only(node))
        rig.require(good.types[-1] == "RUN_FINISHED", "another session is not served")
        await _damage_runs(rig, node)
        rig.figures.rounds += 1
        rig.witnesses = [each for each in rig.witnesses if each.thread == "good"]
        await node.restart()
        if rig.store == SQLITE:
            await node.kill()
            await _flip_bits(rig)


async def _damage_runs(rig: FaultRig, node: Node) -> None:
    """A server is killed in four runs; the rows of three cannot be read by the next one. It starts, and has the fourth."""
    names = "run-bad", "run-newer", "run-time", "run-beside"
    runs = [rig.witness(rig.script(say=40, ms=50), thread=name) for name in names]
    posting = [asyncio.create_task(each.post(node)) for each in runs]
    for each in runs:
        await each.until_tokens(1)
    await node.kill()
    await asyncio.wait(posting)
    await rig.change("UPDATE holodeck.runs SET request = ? WHERE session = ?", (BODIES[0], "run-bad"))
    await rig.change("UPDATE holodeck.runs SET v = 99 WHERE session = ?", ("run-newer",))
    await rig.change("UPDATE holodeck.runs SET accepted = 1e17 WHERE session = ?", ("run-time",))
    await node.start()
    for each, expected in zip(runs, (500, 503, 500), strict=False):
        status = (await node.get(f"/runs/{each.run_id}"))["status"]
        rig.require(status == expected, f"a run that cannot be read answers {status}")
    await runs[3].see_through(only(node))
    rig.require(runs[3].types[-1] == "RUN_FINISHED", "the run beside one that cannot be read is not recovered")
    bodies = [bytes(body) for (body,) in await rig.rows("SELECT request FROM holodeck.runs")]
    rig.require(BODIES[0] in bodies, "the bytes of a broken run are gone")
    await rig.change("DELETE FROM holodeck.runs WHERE session = ?", ("run-newer",))  # else it waits for a newer server


async def _flip_bits(rig: FaultRig) -> None:
    """Opens copies of the file with one flipped bit each. Every answer is a typed error, or what was stored."""
    original, outcomes = rig.folder / ".holodeck" / "sessions.db", {"whole": 0, "refused": 0, "other": 0}
    with closing(sqlite3.connect(original)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    expected = await _texts(original)
    for _ in range(30 * rig.rounds):
        copy = rig.folder / "copy" / "sessions.db"
        shutil.rmtree(copy.parent, ignore_errors=True)
        copy.parent.mkdir()
        content = bytearray(original.read_bytes())
        content[rig.random.randrange(len(content))] ^= 1 << rig.random.randrange(8)
        copy.write_bytes(content)
        try:
            found = await _texts(copy)
        except HoloDeckError:
            outcomes["refused"] += 1
        else:
            outcomes["whole" if found == expected else "other"] += 1
    rig.figures.notes["bit flips"] = outcomes


async def _texts(path: Path) -> list[str]:
    file = SqliteFile(path, durable=False)
    store = SqliteSessionStore(file, "tester")
    await store.start()
    try:
        stored = await store.read("good", owner=ANONYMOUS_OWNER)
        return [] if stored is None else [str(message.content) for message in stored.messages]
    finally:
        await store.close()


async def schema_changes(rig: FaultRig) -> None:
    """S23: servers that start together on an empty store, are killed while they migrate, and meet a newer schema."""
    for _ in range(rig.rounds):
        async with rig.serving(1 if rig.store == SQLITE else 3, start=False) as nodes:
            for node in nodes:
                starting = asyncio.create_task(node.start())
                await asyncio.sleep(rig.random.uniform(0, 0.25))
                if node.runs:
                    await node.kill()
                await asyncio.wait({starting})
                starting.exception()  # it may have come up, or not
            await asyncio.gather(*(node.start() for node in nodes))
            client = rig.witness(rig.script())
            await client.see_through(rig.any_node)
            rig.require(client.types[-1] == "RUN_FINISHED", "the store does not work after a killed migration")
            await rig.settle(nodes[0])
            for node in nodes:
                await node.kill()
            if rig.store == SQLITE:
                await rig.change("PRAGMA user_version = 99", ())
            else:
                await rig.change("UPDATE holodeck.version SET migrations = 99", ())
            refused(rig, await starts(rig), "newer version")
            rig.figures.rounds += 1


async def file_in_use(rig: FaultRig) -> None:
    """S26: a second server on one file; a file that is no database; a folder in its place."""
    async with rig.serving() as (node,):
        client = rig.witness(rig.script())
        await client.see_through(only(node))
        refused(rig, await starts(rig), "another", "in use", "already")
        again = rig.witness(rig.script())
        await again.see_through(only(node))
        await rig.settle(node)
        await node.kill()
        file = rig.folder / ".holodeck" / "sessions.db"
        content = file.read_bytes()
        _without_wal(file)
        await node.start()
        rig.require((await node.get("/ready"))["status"] == "healthy", "the server does not start without the WAL")
        await node.kill()
        _without_wal(file)
        file.write_bytes(b"no database" * 1000)
        refused(rig, await starts(rig), "database")
        rig.require(file.read_bytes() == b"no database" * 1000, "a file that is no database was changed")
        file.unlink()
        file.mkdir()
        refused(rig, await starts(rig), "sessions.db", "cannot")
        rig.require(file.is_dir() and bool(content), "a folder in place of the file was removed")
        file.rmdir()
        await _on_a_bad_disk(rig, file, content)
        rig.figures.rounds += 1


async def _on_a_bad_disk(rig: FaultRig, file: Path, content: bytes) -> None:
    """What SQLite needs beside the file cannot be made; then the file is on a disk that is read-only, then full."""
    index = Path(f"{file}-shm")
    _put(file, content)
    _put(index / "in the way", b"")
    refused(rig, await starts(rig), "sessions.db")
    _unchanged(rig, file, content, "a file whose index cannot be made")
    _remove(index)
    if not await _mounts("-t", "tmpfs", "-o", f"size={DISK}", "none", str(file.parent)):
        rig.figures.not_played = "the read-only and the full disk: no right to mount one"
        return
    try:
        _put(file, content)
        rig.require(await _mounts("-o", "remount,ro", str(file.parent)), "the disk cannot be made read-only")
        refused(rig, await starts(rig), "sessions.db")
        _unchanged(rig, file, content, "a file on a read-only disk")
        rig.require(await _mounts("-o", "remount,rw", str(file.parent)), "the disk stays read-only")
        _without_wal(file)
        stranger = file.parent / "stranger"
        _fill(stranger)
        refused(rig, await starts(rig), "sessions.db")
        _unchanged(rig, file, content, "a file on a full disk")
        _remove(stranger)
        await rig.nodes[0].start()
        rig.require((await rig.nodes[0].get("/ready"))["status"] == "healthy", "with space again it does not start")
        await rig.nodes[0].kill()
    finally:
        await asyncio.to_thread(subprocess.run, ["umount", "-l", str(file.parent)], check=False)


def _put(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _unchanged(rig: FaultRig, file: Path, content: bytes, what: str) -> None:
    rig.require(file.read_bytes() == content, f"{what} was changed")


def _without_wal(file: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)


async def store_away_at_start(rig: FaultRig) -> None:
    """S27: PostgreSQL, then Valkey, cannot be reached at the start."""
    async with rig.serving(start=False) as (node,):
        node.database.cut()
        done = await starts(rig)
        refused(rig, done, "cannot be reached")
        rig.require("PostgreSQL" in done.err, f"the sentence is: {done.err[-300:]}")
        node.database.heal()
        node.valkey.cut()
        refused(rig, await starts(rig), "Valkey")
        node.valkey.heal()
        await node.start()
        rig.figures.rounds += 1
