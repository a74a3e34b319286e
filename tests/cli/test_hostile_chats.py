"""Files among the saved chats that another program wrote: each is a chat or a ChatFileError, and stays as it is (T23)."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holodeck.cli.conversation.archive import ChatFileError, load_chat, save_chat
from holodeck.cli.conversation.commands import to_markdown
from holodeck.core.ids import is_ulid
from holodeck.core.usage import TokenUsage
from tests.cli.process import holodeck

pytestmark = pytest.mark.req("T23")

ID = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"
WHEN = "2026-11-15T12:00:00Z"
CALL = {"id": "c1", "name": "add", "arguments": "{}", "extra": {"signature": "s"}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1}
GOOD: dict[str, Any] = {
    "format": "holodeck-chat/1",
    "session_id": ID,
    "agent_name": "a",
    "saved_at": WHEN,
    "started_at": WHEN,
    "message_count": 3,
    "title": "hello",
    "state": "terminated",
    "metadata": {"mood": "good"},
    "shared_state": {"n": 1},
    "summary": {"content": "They said hello.", "until": "m1", "messages": 1, "tokens_used": USAGE, "timestamp": WHEN},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hello"}], "id": "m1", "timestamp": WHEN},
        {"role": "assistant", "content": "", "tool_calls": [CALL], "tokens_used": USAGE, "extra": {}, "id": "m2"},
        {"role": "tool", "call_id": "c1", "name": "add", "content": "added", "failed": False, "id": "m3"},
    ],
}
STRANGERS: tuple[Any, ...] = (None, True, -1, 1e300, "", "x", [], [[]], {}, {"role": {}})
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\n\u202e\u0000"
DEEP = b"[" * 100_000 + b"]" * 100_000
OPEN = ("shared_state", "metadata/", "messages/1/tool_calls/0/extra/")  # where anything may be
MARK = b'"@@"'


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a record there is something."""
    if path:
        yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from places(member, (*path, key))


def with_at(path: tuple[Any, ...], value: Any) -> bytes:
    changed = json.loads(text(GOOD))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return text(changed)


def raw_at(path: tuple[Any, ...], raw: bytes) -> bytes:
    """For what no JSON writer would write."""
    return with_at(path, "@@").replace(MARK, raw)


PLACES = list(places(GOOD))
WHOLE = text(GOOD)
FIELDS: dict[str, tuple[Any, ...]] = {"/".join(map(str, path)): path for path in PLACES}
WRONG_BYTES: dict[str, bytes] = {
    "nothing": b"",
    "white space": b" \n",
    "zeros": bytes(4096),
    "a list of chats": text([GOOD]),
    "two chats": WHOLE * 2,
    "a byte order mark": b"\xef\xbb\xbf" + WHOLE,
    "UTF-16": WHOLE.decode().encode("utf-16"),
    "latin-1": text(GOOD).replace(b"hello", b"h\xe9llo"),
    "a cut character": WHOLE.replace(b"hello", b"\xf0\x9f\x98"),
    "an overlong slash": WHOLE.replace(b"hello", b"\xc0\xaf"),
    "pickle": b"cposix\nsystem\n(S'touch owned.by.pickle'\ntR.",
    "pickle in base64": with_at(("metadata",), {"__reduce__": "Y3Bvc2l4CnN5c3RlbQ=="}),
    "msgpack": msgspec.msgpack.encode(GOOD),
    "msgpack with an extension": msgspec.msgpack.encode({**GOOD, "metadata": {"x": msgspec.msgpack.Ext(5, b"os")}}),
    "YAML with a tag": b"!!python/object/apply:os.system ['touch owned.by.yaml']",
    "comments": b"// a chat\n" + WHOLE,
    "NaN": raw_at(("metadata",), b'{"n": NaN}'),
    "Infinity": raw_at(("shared_state",), b"-Infinity"),
    "a number without end": raw_at(("shared_state",), b"9" * 100_000),
    "an exponent without end": raw_at(("metadata",), b'{"n": 1e999999}'),
    "more messages than fit a word": raw_at(("message_count",), b"9" * 40),
    "half a surrogate pair": raw_at(("title",), rb'"\ud800"'),
    "half a surrogate pair as a key": raw_at(("metadata",), rb'{"\udfff": 1}'),
    "the same member twice": WHOLE[:-1] + b', "session_id": "../../x"}',
    "messages twice": WHOLE[:-1] + b', "messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}',
}
HARMLESS = ("a number without end", "more messages than fit a word", "pickle in base64")
WRONG_VALUES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "a later version": (("format",), "holodeck-chat/2"),
    "no version": (("format",), ""),
    "an unknown role": (("messages", 0, "role"), "system"),
    "another unknown role": (("messages", 0, "role"), ESCAPES),
    "an unknown part": (("messages", 0, "content", 0, "type"), "object"),
    "a path as id": (("session_id",), "../../../etc/passwd"),
    "an absolute path as id": (("session_id",), "/etc/passwd"),
    "controls as id": (("session_id",), ESCAPES),
    "a long id": (("session_id",), ID * 1000),
    "controls as title": (("title",), ESCAPES),
    "controls as name": (("agent_name",), ESCAPES),
    "controls as state": (("state",), ESCAPES),
    "controls in a tool's name": (("messages", 1, "tool_calls", 0, "name"), ESCAPES),
    "an enormous title": (("title",), "x" * 5_000_000),
    "an enormous name": (("agent_name",), "ﷺ" * 1_000_000),
    "a time without a zone": (("saved_at",), "2026-11-15T12:00:00"),
    "the first time there is": (("saved_at",), "0001-01-01T00:00:00+00:00"),
    "the last time there is": (("saved_at",), "9999-12-31T23:59:59-00:00"),
    "a start without a zone": (("started_at",), "2026-11-15T12:00:00"),
    "a start at the end of time": (("started_at",), "9999-12-31T23:59:59-12:00"),
    "a start at the beginning of time": (("started_at",), "0001-01-01T00:00:00+12:00"),
    "a message at the end of time": (("messages", 0, "timestamp"), "9999-12-31T23:59:59-12:00"),
    "tokens below zero": (("messages", 1, "tokens_used"), {"prompt_tokens": -5, "completion_tokens": -(2**62)}),
    "a call without its result": (("messages", 2, "call_id"), "c9"),
    "a call of controls without its result": (("messages", 1, "tool_calls", 0, "id"), ESCAPES),
    "the same message a thousand times": (("messages",), [GOOD["messages"][0]] * 1000),
    "names of Python's own": (("metadata",), {"__class__": "os", "__proto__": {}, "__init__": 1}),
}
RECORDS: dict[str, bytes] = {
    **WRONG_BYTES,
    **{name: with_at(*change) for name, change in WRONG_VALUES.items()},
    **{f"cut at {at}": WHOLE[:at] for at in range(1, len(WHOLE), 23)},
    **{f"nested deeply: {name}": raw_at(path, DEEP) for name, path in FIELDS.items()},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.yaml").write_text("name: a\nmodel: {provider: demo}\n")
    chats = tmp_path / "data" / "holodeck" / "chats"
    chats.mkdir(parents=True)
    return chats


def survives(folder: Path, record: bytes) -> bool:
    """Whether it was taken for a chat. Then it can be shown, exported and saved again."""
    file = folder / f"{ID}.json"
    file.write_bytes(record)
    found = None
    try:
        found = load_chat(file)
    except ChatFileError as error:
        assert error.message  # noqa: PT017  either is right
    else:
        assert is_ulid(found.session_id)
        assert found.title.isprintable()
        assert isinstance(found.known_usage[0], TokenUsage | None)
        assert to_markdown(found)
        save_chat(found, folder / "copy")
    assert file.read_bytes() == record
    assert {each.name for each in folder.iterdir()} <= {file.name, "copy"}
    assert not [*Path.cwd().glob("owned*")]
    return found is not None


def test_the_record_that_the_others_are_made_of_is_a_chat(folder: Path) -> None:
    assert survives(folder, WHOLE)
    assert len(RECORDS) + len(FIELDS) * len(STRANGERS) > 300


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_hostile_record_is_a_chat_or_an_error(folder: Path, record: bytes) -> None:
    survives(folder, record)


@pytest.mark.parametrize("name", FIELDS)
def test_no_type_of_any_member_is_a_defect(folder: Path, name: str) -> None:
    taken = [survives(folder, with_at(FIELDS[name], stranger)) for stranger in STRANGERS]
    assert all(taken) == name.startswith(OPEN)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in WRONG_BYTES if name not in HARMLESS),
        *("a later version", "an unknown role", "a path as id", "controls as id", "a time without a zone"),
        *("a start without a zone", "a start at the end of time", "a call without its result"),
    ],
)
def test_a_file_that_is_not_a_chat_is_refused(folder: Path, name: str) -> None:
    assert not survives(folder, RECORDS[name])


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def away(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere.json")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def forbidden(path: Path) -> None:
    path.write_bytes(WHOLE)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("who runs this may read every file")


@pytest.mark.parametrize("make", [Path.mkdir, pipe, loop, away, device, terminal, forbidden])
def test_a_path_that_is_not_a_readable_file_is_refused_without_waiting(
    folder: Path, make: Callable[[Path], None]
) -> None:
    path = folder / f"{ID}.json"
    make(path)
    begun = time.monotonic()
    with pytest.raises(ChatFileError):
        load_chat(path)
    assert time.monotonic() - begun < 20
    assert os.path.lexists(path)


def test_a_name_of_a_file_is_only_shown_harmless(folder: Path) -> None:
    file = folder / "ABCD\x1b[2J.json"
    file.write_bytes(b"no chat")
    done = holodeck("chat", "--resume", str(file), folder=folder.parents[2])
    assert (done.code, "\x1b" in done.out + done.err) == (2, False)
    assert "is not a saved chat" in done.err


def test_the_command_survives_them(folder: Path) -> None:
    (folder / "pickle.json").write_bytes(RECORDS["pickle"])
    pipe(folder / "pipe.json")
    for name in ("pickle.json", "pipe.json"):
        broken = holodeck("chat", "--resume", str(folder / name), folder=folder.parents[2], stdin="hello\n")
        assert (broken.code, broken.out) == (2, "")
        assert "Traceback" not in broken.err
    assert (folder / "pickle.json").read_bytes() == RECORDS["pickle"]
