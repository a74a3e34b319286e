"""Every promise to the user, as data. `tests/test_requirements.py` checks it both ways against the tests.

`due` is the issue that brings a requirement which is not delivered yet; None means: it is, and a test shows it.
"""

from typing import NamedTuple


class Requirement(NamedTuple):
    id: str
    sentence: str
    source: str
    due: int | None = None


REQUIREMENTS = (
    Requirement(
        "SRV-01",
        "holodeck serve <agent.yaml> starts one agent on HTTP. Options: --port 8000 (1-65535), --host, --protocol (repeatable: ag-ui default, rest, chat-stream, later more, all), --cors-origins (*), --debug, --open. Without a path it takes agent.yaml of the current folder.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-02",
        "The configuration is validated before anything listens; an error names file, line, field and what would be right; exit code 1. A busy port: one clear line that names the port and suggests a free one; exit code 3, and no success banner before it.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-03",
        "State machine INITIALIZING → READY → RUNNING → SHUTTING_DOWN → STOPPED. A request before READY gets 503 problem+json with Retry-After.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-04",
        "The start banner shows agent, model, protocols, each endpoint's URL, docs URL, playground URL. Server up in < 1 s of CPU on an idle machine for the demo agent (seed: < 5 s).",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-05",
        "AG-UI: POST /awp takes RunAgentInput, streams AG-UI 1.0 events (see wires.md, ../facts/ag-ui.md). All five patterns of seed 001 work: streamed text, tool calls with incremental arguments, state snapshot + JSON-Patch deltas, backend tool results (+ messages snapshot), custom events.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-06",
        "AG-UI content negotiation: text/event-stream by default, length-prefixed protobuf application/vnd.ag-ui.event+proto when the client names it.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-07",
        "AG-UI input: history, frontend tools, context, state, forwardedProps, multimodal parts (and the older binary part with data / url / id).",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-08",
        "REST: POST /agent/{name}/chat answers ChatResponse (message_id ULID, content, session_id, tool_calls[name, arguments, status], tokens_used, execution_time_ms). Unknown agent → 404 problem agent-not-found.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-09",
        "REST: POST /agent/{name}/chat/stream streams SSE, token by token: stream_start, message_delta, tool_call_start, tool_call_args, tool_call_end, stream_end, error, and : keepalive after 15 s of silence.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-10",
        "GET /health, /ready, /health/agent: HealthResponse (status, agent_name, agent_ready, active_sessions, uptime_seconds). They tell the truth: 503 + unhealthy when the agent cannot serve (model breaker open, a required MCP server down).",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-11",
        "DELETE /sessions/{id} → 204, idempotent; malformed id → 400 problem. GET /sessions/{id} shows the history.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-12",
        "ChatRequest: message 1-10,000 characters and not blank; session_id ULID; at most 10 files. JSON with base64, or multipart/form-data on the same URL.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-13",
        "Files: png, jpeg, gif, webp, pdf, docx, xlsx, pptx, plain text, csv, markdown. Base64 JSON <= 10 MB per file, multipart <= 50 MB per file, <= 100 MB a request; over → 413, wrong type → 415, bad base64 → 422, each problem+json. The declared type is checked against the bytes.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-14",
        "File content reaches the model: images by OCR (or as image parts where the model takes them), PDF by text extraction, Office as Markdown, text as it is. Never silently dropped.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-15",
        "Sessions in memory: ULID ids, created_at, last_activity, message_count; 30-minute sliding TTL; background clean-up; get/create/delete/touch/cleanup_expired. An unknown or expired id starts a new session and the answer says which.",
        "seeds 000, 001",
    ),
    Requirement("SRV-16", "Two requests on one session run one after the other, never interleaved.", "seeds 000, 001"),
    Requirement(
        "SRV-17",
        "Every error, from every route, is RFC 9457 problem+json (type URI, title, status, detail, instance): validation, 404, 405, 413, 415, 422, 429, 500, 503. Never a 200 with empty content for a failure.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-18",
        "Structured JSON logs: time, session, endpoint, latency by default; full request and response only with --debug, secrets masked always.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-19",
        "CORS configurable. OpenAPI at /openapi.json, interactive docs at /docs (must work with no internet: no CDN).",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-20",
        "SIGINT/SIGTERM: stop accepting, let running streams finish up to a limit (default 5 s, configurable), end the rest with a proper terminal event, close MCP servers and stores, exit 0. Second Ctrl+C: at once.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-21",
        "AG-UI event middleware: a chain that can log, filter (e.g. hide a tool's calls), throttle and annotate events, configured in YAML; own middleware as Python functions.",
        "seeds 000, 001",
    ),
    Requirement(
        "SRV-22",
        "Predictive state: state.predict in YAML (state key ↔ tool ↔ argument) sends the CUSTOM PredictState event at the start and STATE_DELTAs while that argument streams. ACTIVITY_* events show long work (reading a file, restarting a tool server); function tools may emit CUSTOM events; RAW provider events only with --debug.",
        "seeds 000, 001",
    ),
    Requirement(
        "CHT-01",
        "holodeck chat <agent.yaml>: prompt in < 1 s of CPU; --verbose/-v, --quiet/-q, --observability/-o, --max-messages/-m 50, --resume <id>.",
        "seed 002",
    ),
    Requirement(
        "CHT-02",
        "Replies stream token by token, rendered as Markdown; tool calls appear while they run: name, short arguments, duration, status. Verbose: full arguments, result, tokens.",
        "seed 002",
    ),
    Requirement(
        "CHT-03",
        "Line editing, history across sessions, multi-line input, /help /clear /history /save /tools /exit, also exit and quit.",
        "seed 002",
    ),
    Requirement(
        "CHT-04",
        "Session model: id, state INITIALIZING → ACTIVE → TERMINATED, started_at (aware UTC), message_count, metadata. Messages: role, content, timestamp, tool calls (assistant only), token usage.",
        "seed 002",
    ),
    Requirement(
        "CHT-05",
        "ToolExecution: tool_name, parameters, result, status pending/running/success/failed, execution_time, error_message (required when failed).",
        "seed 002",
    ),
    Requirement("CHT-06", "TokenUsage: prompt, completion, total = their sum.", "seed 002"),
    Requirement(
        "CHT-07",
        "Input validation as a chain that can be extended: empty refused, > 10,000 characters refused, control characters stripped, UTF-8 checked.",
        "seed 002",
    ),
    Requirement(
        "CHT-08",
        "Everything a tool or the model says is sanitised before it reaches the terminal: no ANSI/OSC escapes, no control characters, no bidi overrides; long results shortened.",
        "seed 002",
    ),
    Requirement(
        "CHT-09",
        "Warning at 80 % of max messages (and of the model's context where known) with an offer to save or clear. Trimming keeps tool calls and their results together.",
        "seed 002",
    ),
    Requirement(
        "CHT-10",
        "Ctrl+C during a reply stops the reply and returns to the prompt; at the prompt twice ends with 130; Ctrl+D ends with 0. Config error 1, agent start error 2. Works without a TTY (pipes): plain text, no ANSI.",
        "seed 002",
    ),
    Requirement(
        "CHT-11",
        "--observability sends OpenTelemetry traces (GenAI conventions): chat session → turn → model call / tool call.",
        "seed 002",
    ),
    Requirement(
        "ORC-01",
        "Request: input 1-5,000 characters, conversation_id, user_id. Control characters other than \\n \\t \\r stripped before the length check; blank → 422.",
        "seed 003",
    ),
    Requirement(
        "ORC-02",
        "SSE events with these names and data: thinking {content}; tool_call {tool_name, arguments, status: in_progress then completed/failed}; response_delta {delta, accumulated}; error {error_type, message, recoverable}; done {final_output, tools_called, success}. Each data object also carries request_id.",
        "seed 003",
    ),
    Requirement(
        "ORC-03",
        "Stateless by default: nothing kept between requests, so that replicas need no affinity; a conversation_id gives memory only when a shared session store is configured.",
        "seed 003",
    ),
    Requirement(
        "ORC-04",
        "MCP servers over stdio and streamable HTTP; tools discovered at start and again on list_changed; names checked; arguments validated against the schema before the call.",
        "seed 003",
    ),
    Requirement(
        "ORC-05",
        "The reference todo MCP server: create_todo, list_todos, update_todo, delete_todo(confirmation must be true), with the arguments and filters of seed 003; FastMCP + SQLModel; SQLite file by default, PostgreSQL by URL; every row belongs to a user.",
        "seed 003",
    ),
    Requirement(
        "ORC-06",
        'From "Remind me to buy eggs tomorrow at 3pm, urgent #home": title, due date ISO 8601 in the user\'s zone, priority high, tags.',
        "seed 003",
    ),
    Requirement(
        "ORC-07",
        "Failures: MCP tool failure → error event, the run goes on where it can; model failure → error event with a hint to retry; timeout 30 s (configurable) → timeout error event. done always comes last.",
        "seed 003",
    ),
    Requirement(
        "ORC-08",
        "JSON log line: timestamp (ISO UTC, ms), level, request_id, event, duration_ms, details, user_id, conversation_id; event types request_received, agent_reasoning, mcp_tool_called, mcp_tool_result, model_called, model_result, circuit_breaker_state_change, request_completed, error_occurred.",
        "seed 003",
    ),
    Requirement(
        "ORC-09",
        "Request id req_ + 12 hex; taken from a well-formed X-Request-ID, else made; in the response header, every log line and every stream event.",
        "seed 003",
    ),
    Requirement(
        "ORC-10",
        "Circuit breakers closed → open → half-open: MCP 5 failures / 30 s, model 3 failures / 60 s, 3 trial calls; one per dependency; state changes logged and measured; open → immediate, clear error.",
        "seed 003",
    ),
    Requirement(
        "ORC-11",
        "The seed's later wishes: conversation memory in Redis, JWT with enforced user_id, rate limits per user in Redis, isolated tenants, cached tool results, Prometheus metrics. (Filed separately; the design leaves room now.)",
        "seed 003",
        due=8,
    ),
    Requirement(
        "AGT-01",
        "await run_agent(message_history, user_id, config) → AgentResponse(status completed / max_iterations_reached / error, final_response, messages, iterations, finish_reason, error, warning). It raises for misuse only; everything else is in the response.",
        "seed 004",
    ),
    Requirement(
        "AGT-02",
        "AgentConfiguration: api_base_url (default: Gemini's OpenAI-compatible endpoint), api_key (from the environment, never logged), model_name gemini-2.5-flash, temperature 0-1 default 1.0, max_tokens 1000, timeout 30. Any OpenAI-compatible endpoint works.",
        "seed 004",
    ),
    Requirement(
        "AGT-03",
        "SystemPrompt: role_definition, operational_rules (must contain a user-isolation rule), response_guidelines (must contain a conciseness rule), tool_usage_instructions; to_prompt_string(user_id).",
        "seed 004",
    ),
    Requirement(
        "AGT-04",
        "AgentLoopConfig: max_iterations 15 (1-50), iteration_timeout 30 s, enable_retry false, retry_attempts 1. Each limit really stops the loop, with the right status and warning.",
        "seed 004",
    ),
    Requirement("AGT-05", "ToolBinding: tool name ↔ function schema ↔ async callable.", "seed 004"),
    Requirement(
        "AGT-06",
        "The tasks vocabulary works too: add_task, list_tasks(status), complete_task, update_task, delete_task.",
        "seed 004",
    ),
    Requirement(
        "AGT-07",
        "User isolation is enforced in code: user_id is bound by the runtime, hidden from the model's schema, and overrides whatever the model or the prompt says. A probe that asks for another user's tasks in ten ways gets none.",
        "seed 004",
    ),
    Requirement(
        "AGT-08",
        "Tool calls of one step run in parallel; bad arguments, unknown tools and failures go back to the model as text it can act on; a tool's result is bounded in size.",
        "seed 004",
    ),
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
        "Two requests on one session at once → strategy reject (409) default for REST, enqueue option; lock with fencing token, TTL + renew",
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
        "kill -9 in mid-run → on restart/other replica the lease lapses (<= 15 s) → run marked failed: interrupted, history repaired (I4), user may go on; no auto re-run by default",
        "reliability 3",
    ),
    Requirement(
        "D04",
        "Store down at start → memory store never silently substituted; start fails or degraded by config",
        "reliability 3",
    ),
    Requirement(
        "D05",
        "Store down in mid-run → stream goes on, terminal event says persisted:false or run errors by config; writes retried <= 10 s; /ready 503",
        "reliability 3",
        due=8,
    ),
    Requirement(
        "D06", "Valkey failover (Sentinel) → <= 5 s unavailable, 0 acked lost with WAIT", "reliability 3", due=8
    ),
    Requirement("D07", "Postgres failover → as above", "reliability 3", due=8),
    Requirement(
        "D08",
        "Split brain: lock holder paused 30 s (SIGSTOP), another takes over, first wakes → fencing token: late writes refused",
        "reliability 3",
        due=8,
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
    Requirement(
        "D14", "Two replicas, rolling restart → 0 failed requests through a retrying client", "reliability 3", due=8
    ),
    Requirement("D15", "Pool exhaustion → wait <= 2 s then 503", "reliability 3", due=8),
    Requirement(
        "D16", "Store record from an older/newer version, corrupt → migrate or quarantine", "reliability 3", due=8
    ),
    Requirement("D17", "Playground offline/asset missing → API unaffected", "reliability 3", due=5),
    Requirement(
        "T01",
        "Remote config of stdio commands (client may name command/args/env/cwd) → No endpoint accepts a server definition. Commands only from the agent YAML on disk, exec with list args, no shell, env allow-list (PATH, HOME, LANG + named), fixed cwd. No blocklists.",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T02",
        'Client chooses upstream base URL / key exfiltration → extra="forbid"-like allow-list on the OpenAI endpoint; ignore/deny api_base, base_url, api_key, extra_headers, model outside the list',
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T03",
        "Code/template evaluation of prompts, flows, guardrails → No eval, no Jinja over user data; YAML safe_load; ${ENV} substitution only from the operator file, only in named fields; system prompt substitution is plain str.replace",
        "reliability 2",
    ),
    Requirement(
        "T04",
        'Auth decided on request.url (BadHost) → Auth per route by dependency, default deny; path only from scope["path"]; validate Host; starlette >= 1.10',
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T05",
        "Missing auth on one route or one legacy twin → Route table is enumerated; every route carries an explicit policy public|user|admin; app refuses to start otherwise",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T06",
        "SQL/NoSQL/key injection in key lookup or store → Only bound parameters; Redis keys built from hashed/validated ids; API keys stored as SHA-256/HMAC and looked up by digest, compared in constant time",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T07",
        "DNS rebinding / drive-by to a local server → Bind 127.0.0.1; Host allow-list always on; Origin checked on every state-changing request and on the playground; JSON content type required (no simple requests)",
        "reliability 2",
    ),
    Requirement(
        "T08",
        "CORS * with credentials → Default: no CORS. * allowed only without credentials and without cookie auth; the combination is a start-up error. Playground same-origin; token in header, not cookie",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T09",
        "Bind 0.0.0.0 unauthenticated → Default 127.0.0.1; non-loopback bind without auth = exit 2 with the sentence how to fix it; --insecure-no-auth has to be typed",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T10",
        "Cross-user access by id (IDOR) → Every store call takes the principal; key = (tenant,user,session); another's id → same 404 body as unknown; ids >= 128 bit random; user id never from body, header or prompt; **tool user-id is injected by code, not by the model**",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T11",
        "Cross-user leak through cancelled connections / shared state → Never share a connection between tasks; on cancel, discard the connection; context-vars not globals; no per-process mutable agent state",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T12",
        "JWT confusion → joserfc; one configured algorithm family per issuer; require exp, iss, aud, sub; ignore jku/x5u/jwk; max 8 kB token; JWKS fetch with pinned URL, cache, min refresh 5 min",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T13",
        "Token pass-through / confused deputy to MCP → The client's token is never forwarded; MCP credentials from config, bound to the server's origin; refuse non-https (except loopback); never open a URL from a server",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T14",
        "SSRF by file URL / image_url / redirect / rebinding / NAT64 → URL inputs off by default (url in BinaryInputContent → 400). If on: host allow-list, own resolver, every address is_global incl. mapped/NAT64, connect to the checked address, <= 3 redirects each re-checked, 10 s, byte cap while reading",
        "reliability 2",
    ),
    Requirement(
        "T15",
        "Limits applied after reading → ASGI middleware counts bytes as they arrive and on Content-Length; 413 at once; per-route caps; only JSON and multipart accepted",
        "reliability 2",
    ),
    Requirement(
        "T16",
        "Multipart parser DoS / traversal → >= 0.0.33; caps: 10 files, 20 fields, 64 kB field, 8 kB headers; client filename is display text only, never a path; temp file by random name in a private dir",
        "reliability 2",
    ),
    Requirement(
        "T17",
        "Slow-loris, connection and stream hoarding → header 10 s, body 30 s or >= 1 kB/s, idle keep-alive 5 s, per-IP and per-user stream caps, global cap → 503 + Retry-After",
        "reliability 2",
    ),
    Requirement(
        "T18",
        "Unbounded parameters → Every int/list/str bounded in the schema; n=1; sessions per user <= 1,000, LRU; tools <= 128; JSON depth <= 64",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T19",
        "Parser bombs (zip, flate, XML, PNG, xlsx) → Subprocess per file; RLIMIT_AS 768 MB, CPU 10 s, FSIZE, NOFILE 64; wall 15 s; output <= 2 MB; zip pre-check (entries <= 2,000, sum <= 200 MB, ratio <= 200); DTD refused; image pixels <= 50 M; kill the process group",
        "reliability 2",
    ),
    Requirement(
        "T20",
        "XXE / external relations → Refuse any <!DOCTYPE/<!ENTITY in OOXML before parsing; Landlock: no network, no reads outside libs",
        "reliability 2",
    ),
    Requirement(
        "T21",
        "SSE injection by CR/LF → Data is always JSON with escapes; event/id from a closed set/ULID; encoder rejects CR, LF, NUL; Last-Event-ID parsed as int",
        "reliability 2",
    ),
    Requirement(
        "T22",
        "Lone surrogates, NUL → Clean at every ingress (client, LLM delta, tool result, file text): join split pairs over deltas, then replace lone ones by U+FFFD, strip NUL",
        "reliability 2",
    ),
    Requirement(
        "T23",
        "Unsafe deserialisation of stored sessions → JSON only, versioned schema, validated at load; no pickle/msgpack-ext; optional HMAC of the record",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T24",
        "Terminal escape injection (CLI chat, logs) → Own sanitiser before any renderer: keep \\n \\t, drop C0/C1/DEL, ESC sequences as a whole, bidi controls and zero-width; streaming-safe (sequence split over chunks); never print(str) with markup; JSON logs escape all control characters",
        "reliability 2",
    ),
    Requirement(
        "T25",
        "Markdown/HTML in the playground: XSS, image exfiltration, link exfiltration → Text nodes only, own small Markdown renderer, no raw HTML, **images never loaded** (shown as link text with the host), links https only, rel=noopener noreferrer, host shown; CSP default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self' no inline; frame-ancestors 'none'",
        "reliability 2",
    ),
    Requirement(
        "T26",
        "Prompt injection → tool misuse → Tool set pinned (SHA-256 over name+description+schema) per agent, change → tool disabled until operator accepts; names namespaced server__tool, duplicates refused; per-tool approval: always/never, argument schema validated; tool results wrapped and marked as data, size capped; per-run budget (calls, tokens, seconds, money)",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T27",
        "Client supplies system/assistant/tool messages, tools, state (AG-UI RunAgentInput) → Server history wins: from the client only the *new* user message(s) are taken; system/developer roles refused; tool results accepted only for open frontend tool-call ids of this run; frontend tools may not shadow server tools; state size <= 256 kB, JSON-patch <= 100 ops",
        "reliability 2",
    ),
    Requirement(
        "T28",
        "Secrets in logs, traces, errors, prompts → Allow-list logging: metadata only; content only with --debug; redactor on the *value set* of known secrets + patterns; RFC 9457 errors without internals; no stack traces to clients",
        "reliability 2",
    ),
    Requirement(
        "T29",
        "Log injection / forged JSON lines → One JSON object per line, control characters escaped, 16 kB per record cap",
        "reliability 2",
    ),
    Requirement(
        "T30",
        "Cost and rate abuse → Per key/user: requests/min, tokens/day, concurrent runs, bytes; limiter shared over replicas; when the limiter store is down: local limiter (fail-soft) and log",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T31", "X-Forwarded-For / proxy header spoofing → Trust only configured proxies; else ignore", "reliability 2"
    ),
    Requirement(
        "T32",
        "Request smuggling → httptools/h11 newest; refuse both CL and TE; behind proxy docs",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T33",
        "Supply chain → Few dependencies, hash-locked, --require-hashes, no auto-update in CI with secrets, no .pth files in the tree, 7-day cooldown on new releases, SBOM",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T34",
        "Static files / Range DoS / traversal in the playground → Few files, in memory, hashed names; no directory serving",
        "reliability 2",
        due=5,
    ),
    Requirement(
        "T35",
        "Malicious YAML (shared agent file) → safe_load, alias/anchor bomb limit, 256 kB, extra=forbid; serve prints commands it will run; --dry-run; first-run consent hash for stdio commands in the CLI",
        "reliability 2",
    ),
    Requirement(
        "T36", "Replay / duplicate submit → Idempotency-Key / AG-UI run_id unique per user", "reliability 2", due=5
    ),
)

BY_ID = {requirement.id: requirement for requirement in REQUIREMENTS}
