"""What happens when something breaks: the model (A), tool servers (B), clients (C), process and stores (D)."""

from tests.requirement_lists.requirement import Requirement

FAULTS = (
    Requirement(
        "A01",
        "Connect refused / DNS fails → retry <= 2 with jitter 0.5→8 s, then RUN_ERROR upstream_unavailable, breaker counts 1 per run",
        "reliability 3",
    ),
    Requirement("A02", "Close before first byte → as A01 (nothing shown → safe)", "reliability 3"),
    Requirement(
        "A03",
        "RST in mid-stream → no retry; TEXT_MESSAGE_END + RUN_ERROR upstream_interrupted, partial kept, flagged; OpenAI endpoint: error frame, no [DONE]",
        "reliability 3",
    ),
    Requirement("A04", "FIN in mid-chunk (chunked broken) → as A03", "reliability 3"),
    Requirement("A05", "Clean EOF, no finish_reason, no [DONE] → error upstream_truncated", "reliability 3"),
    Requirement("A06", "EOF after finish_reason but no [DONE] → success (many servers do so)", "reliability 3"),
    Requirement(
        "A07",
        "Hang before first byte → first-token timeout (default 60 s, test 1 s) → retry once → error",
        "reliability 3",
    ),
    Requirement("A08", "Hang in mid-stream → idle timeout 30 s between content → error", "reliability 3"),
    Requirement(
        "A09",
        "Drip of : comments / pings / role-only deltas → comments do not reset the content clock; total deadline 10 min",
        "reliability 3",
    ),
    Requirement(
        "A10",
        "Malformed JSON event → tolerate 0: upstream_protocol_error; body (<= 200 B, escaped) to debug log only",
        "reliability 3",
    ),
    Requirement("A11", "UTF-8 split over chunks, byte by byte → exact text", "reliability 3"),
    Requirement("A12", "Invalid UTF-8 → U+FFFD, one warning, go on", "reliability 3"),
    Requirement("A13", "Surrogate halves as JSON escapes over two deltas → joined", "reliability 3"),
    Requirement("A14", "Event > 1 MB / line without end → cap 1 MB → error, memory flat", "reliability 3"),
    Requirement(
        "A15",
        "U+2028, NEL, VT in text; CR-only and CRLF framing; BOM; field without colon; multi-line data → per WHATWG rules",
        "reliability 3",
    ),
    Requirement(
        "A16",
        "200 text/html or JSON body instead of SSE → upstream_protocol_error; a plain chat.completion JSON is accepted as one chunk",
        "reliability 3",
    ),
    Requirement(
        "A17", "in-band error object/event → map code; before first content → retry rule; after → A03", "reliability 3"
    ),
    Requirement(
        "A18",
        "429 + Retry-After (s, date, ms) → wait if <= 20 s and inside deadline, else fail at once with retry_after passed on",
        "reliability 3",
    ),
    Requirement("A19", "500/502/503/504/529 → retry <= 2", "reliability 3"),
    Requirement(
        "A20",
        "400/401/403/404/413/422 → no retry; 401/403 → upstream_auth without the key in text; context overflow recognised",
        "reliability 3",
    ),
    Requirement(
        "A21",
        "choices: [], delta: null, content: null, unknown fields, role repeated, index missing → tolerated",
        "reliability 3",
    ),
    Requirement(
        "A22",
        "usage missing / null / on every chunk / before the end / negative → usage null (never invented), sums guarded",
        "reliability 3",
    ),
    Requirement(
        "A23",
        "finish_reason: length → RUN_FINISHED with truncated:true; open tool call is not executed",
        "reliability 3",
    ),
    Requirement("A24", "content_filter / refusal → terminal event with code, no retry, stored", "reliability 3"),
    Requirement(
        "A25",
        "Tool-call deltas: duplicated index, index gap, id missing, id changed, name split, args interleaved over 3 indices, index as string, whole call in one chunk, two calls same index different id → assemble by (index, id); generate id if none; never merge two ids; conflict → protocol error",
        "reliability 3",
    ),
    Requirement(
        "A26",
        "Tool args invalid JSON / not an object / 1 MB / duplicate keys / NaN → tool result = error text to the model, <= 2 repair turns, then run error",
        "reliability 3",
    ),
    Requirement(
        "A27", "Unknown tool name, or tool of another agent → error result to the model; counted", "reliability 3"
    ),
    Requirement(
        "A28",
        "Model loops calling the same tool → stop at max_iterations 15 (seed 1..50) and at budget; terminal max_iterations",
        "reliability 3",
    ),
    Requirement("A29", "Two choices / n>1 answered → first only, log", "reliability 3"),
    Requirement(
        "A30",
        "Breaker: k failures → seed: LLM 3/60 s, MCP 5/30 s, half-open 3; only transport/5xx/timeouts count, not 4xx; one breaker per (base_url, model)",
        "reliability 3",
    ),
    Requirement("A31", "Upstream slow start after half-open → probe success needed 3 x", "reliability 3"),
    Requirement(
        "B01",
        "Command missing / not executable / exits at once → agent starts degraded, tool absent, /ready says which; required: true → refuse start",
        "reliability 3",
    ),
    Requirement(
        "B02",
        "Slow start (8 s) → start timeout 10 s default, other servers in parallel, server answers meanwhile",
        "reliability 3",
    ),
    Requirement("B03", "Banner or noise on stdout → ignored, first 3 lines logged", "reliability 3"),
    Requirement("B04", "Invalid UTF-8 → that message dropped, call fails typed, session lives", "reliability 3"),
    Requirement(
        "B05",
        "Crash in call (exit, SIGSEGV, OOM) → call → error result to the model <= 100 ms; restart with backoff 1→30 s, breaker; next call works",
        "reliability 3",
    ),
    Requirement(
        "B06", "Hang in call → per-tool timeout 30 s (test 1 s) → cancelled sent → error result", "reliability 3"
    ),
    Requirement("B07", "Ignores cancel and SIGTERM → close: stdin EOF 2 s → TERM 2 s → KILL group", "reliability 3"),
    Requirement("B08", "Our server killed -9 → children die (PDEATHSIG through a tiny launcher)", "reliability 3"),
    Requirement(
        "B09",
        "Reply 10/50/500 MB one line → cap 1 MB (config) → error result too_large, rest discarded in O(n)",
        "reliability 3",
    ),
    Requirement("B10", "Endless bytes without newline → same cap, kill server", "reliability 3"),
    Requirement(
        "B11",
        "Binary/image/audio/resource content → image → kept as reference, text note to the model; sizes capped",
        "reliability 3",
    ),
    Requirement(
        "B12",
        "isError: true → error text to the model, TOOL_CALL_RESULT with status error, not a run error",
        "reliability 3",
    ),
    Requirement("B13", "Duplicate reply, wrong id, reply after timeout → first wins, others ignored", "reliability 3"),
    Requirement("B14", 'Result breaks its schema (content:"x") → typed error result, session lives', "reliability 3"),
    Requirement(
        "B15",
        "Restart with other tools / list_changed → pins checked (T26); removed tool → error result; added ignored until accept",
        "reliability 3",
    ),
    Requirement(
        "B16",
        "HTTP: 401, 404 session, 307 to elsewhere, SSE closed in mid-reply, Retry, wrong content type, 202 without stream → re-initialise once on 404; never follow cross-origin redirects; else typed error",
        "reliability 3",
    ),
    Requirement(
        "B17",
        "Server → client requests (sampling, elicitation, roots) → declined unless configured; no hang",
        "reliability 3",
    ),
    Requirement("B18", "200 parallel calls to one stdio server → bounded queue (8 in flight), fair", "reliability 3"),
    Requirement("B19", "stderr flood → read and dropped over 64 kB/s", "reliability 3"),
    Requirement(
        "B20",
        "Tool result with escape codes, prompt injection, 1 M-deep JSON → sanitised / capped / depth 64",
        "reliability 3",
    ),
    Requirement(
        "C01",
        "Client disconnects in mid-text → upstream closed and tools cancelled <= 250 ms (policy on_disconnect: cancel default; continue option), partial stored flagged",
        "reliability 3",
    ),
    Requirement(
        "C02",
        "Disconnect during a tool call → tool gets cancel; result, if it comes, is not sent to the model; call recorded as unknown outcome",
        "reliability 3",
    ),
    Requirement("C03", "Disconnect while waiting in the queue → removed, no upstream hit", "reliability 3"),
    Requirement(
        "C04",
        "Client that never reads → bounded buffers, send timeout 30 s (test 2 s) → abort run",
        "reliability 3",
    ),
    Requirement("C05", "Slow reader (1 kB/s) → upstream read paused (backpressure)", "reliability 3"),
    Requirement(
        "C06",
        "Proxy idle timeouts → comment ping every 15 s in all streams, also while a tool runs",
        "reliability 3",
    ),
    Requirement(
        "C07",
        "Reconnect with Last-Event-ID → replay from a bounded log (2 min / 1 MB), no duplicate, no gap; unknown id → snapshot",
        "reliability 3",
    ),
    Requirement(
        "C08",
        "Duplicate POST (same Idempotency-Key / run_id) → same run joined or same answer returned; other body → 422",
        "reliability 3",
    ),
    Requirement(
        "C09",
        "Two requests on one session at once → one after the other, or 409 with sessions.busy: reject; the history is linear",
        "reliability 3",
    ),
    Requirement(
        "C09b",
        "Two requests on one session at once, at two servers → one after the other, or 409 with sessions.busy: reject; a session's epoch refuses late writes",
        "reliability 3",
    ),
    Requirement(
        "C10",
        "Session expires / is deleted in mid-run → the run holds a lease: expiry waits; delete cancels, then 404",
        "reliability 3",
    ),
    Requirement(
        "C11", "10,000 chars + multibyte limits, blank, whitespace only → 422 with field path", "reliability 3"
    ),
    Requirement(
        "C12",
        "HTTP/1.0, HEAD, Expect: 100, pipelining, Connection: close, gzip request → defined answers",
        "reliability 3",
    ),
    Requirement("C13", "10,000 connections → accepted to cap, rest 503", "reliability 3"),
    Requirement(
        "C14",
        "fd exhaustion (NOFILE 64) → existing streams live, new refused, recovers at once, CPU idle",
        "reliability 3",
    ),
    Requirement(
        "D01",
        "SIGTERM in mid-stream → /ready 503 at once, listener stays pre_stop 5 s, new runs 503 + Retry-After, running ones drain <= 30 s (config), then RUN_ERROR server_shutdown + proper end, exit 0; second SIGTERM = now",
        "reliability 3",
    ),
    Requirement("D02", "SIGINT in CLI chat → first: cancel turn; second: leave, terminal restored", "reliability 3"),
    Requirement(
        "D03",
        "kill -9 in mid-run → children die, the model is left alone, a new process serves at once; no auto re-run",
        "reliability 3",
    ),
    Requirement(
        "D03b",
        "kill -9 in mid-run → on restart/other replica the lease lapses (<= 15 s) → run marked failed: interrupted, history repaired (I4), user may go on",
        "reliability 3",
    ),
    Requirement(
        "D04",
        "Store down at start → memory store never silently substituted; start fails or degraded by config",
        "reliability 3",
    ),
    Requirement(
        "D05",
        "Store down in mid-run → writes are repeated for 10 s, then the run ends with store-unavailable, never as if it were stored; /ready 503",
        "reliability 3, without persisted:false: an answer that is shown and not kept is what issue 15 forbids",
    ),
    Requirement(
        "D06",
        "Valkey failover (Sentinel) → readers elsewhere go on within 5 s; nothing acknowledged depends on Valkey",
        "reliability 3",
    ),
    Requirement(
        "D07",
        "Postgres failover → statements are repeated, a commit counts once, nothing acknowledged is lost with a synchronous standby",
        "reliability 3; the failover itself is row S18 of `make faults-stores`",
    ),
    Requirement(
        "D08",
        "Split brain: lock holder paused 30 s (SIGSTOP), another takes over, first wakes → fencing token: late writes refused",
        "reliability 3",
    ),
    Requirement(
        "D09",
        "Clock jumps ±1 h, NTP step, DST → durations by monotonic; TTL by store clock; JWT leeway 60 s",
        "reliability 3",
    ),
    Requirement(
        "D10",
        "Disk full (logs, temp, uploads) → logging never raises; upload → 507; no half files",
        "reliability 3",
    ),
    Requirement("D11", "Memory limit → RLIMIT_AS 512 MB: big uploads 413, no crash", "reliability 3"),
    Requirement("D12", "Event loop blocked by a bug → watchdog logs stack > 200 ms", "reliability 3"),
    Requirement(
        "D13", "Log pipe blocked (stdout not read) → bounded queue, drop + count, requests go on", "reliability 3"
    ),
    Requirement("D14", "Two replicas, rolling restart → 0 failed requests through a retrying client", "reliability 3"),
    Requirement("D15", "Pool exhaustion → wait <= 2 s then 503", "reliability 3"),
    Requirement("D16", "Store record from an older/newer version, corrupt → migrate or quarantine", "reliability 3"),
    Requirement("D17", "Playground offline/asset missing → API unaffected", "reliability 3"),
)
