"""`holodeck sessions`: an agent's stored conversations, for the operator.

It works on the file, or the database, while servers use it. Sessions are addressed by id; an id that two users have
needs `--user`.
"""

import asyncio
import math
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from holodeck.cli.agent_choice import CommandFunction, chosen
from holodeck.config.build_stores import DurableSessions, build_durable, sessions_path
from holodeck.config.load import LoadedConfig
from holodeck.core.ids import is_valid_id
from holodeck.core.messages import (
    AssistantMessage,
    Message,
    PendingStep,
    ToolMessage,
    has_stray_results,
    text_of,
    unanswered,
)
from holodeck.core.owner import DEFAULT_TENANT, OwnedId, Owner, is_owner_name
from holodeck.core.sizes import MB
from holodeck.core.text import one_line, terminal_safe
from holodeck.errors import HoloDeckError, SessionBroken, SessionNewer, StartError, StorageFull
from holodeck.sessions.port import ServerSession, StoredSession
from holodeck.stores.sqlite_file import is_damaged, version_of, words_of
from holodeck.stores.sqlite_runs import interrupt_all
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.stores.stored_conversation import size_of_steps, steps_of

_SQLITE_HEADER = b"SQLite format 3\x00"

T = TypeVar("T")


def agent_options(command: CommandFunction) -> CommandFunction:
    help_ = "The agent file or its folder. Default: agent.yaml here."
    demo_option = click.option("--demo", is_flag=True, help="The bundled agent's conversations.")
    return click.option("--agent", "path", metavar="PATH", help=help_)(demo_option(command))


def owner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--user` and `--tenant`. The command gets them as `owner`, which is None without a user."""

    @wraps(command)
    def with_owner(*, user: str | None, tenant: str | None, **given: Any) -> None:
        if tenant is not None and user is None:
            raise click.UsageError("--tenant needs --user.")
        command(owner=None if user is None else Owner(tenant or DEFAULT_TENANT, user), **given)

    tenant_option = click.option("--tenant", help=f"The user's tenant. Default: {DEFAULT_TENANT}.")
    return click.option("--user", help="Only sessions of this user.")(tenant_option(with_owner))


@click.group("sessions")
def command() -> None:
    """List, show, move, delete and back up stored conversations."""


@command.command("list")
@agent_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each session.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="How many sessions to list at most.",
)
def list_(*, path: str | None, demo: bool, as_json: bool, limit: int) -> None:
    """List the sessions of an agent, most recently used first."""
    config = _stored_by(path, demo=demo)
    is_there = _in_database(config) or sessions_path(config).exists()
    found = _with_store(config, lambda store: store.all_sessions(limit)) if is_there else []
    if as_json:
        for each in found:
            click.echo(msgspec.json.encode(each))  # bytes: UTF-8 in every locale
        return
    names, users = [one_line(each.session_id) for each in found], [_user_of(each) for each in found]
    of_name, of_user = max(map(len, names), default=0), max(map(len, users), default=0)
    for each, name, user in zip(found, names, users, strict=True):
        used, size = each.last_activity.astimezone().strftime("%Y-%m-%d %H:%M"), f"{math.ceil(each.size / 1024)} kB"
        about = f"{each.message_count:>5} messages  {size:>9}  {user:<{of_user}}  {one_line(each.title)}"
        click.echo(f"{name:<{of_name}}  {used}  {about}".rstrip())
    if not found:
        click.echo(
            "No sessions: none is stored yet, or all have expired. Answers to a single question are stored only with --session ID.",
            err=True,
        )


@command.command("show")
@click.argument("session_id", metavar="ID")
@agent_options
@owner_options
def show(*, session_id: str, path: str | None, demo: bool, owner: Owner | None) -> None:
    """Show the messages of a session."""
    stored = _with_store(_stored_by(path, demo=demo), lambda store: _read(store, session_id, owner))
    for message in stored.messages:
        _print_message(message)
    if stored.pending is not None:
        _print_message(stored.pending.assistant)
        for result in stored.pending.results:
            _print_message(result)
        click.echo(_state_of(stored.pending))


def _print_message(message: Message) -> None:
    who = message.name if isinstance(message, ToolMessage) else type(message).__name__.removesuffix("Message").lower()
    cut = " (cut off)" if isinstance(message, AssistantMessage) and message.cut else ""
    click.echo(terminal_safe(f"{who}: {text_of(message.content)}{cut}".rstrip()))
    for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
        click.echo(terminal_safe(f"  calls {call.name} {call.arguments}"))


def _state_of(step: PendingStep) -> str:
    if step.approvals:
        return "This step waits for an approval."
    if step.client_calls:
        return "This step waits for the client's tools."
    return "This step is in progress, or a crash cut it off."


@command.command("export")
@click.argument("session_id", metavar="[ID]", required=False)
@agent_options
@owner_options
def export(*, session_id: str | None, path: str | None, demo: bool, owner: Owner | None) -> None:
    """Write a session, all of a user, or all of them, as lines of JSON.

    Sessions that cannot be read are named and left out; the exit code is then 2.
    """

    async def exported(store: DurableSessions) -> tuple[int, list[str]]:
        if session_id is not None:
            click.echo(msgspec.json.encode(await _read(store, session_id, owner)))
            return 1, []
        number, unreadable = 0, []
        for each in await (store.all_sessions(-1) if owner is None else store.sessions_of(owner=owner, limit=-1)):
            try:
                stored = await store.read(each.session_id, owner=each.owner)
            except (SessionBroken, SessionNewer) as error:
                unreadable.append(f"{one_line(each.session_id)} of {_user_of(each)}: {error.message}")
            else:
                if stored is not None:  # else it was deleted meanwhile
                    click.echo(msgspec.json.encode(stored))
                    number += 1
        return number, unreadable

    number, unreadable = _with_store(_stored_by(path, demo=demo), exported)
    click.echo(f"{_sessions(number)} exported.", err=True)
    if unreadable:
        raise StartError(
            f"{_sessions(len(unreadable))} could not be exported; all others were.\n" + "\n".join(unreadable)
        )


@command.command("import")
@click.argument("file", type=click.File("rb"), metavar="FILE")
@click.option("--skip-existing", is_flag=True, help="Leave existing sessions as they are, and import the others.")
@agent_options
def import_(*, file: Any, skip_existing: bool, path: str | None, demo: bool) -> None:
    """Import sessions that `export` wrote; `-` is standard input.

    If one of them exists already, or a user would have too many, none is imported.
    """
    lines = [(number, _stored(line, number)) for number, line in enumerate(_not_a_backup(file), 1) if line.strip()]
    for number, problem in _problems(lines):
        raise StartError(f"line {number} cannot be stored, nothing was imported: {problem}")
    found = [stored for _, stored in lines]

    async def restore(store: DurableSessions) -> tuple[int, int]:
        there = [each for each in found if await store.get(each.session.session_id, owner=each.session.owner)]
        if there and not skip_existing:
            raise StartError(_exist_already(there))
        taken = {(each.session.owner, each.session.session_id) for each in there}
        new = [each for each in found if (each.session.owner, each.session.session_id) not in taken]
        await _refuse_too_many(store, new)
        for number, stored in enumerate(new):
            try:
                await store.restore(stored)
            except HoloDeckError as error:
                raise StartError(
                    f"session {one_line(stored.session.session_id)} could not be stored: {error.message}"
                    f" {_sessions(number)} imported before it; --skip-existing continues with the others"
                ) from error
        kept = [await store.get(each.session.session_id, owner=each.session.owner) for each in found]
        return len(there), kept.count(None)

    skipped, expired = _with_store(_stored_by(path, demo=demo), restore, create=True)
    left_out = f", {skipped} left as they were" if skipped else ""
    over = f" Older than sessions.ttl_seconds, and will be deleted: {expired}." if expired else ""
    click.echo(f"{_sessions(len(found) - skipped)} imported{left_out}.{over}", err=True)


async def _refuse_too_many(store: DurableSessions, new: Sequence[StoredSession]) -> None:
    """Refuses an import that would delete sessions: the store drops a user's oldest ones over its limits."""
    of_owners: dict[Owner, list[StoredSession]] = {}
    for each in new:
        of_owners.setdefault(each.session.owner, []).append(each)
    for owner, added in of_owners.items():
        there = await store.sessions_of(owner=owner, limit=-1)
        limit, total = store.most_sessions(owner), len(there) + len(added)
        if limit is not None and total > limit:
            raise _too_many(owner, _sessions(total), f"sessions.max_per_user is {limit}")
        room = store.max_owner_bytes
        size = sum(each.size for each in there) + sum(size_of_steps(steps_of(each.messages)) for each in added)
        if room is not None and size > room:
            raise _too_many(owner, f"{size / MB:,.1f} MB", f"sessions.stored_mb is {room / MB:g}")


def _too_many(owner: Owner, total: str, limit: str) -> StartError:
    return StartError(
        f"{owner.tenant}/{owner.user} would have {total}, and {limit}:"
        " nothing was imported; raise the limit, or delete some first"
    )


def _user_of(session: ServerSession) -> str:
    return "/".join(one_line(name) for name in (session.owner.tenant, session.owner.user))


def _sessions(number: int, *, expired: bool = False) -> str:
    return f"{number} {'expired ' * expired}session{'s' * (number != 1)}"


def _not_a_backup(file: Iterable[bytes]) -> Iterator[bytes]:
    for line in file:
        if line.startswith(_SQLITE_HEADER):
            raise StartError(
                "this is a session file or a backup of one, nothing was imported: `import` reads what `export` wrote;"
                " to restore a backup, stop the server and put the copy in the place of its file"
            )
        yield line


def _stored(line: bytes, number: int) -> StoredSession:
    try:
        return msgspec.json.decode(line, type=StoredSession)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StartError(f"line {number} is not an export of a session, nothing was imported: {error}") from error


def _problems(lines: Sequence[tuple[int, StoredSession]]) -> Iterator[tuple[int, str]]:
    """What a server could not read again, or a provider would refuse, by line."""
    seen: set[OwnedId] = set()
    for number, stored in lines:
        owner, session_id = stored.session.owner, stored.session.session_id
        if not is_valid_id(session_id) or not (is_owner_name(owner.tenant) and is_owner_name(owner.user)):
            yield number, "its session, user or tenant has no usable name"
        if (owner, session_id) in seen:
            yield number, f"session {one_line(session_id)} is in the file twice"
        if unanswered(stored.messages) or has_stray_results(stored.messages):
            yield number, "a tool call has no result, or a result has no call"
        seen.add((owner, session_id))


def _exist_already(there: Sequence[StoredSession]) -> str:
    first = one_line(there[0].session.session_id)
    what, delete = f"session {first} exists", f"`holodeck sessions delete {first}` removes it"
    if len(there) > 1:
        what = f"session {first} and {len(there) - 1} more exist"
        delete = "`holodeck sessions delete` removes one"
    return f"{what} already, nothing was imported; --skip-existing imports the others, {delete}"


@command.command("delete")
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--all", "all_of_user", is_flag=True, help="All sessions of the user that --user names.")
@agent_options
@owner_options
def delete(*, session_id: str | None, all_of_user: bool, path: str | None, demo: bool, owner: Owner | None) -> None:
    """Delete a session permanently, with its runs; or all sessions of a user."""
    if all_of_user == (session_id is not None) or (all_of_user and owner is None):
        raise click.UsageError("Write either the ID of a session, or --all and --user.")

    async def deleted(store: DurableSessions) -> int:
        found = await _found(store, session_id or "", owner)
        await store.delete(found.session_id, owner=found.owner)
        return 1

    if owner is None or not all_of_user:
        number = _with_store(_stored_by(path, demo=demo), deleted)
    else:
        number = _with_store(_stored_by(path, demo=demo), lambda store: store.delete_all(owner=owner))
    click.echo(f"{_sessions(number)} deleted.", err=True)


@command.command("vacuum")
@agent_options
def vacuum(*, path: str | None, demo: bool) -> None:
    """Remove expired sessions and give their space back to the disk; PostgreSQL does the latter by itself."""

    async def vacuumed(store: DurableSessions) -> int:
        removed = await store.cleanup_expired()
        if isinstance(store, SqliteSessionStore):
            await store.file.vacuum()
        return removed

    removed = _with_store(_stored_by(path, demo=demo), vacuumed)
    click.echo(f"{_sessions(removed, expired=True)} removed.", err=True)


@command.command("backup")
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@agent_options
def backup(*, target: Path, path: str | None, demo: bool) -> None:
    """Copy the whole file, even while a server uses it.

    A server that starts on the copy ends the runs that are in progress now as interrupted. To restore the copy, stop
    the server, put it in the place of the original, and delete the files beside it that end in -wal and -shm.
    """
    config = _stored_by(path, demo=demo)
    if _in_database(config):
        raise StartError("these sessions are in a database: back it up with pg_dump")
    source = _existing(config)
    if target.exists():
        raise StartError(f"{target} exists; choose another name")
    if not target.absolute().parent.is_dir():
        raise StartError(f"{target} cannot be written: there is no folder {target.parent}")
    part = target.with_name(f"{target.name}.part")  # an incomplete copy must not look like a backup
    try:
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)
        with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(part)) as copy:
            version_of(original, source)
            original.backup(copy)
            _end_runs_in(copy)
        part.rename(target)
        click.echo(f"Wrote {target}, {target.stat().st_size // 1000:,} kB.", err=True)
    except OSError as error:  # SQLite has errors of its own
        raise StartError(f"{target} cannot be written: {words_of(error)}") from error
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":  # nothing is written to the source
            raise StartError(f"{target} cannot be written: the disk is full") from error
        raise StartError(f"{source} cannot be copied: {error}") from error
    finally:
        with suppress(OSError):  # a read-only folder, where there is none
            part.unlink(missing_ok=True)


def _end_runs_in(copy: sqlite3.Connection) -> None:
    try:
        with copy:
            interrupt_all(copy)
    except sqlite3.DatabaseError as error:
        if not is_damaged(error):
            raise
        click.echo(
            f"warning: a page is damaged ({error}), so a server that starts on this copy continues the runs in it; "
            "set server.runs.on_crash: end",
            err=True,
        )


def _stored_by(path: str | None, *, demo: bool) -> LoadedConfig:
    """The agent whose sessions are meant. Raises StartError if its server stores none: a file would not be its own."""
    config = chosen(path, demo=demo)
    if config.agent.sessions.store == "memory":
        raise StartError(
            "sessions.store is memory: only the running server has the sessions, and its GET /sessions lists them"
        )
    return config


def _with_store(config: LoadedConfig, work: Callable[[DurableSessions], Awaitable[T]], *, create: bool = False) -> T:
    if not create and not _in_database(config):
        _existing(config)

    async def run() -> T:
        store = build_durable(config)
        await store.start()
        try:
            return await work(store)
        except StorageFull as error:  # a deletion is written to the log of the file before it frees anything
            raise StartError(f"{error.message} Free about 1 MB and try again: deleting needs disk space too") from error
        finally:
            await store.close()

    return asyncio.run(run())


def _in_database(config: LoadedConfig) -> bool:
    return config.agent.sessions.store == "postgres"


def _existing(config: LoadedConfig) -> Path:
    file = sessions_path(config)
    if not file.exists():
        raise StartError(f"there are no stored sessions: {file} does not exist")
    return file


async def _read(store: DurableSessions, session_id: str, owner: Owner | None) -> StoredSession:
    found = await _found(store, session_id, owner)
    stored = await store.read(session_id, owner=found.owner)
    if stored is None:
        raise StartError(f"there is no session {session_id!r}")
    return stored


async def _found(store: DurableSessions, session_id: str, owner: Owner | None) -> ServerSession:
    found = await store.named(session_id, owner=owner)
    if len(found) > 1:
        raise StartError(f"{len(found)} users have a session {session_id!r}; add --user and --tenant")
    if not found:
        whose = "" if owner is None else f" of {owner.tenant}/{owner.user}"
        raise StartError(f"there is no session {session_id!r}{whose}; `holodeck sessions list` shows them")
    return found[0]
