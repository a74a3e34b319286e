"""The agent loop: call the model, run the tools that it asks for, repeat until it answers.

`run` is one coroutine that returns the response and emits events. It checks every limit and decides how a run ends;
`RunEnding` stores and shows that. It does not know who reads the events, which wire the request came over, or how
messages are stored.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from holodeck.agent.agent_response import AgentResponse, LoopResult, response_of
from holodeck.agent.budget import Spending
from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.emitter import OverlappingCommit, RunEmitter, reason_for_cut
from holodeck.agent.pending import Decision, decide
from holodeck.agent.prediction import Predictor, announcement
from holodeck.agent.prompting import Compaction, initial_state, length_of, prompt_for, shown, tokens_of_half
from holodeck.agent.run_ending import RunEnding, show_history
from holodeck.agent.structured_output import BadOutputError, repair_request
from holodeck.agent.tool_calls import Batch, KeptResults, ToolRunner, server_tools
from holodeck.core.cancellations import noticing_cancellation
from holodeck.core.events import (
    HISTORY,
    CustomSent,
    Emit,
    Ending,
    Event,
    Outcome,
    RunFailed,
    RunFinished,
    failure,
    questions_of,
    tools_unavailable,
)
from holodeck.core.ids import new_ulid
from holodeck.core.messages import (
    AssistantMessage,
    Message,
    PendingStep,
    ToolMessage,
    can_be_answered,
    now,
    places_of,
    text_of,
)
from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.errors import (
    BadToolArguments,
    ContentFiltered,
    ContextOverflow,
    EmptyReply,
    HoloDeckError,
    InternalError,
    InvalidOutput,
    InvalidRequest,
    ModelError,
    ModelRejected,
    RunTimeout,
    SessionDeleted,
)
from holodeck.models.port import ModelReply, Prompt
from holodeck.sessions.port import KEEP, Conversation
from holodeck.tools.port import ToolContext
from holodeck.tools.shared_state import SharedState

log = logging.getLogger(__name__)

FILES = "holodeck.files"  # the custom event that reports what the model received of each file
ONLY_THOUGHTS = (
    "The model used its whole reply for reasoning and wrote no answer. Raise model.max_tokens, or lower "
    "model.reasoning.effort."
)
PART_NOT_USED = "part-not-used"  # the code of the warning about a part of the user's message
REPAIR_TURNS = 2  # how often in a row a model may send unusable arguments


async def run(agent: AgentDefinition, context: AgentContext, emit: Emit) -> AgentResponse:
    """Runs the agent once. Raises only CancelledError, and only after it emitted an ending."""
    return response_of(await run_once(agent, context, emit))


async def run_once(agent: AgentDefinition, context: AgentContext, emit: Emit) -> LoopResult:
    """As `run`, for callers that need no pydantic model."""
    one, seconds = _Run(agent, context, emit), agent.loop.run_timeout
    limit = None if seconds is None else asyncio.timeout(seconds)
    try:
        async with limit or nullcontext():
            return await one.go()
    except asyncio.CancelledError:
        if (failed := one.overlap.cancelled_by()) is not None:
            return await one.end_failed(failed)
        await one.end_cancelled()
        raise
    except HoloDeckError as error:
        return await one.end_failed(error)
    except Exception as error:  # the one place where a bug of ours becomes an ending instead of a dead stream
        if isinstance(error, TimeoutError) and limit is not None and limit.expired():
            too_long = f"The run took longer than {seconds:g} s (loop.run_timeout)."
            return await one.end_failed(RunTimeout(too_long, "run_timeout"))
        log.exception("run %s failed with an unexpected error", context.run_id)
        return await one.end_failed(InternalError("The run failed because of an internal error; see the server's log."))


@dataclass
class _Run:
    agent: AgentDefinition
    context: AgentContext
    emit: Emit
    iterations: int = 0
    text: str | None = None
    warnings: list[str] = field(default_factory=list)
    unusable_turns: int = 0
    output: Any = None  # the final answer as a JSON value
    typed_output: Any = None  # the same as a value of the agent's output type
    last_calls: Sequence[tuple[str, str, str]] = ()  # the previous step's calls: name, result, arguments
    answers_now: bool = False  # the next model call gets no tools
    most_tokens: int | None = None  # limit for the conversation, after the model found it too long
    model: str | None = None  # the model that answered last, or failed
    client_tools: Sequence[ToolSchema] = ()  # those that the next model call offers
    repair: Sequence[Message] = ()  # messages that ask the model to correct an answer of the wrong form

    def __post_init__(self) -> None:
        context, conversation = self.context, self.context.conversation
        self.emitter = RunEmitter(
            self.emit,
            run_id=context.run_id,
            session_id=context.session_id,
            used_call_ids=_call_ids(conversation.messages, conversation.pending),
        )
        self.overlap = OverlappingCommit(self.emitter)
        self.ending = RunEnding(context, self.emitter, self.overlap)
        self.state = SharedState(initial_state(self.agent.state, context), self._show) if self.agent.state else None
        self.spending = Spending(self.agent.loop.budget)
        self.compaction: Compaction | None = None
        if self.agent.summarize or self.agent.window is not None:
            self.compaction = Compaction(self.agent, context, self.emitter, self.spending)
        kept = KeptResults(self.agent.max_result_characters)
        self.tools = ToolRunner(
            catalogue=self.agent.tools,
            state=self.state,
            spending=self.spending,
            kept=kept,
            emitter=self.emitter,
            context=ToolContext(
                user_id=context.user_id,
                tenant=context.tenant,
                session_id=context.session_id,
                run_id=context.run_id,
                timezone=context.timezone,
                emit=self.emit,
            ),
            attempts=1 + self.agent.loop.retry_attempts if self.agent.loop.enable_retry else 1,
            max_characters=self.agent.max_result_characters,
            begin_calls=partial(_begin_calls, conversation, self.overlap, self.state),
        )

    # main flow

    async def go(self) -> LoopResult:
        steps_before = self.context.steps_before
        await self._begin(is_taken_up=steps_before is not None)
        if self.context.client_ids is not None:
            await show_history(self.context, self.emitter, if_client_lacks_some=True)
        for number in range(1 + (steps_before or 0), self.agent.loop.max_iterations + 1):
            self.iterations = number
            if self.compaction is not None:
                await self.compaction.before_step()
            response = await self._step(number)
            if response is not None:
                return response
        return await self._out_of_iterations()

    async def _step(self, number: int) -> LoopResult | None:
        """Makes one model call and the tool calls that it asks for. Returns a response if the run ends."""
        prompt = self._prompt()
        self.emitter.step_started(number, length_of(prompt))
        seconds = self.agent.loop.iteration_timeout
        try:
            async with asyncio.timeout(seconds) as self.emitter.limit:
                batch, reply = await self._ask(prompt)
                if batch.assistant.tool_calls:
                    await self._act(batch)
        except TimeoutError:
            raise RunTimeout(f"Iteration {number} took longer than {seconds:g} s (loop.iteration_timeout).") from None
        self.emitter.step_finished(reply.usage, self.model)
        if batch.waits:
            return await self._wait_for_input(batch, reply)
        if not batch.assistant.tool_calls:
            return await self._complete(batch, reply) if await self._has_output(batch, reply) else None
        if messages := batch.messages():
            await self.overlap.wait()
            self._store_meanwhile(messages)  # the next model call has started
        self._count_unusable(batch)
        self._notice_repetition(batch)
        self.spending.check(self._prompt)
        return None

    async def _ask(self, prompt: Prompt) -> tuple[Batch, ModelReply]:
        """Asks the model and returns its reply as a batch of calls.

        If the model fails, keeps the text so far, marked as cut.
        """
        try:
            prompt, reply = await self._reply(prompt)
        except (asyncio.CancelledError, HoloDeckError) as error:
            is_refused = isinstance(error, ContextOverflow | ContentFiltered) or getattr(error, "of_request", False)
            with suppress(SessionDeleted):  # a run is stopped when its session is deleted
                await self._keep_partial(reason_for_cut(self._cause_of(error)), is_refused=is_refused)
            raise
        self.model = reply.model or self.agent.model.name
        self.emitter.reply_ended()
        self.spending.model_call(prompt, reply)
        if reply.finish_reason == "content_filter":
            await self._keep_partial("content_filter", is_refused=True)
            raise ContentFiltered("The provider's content filter stopped the reply.", started=True)
        cut = None
        if reply.finish_reason == "length":
            cut = "length"
            self._warn("reply-cut", "The reply was cut off at the model's token limit (model.max_tokens).")
        self.text = reply.text or self.text
        message = AssistantMessage(
            id=self.emitter.message_id,
            content=reply.text,
            reasoning=reply.reasoning,
            tool_calls=() if cut else tuple(map(self.emitter.own, reply.tool_calls)),
            tokens_used=reply.usage,
            cut=cut,
            extra=reply.extra,
        )
        return Batch(message), reply

    def _cause_of(self, error: BaseException) -> BaseException:
        """Why the server stops a run that is cancelled. A client's stop has no cause."""
        return (self.context.why_stopped() or error) if isinstance(error, asyncio.CancelledError) else error

    async def _reply(self, prompt: Prompt) -> tuple[Prompt, ModelReply]:
        """Asks the model. If the conversation is too long for it, asks again with fewer messages."""
        predictions = () if self.agent.state is None else self.agent.state.predict
        while True:
            listener = Predictor(self.emitter, predictions) if predictions else self.emitter
            try:
                if self.context.reserve is not None:
                    await self.context.reserve(prompt)
                return prompt, await self.agent.model.reply(prompt, listener)
            except ModelRejected as error:
                shorter = self._shorter_after(error)
                if shorter is None:
                    raise
                if self.most_tokens is None:
                    what = (
                        "is too long for the model" if isinstance(error, ContextOverflow) else "was refused as a whole"
                    )
                    self._warn("history-shortened", f"The conversation {what}; its oldest messages are left out.")
                self.most_tokens = shorter
                prompt = self._prompt()

    def _shorter_after(self, error: ModelRejected) -> int | None:
        """How many tokens of the conversation to show next: half of it, or only the last turn. None to give up."""
        half = tokens_of_half(shown(self.agent, self.context.conversation, self.most_tokens))
        if error.started or half is None:
            return None
        if isinstance(error, ContextOverflow):
            return half
        return 1 if error.of_request and self.most_tokens is None else None

    async def _has_output(self, batch: Batch, reply: ModelReply) -> bool:
        """Whether the final answer has the required form. If it has not, the model is asked once more."""
        if self.agent.output is None:
            return True
        try:
            self.output, self.typed_output = self.agent.output.read(reply.text)
        except BadOutputError as problem:
            is_last = self.iterations >= self.agent.loop.max_iterations
            if self.repair or is_last or reply.finish_reason == "length":
                await self._commit([msgspec.structs.replace(batch.assistant, cut="invalid_output")])
                advice = " It was cut off; raise model.max_tokens." if reply.finish_reason == "length" else ""
                raise InvalidOutput(
                    f"The model's answer does not have the required form: {problem}.{advice}", started=True
                ) from problem
            self.repair = repair_request(batch.assistant, str(problem))
            self.emitter.warning("output-repaired", f"The answer did not have the required form ({problem}).")
            return False
        return True

    async def _act(self, batch: Batch) -> None:
        try:
            await self.tools.run(batch, self.client_tools)
        except BaseException:  # cancelled or out of time: the step is stored whole, then the exception propagates
            self.tools.abandon(batch)
            with suppress(SessionDeleted):
                await self._keep(batch)
            raise

    # before the first step

    async def _begin(self, *, is_taken_up: bool) -> None:
        """Stores the user's message before it shows RunStarted, unless a pending step comes first.

        The model is asked while the message is being stored; until it is, the emitter keeps all events back. A run that
        `is_taken_up` after a crash is shown and its message is stored, unless the crash came before the pending step.
        """
        pending = self.context.conversation.pending
        if pending is None and not is_taken_up:
            if self.context.resume:
                decide(None, self.context.resume, ())  # refuses a resume of nothing
            if new := self._new_messages():
                self._store_meanwhile(new)
        if is_taken_up:
            self.emitter.started = True
            if self.state is not None:  # a client may have seen a change that was not stored, or lack one that was
                self.state.emit_snapshot()
        else:
            self._emit_beginning()
        if pending is not None:
            try:
                await self._settle()
            except (asyncio.CancelledError, HoloDeckError):
                with suppress(HoloDeckError):
                    await self._store_late(self.context.input)
                raise
            await self._store_late(self._new_messages())

    async def _store_late(self, new: Sequence[Message]) -> None:
        """Stores the user's message after the step that was pending, also if the run has failed in that step.

        The run has shown events by then. So its ending says if the message is not stored.
        """
        self.ending.lacks_message = bool(new)
        if new and self.context.conversation.pending is None:
            storing = asyncio.ensure_future(self._commit(new))
            try:
                await noticing_cancellation(self.ending.durable(storing))  # a stop waits: is the message stored or not?
            finally:
                self.ending.lacks_message = not storing.done() or storing.exception() is not None
                del storing  # the traceback of its error leads to this frame: the cycle would keep the run

    def _new_messages(self) -> Sequence[Message]:
        new = self.context.input
        if not can_be_answered(new or self.context.conversation.messages):
            raise InvalidRequest("There is no message to answer.", field="messages")
        return new

    async def _settle(self) -> None:
        """Completes a pending step: one that waited for a person or the client, or that a crash interrupted."""
        pending = self.context.conversation.pending
        decision = decide(pending, self.context.resume, self.context.client_results)
        if pending is None:
            return
        if decision.client_results:  # their ids are the client's choice
            used = {*places_of(await self.context.conversation.history()), pending.assistant.id}
            decision = decision.with_own_ids(used)
        batch = Batch(decision.applied_to(pending.assistant), {result.call_id: result for result in pending.results})
        try:
            async with asyncio.timeout(self.agent.loop.iteration_timeout):
                await self._carry_out(batch, decision)
        except TimeoutError:
            log.warning("approved calls of run %s timed out", self.context.run_id)
        finally:
            self.tools.abandon(batch)
            await self._keep(batch)

    async def _carry_out(self, batch: Batch, decision: Decision) -> None:
        for message in decision.client_results:
            self.tools.take(batch, message)
        for call, text in decision.refused:
            self.tools.answer(batch, call, ToolResult.failure(text))
        await self.tools.run(batch, approved=decision.approved)  # uses the approvals up before it makes a call

    # the model's prompt and listener

    def _prompt(self) -> Prompt:
        if given := self.context.client_tools:
            ours = server_tools(self.agent)
            self.client_tools = [schema for schema in given if schema.name not in ours]
        withdrawn = self.agent.tools.withdrawn()
        offered = self.tools.with_own(self.agent.tools.offered(withdrawn))
        return prompt_for(
            self.agent,
            self.context,
            [*[entry.schema for entry in offered.values()], *self.client_tools],
            self.state,
            withdrawn=withdrawn,
            added=self.repair,
            most_tokens=self.most_tokens,
            answers_now=self.answers_now or 1 < self.iterations == self.agent.loop.max_iterations,
        )

    # storing

    async def _keep(self, batch: Batch) -> None:
        if messages := batch.messages():
            await self._commit(messages)

    async def _keep_partial(self, cut: str, *, is_refused: bool = False) -> None:
        """Stores the model's text so far. An empty reply marks a message that the provider refused: see `shown`."""
        text = self.emitter.text_so_far()
        self.emitter.reply_ended()
        if is_refused and not text.strip():
            await self._commit([AssistantMessage(id=self.emitter.message_id, cut=cut)])
        elif text.strip():
            await self._commit([AssistantMessage(id=self.emitter.message_id, content=text, cut=cut)])

    async def _commit(self, messages: Sequence[Message]) -> None:
        """Stores a whole step with the current state. A cancellation does not interrupt it: stores guarantee that.

        Stores nothing if another process continues the run: that process has to find it as after a crash.
        """
        if not self.context.is_over():
            await self.context.conversation.commit(self._own(messages), state=self._current_state())

    def _store_meanwhile(self, messages: Sequence[Message]) -> None:
        """Starts to store messages. Until they are stored, the run shows nothing more and calls no tool."""
        self.overlap.begin(self.context.conversation.accept(self._own(messages), state=self._current_state()))

    def _current_state(self) -> Any:
        return KEEP if self.state is None else self.state.value

    def _own(self, messages: Sequence[Message]) -> list[Message]:
        """The messages, with the id of this run if they have none."""
        run_id = self.context.run_id
        return [each if each.run_id else msgspec.structs.replace(each, run_id=run_id) for each in messages]

    # showing

    def _show(self, event: Event) -> None:
        self.emitter.emit(event)

    def _emit_beginning(self) -> None:
        context = self.context
        self.emitter.run_started(
            parent_run_id=context.parent_run_id, model=self.agent.model.name, is_new_session=context.is_new_session
        )
        if withdrawn := self.agent.tools.withdrawn():
            self._show(tools_unavailable(withdrawn))
            self.warnings.append("Some tools are not available at the moment, because they keep failing.")
        if self.context.files:
            self._show(CustomSent(FILES, msgspec.to_builtins(list(self.context.files))))
        if self.context.history_note:
            self._show(CustomSent(HISTORY, dict(self.context.history_note)))
        for unused in self.context.warnings:
            self._warn(PART_NOT_USED, unused)
        if self.state is not None:
            self.state.emit_snapshot()
        if self.agent.state is not None and self.agent.state.predict:
            self._show(announcement(self.agent.state.predict))

    # limits and warnings

    def _count_unusable(self, batch: Batch) -> None:
        self.unusable_turns = self.unusable_turns + 1 if batch.all_unusable else 0
        if self.unusable_turns > REPAIR_TURNS:
            raise BadToolArguments(
                f"The model sent unusable tool calls {self.unusable_turns} times in a row.", started=True
            )

    def _notice_repetition(self, batch: Batch) -> None:
        """Asks for an answer without tools after two equal steps: small models repeat a call forever otherwise."""
        made = [
            (call.name, text_of(batch.results[call.id].content), call.arguments) for call in batch.assistant.tool_calls
        ]
        self.answers_now = _are_equal(made, self.last_calls)
        self.last_calls = made
        if self.answers_now:
            log.info(
                "run %s repeats the same calls with the same results; it continues without tools", self.context.run_id
            )

    def _warn(self, code: str, message: str) -> None:
        self.warnings.append(message)
        self.emitter.warning(code, message)

    # endings: `RunEnding` stores and shows them

    async def _complete(self, batch: Batch, reply: ModelReply) -> LoopResult:
        self.text = reply.text
        if not reply.text.strip():
            self._judge_empty(reply)
        ending = self._finished(finish_reason=reply.finish_reason, output=self.output)
        step, has_called = self._own(batch.messages()), bool(self.tools.executions)
        await self.ending.settle(ending, step, None, state=self._current_state(), shows_history=has_called)
        return self._result(ending)

    def _judge_empty(self, reply: ModelReply) -> None:
        """Raises EmptyReply unless tools ran: their work is done, and a client that retries would do it twice."""
        has_thoughts = reply.reasoning.strip() or (reply.usage is not None and reply.usage.reasoning_tokens)
        why = (
            ONLY_THOUGHTS if has_thoughts or reply.finish_reason == "length" else "The model returned an empty answer."
        )
        stored = self.context.conversation.messages
        if not (self.emitter.tools_ran or (stored and isinstance(stored[-1], ToolMessage))):
            raise EmptyReply(" ".join([*self.warnings, why]))
        self._warn("empty-reply", why)

    async def _wait_for_input(self, batch: Batch, reply: ModelReply) -> LoopResult:
        step = PendingStep(
            assistant=msgspec.structs.replace(batch.assistant, run_id=self.context.run_id),
            results=tuple(batch.results.values()),
            approvals={new_ulid(): call.id for call in batch.approvals},
            client_calls=tuple(call.id for call in batch.on_client),
            expires_at=now() + timedelta(seconds=self.agent.approval_seconds),
            run_id=self.context.run_id,
        )
        ending = self._finished(
            finish_reason=reply.finish_reason,
            outcome=Outcome.INTERRUPTED if step.approvals else Outcome.CLIENT_TOOLS,
            interrupts=questions_of(step),
            pending_calls=step.client_calls,
        )
        await self.ending.settle(ending, pending=step, state=self._current_state())
        return self._result(ending)

    async def _out_of_iterations(self) -> LoopResult:
        limit = self.agent.loop.max_iterations
        self._warn("max-iterations", f"Stopped after {limit} iterations (loop.max_iterations) without a final answer.")
        return await self._end(self._finished(finish_reason="max_iterations", outcome=Outcome.MAX_ITERATIONS))

    async def end_failed(self, error: HoloDeckError) -> LoopResult:
        self.text = None
        return await self._end(self._failed(error))

    async def end_cancelled(self) -> None:
        forced_by = self.context.why_stopped()
        if forced_by is not None:
            await self._end(self._failed(forced_by))
        else:
            await self._end(self._finished(finish_reason="cancelled", outcome=Outcome.CANCELLED))

    async def _end(self, ending: Ending) -> LoopResult:
        await self.ending.force(ending, self._emit_beginning, state=self._current_state())
        return self._result(ending)

    def _finished(self, *, outcome: Outcome = Outcome.COMPLETED, **fields: Any) -> RunFinished:
        cancelled = outcome is Outcome.CANCELLED
        return RunFinished(
            self.context.run_id,
            self.context.session_id,
            outcome,
            iterations=self.iterations,
            usage=self.spending.usage,
            model=self.model,
            warning=None if cancelled else self._warning(),
            **fields,
        )

    def _failed(self, error: HoloDeckError) -> RunFailed:
        if isinstance(error, ModelError):
            self.model = error.model or self.agent.model.name
        return failure(self.context.run_id, self.context.session_id, error, self.spending.usage, self.model)

    def _warning(self) -> str | None:
        return " ".join(self.warnings) or None

    def _result(self, ending: Ending) -> LoopResult:
        executions = tuple(self.tools.executions)
        return LoopResult(ending, self.text, self.iterations, self._warning(), self.typed_output, executions)


async def _begin_calls(
    conversation: Conversation, overlap: OverlappingCommit, state: SharedState | None, step: PendingStep
) -> None:
    """Stores this step before any tool is called, and waits until earlier messages are stored and shown.

    A result may say that the state was changed, so the state is stored with results. Not a method: the tool runner would
    reference the run, which references it.
    """
    kept = KEEP if state is None or not step.results else state.value
    await conversation.begin_calls(step, state=kept)
    await overlap.wait()


def _are_equal(calls: Sequence[tuple[str, str, str]], others: Sequence[tuple[str, str, str]]) -> bool:
    """Compares names and results first: arguments must be parsed to be compared, and they rarely differ alone."""
    return [each[:2] for each in calls] == [each[:2] for each in others] and all(
        _canonical(one[2]) == _canonical(other[2]) for one, other in zip(calls, others, strict=True)
    )


def _canonical(arguments: str) -> str:
    """Normalizes arguments: the result is equal if they differ only in spaces or in the order of their members."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments.strip()


def _call_ids(messages: Sequence[Message], pending: PendingStep | None) -> set[str]:
    waiting = [pending.assistant] if pending else []
    replies = [message for message in messages if isinstance(message, AssistantMessage)]
    return {call.id for message in [*replies, *waiting] for call in message.tool_calls}
