"""What users are promised: the server (SRV), the chat (CHT), the orchestrator (ORC), the agent service (AGT)."""

from tests.requirement_lists.requirement import Requirement

USERS = (
    Requirement(
        "SRV-01",
        "holodeck serve <agent.yaml> starts one agent on HTTP. Options: --port 8000 (1-65535), --host, --protocol (repeatable: ag-ui default, rest, chat-stream, later more, all), --cors-origins (loopback pages; * has to be typed), --debug, --open. Without a path it takes agent.yaml of the current folder.",
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
        "AG-UI input: history, frontend tools, context, state, forwardedProps, multimodal parts (and the older binary part with data or url; a handle, `id`, is refused with a reason, since there is no route to upload files first).",
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
        "ChatRequest: message 1-10,000 characters and not blank; session_id 1-128 printable characters, a ULID when the server makes it; at most 10 files. JSON with base64, or multipart/form-data on the same URL.",
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
        "SIGINT/SIGTERM/SIGHUP: stop accepting, let running streams finish up to a limit (default 5 s, configurable), end the rest with a proper terminal event, close MCP servers and stores, exit 0. Second Ctrl+C: at once.",
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
        "SRV-24",
        "OpenAI's Responses: whole, streamed, in the background; server tools as mcp_call, approvals, tools of the client; previous_response_id continues or branches; read again, resumed after any event, cancelled and deleted by id.",
        "faces.md 4.2",
    ),
    Requirement(
        "SRV-25",
        "useChat of Vercel's AI SDK (6 and 7): send, resume, regenerate, edit, approvals, tools of the client, data parts; the chat id is the session on every wire.",
        "faces.md 8",
    ),
    Requirement(
        "SRV-26",
        "The agent as an MCP server at POST /mcp, for clients of 2026-07-28 and of 2025-11-25 and older: ask, progress, approvals as forms or by a tool, long answers, runs as tasks; holodeck mcp over standard input for desktop clients.",
        "faces.md 6",
    ),
    Requirement(
        "SRV-27",
        "A2A 1.0 and 0.3 over JSON-RPC and HTTP+JSON: card, extended card, send, stream, get, list, cancel, subscribe, push notifications; a task is a chain of runs, its context the session.",
        "faces.md 5",
    ),
    Requirement(
        "SRV-28",
        "One session everywhere: the same id, taken as it is, on every wire and in the terminal; one history. A run that one wire started can be followed, stopped and approved on the others.",
        "issue 17, part 7",
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
        "The seed's later wishes: conversation memory and rate limits that replicas share, JWT with enforced user_id, isolated tenants, cached tool results, Prometheus metrics. (ACC and DUR say how.)",
        "seed 003",
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
    *(
        Requirement(id_, sentence, "requirements.md")
        for id_, sentence in {
            "ACC-01": "Every operation declares its access; strangers get static pages, bare health and discovery documents, nothing else.",
            "ACC-02": "API keys (`holodeck keys …`, `HOLODECK_API_KEY`), JWT with JWKS, trusted proxy, Python hook; header only; 401/403/404 as designed.",
            "ACC-03": "One owner (tenant, user) keys sessions, runs, queues, idempotency keys, interrupts, files, quotas; another's object answers as one that does not exist.",
            "ACC-04": "A `user_id` in a body equals the credential's or is 403; `act-as` is a scope.",
            "ACC-05": "Limits per address, key, user, tenant: requests, tokens, money, runs, streams, sessions, bytes; exact over replicas on Valkey.",
            "ACC-06": "Not on loopback and no auth: exit 2. Loopback origins are the CORS default; `*` has to be typed.",
            "MOD-01": "OpenAI-compatible chat completions, Anthropic Messages and OpenAI Responses natively, each with thinking, tools, images, caching, native errors.",
            "MOD-02": "`response_format` in YAML and `output_type` in Python: validated, one repair, then a typed error.",
            "DUR-01": "`serve` keeps sessions and runs in one SQLite file by default; memory and PostgreSQL by configuration; one contract suite.",
            "DUR-02": "`kill -9` at any moment: no acknowledged message lost or doubled, no tool carried out twice, every begun call answered honestly, the conversation goes on.",
            "DUR-03": "Any replica serves any request: attach, replay, stop, approve, delete; one run at a time per session; a dead replica's runs go on or end properly.",
            "DUR-04": "`--workers N` on one machine without a further service.",
            "DUR-05": "A session that is unknown or expired is said to be new, a cut run is said to be cut, on every wire and page.",
            "DUR-06": "The cost of a turn does not grow with turns that the model is not shown; memory is bounded by bytes, not only by counts.",
            "MOD-03": "Every event, log line, metric and cost names the model that answered.",
            "FAC-01": "OpenAI Chat Completions and `/v1/models`.",
            "FAC-02": "OpenAI Responses with state, background and resume.",
            "FAC-03": "Vercel AI SDK UI message stream, with resume and approvals.",
            "FAC-04": "The agent as an MCP server, both eras, over HTTP and stdio.",
            "FAC-05": "A2A 1.0 and 0.3, JSON-RPC and HTTP+JSON, with push notifications.",
            "FAC-06": "One session id on every wire and in the terminal; a run started on one is followed, stopped and approved on any other.",
            "FAC-07": "A middleware, a limit, an approval and an error mean the same on every wire.",
            "USE-01": "Installed by name (`holodeck-agents`, command and import `holodeck`); the two commands of the README hold on a fresh machine.",
            "USE-02": "One-shot questions, stdin, attachments, tools from the shell.",
            "USE-03": "Python: load, ask, stream, plain functions as tools, approvals, mount in an ASGI app.",
            "USE-04": "Files in the formats engineers have reach the model; nothing is dropped without a word.",
            "USE-05": "Container, manifests, unit, dashboards, deployment page.",
        }.items()
    ),
    Requirement(
        "ACC-07",
        "An approval is a yes only if it says yes; anything else is a no or a typed error, on every wire.",
        "requirements.md, ACC",
    ),
)
