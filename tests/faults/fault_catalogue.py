"""The catalogue: every kind of fault that the matrix plays, and in the reader's words what happens then.

What happens between servers that share a store is in tests/store_faults.
"""

from tests.faults import client_faults as client
from tests.faults import many_clients, model_faults, own_servers, process_faults, tool_faults
from tests.faults.matrix import Kind, Play, Setting, Spread
from tests.faults.own_servers import limited, setting
from tests.faults.wires import CHAT, REST_STREAM, SSE, STREAMS, WIRES, Wire

TEXT = (SSE, REST_STREAM, CHAT)  # streams that have comments and event ids
BREAKING = setting(circuit_breakers=own_servers.BREAKER)


def model(id_: str, fault: str, seen: str) -> Kind:
    return Kind(id_, fault, seen, model_faults.model_misbehaves)


def tool(id_: str, fault: str, seen: str) -> Kind:
    return Kind(id_, fault, seen, tool_faults.tool_misbehaves, Spread.TURNS)


def inside(
    id_: str, fault: str, seen: str, play: Play, place: Setting, *, spread: Spread = Spread.TURNS, settles: bool = True
) -> Kind:
    """In a server that the runs of this kind share."""
    wires = STREAMS if id_ == "C14" else WIRES
    return Kind(id_, fault, seen, play, spread, wires, settles=settles, setting=place)


def alone(
    id_: str, fault: str, seen: str, play: Play, *, wires: tuple[Wire, ...] = WIRES, most: int | None = None
) -> Kind:
    """Each run in a server of its own."""
    return Kind(id_, fault, seen, play, Spread.OWN, wires, most, settles=False)


MODEL_KINDS = (
    inside("A01", "The endpoint refuses connections, or its name is unknown", "Two more tries, then `model-error`, reason `upstream_unavailable`", own_servers.closed_port, own_servers.deserted, spread=Spread.EVERY),
    model("A02", "The connection closes before the first byte", "Two more tries, then `model-error`, reason `upstream_unavailable`"),
    model("A03", "The connection is reset in the middle of an answer", "No second try: `model-error`, reason `upstream_interrupted`; the text so far is kept and flagged"),
    model("A04", "The connection ends inside a chunk", "As with a reset"),
    model("A05", "The stream ends without a finish reason, as if it were complete", "`model-error`, reason `upstream_truncated`: never taken for a complete answer"),
    model("A06", "The stream ends after its finish reason, without `[DONE]`", "A success: many servers do so"),
    model("A07", "Nothing comes after the request", "After `model.timeout` one more try, then `timeout`"),
    model("A08", "The answer stops in the middle and the connection stays open", "`timeout`, reason `upstream_stalled`, after `model.timeout` seconds without new text; the text so far is kept"),
    model("A09", "Comments, pings and empty deltas drip on", "They do not count as progress: `timeout`, reason `upstream_stalled`"),
    model("A10", "An event is not JSON", "`model-error`, reason `upstream_protocol_error`; its text goes to the debug log only"),
    model("A11", "Characters are split over packets", "The exact text"),
    model("A12", "Bytes that are not UTF-8", "A replacement character replaces them, and the answer continues"),
    model("A13", "Halves of an emoji in two deltas", "Joined; a half that stays alone becomes a replacement character"),
    model("A14", "An event of megabytes, or a line without end", "`model-error`, reason `upstream_protocol_error`; memory stays flat"),
    model("A15", "CR or CRLF line ends, a byte order mark, fields without a colon, U+2028 in a text", "The exact text"),
    model("A16", "A web page or plain JSON instead of a stream", "A page is an error with a hint; a whole completion as JSON is accepted"),
    model("A17", "An error object inside the stream", "Before the first word another try, after it `model-error`, reason `upstream_interrupted`"),
    model("A18", "429 with a Retry-After", "The server waits up to 20 s; a longer wait fails immediately, and the client gets the Retry-After"),
    model("A19", "500, 502, 503, 504 or 529", "Up to two more tries"),
    model("A20", "400, 401, 403, 404, 413 or 422", "No second try; the key is in no message"),
    model("A21", "Empty choices, nulls, unknown members, pings between words", "The exact text"),
    model("A22", "Usage missing, negative or nonsense", "The answer; figures are never invented"),
    model("A23", "The answer stops at the token limit", "The answer with a warning; a tool call that was cut is not carried out"),
    model("A24", "The provider's filter stops the answer", "`model-error`, reason `content_filter`; no second try"),
    model("A25", "Pieces of several tool calls come interleaved or without ids", "Every call is put together and carried out once"),
    model("A26", "Arguments of a tool call that are not a JSON object", "The model gets the error as the result, twice at most; then `model-error`, reason `bad_tool_arguments`"),
    model("A27", "A call of a tool that does not exist", "The result lists the tools that exist"),
    model("A28", "The model calls tools for ever", "The run stops after `loop.max_iterations` model calls"),
    model("A29", "Two choices where one was asked for", "The first counts"),
    inside("A30", "The endpoint keeps failing", "After `circuit_breakers.model.failure_threshold` runs the server stops asking it: `model-unavailable` immediately, 503 at `/ready`; trial calls close the breaker again", own_servers.breaker_opens, BREAKING),
    inside("A31", "A trial after the pause fails", "The breaker opens again; `half_open_max_calls` trials have to succeed", own_servers.breaker_trial_fails, BREAKING),
)  # fmt: skip

TOOL_KINDS = (
    alone("B01", "The command of a tool server is missing or exits immediately", "A required server: exit code 2 with the reason. Another: the agent starts without its tools, `/health/agent` says so", own_servers.tool_server_cannot_start),
    alone("B02", "A tool server takes long to start", "The server answers 503 meanwhile; after `start_timeout` it continues without the tool server", own_servers.tool_server_is_slow),
    inside("B03", "A tool server prints noise on its stdout", "Ignored; the first lines are logged", own_servers.tool_server_is_noisy, setting(journal=["banner=1000"])),
    tool("B04", "A tool's answer is not UTF-8", "That call fails, the server stays usable"),
    tool("B05", "A tool server crashes in a call", "The result says that the outcome is unknown; the server is restarted, the call is not repeated"),
    tool("B06", "A tool call hangs", "After the tool's `timeout` it is cancelled; the result says so"),
    alone("B07", "A tool server ignores the end of its input and SIGTERM", "It is killed with its process group within five seconds", own_servers.tool_server_is_stubborn),
    alone("B08", "HoloDeck is killed with -9", "Its tool servers die with it", own_servers.killed),
    tool("B09", "An answer of 50 MB", "The call fails with `too_large`; memory stays flat"),
    inside("B10", "A line without end", "The call meets its timeout, or the server is killed and restarted; memory stays flat", own_servers.endless_line, setting(journal=[])),
    tool("B11", "A tool answers with an image", "The model sees the image, or a note about it"),
    tool("B12", "A tool says that it failed", "The model reads the tool's own words"),
    tool("B13", "Two answers to one call, and answers to unknown calls", "The first counts"),
    tool("B14", "A result that breaks the MCP schema", "That call fails, the server stays usable"),
    alone("B15", "A tool server changes its tools", "New ones are offered, missing ones fail; one whose description changed is withdrawn", own_servers.tools_change),
    tool("B16", "A tool server over HTTP: wrong status, redirect, cut, zipped, too large, silent", "That call fails with the reason; a lost session is started again once; redirects are not followed"),
    tool("B17", "A tool server asks for sampling, elicitation or roots", "Declined immediately; the call continues"),
    Kind("B18", "Many calls at the same time", "All are answered, eight at a time", tool_faults.many_calls_at_once, Spread.TURNS),
    tool("B19", "A tool server floods its stderr", "Read and forgotten"),
    tool("B20", "Escape codes and deeply nested JSON in a result", "Data for the model; the terminal shows no control characters"),
)  # fmt: skip

CLIENT_KINDS = (
    Kind("C01", "A client leaves in the middle of an answer", "The run continues for `detach_grace`, then the server cancels it and closes the model's connection; the text so far is kept and flagged", client.leaves_in_the_text),
    alone("C01k", "A client process is killed with -9", "The same", many_clients.client_is_killed, wires=(SSE,)),
    Kind("C02", "A client leaves during a tool call", "After the grace the call is cancelled, and kept as one whose outcome is not known", client.leaves_in_a_tool_call, Spread.TURNS),
    Kind("C03", "A client leaves while its run is queued", "The model is never asked", client.leaves_in_the_queue, wires=STREAMS),
    Kind("C04", "A client never reads", "It is cut off after `stall_timeout`; the run finishes", client.never_reads, Spread.TURNS, STREAMS),
    alone("C04k", "A thousand clients stop reading", "All runs finish, all readers are cut off, memory stays flat", many_clients.clients_that_stop_reading, wires=(SSE,), most=1),
    Kind("C05", "A client reads slowly", "It gets everything, in larger pieces", client.reads_slowly, wires=STREAMS),
    Kind("C06", "Nothing happens for a while", "A comment every `server.keepalive` seconds, so that proxies keep the stream", client.silence_is_filled, wires=TEXT),
    Kind("C07", "A client reconnects with `Last-Event-ID`", "It continues from there: nothing twice, nothing missing", client.comes_back, wires=TEXT),
    Kind("C08", "The same request is posted several times, under one `runId` or `Idempotency-Key`", "All posts get the same run, the model is asked once; another body under its name is 422", client.posts_twice),
    Kind("C09", "Several questions on one session at once", "One after the other, or 409 with `sessions.busy: reject`", client.two_at_once),
    Kind("C10", "The session is deleted during a run", "The run is stopped; the id can be used again", client.session_is_deleted),
    Kind("C11", "Empty, blank and too long messages; NUL and half emoji in them", "422 with the field, or a cleaned text; never a 500", client.words_at_the_limit),
    Kind("C12", "Foreign hosts, compressed bodies, TLS on a plain port, two lengths, half heads", "400, 408, 413, 415 or 431 as a problem", client.odd_requests, wires=(SSE,), most=len(client.PROBES), settles=False),
    inside("C13", "More connections than `server.max_connections`", "503 with Retry-After for those beyond it, and no answer for those far beyond; streams continue, monitors get answers, and the server recovers immediately", many_clients.too_many_connections, setting(server={"max_connections": many_clients.ROOM})),
    inside("C13r", "More runs than `server.runs.max_concurrent`", "503 with Retry-After for those beyond it", own_servers.too_many_runs, setting(server={"runs": {"max_concurrent": 20}})),
    alone("C13k", "A thousand requests that are never finished", "Closed after 10 s (heads) or 30 s (bodies); others are served meanwhile", many_clients.slow_loris, wires=(SSE,), most=1),
    inside("C14", "No file descriptors left", "Running streams continue; the server recovers immediately, and does not spin", own_servers.no_descriptors_left, setting(launch={"before": limited("RLIMIT_NOFILE", 64)})),
)  # fmt: skip

PROCESS_KINDS = (
    alone("D01", "SIGTERM with fifty live streams", "Each gets `shutting-down` as its proper ending; exit code 0. A second signal ends the process immediately", process_faults.terminated, wires=STREAMS),
    alone("D02", "Ctrl+C in the terminal", "The first stops the answer; twice at the prompt leaves", process_faults.interrupted_chat, wires=(SSE,)),
    alone("D03", "kill -9 in the middle of a run", "Child processes die, the connection to the model closes, and a new process can serve on the same machine immediately", own_servers.killed),
    alone("D04", "The session store cannot be opened", "The server does not start; memory never replaces the store", process_faults.store_is_missing, wires=(SSE,)),
    inside("D08", "The process is paused in mid-run (SIGSTOP) and wakes up late", "Its runs end once, in time or with `timeout`; a session that expired and was started again in the meantime gets nothing of the late run", process_faults.paused, setting()),
    inside("D09", "The clock jumps by an hour or a day", "No time limit of a run and no session notices; questions to people expire by the clock", process_faults.clock_jumps, process_faults.with_a_clock),
    inside("D10", "The disk is full", "The log loses lines and counts them, requests continue; an upload that needs the disk is `storage-full` (507), and nothing of it is left", process_faults.disk_is_full, process_faults.with_a_full_disk, settles=False),
    inside("D11", "Little memory and a body of 200 MB", "413 before it is read", process_faults.memory_is_limited, setting(launch={"before": limited("RLIMIT_AS", 2**30)})),
    inside("D12", "A function blocks the event loop", "The log names its line while it blocks", process_faults.loop_is_blocked, process_faults.with_a_bad_function),
    inside("D13", "The reader of the log's pipe hangs", "Lines are dropped and counted; requests continue", process_faults.log_is_not_read, process_faults.with_a_stuck_log, settles=False),
)  # fmt: skip

KINDS = (*MODEL_KINDS, *TOOL_KINDS, *CLIENT_KINDS, *PROCESS_KINDS)

CI = {
    *("A03", "A05", "A08", "A14", "A17", "A19", "A25", "A26"),
    *("B04", "B05", "B06", "B09", "B16", "B18"),
    *("C01", "C02", "C03", "C05", "C07", "C08", "C09", "C10", "C11", "C12"),
    "D01",
}  # fmt: skip
"""What a suite that runs all the time can afford: no waiting, few servers."""
