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
    inside("A01", "The endpoint refuses connections, or its name is unknown", "HoloDeck retries twice, then fails with `model-error`, reason `upstream_unavailable`", own_servers.closed_port, own_servers.deserted, spread=Spread.EVERY),
    model("A02", "The connection closes before the first byte", "HoloDeck retries twice, then fails with `model-error`, reason `upstream_unavailable`"),
    model("A03", "The connection is reset in the middle of an answer", "No retry: `model-error`, reason `upstream_interrupted`; the text so far is kept and marked as incomplete"),
    model("A04", "The connection ends inside a chunk", "As with a reset"),
    model("A05", "The stream ends without a finish reason, as if it were complete", "`model-error`, reason `upstream_truncated`; HoloDeck never treats it as a complete answer"),
    model("A06", "The stream ends after its finish reason, without `[DONE]`", "The run succeeds: many servers omit `[DONE]`"),
    model("A07", "The endpoint accepts the request and sends nothing", "After `model.timeout` HoloDeck retries once, then fails with `timeout`"),
    model("A08", "The answer stops midway and the connection stays open", "`timeout`, reason `upstream_stalled`, after `model.timeout` seconds without new text; the text so far is kept"),
    model("A09", "In the middle of an answer the endpoint sends only comments, pings and empty deltas", "They do not count as progress: `timeout`, reason `upstream_stalled`"),
    model("A10", "An event is not JSON", "`model-error`, reason `upstream_protocol_error`; its text goes to the debug log only"),
    model("A11", "A character is split between two packets", "The client gets the exact text"),
    model("A12", "The stream has bytes that are not UTF-8", "They become replacement characters, and the answer continues"),
    model("A13", "An emoji is split between two deltas", "HoloDeck joins the halves; half an emoji alone becomes a replacement character"),
    model("A14", "An event has megabytes, or a line never ends", "`model-error`, reason `upstream_protocol_error`; memory stays flat"),
    model("A15", "The stream has CR or CRLF line ends, a byte order mark, fields without a colon, or U+2028 in a text", "The client gets the exact text"),
    model("A16", "The endpoint returns HTML or plain JSON instead of a stream", "HTML is an error with a hint; HoloDeck accepts a whole completion as JSON"),
    model("A17", "The stream contains an error object", "Before the first word HoloDeck retries; after it, `model-error`, reason `upstream_interrupted`"),
    model("A18", "The endpoint returns 429 with a Retry-After", "HoloDeck waits up to 20 s; if it should wait longer, it fails immediately and passes the Retry-After on to the client"),
    model("A19", "The endpoint returns 500, 502, 503, 504 or 529", "HoloDeck retries up to twice"),
    model("A20", "The endpoint returns 400, 401, 403, 404, 413 or 422", "No retry; no message contains the API key"),
    model("A21", "The stream has empty choices, nulls, unknown fields, or pings between words", "The client gets the exact text"),
    model("A22", "Token usage is missing, negative or nonsense", "The run succeeds; HoloDeck reports no invented figures"),
    model("A23", "The answer stops at the token limit", "The client gets the answer with a warning; HoloDeck does not run a tool call that was cut off"),
    model("A24", "The provider's filter stops the answer", "`model-error`, reason `content_filter`; no retry"),
    model("A25", "Pieces of several tool calls arrive interleaved or without ids", "HoloDeck assembles every call and runs it once"),
    model("A26", "The arguments of a tool call are not a JSON object", "The model gets the error as the result, at most twice; then `model-error`, reason `bad_tool_arguments`"),
    model("A27", "The model calls a tool that does not exist", "The model gets a list of the tools that exist"),
    model("A28", "The model keeps calling tools", "The run stops after `loop.max_iterations` model calls"),
    model("A29", "The endpoint returns two choices instead of one", "HoloDeck uses the first"),
    inside("A30", "The endpoint keeps failing", "After `circuit_breakers.model.failure_threshold` failed runs HoloDeck stops calling it: runs fail immediately with `model-unavailable`, and `/ready` is 503. Successful trial calls close the breaker again", own_servers.breaker_opens, BREAKING),
    inside("A31", "A trial call of an open breaker fails", "The breaker stays open for another pause; `half_open_max_calls` trial calls have to succeed", own_servers.breaker_trial_fails, BREAKING),
)  # fmt: skip

TOOL_KINDS = (
    alone("B01", "The command of a tool server is missing or exits immediately", "If the server is `required`, HoloDeck exits with code 2 and the reason. Otherwise the agent starts without its tools, and `/health/agent` says so", own_servers.tool_server_cannot_start),
    alone("B02", "A tool server is slow to start", "HoloDeck answers 503 meanwhile; after `start_timeout` it starts without the tool server", own_servers.tool_server_is_slow),
    inside("B03", "A tool server prints other text to its stdout", "HoloDeck ignores it, and logs the first lines", own_servers.tool_server_is_noisy, setting(journal=["banner=1000"])),
    tool("B04", "A tool's result is not UTF-8", "The call fails; the server stays usable"),
    tool("B05", "A tool server crashes during a call", "The result says that the outcome is unknown. HoloDeck restarts the server and does not repeat the call"),
    tool("B06", "A tool call hangs", "After the tool's `timeout` HoloDeck cancels it; the result says so"),
    alone("B07", "A tool server ignores the end of its input and SIGTERM", "HoloDeck kills its process group within five seconds", own_servers.tool_server_is_stubborn),
    alone("B08", "HoloDeck is killed with `kill -9`", "Its tool servers die with it", own_servers.killed),
    tool("B09", "A result has 50 MB", "The call fails with `too_large`; memory stays flat"),
    inside("B10", "A tool server sends a line that never ends", "The call times out, or HoloDeck kills and restarts the server; memory stays flat", own_servers.endless_line, setting(journal=[])),
    tool("B11", "A tool returns an image", "The model sees the image, or a note about it"),
    tool("B12", "A tool reports an error", "The model gets the tool's own message"),
    tool("B13", "A tool server sends two results for one call, or results for unknown calls", "HoloDeck uses the first result and ignores the others"),
    tool("B14", "A result does not match the MCP schema", "The call fails; the server stays usable"),
    alone("B15", "A tool server changes its tools", "HoloDeck offers new tools, fails calls to removed ones, and withdraws a tool whose description changed", own_servers.tools_change),
    tool("B16", "A tool server over HTTP returns an error status, a redirect, or a response that is cut off, compressed, too large or late", "The call fails with the reason. HoloDeck restarts a lost session once, and follows no redirects"),
    tool("B17", "A tool server asks for sampling, elicitation or roots", "HoloDeck declines immediately; the call continues"),
    Kind("B18", "The model makes many calls at the same time", "All complete, eight at a time", tool_faults.many_calls_at_once, Spread.TURNS),
    tool("B19", "A tool server floods its stderr", "HoloDeck reads and discards it"),
    tool("B20", "A result contains escape codes or deeply nested JSON", "The model gets it as data; the terminal shows no control characters"),
)  # fmt: skip

CLIENT_KINDS = (
    Kind("C01", "A client disconnects during an answer", "The run continues for `detach_grace`, then the server cancels it and closes the connection to the model; the text so far is kept and marked as incomplete", client.leaves_in_the_text),
    alone("C01k", "A client process is killed with `kill -9`", "The same", many_clients.client_is_killed, wires=(SSE,)),
    Kind("C02", "A client disconnects during a tool call", "After `detach_grace` the server cancels the call and stores that its outcome is unknown", client.leaves_in_a_tool_call, Spread.TURNS),
    Kind("C03", "A client disconnects while its run is queued", "The server never calls the model", client.leaves_in_the_queue, wires=STREAMS),
    Kind("C04", "A client never reads", "The server disconnects it after `stall_timeout`; the run finishes", client.never_reads, Spread.TURNS, STREAMS),
    alone("C04k", "A thousand clients stop reading", "All runs finish, the server disconnects all these clients, and memory stays flat", many_clients.clients_that_stop_reading, wires=(SSE,), most=1),
    Kind("C05", "A client reads slowly", "It gets everything, in larger pieces", client.reads_slowly, wires=STREAMS),
    Kind("C06", "A stream is silent for a while", "The server sends a comment every `server.keepalive` seconds, so that proxies keep the stream open", client.silence_is_filled, wires=TEXT),
    Kind("C07", "A client reconnects with `Last-Event-ID`", "It resumes after that event: nothing is repeated, nothing is missing", client.comes_back, wires=TEXT),
    Kind("C08", "A client posts the same request several times, with one `runId` or `Idempotency-Key`", "All posts get the same run, and the model is called once. Another body with the same id gets 422", client.posts_twice),
    Kind("C09", "Several messages for one session arrive at the same time", "They run one after the other, or get 409 with `sessions.busy: reject`", client.two_at_once),
    Kind("C10", "The session is deleted during a run", "The server stops the run; the id can be used again", client.session_is_deleted),
    Kind("C11", "A message is empty, blank or too long, or contains NUL or half an emoji", "422 that names the field, or a cleaned text; never a 500", client.words_at_the_limit),
    Kind("C12", "A request has an unknown host, a compressed body, TLS on a plain port, two lengths, or incomplete headers", "400, 408, 413, 415 or 431 with an error body", client.odd_requests, wires=(SSE,), most=len(client.PROBES), settles=False),
    inside("C13", "More connections than `server.max_connections`", "Connections above the limit get 503 with Retry-After; far above it, no response. Streams continue, health checks work, and the server recovers immediately", many_clients.too_many_connections, setting(server={"max_connections": many_clients.ROOM})),
    inside("C13r", "More runs than `server.runs.max_concurrent`", "Runs above the limit get 503 with Retry-After", own_servers.too_many_runs, setting(server={"runs": {"max_concurrent": 20}})),
    alone("C13k", "A thousand clients never finish their requests", "The server closes the connections after 10 s (headers) or 30 s (bodies), and serves others meanwhile", many_clients.slow_loris, wires=(SSE,), most=1),
    inside("C14", "The server has no file descriptors left", "Running streams continue. The server does not use up the CPU, and recovers immediately", own_servers.no_descriptors_left, setting(launch={"before": limited("RLIMIT_NOFILE", 64)})),
)  # fmt: skip

PROCESS_KINDS = (
    alone("D01", "The server gets SIGTERM with fifty live streams", "Each stream ends with `shutting-down`; the exit code is 0. A second signal ends the process immediately", process_faults.terminated, wires=STREAMS),
    alone("D02", "You press Ctrl+C in the terminal", "During an answer it stops the answer; twice at the prompt, it exits", process_faults.interrupted_chat, wires=(SSE,)),
    alone("D03", "The server is killed with `kill -9` during a run", "Child processes die, the connection to the model closes, and a new server can start immediately", own_servers.killed),
    alone("D04", "The session store cannot be opened", "The server does not start; it never falls back to memory", process_faults.store_is_missing, wires=(SSE,)),
    inside("D08", "The process is paused during a run (SIGSTOP)", "Its runs end once, in time or with `timeout`. If a session expired and was started again meanwhile, the late run adds nothing to it", process_faults.paused, setting()),
    inside("D09", "The clock jumps by an hour or a day", "Timeouts of runs and sessions are not affected; only approval requests expire by the clock", process_faults.clock_jumps, process_faults.with_a_clock),
    inside("D10", "The disk is full", "The server drops and counts log lines; requests continue. An upload that needs the disk gets `storage-full` (507), and leaves no file behind", process_faults.disk_is_full, process_faults.with_a_full_disk, settles=False),
    inside("D11", "A client sends a body of 200 MB", "413 before the server reads it", process_faults.memory_is_limited, setting(launch={"before": limited("RLIMIT_AS", 2**30)})),
    inside("D12", "A function blocks the event loop", "The log names the line of code while it blocks", process_faults.loop_is_blocked, process_faults.with_a_bad_function),
    inside("D13", "The process that reads the log hangs", "The server drops and counts log lines; requests continue", process_faults.log_is_not_read, process_faults.with_a_stuck_log, settles=False),
)  # fmt: skip

KINDS = (*MODEL_KINDS, *TOOL_KINDS, *CLIENT_KINDS, *PROCESS_KINDS)

CI = {
    *("A03", "A05", "A08", "A14", "A17", "A19", "A25", "A26"),
    *("B04", "B05", "B06", "B09", "B16", "B18"),
    *("C01", "C02", "C03", "C05", "C07", "C08", "C09", "C10", "C11", "C12"),
    "D01",
}  # fmt: skip
"""What a suite that runs all the time can afford: no waiting, few servers."""
