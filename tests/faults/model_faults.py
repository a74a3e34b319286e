"""Rows A01 to A29: what a model endpoint can do to us. Each row makes a case from a seed: answers, and what must follow.

Breakers (A30, A31) change what happens to others and have a server of their own: `process_faults`.
"""

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.faults.planned_endpoint import tool_results
from tests.faults.scenario import FaultScenario
from tests.faults.wires import SSE, ClientView
from tests.models.endpoint import (
    DONE,
    Respond,
    Wire,
    chunk,
    close_at_once,
    frame,
    hang,
    reset_at_once,
    status,
    stream,
    text_frames,
    text_stream,
    tool_call_stream,
)

PIECES = ("The ", "quick ", "brown ", "fox 🦊 ", "jumps ", "over ", "the ", "lazy ", "dog.")
WHOLE = "".join(PIECES)
UNREACHABLE, INTERRUPTED, TRUNCATED = "upstream_unavailable", "upstream_interrupted", "upstream_truncated"
PROTOCOL, TIMEOUT, STALLED = "upstream_protocol_error", "upstream_timeout", "upstream_stalled"


@dataclass(frozen=True)
class Case:
    """`says` is the whole text of a run that must succeed; else `code` and `reason` of one that must not."""

    plan: tuple[Respond, ...]
    says: str | None = None
    code: str | None = None
    reason: str | tuple[str, ...] | None = None
    asked: int | None = None
    marks: tuple[str, ...] = ()  # of calls that must be carried out, each once


def fails(*plan: Respond, reason: str | tuple[str, ...], code: str = "model-error", asked: int | None = None) -> Case:
    return Case(plan, code=code, reason=reason, asked=asked)


def succeeds(*plan: Respond, says: str = WHOLE, asked: int | None = None) -> Case:
    return Case(plan, says=says, asked=asked)


def some(random: Random) -> list[bytes]:
    """The beginning of a good answer: at least one word of it, never its end."""
    return text_frames(*PIECES)[: random.randint(2, len(PIECES))]


def saying(*frames: bytes, end: Callable[[Wire], object] | None = None, pause: float = 0.0) -> Respond:
    """Frames, a pause for them to be read, and then whatever `end` does."""

    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(*frames)
        await asyncio.sleep(pause)
        result = end(wire) if end else wire.end()
        if asyncio.iscoroutine(result):
            await result

    return respond


# the rows


def closed_before(random: Random) -> Case:
    return fails(random.choice([close_at_once, reset_at_once]), reason=UNREACHABLE, asked=3)


def reset_in_the_middle(random: Random) -> Case:
    return fails(saying(*some(random), end=Wire.reset, pause=0.1), reason=INTERRUPTED, asked=1)


def cut_in_a_chunk(random: Random) -> Case:
    body = b"".join(text_frames(*PIECES))
    first = len(b"".join(text_frames(*PIECES)[:2]))
    cut = random.randint(first, len(body) - len(DONE) - 1)

    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.raw(b"%x\r\n%b" % (len(body), body[:cut]))
        wire.close()

    finished = body.rfind(b'"finish_reason": "stop"', 0, cut) > 0 and body[:cut].endswith(b"\n")
    return succeeds(respond) if finished else fails(respond, reason=INTERRUPTED, asked=1)


def silent_truncation(random: Random) -> Case:
    return fails(stream(*some(random)), reason=TRUNCATED, asked=1)


def finished_without_done(random: Random) -> Case:
    frames = text_frames(*PIECES)[:-1]
    return succeeds(random.choice([stream(*frames), saying(*frames, end=Wire.close)]), asked=1)


def hang_at_first(_random: Random) -> Case:
    return fails(hang, code="timeout", reason=TIMEOUT, asked=2)


def hang_in_the_middle(random: Random) -> Case:
    return fails(saying(*some(random), end=Wire.hang), code="timeout", reason=STALLED, asked=1)


DRIPS = (
    b": ping\n\n",
    frame(chunk({"role": "assistant", "content": ""})),
    frame({"choices": []}),
    b'event: ping\ndata: {"type":"ping"}\n\n',
)


def drip(random: Random) -> Case:
    drop, begun = random.choice(DRIPS), some(random)

    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(*begun)
        while not wire.gone.is_set():
            await wire.send(drop)
            await asyncio.sleep(0.05)  # the drip itself

    return fails(respond, code="timeout", reason=STALLED, asked=1)


def malformed(random: Random) -> Case:
    good = json.dumps(chunk({"content": "x"}))
    broken = random.choice(
        [good[: random.randint(1, len(good) - 1)], good.replace(":", ";", 1), "{'a': 1}", "\x00{", "]"]
    )
    return fails(stream(*some(random), f"data: {broken}\n\n".encode()), reason=PROTOCOL, asked=1)


def sliced(random: Random) -> Case:
    body = b"".join(text_frames(*PIECES).copy())
    size = random.choice([1, 2, 3, 7])
    return succeeds(stream(*(body[at : at + size] for at in range(0, len(body), size))))


def invalid_utf8(random: Random) -> Case:
    bad = random.choice([b"\xff", b"\xc3(", b"\xe2\x82", b"\xf0\x9f\xa6"])
    broken = frame(chunk({"content": "a?b"})).replace(b"?", bad)
    shown = "a" + bad.decode("utf-8", "replace") + "b"
    return succeeds(stream(*text_frames(*PIECES)[:-2], broken, *text_frames()[-2:]), says=WHOLE + shown)


def split_surrogates(random: Random) -> Case:
    halves = ["\ud83d", "\ude00"]
    words = random.choice([(halves, "😀"), (halves[:1], "\ufffd"), (halves[1:], "\ufffd")])
    return succeeds(stream(*text_frames(*words[0], "!")), says=words[1] + "!")


def enormous_event(random: Random) -> Case:
    big = b"x" * (1 << 20)
    closed = random.choice([b'"}}]}\n\n', b""])

    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(*some(random), b'data: {"choices":[{"delta":{"content":"', big, big, closed)
        await wire.hang()

    return fails(respond, reason=PROTOCOL, asked=1)


def odd_framing(random: Random) -> Case:
    text = "a\u2028b\u0085c\x0bd"
    body = b"".join(text_frames(text))
    shape = random.randrange(4)
    if shape == 0:
        body = body.replace(b"\n", b"\r\n")
    elif shape == 1:
        body = body.replace(b"\n", b"\r")
    elif shape == 2:
        body = b"\xef\xbb\xbf" + body.replace(b"data: ", b"data:")
    else:
        body = b"retry\nid\n" + body.replace(b'"choices"', b'\ndata:"choices"')
    return succeeds(stream(body), says=text)


def not_a_stream(random: Random) -> Case:
    answer = {"choices": [{"index": 0, "message": {"content": WHOLE}, "finish_reason": "stop"}]}
    accepted = succeeds(status(200, answer), asked=1)
    page = stream(
        b"<html>Welcome</html>", content_type=random.choice(["text/html", "text/html; charset=x", "text/xml"])
    )
    return random.choice([accepted, fails(page, reason=PROTOCOL, asked=1)])


def error_in_the_stream(random: Random) -> Case:
    error = random.choice([{"message": "overloaded", "code": 502}, "something", {"message": "busy", "code": 429}])
    if random.random() < 0.5:
        return fails(stream(*some(random), frame({"error": error})), reason=INTERRUPTED, asked=1)
    return succeeds(stream(frame({"error": error}), DONE), text_stream(*PIECES), asked=2)


def rate_limited(random: Random) -> Case:
    value, waits = random.choice(
        [("0", True), ("0.05", True), ("-1", True), ("soon", True), ("9999", False), ("1e99", False)]
    )
    header = random.choice(["Retry_After"] if not waits else ["Retry_After", "retry_after"])
    refused = status(429, b"{}", **{header: value})
    if waits:
        return succeeds(refused, text_stream(*PIECES), asked=2)
    return fails(refused, code="model-unavailable", reason="upstream_overloaded", asked=1)


def server_errors(random: Random) -> Case:
    broken = [status(random.choice([500, 502, 503, 504, 529]), b"oops") for _ in range(3)]
    if random.random() < 0.5:
        return succeeds(*broken[: random.randint(1, 2)], text_stream(*PIECES))
    reasons = (UNREACHABLE, "upstream_overloaded", TIMEOUT)
    return Case(tuple(broken), code="model", reason=reasons, asked=3)


def refusals(random: Random) -> Case:
    code = random.choice([400, 401, 403, 404, 413, 422])
    body = {"error": {"message": f"no, and your key sk-{'1' * 24} is bad"}}
    reason = "upstream_auth" if code in (401, 403) else ("upstream_rejected", "context_overflow")
    return fails(status(code, body), reason=reason, asked=1)


def odd_chunks(random: Random) -> Case:
    oddities: list[Any] = [
        {"choices": []},
        {"choices": None},
        {"object": "ping"},
        chunk({"content": None}),
        chunk({"role": "assistant", "content": ""}),
        {"choices": [{"delta": None, "index": 0}]},
        {"choices": [{"delta": {}}], "who": "knows"},
    ]
    frames = text_frames(*PIECES)
    for _ in range(5):
        frames.insert(random.randint(0, len(frames) - 2), frame(random.choice(oddities)))
    return succeeds(stream(*frames))


def odd_usage(random: Random) -> Case:
    usage = random.choice(
        [None, {}, {"prompt_tokens": None}, {"prompt_tokens": -1, "completion_tokens": 2}, "many", [1]]
    )
    frames = text_frames(*PIECES)
    frames.insert(random.randint(0, len(frames) - 1), frame({"choices": [], "usage": usage}))
    return succeeds(stream(*frames))


def cut_at_the_limit(_random: Random) -> Case:
    return succeeds(stream(*text_frames(*PIECES, finish="length")))


def filtered(random: Random) -> Case:
    return fails(stream(*some(random), frame(chunk(finish="content_filter")), DONE), reason="content_filter", asked=1)


def scattered_calls(random: Random) -> Case:
    """Three calls whose pieces come interleaved, sometimes without ids or with all in one chunk."""
    pieces: list[list[bytes]] = []
    marks = tuple(f"{uuid.uuid4().hex}-{index}" for index in range(3))
    for index, mark in enumerate(marks):
        arguments = json.dumps({"n": index, "text": "äöü" * random.randint(0, 4), "mark": mark})
        cut = random.randint(0, len(arguments))
        first: dict[str, Any] = {"index": index, "function": {"name": "echo", "arguments": arguments[:cut]}}
        if random.random() < 0.8:
            first["id"] = f"call-{index}"
        rest = {"index": index, "function": {"arguments": arguments[cut:]}}
        pieces.append([frame(chunk({"tool_calls": [each]})) for each in (first, rest)])
    firsts = [first for first, _ in pieces]
    random.shuffle(pieces)
    frames = [*firsts, *(rest for _, rest in pieces)]
    case = succeeds(stream(*frames, frame(chunk(finish="tool_calls")), DONE), text_stream(*PIECES), asked=2)
    return replace(case, marks=marks)


BAD_ARGUMENTS = ("{", "[1]", '"text"', '{"a": NaN', "{'a': 1}", "}", '{"a":1}{"b":2}')


def bad_arguments(random: Random) -> Case:
    bad = tool_call_stream(("call-1", "echo", random.choice(BAD_ARGUMENTS)))
    if random.random() < 0.5:
        return succeeds(bad, text_stream(*PIECES), asked=2)
    return fails(bad, reason="bad_tool_arguments", asked=3)


def unknown_tool(random: Random) -> Case:
    call = tool_call_stream(("call-1", random.choice(["no_such", "Echo", "echo "]), "{}"))
    return succeeds(call, text_stream(*PIECES), asked=2)


def endless_calls(_random: Random) -> Case:
    """The agent file allows five model calls."""
    return Case((tool_call_stream(("call-1", "echo", "{}")),), says="", asked=5)


def two_choices(_random: Random) -> Case:
    frames = text_frames(*PIECES)
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    return succeeds(stream(frames[0], frame(other), *frames[1:]))


CASES: dict[str, Callable[[Random], Case]] = {
    "A02": closed_before,
    "A03": reset_in_the_middle,
    "A04": cut_in_a_chunk,
    "A05": silent_truncation,
    "A06": finished_without_done,
    "A07": hang_at_first,
    "A08": hang_in_the_middle,
    "A09": drip,
    "A10": malformed,
    "A11": sliced,
    "A12": invalid_utf8,
    "A13": split_surrogates,
    "A14": enormous_event,
    "A15": odd_framing,
    "A16": not_a_stream,
    "A17": error_in_the_stream,
    "A18": rate_limited,
    "A19": server_errors,
    "A20": refusals,
    "A21": odd_chunks,
    "A22": odd_usage,
    "A23": cut_at_the_limit,
    "A24": filtered,
    "A25": scattered_calls,
    "A26": bad_arguments,
    "A27": unknown_tool,
    "A28": endless_calls,
    "A29": two_choices,
}


async def model_misbehaves(scenario: FaultScenario) -> None:
    case = CASES[scenario.kind](scenario.random)
    turn = scenario.turn(*case.plan, words="hello ")
    view = await scenario.finish(turn)
    if case.says is not None:
        _succeeded(scenario, view, case.says)
    else:
        _failed(scenario, view, case)
    if case.asked is not None:
        assert len(turn.plan.requests) == case.asked, f"asked {len(turn.plan.requests)} times, not {case.asked}"
    assert "sk-1111" not in str(view), "the key is in the answer"
    carried_out = {mark: scenario.tools.journal.read_text().count(f" {mark} ") for mark in case.marks}
    assert set(carried_out.values()) <= {1}, f"I5: carried out so often: {carried_out}"
    if scenario.kind in ("A26", "A27"):
        assert all(tool_results(request) for request in turn.plan.requests[1:]), (
            "the model does not hear of its mistake"
        )
    await scenario.continues()


def _succeeded(scenario: FaultScenario, view: ClientView, says: str) -> None:
    if scenario.kind == "A28" and view.ending == "failed":
        assert view.reason in ("max_iterations", None), view.reason
        view.ending = "finished"  # a run without an answer is an error to REST and chat-stream, not to the server
    assert view.ending == "finished", f"not a success: {view}"
    assert view.text == says, f"said {view.text!r}"


def _failed(scenario: FaultScenario, view: ClientView, case: Case) -> None:
    assert view.ending == "failed", f"a silent success: {view}"
    assert view.code is not None
    if case.code == "model":
        assert view.code in ("model-error", "model-unavailable", "timeout"), view.code
    else:
        assert view.code == case.code, f"{view.code} ({view.reason}), not {case.code}"
    reasons = (case.reason,) if isinstance(case.reason, str) else case.reason
    if view.reason is not None and reasons is not None:
        assert view.reason in reasons, f"{view.reason}, not {reasons}"
    if scenario.wire is SSE:
        assert view.reason is not None, "AG-UI tells no reason"
