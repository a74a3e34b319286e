"""Faults planted in our own code, one check each: removed, weakened or turned round. The named tests have to notice.

`old` stands exactly once in its file. A mutant whose text is gone is an error too: the table follows the code.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    file: str  # below src/holodeck
    old: str
    new: str
    tests: str
    says: str  # what the planted fault does


LOOP, LIMITS, WAITING = "tests/agent/test_loop.py", "tests/agent/test_run_limits.py", "tests/agent/test_waiting.py"
RUNS, STREAMS, REQUESTS = "tests/runs", "tests/server/test_server_streams.py", "tests/server/test_server_limits.py"
GUARD, MODELS, CALLS = (
    "tests/server/test_server_guard.py",
    "tests/models/test_model_faults.py",
    "tests/models/test_call_assembly.py",
)
READER, BREAKER, FRAMING = (
    "tests/models/test_sse_reader.py",
    "tests/resilience/test_breaker.py",
    "tests/tools/mcp/test_stdio_framing.py",
)
STORES, RECOVERY = "tests/stores tests/runs/test_recovery.py", "tests/runs/test_recovery.py"
DURABLE, FINISHED = "tests/agent/test_durable_steps.py", "tests/runs/test_finished_runs.py"
COMPACTION, SESSIONS = "tests/agent/test_compaction.py", "tests/sessions/test_memory_store.py"
CONNECTIONS, DISKS = "tests/server/test_connection_limit.py", "tests/faults/test_full_disks.py"
SIZES = "tests/wires/test_body_sizes.py"
PIPELINING = "tests/server/test_server_pipelining.py"
BOUND, RULES = "tests/tools/test_bound.py", "tests/tools/test_tool_rules.py"
SHOWN = "tests/faults/test_shown_by_mutants.py"
PASSING_ON = "tests/server/test_server_passing_on.py"
FREED = "tests/faults/test_runs_are_freed.py"
HTTP = "tests/http"
APPROVALS = "tests/server/test_server_approvals.py"
CLIENT_HISTORY = "tests/runs/test_client_history.py tests/server/test_server_client_history.py"
RESTART = "tests/server/test_server_restart.py"
RECEIVED = "tests/wires/agui tests/runs tests/server/test_server_routes.py"
RESPONSES, CHAINS = "tests/wires/openai_responses/test_responses_stream.py", "tests/runs/test_chains.py"
COMPLETIONS = "tests/server/test_completion_sessions.py"

MUTANTS = (
    Mutant("agent/loop.py", "        self._count_unusable(batch)\n", "", LOOP, "unusable calls are repaired for ever"),
    Mutant("agent/loop.py", "tool_calls=() if cut else tuple(", "tool_calls=tuple(", LOOP, "a call that was cut is carried out"),
    Mutant("agent/loop.py", "stored whole, then the exception goes on\n            self.tools.abandon(batch)\n            await self._keep(batch)\n", "stored whole, then the exception goes on\n", LOOP, "a step that is cut in its tools is not kept"),
    Mutant("agent/loop.py", "self.agent.loop.max_iterations + 1", "self.agent.loop.max_iterations + 2", LOOP, "one iteration too many"),
    Mutant("agent/loop.py", "            await self._keep_partial(reason_for_cut(error), is_refused=is_refused)\n", "", LOOP, "what was said before a failure is lost"),
    Mutant("agent/loop.py", "        self.spending.check(self._prompt)\n", "", LIMITS, "a budget that is never checked"),
    Mutant("agent/tool_calls.py", "        await self.begin_calls(self._cut_from_here(batch, begun))\n        try:", "        try:", DURABLE, "a tool is called before the call is stored, and an approval is not used up"),
    Mutant("agent/tool_calls.py", "if not batch.results.keys() >= set(begun):", "if False:", DURABLE, "a result is lost if the process dies beside a slower call"),
    Mutant("agent/loop.py", "        await self._commit(_worth_keeping(batch), ending=ending)\n", "        await self._commit(_worth_keeping(batch))\n", DURABLE, "an ending is shown that is not stored"),
    Mutant("agent/first_commit.py", "            self._emitter.hold()\n", "", DURABLE, "a run shows that it began before its message is stored"),
    Mutant("agent/loop.py", "        await self.first_commit.wait()\n", "", DURABLE, "a tool is called before the message that asked for it is stored"),
    Mutant("agent/first_commit.py", "            self._task.cancel()\n", "            pass\n", DURABLE, "a run goes on whose message could not be stored"),
    Mutant("stores/sqlite_sessions.py", "WHERE key = ? AND epoch = ?", "WHERE key = ? AND epoch >= 0 * ?", STORES, "a late process writes into a session that another has taken over"),
    Mutant("stores/sqlite_sessions.py", "                store.runs.store_with_commit(connection, self._owner, self._run_id, ending, now)", "                pass", STORES, "the ending of a run is not stored with its messages"),
    Mutant("stores/sqlite_file.py", '        connection.execute("ROLLBACK TO task")\n', "        pass\n", STORES, "half of a failed job is kept"),
    Mutant("stores/sqlite_file.py", 'else "ROLLBACK"', 'else "COMMIT"', STORES, "half of a failed job is kept that was alone in its transaction"),
    Mutant("stores/sqlite_sessions.py", "        if not self._changing[owner, session_id]:\n", "        if True:\n", STORES, "a run does not see what the one before it is still storing"),
    Mutant("stores/valkey_link.py", "nomkstream=not piece.is_beginning", "nomkstream=False", STORES, "a log that Valkey forgot goes on from its middle"),
    Mutant("stores/valkey_link.py", 'pipeline.xadd(key, {_SEALED: "1"}, id=_LAST_ID)', "pass", STORES, "a process that was taken for dead adds to its log"),
    Mutant("stores/postgres_commit.py", "AND s.epoch = %(epoch)s AND", "AND", STORES, "a late process writes into a session that another has taken over"),
    Mutant("stores/postgres_runs.py", "WHERE key = %(run)s AND replica = %(replica)s AND ended IS NULL", "WHERE key = %(run)s", STORES, "a process that was taken for dead stores what its run does"),
    Mutant("stores/postgres_runs.py", "AND (other.state = 'running' OR other.key < runs.key)", "AND other.key < 0", STORES, "runs of one session do not wait for those of other processes"),
    Mutant("stores/postgres_runs.py", " WHERE replicas.id = gone.id AND replicas.beats = gone.beats", " WHERE replicas.id = gone.id", STORES, "a process that has just shown that it is alive is taken over"),
    Mutant("runs/recovery.py", "text = unknown if call.id in step.begun else NOT_MADE", "text = NOT_MADE", RECOVERY, "a call that may have taken effect is reported as not made"),
    Mutant("runs/recovery.py", "        if message.id not in known\n", "", RECOVERY, "a question is stored twice after a crash"),
    Mutant("runs/stored_runs.py", "may_go_on and remains.is_certain and", "may_go_on and", RECOVERY, "a run goes on although a call may have taken effect"),
    Mutant("runs/stored_runs.py", "max(parts[-1].first_number // HOLE, record.recovered) + 1", "parts[-1].first_number // HOLE + 1", RECOVERY, "numbers of a part that was never copied are used again after the next crash"),
    Mutant("runs/stored_runs.py", "first_number=block * HOLE", "first_number=parts[-1].next_number", RECOVERY, "numbers of events that were shown are used again"),
    Mutant("agent/pending.py", "if call.id in pending.begun:", "if False:", DURABLE, "a call that may have taken effect is said not to be made"),
    Mutant("runs/runs.py", "            timer.cancel()  # else", "            pass  # else", FINISHED, "finished runs are kept until the end of the replay window, however many"),
    Mutant("runs/runs.py", "messages=tuple(new[first_of_use(new) :]))", "messages=run.request.messages)", FINISHED, "a finished run keeps what the client sent"),
    Mutant("sessions/memory.py", "0 if wanted >= kept.message_count else kept.steps.start_of_last(wanted)", "0", FINISHED, "a run reads the whole history"),
    Mutant("agent/tool_calls.py", "return result.failed and result.retryable and (", "return result.failed or (", SHOWN, "calls that failed for good are repeated"),
    Mutant("agent/tool_calls.py", " and (result.unsent or schema.repeatable)", "", LOOP, "a call that may have taken effect is repeated"),
    Mutant("tools/mcp_session.py", "                call.sent = True\n", "                pass\n", "tests/tools/mcp/test_mcp_calls.py", "a call that was sent passes for one that was not, and is repeated"),
    Mutant("core/json_patch.py", "if self.spent_values > self._max_values or self.spent_bytes > self._max_bytes:", "if False:", "tests/agent/test_state.py", "a patch may double the shared state without end"),
    Mutant("agent/context.py", "if not is_owner_name(self.user_id):", "if False:", LOOP, "a NUL makes a user id another user's"),
    Mutant("http/dial.py", ", context=Context())", ")", HTTP, "a kept connection keeps the run that dialled it"),
    Mutant("tools/functions.py", "if not isinstance(event, EMITTED_BY_TOOLS):", "if False:", "tests/tools/test_functions.py", "a tool ends the run's stream"),
    Mutant("tools/functions.py", "self._redact(clean(str(error)))", "clean(str(error))", "tests/tools/test_functions.py", "a secret in an exception reaches the client"),
    Mutant("agent/tool_calls.py", "elif entry.schema.approval is Approval.ALWAYS:", "elif False:", WAITING + " tests/agent", "a call is made without asking for approval"),
    Mutant("agent/budget.py", "self._calls <= self._budget.tool_calls", "self._calls <= self._budget.tool_calls + 1", LIMITS, "one call more than was paid for"),
    Mutant("agent/emitter.py", "        self._close_reasoning()\n        self._close_text()\n        own_id", "        self._close_reasoning()\n        own_id", LOOP, "a call begins inside an open text"),
    Mutant("agent/emitter.py", "call_id if call_id not in self._used_call_ids else new_call_id()", "call_id", LOOP, "a call id is used twice in a story"),
    Mutant("agent/emitter.py", "for call_id, pieces in self._open_calls.items():", "for call_id, pieces in ():", LOOP, "a call stays open when its reply breaks"),
    Mutant("agent/pending.py", "if entry.interrupt_id in answers:", "if False:", WAITING + " tests/agent", "an interrupt is answered twice"),
    Mutant("agent/pending.py", "at > pending.expires_at", "at < pending.expires_at", WAITING + " tests/agent", "only expired approvals count"),
    Mutant("agent/pending.py", "if pending is None or entry.interrupt_id not in pending.approvals:", "if pending is None:", WAITING + " tests/agent tests/runs", "foreign interrupts are taken"),
    Mutant("core/request.py", "return answer if isinstance(answer, bool) else None", "return answer is not False", APPROVALS, "an answer that is not a no counts as a yes"),
    Mutant("core/request.py", "return approved if isinstance(approved, bool) and isinstance(arguments, dict) else None", "return approved is not False", APPROVALS, "an answer in other words counts as a yes"),
    Mutant("runs/log.py", "if number < self._dropped:", "if False:", RUNS, "events that are gone are replayed wrongly"),
    Mutant("runs/log.py", "            self.ended = True", "            self.ended = bool(self._waiting)", RUNS, "an ending that nobody waits for is not noticed"),
    Mutant("runs/log.py", "self._dropped += half", "self._dropped += 0", RUNS, "numbers of events shift when the log is shortened"),
    Mutant("runs/session_queue.py", "        if not queue:\n            ticket.set_result(None)\n", "        ticket.set_result(None)\n", RUNS, "two runs of a session at the same time"),
    Mutant("runs/session_queue.py", "                await asyncio.shield(self._ticket)", "                pass", RUNS, "runs of one session do not wait for each other"),
    Mutant("runs/runs.py", "if run.readers == 0 and not run.log.ended and not run.request.detached:", "if False:", RUNS, "a run without readers goes on for ever"),
    Mutant("runs/runs.py", "self.settings.when_busy is WhenBusy.REJECT and", "self.settings.when_busy is WhenBusy.QUEUE and", RUNS, "busy sessions queue and reject the wrong way round"),
    Mutant("runs/runs.py", "run = self._runs.get((owner, run_id))", "run = next((r for (_, i), r in self._runs.items() if i == run_id), None)", RUNS, "a run can be read by another user"),
    Mutant("runs/client_history.py", "or theirs != ours[: len(theirs)]", "", CLIENT_HISTORY, "a client with gaps in its history rewinds ours"),
    Mutant("runs/client_history.py", "if call.name in own_tools}", "}", CLIENT_HISTORY, "calls of server tools are taken from a client"),
    Mutant("runs/client_history.py", ".difference(server_tools)", "", CLIENT_HISTORY, "a client's tool may have the name of one of ours"),
    Mutant("core/messages.py", "isinstance(last, AssistantMessage) and last.cut is None", "False", CLIENT_HISTORY, "a model is asked with its own answer last"),
    Mutant("runs/runs.py", "or not answers <= asked", "", CLIENT_HISTORY, "an answer to another question continues a run"),
    Mutant("runs/client_history.py", "and sent[start - 1].id not in known", "", RECEIVED, "a message that is stored is stored again"),
    Mutant("runs/client_history.py", "isinstance(sent[start - 1], UserMessage) and ", "", RECEIVED + " tests/agent", "words in the assistant's mouth hide the user's"),
    Mutant("server/stream.py", "if unsent < self._unsent:", "if True:", STREAMS, "a reader that takes nothing is never cut off"),
    Mutant("server/stream.py", "final=last and run_log.has_ending and not cursor.has_pending", "final=last and told.ended", STREAMS + " tests/wires/rest tests/wires/chat_stream", "a long replay ends after its first batch"),
    Mutant("server/stream.py", "            waiter.set_exception(", "            repr(", PASSING_ON, "a stream that cannot go on hangs"),
    Mutant("server/stream.py", "            run_log.do_not_call(soon)", "            pass", PASSING_ON, "who leaves a silent run stays in memory"),
    Mutant("server/stream.py", ", context=self._context)", ")", PASSING_ON, "what a middleware logs names another request"),
    Mutant("http/client_connection.py", "        elif len(data) >= A_LOT:\n            self._yield_to_loop()\n", "", HTTP, "a server that sends without end starves the others"),
    Mutant("http/client_connection.py", "exc is None and not dropped and self._response is not None and not self._is_framed()", "self._response is not None", HTTP, "half an answer is taken for a whole"),
    Mutant("http/client_connection.py", "            self._usable = False  # an answer to nothing", "            pass", HTTP, "an answer to nothing is taken for the next one"),
    Mutant("http/client_connection.py", "self._head_size > LONGEST_HEAD", "False", HTTP, "a head that never ends fills the memory"),
    Mutant("http/client_connection.py", "context.run(sink, piece)", "sink(piece)", HTTP, "who takes an answer does not know for whom"),
    Mutant("http/client.py", "if unsent or not connection.reusable", "if not connection.reusable", HTTP, "a request follows half of another"),
    Mutant("http/client.py", "if loop is not self._loop:", "if self._loop is None:", HTTP, "connections of a loop that is gone are used"),
    Mutant("http/client.py", "and connection.idle_until > now ", "", HTTP, "connections are used that waited too long"),
    Mutant("http/dial.py", "server_hostname=name", "server_hostname=None", HTTP, "any certificate will do"),
    Mutant("http/unpacking.py", "if len(unpacked) > MOST:", "if False:", HTTP, "a bomb goes off"),
    Mutant("files/fetch.py", "if not addresses or not all(", "if not addresses or not any(", "tests/files/test_file_fetch.py", "a name with two faces leads into our network"),
    Mutant("files/fetch.py", "address.user is not None or ", "", "tests/files/test_file_fetch.py", "a password goes along to a host"),
    Mutant("server/protocol.py", "return not self.flow.write_paused and", "return True and", PASSING_ON, "a reader that is slow fills the memory"),
    Mutant("server/stream.py", "            stop_watching()", "            pass", FREED, "a response keeps itself and the log of its run"),
    Mutant("server/stream.py", "if self._connection.transport.is_closing():", "if False:", STREAMS, "a client that left before its stream began is never missed"),
    Mutant("server/protocol.py", " or self.pipeline)", ")", STREAMS, "an answer is written into the middle of another"),
    Mutant("runs/runs.py", "        run.release()\n        self._live.discard(run)", "        pass\n        self._live.discard(run)", FREED, "a run keeps itself"),
    Mutant("server/metered_body.py", "if self._size > self._max:", "if False:", REQUESTS, "a chunked body may be of any size"),
    Mutant("server/metered_body.py", "if int(declared) > max_body:", "if False:", SHOWN, "a declared body may be of any size"),
    Mutant("server/metered_body.py", "max(0.0, self._begun + self._limits.body_seconds", "max(0.0, now + self._limits.body_seconds", SHOWN, "drips keep a body alive"),
    Mutant("server/guard.py", "if len(hosts) != 1:", "if not hosts:", GUARD, "two Host headers pass"),
    Mutant("server/guard.py", 'if preflight or scope["method"] not in SAFE_METHODS:', "if preflight:", GUARD, "foreign pages may post"),
    Mutant("server/guard.py", "_HOST.fullmatch(host)", "_HOST.match(host)", GUARD, "a Host with a path in it passes"),
    Mutant("server/protocol.py", "if self._head_size > self.limits.max_head:", "if False:", REQUESTS, "a head without end is read"),
    Mutant("server/protocol.py", "        super().connection_made(transport)\n        self._arm(self.limits.head_seconds)\n", "        super().connection_made(transport)\n", REQUESTS, "a silent connection stays open"),
    Mutant("models/assembly.py", "if latest.given_id is not None or named_twice:", "if named_twice:", CALLS, "two calls with different ids are merged"),
    Mutant("models/assembly.py", "if cut and not (call.name and call.has_whole_arguments()):", "if False:", CALLS + " " + MODELS, "half a call is taken for a whole"),
    Mutant("models/sse_reader.py", "if size > self._max:", "if False:", READER + " " + MODELS, "an event may be of any size"),
    Mutant("models/sse_reader.py", 'self._after_cr = chunk.endswith(b"\\r")', "self._after_cr = False", READER, "a CRLF that is cut ends two lines"),
    Mutant("models/sse_reader.py", "return chunk.removeprefix(_BOM)", "return chunk", READER, "a byte order mark spoils the first event"),
    Mutant("resilience/breaker.py", "self._failures >= self.config.failure_threshold", "self._failures > self.config.failure_threshold", BREAKER, "one failure too many before it opens"),
    Mutant("resilience/breaker.py", "self._trials >= self.config.half_open_max_calls", "self._trials > self.config.half_open_max_calls", BREAKER, "one trial too many"),
    Mutant("resilience/breaker.py", "breaker is not None and breaker._era == self._era else None", "breaker is not None else None", BREAKER, "late outcomes of another state count"),
    Mutant("tools/bound.py", "if name in self._declared or _spelling(name) not in self._spellings", "if True", BOUND, "the model may set a bound argument under another spelling"),
    Mutant("tools/rules.py", "return self.approval.get(ALL, schema.approval)", "return schema.approval", RULES, "a tool that a server adds later needs no approval"),
    Mutant("tools/rules.py", "return not _matches(name, self.exclude) and (", "return (", RULES, "an excluded tool is offered"),
    Mutant("tools/catalogue.py", "if self._owners.get(name) is source:", "if True:", "tests/tools/test_catalogue.py", "a server takes over another's tool by its name"),
    Mutant("tools/stdio_framing.py", "if len(self._line) > self._limit:", "if False:", FRAMING, "a line may be of any size"),
    Mutant("tools/stdio_framing.py", 'self._head, self._tail, self.discarded = None, b"", 0', 'self._head, self._tail = None, b""', FRAMING + " tests/tools/mcp/test_mcp_calls.py", "what was thrown away is never forgotten"),
    Mutant("tools/stdio.py", "self._answer(_id_in(line.head, line.tail), line.head, why)", "pass", "tests/tools/mcp/test_mcp_calls.py", "a call whose answer was thrown away waits for its timeout"),
    Mutant("agent/compaction.py", "if not (left_out := len(rest)", "if (left_out := len(rest)", COMPACTION, "what fits is summed up, what does not is not"),
    Mutant("agent/compaction.py", "        self._spending.model_call(prompt, reply)\n", "", COMPACTION, "a summary costs nothing"),
    Mutant("agent/compaction.py", "            self._given_up = True\n", "", COMPACTION, "a summary that failed is asked for with each step"),
    Mutant("agent/summary.py", '[{"role": "summary", "text": before.content}]', "[]", COMPACTION, "the summary before is forgotten"),
    Mutant("agent/summary.py", 'if reply.finish_reason == "content_filter":', "if False:", COMPACTION, "half a summary that was filtered is used"),
    Mutant("agent/prompting.py", "    return [*recalled(summary), *latest(", "    return [*latest(", COMPACTION, "the model is not shown the summary"),
    Mutant("sessions/memory.py", "self._clock() >= kept.expires and not kept.users", "self._clock() >= kept.expires", SESSIONS, "a session expires in the middle of a run"),
    Mutant("sessions/memory.py", "for kept in among if not kept.users", "for kept in among", SESSIONS, "a session is dropped in the middle of a run"),
    Mutant("sessions/memory.py", "len(theirs) >= self._max_per_user", "len(theirs) > self._max_per_user", SESSIONS, "a user has one conversation too many"),
    Mutant("server/connection_limit.py", "if over <= 0 and", "if over <= 1 and", CONNECTIONS, "one connection too many is served"),
    Mutant("server/protocol.py", "            transport.abort()\n\n    def connection_lost", "            pass\n\n    def connection_lost", CONNECTIONS, "connections far beyond the limit stay"),
    Mutant("server/protocol.py", "        self.connection_limit.leave(self._address)\n", "", CONNECTIONS, "a connection that is gone keeps its place"),
    Mutant("server/protocol.py", "self._whole_app if asks_how_it_is else too_many_connections", "too_many_connections", CONNECTIONS, "monitors are turned away"),
    Mutant("server/quota.py", "elif isinstance(event, HistoryCompacted):", "elif False:", "tests/scenarios/test_long_conversations.py", "summaries are not charged to anybody"),
    Mutant("server/quota.py", "elif isinstance(event, StepFinished):", "elif isinstance(event, StepFinished) and event.usage:", "tests/server/test_server_quota.py", "a step that broke off is free"),
    Mutant("server/uploads.py", "except OSError as error:", "except ZeroDivisionError as error:", DISKS, "a full disk is an internal error"),
    Mutant("files/extraction.py", "view = view[file.write(view[:_WRITE]) :]", "file.write(view[:_WRITE]); view = view[_WRITE:]", DISKS, "a document is cut where the disk is full"),
    Mutant("server/app.py", '        scope["app"] = self\n', '        scope["app"], scope["answer"] = self, (answer, scope)\n', FREED, "a request keeps itself"),
    Mutant("resilience/idle_timeout.py", "if late > LATE:", "if False:", "tests/models/test_patience.py", "the model is blamed for a pause of our own"),
    Mutant("server/protocol.py", "if self._waiting or self._started == STARTED_AT_ONCE:", "if False:", PIPELINING, "a burst of requests holds up the event loop"),
    Mutant("server/protocol.py", 'if cycle.scope["raw_path"] in FOR_MONITORS:', "if False:", PIPELINING, "monitors wait behind a burst"),
    Mutant("server/protocol.py", "if len(self.pipeline) >= MAX_PIPELINED:", "if False:", PIPELINING, "any number of requests waits on one connection"),
    Mutant("server/protocol.py", "        super().connection_lost(exc)\n        self._release()\n", "        super().connection_lost(exc)\n", PIPELINING, "requests of a lost connection wait for a full garbage collection"),
    Mutant("server/protocol.py", 'if codings and codings != [b"chunked"]:', "if False:", "tests/server/test_server_framing.py", "a body in several codings is read as chunked"),
    Mutant("server/protocol.py", "        self._check_head()\n", "", REQUESTS, "a head that comes in one read may be of any size"),
    Mutant("server/connection_limit.py", "if over <= 0 and over_client <= 0:", "if over <= 0:", CONNECTIONS, "one address has all connections"),
    Mutant("server/guard.py", "        self._check_site(scope, origin, is_static=is_static)\n", "", GUARD, "pages of other sites may read what needs no preflight"),
    Mutant("server/guard.py", "_LOOPBACK_PAGE.fullmatch(origin)", "_LOOPBACK_PAGE.match(origin)", GUARD, "a page of localhost.evil.example is taken for one of this machine"),
    Mutant("wires/body.py", "if len(body) > MAX_MENDED_BODY:", "if False:", SIZES, "megabytes of half surrogates are decoded twice"),
    Mutant("wires/agui/decode.py", "if sum(lengths) > allowed or max(lengths, default=0) > max_text:", "if False:", SIZES, "a message may have any amount of text"),
    Mutant("wires/body.py", "        if len(body) > MAX_PLAIN_BODY:\n            raise", "        if False:\n            raise", SIZES, "a body without files may have any size"),
    Mutant("server/quota.py", '        if not self.authenticated and self.network is not None:\n            yield "user"', '        if self.owner.is_anonymous and self.network is not None:\n            yield "user"', "tests/server/test_server_quota.py", "a name in a body frees a client from its address"),
    Mutant("server/stream.py", "if unsent < self._unsent:", "if False:", PASSING_ON, "a reader that is slow is cut off like a dead one"),
    Mutant("models/reported_window.py", "        return room_for_history(window, self._max_tokens)\n", "        return None\n", "tests/models/test_reported_window.py", "a window that the endpoint reports is not used"),
    Mutant("models/anthropic/message_request.py", "    if prompt.output is not None:\n", "    if False:\n", "tests/models/anthropic/test_messages_model.py", "an answer by a schema is asked for without the schema"),
    Mutant("files/reader.py", 'if "audio" not in self._native:', "if False:", "tests/files/test_file_reader.py", "audio is sent to models that do not listen"),
    Mutant("wires/agui/translate.py", '    model = {"metadata": {"model": event.model}} if profile is Profile.FULL and event.model else {}\n    return ({"type": "STEP_FINISHED"', '    model: Wire = {}\n    return ({"type": "STEP_FINISHED"', "tests/wires/agui/test_agui_encode.py", "clients are not shown which model answered"),
    Mutant("server/quota.py", 'Share(f"{kind}-streams", subject, each.streams)', 'Share(f"{kind}-streams", str(id(spender)), each.streams)', "tests/server/test_server_quota.py", "any number of responses at a time"),
    Mutant("server/quota.py", "        await self._check_stored(spender)\n", "", "tests/server/test_server_spending.py", "a tenant stores more than it may"),
    Mutant("cli/conversation/remote_chat.py", "self._stopping = asyncio.create_task(self._context.server.stop(self._run_id))", "reply.cancel()", "tests/cli/test_remote_chat.py", "Ctrl+C leaves the run going at the server"),
    Mutant("access/page_session.py", "if claims is None or not await self.spend(claims.name):", "if claims is None:", "tests/access/test_page_session.py", "a sign-in code is worth many tokens"),
    Mutant("runs/kept_answers.py", "if pending is None or pending.run_id != run.run_id:\n                return ()", "if pending is None:\n                return ()", "tests/runs/test_kept_answers.py", "an answer is kept for a step that asks something else"),
    Mutant("runs/stored_runs.py", "        for call in self.on_taken_up:\n            call(run)\n", "", RESTART, "the end of a run that a crash cut is not pushed"),
    Mutant("stores/sqlite_values.py", 'connection.execute(f"DELETE FROM kept_values WHERE {_NAMED} AND expires <= ?", (*names, now))\n            return self._insert', "return self._insert", "tests/contracts/test_values.py", "a value whose time is over keeps its names taken"),
    Mutant("access/tickets.py", "if claims is None or claims.run_id != run_id:", "if claims is None:", "tests/server/test_server_tickets.py", "a ticket reads every run of its owner"),
    Mutant("config/known_secrets.py", "for choice in (config.agent.model, *config.agent.model.fallback):", "for choice in (config.agent.model,):", "tests/server/test_server_secrets.py", "keys of fallback models are in the log"),
    Mutant("stores/stored_conversation.py", "self._begin_write(steps, parts, ending, cut)", "self._begin_write(steps, parts, ending, None)", "tests/contracts/test_session_store.py", "an edited message leaves what it replaces"),
    Mutant("stores/stored_conversation.py", 'cut = self._cut if steps or parts.get("pending") is not None else None', "cut = self._cut", "tests/contracts/test_session_store.py", "an edit that failed takes the old turn with it"),
    Mutant("models/streamed.py", "            lessons, mode = learned, other_mode or mode\n", "            lessons, mode = learned, other_mode or mode\n            self._keep(lessons, mode)\n", "tests/models/test_model_exchange.py", "a refusal that quotes one user changes what all others are asked with"),
    Mutant("agent/loop.py", "            raise EmptyReply(", "            self.warnings.append(", LOOP, "an empty answer is a success on some wires"),
    Mutant("server/agent_server.py", "self.runs.busy + self.arriving >= ", "self.runs.busy >= ", "tests/server/test_server_routes.py", "many uploads at a time become too many runs"),
    Mutant("runs/stored_runs.py", " and refusal is None", "", RECOVERY, "a run goes on after a crash though its key was revoked"),
    Mutant("tools/catalogue.py", "source.guarded, source.names_checked = bool(found), all_known and not found", "source.guarded, source.names_checked = bool(found) and all_known, all_known and not found", RULES, "a rule with a typing mistake guards nothing while another server is down"),
    Mutant("telemetry/logs.py", 'start = self._redact(_json(line["details"]))[:', 'start = _json(line["details"])[:', "tests/telemetry/test_logs.py", "a long line is cut before its secrets are masked"),
    Mutant("wires/openai_responses/stream.py", "if self._number > self._after:", "if self._number >= self._after:", RESPONSES, "a stream that is resumed repeats a frame"),
    Mutant("wires/openai_responses/builder.py", " or self._tools.needs_approval(event.name):", ":", RESPONSES, "a call that waits for a person is shown as made"),
    Mutant("runs/branches.py", "if not in_progress and head_of(stored) == run_id:", "if True:", CHAINS, "an earlier answer is continued in the midst of another conversation"),
    Mutant("runs/branches.py", "if follows is not None and head_of(conversation) != follows:", "if False:", CHAINS, "two that continue the same answer mix"),
    Mutant("server/completion_sessions.py", "if visible(sent[: first_of_use(sent)]) == visible(stored.messages):", "if True:", COMPLETIONS, "a request for a title enters the conversation"),
)  # fmt: skip
