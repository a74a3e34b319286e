"""What an attacker cannot do to the server, or to those who use it (T)."""

from tests.requirement_lists.requirement import Requirement

THREATS = (
    Requirement(
        "T01",
        "Remote config of stdio commands (client may name command/args/env/cwd) → No endpoint accepts a server definition. Commands only from the agent YAML on disk, exec with list args, no shell, env allow-list (PATH, HOME, LANG + named), fixed cwd. No blocklists.",
        "reliability 2",
    ),
    Requirement(
        "T02",
        'Client chooses upstream base URL / key exfiltration → extra="forbid"-like allow-list on the OpenAI endpoint; ignore/deny api_base, base_url, api_key, extra_headers, model outside the list',
        "reliability 2",
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
    ),
    Requirement(
        "T05",
        "Missing auth on one route or one legacy twin → Route table is enumerated; every route carries an explicit policy public|user|admin; app refuses to start otherwise",
        "reliability 2",
    ),
    Requirement(
        "T06",
        "SQL/NoSQL/key injection in key lookup or store → Only bound parameters; Redis keys built from hashed/validated ids; API keys stored as SHA-256/HMAC and looked up by digest, compared in constant time",
        "reliability 2",
    ),
    Requirement(
        "T07",
        "DNS rebinding / drive-by to a local server → Bind 127.0.0.1; Host allow-list always on; Origin checked on every state-changing request and on the playground; JSON content type required (no simple requests)",
        "reliability 2",
    ),
    Requirement(
        "T08",
        "CORS * with credentials → Default: pages of this machine (loopback origins); cross-site requests of browsers need an allowed origin. * has to be typed, is allowed only without credentials and without cookie auth; the combination is a start-up error. Playground same-origin; token in header, not cookie",
        "reliability 2",
    ),
    Requirement(
        "T09",
        "Bind 0.0.0.0 unauthenticated → Default 127.0.0.1; non-loopback bind without auth = exit 2 with the sentence how to fix it; --insecure-no-auth has to be typed",
        "reliability 2",
    ),
    Requirement(
        "T10",
        "Cross-user access by id (IDOR) → Every store call takes the principal; key = (tenant,user,session); another's id → same 404 body as unknown; ids >= 128 bit random; user id never from body, header or prompt; **tool user-id is injected by code, not by the model**",
        "reliability 2",
    ),
    Requirement(
        "T11",
        "Cross-user leak through cancelled connections / shared state → Never share a connection between tasks; on cancel, discard the connection; context-vars not globals; no per-process mutable agent state",
        "reliability 2",
    ),
    Requirement(
        "T12",
        "JWT confusion → joserfc; one configured algorithm family per issuer; require exp, iss, aud, sub; ignore jku/x5u/jwk; max 8 kB token; JWKS fetch with pinned URL, cache, min refresh 5 min",
        "reliability 2",
    ),
    Requirement(
        "T13",
        "Token pass-through / confused deputy to MCP → The client's token is never forwarded; MCP credentials from config, bound to the server's origin; refuse non-https (except loopback); never open a URL from a server",
        "reliability 2",
    ),
    Requirement(
        "T14",
        "SSRF by file URL / image_url / redirect / rebinding / NAT64 → URL inputs off by default (url in BinaryInputContent → 400). If on: host allow-list, own resolver, every address is_global incl. mapped/NAT64, connect to the checked address, <= 3 redirects each re-checked, 10 s, byte cap while reading",
        "reliability 2",
    ),
    Requirement(
        "T15",
        "Limits applied after reading → bytes are counted as they arrive and on Content-Length; 413 at once; sizes of texts and of JSON are known before anything is decoded twice; only JSON and multipart accepted",
        "reliability 2",
    ),
    Requirement(
        "T16",
        "Multipart parser DoS / traversal → >= 0.0.33; caps: 10 files, 20 fields, 64 kB field, 8 kB headers; client filename is display text only, never a path; temp file by random name in a private dir",
        "reliability 2",
    ),
    Requirement(
        "T17",
        "Slow-loris, connection and stream hoarding → header 10 s, body 30 s or >= 1 kB/s, idle keep-alive 5 s, 2 pipelined requests, 1,000 connections per address, per-IP and per-user stream caps, global cap → 503 + Retry-After",
        "reliability 2",
    ),
    Requirement(
        "T18",
        "Unbounded parameters → Every int/list/str bounded in the schema; n=1; sessions per user <= 10,000 by default, LRU; tools <= 128; JSON depth <= 64",
        "reliability 2",
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
        due=8,  # results are not marked as data, and the budget of a run does not count money
    ),
    Requirement(
        "T27",
        "Client supplies system/assistant/tool messages, tools, state (AG-UI RunAgentInput) → On a session that has messages, server history wins: from the client only *new* user messages are taken, or a rewind; on an unknown one texts and calls of its own tools are adopted and marked, never server tools, never approvals (sessions.client_history); system/developer roles refused; tool results accepted only for open frontend tool-call ids of this run; frontend tools may not shadow server tools; state size <= 256 kB, JSON-patch <= 100 ops",
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
    ),
    Requirement(
        "T31", "X-Forwarded-For / proxy header spoofing → Trust only configured proxies; else ignore", "reliability 2"
    ),
    Requirement(
        "T32",
        "Request smuggling → httptools/h11 newest; refuse both CL and TE, and every Transfer-Encoding but one chunked; behind proxy docs",
        "reliability 2",
    ),
    Requirement(
        "T33",
        "Supply chain → Few dependencies, hash-locked, --require-hashes, no auto-update in CI with secrets, no .pth files in the tree, 7-day cooldown on new releases, SBOM",
        "reliability 2",
        due=8,  # versions are pinned without hashes, and there is no SBOM
    ),
    Requirement(
        "T34",
        "Static files / Range DoS / traversal in the playground → Few files, in memory, hashed names; no directory serving",
        "reliability 2",
    ),
    Requirement(
        "T35",
        "Malicious YAML (shared agent file) → safe_load, alias/anchor bomb limit, 256 kB, extra=forbid; serve prints commands it will run; --dry-run; first-run consent hash for stdio commands in the CLI",
        "reliability 2",
    ),
    Requirement(
        "T36",
        "Replay / duplicate submit → Idempotency-Key / AG-UI run_id unique per user",
        "reliability 2",
    ),
)
