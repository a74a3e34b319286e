"""The loop: ask the model, act on what it asks for, until it has answered.

`run` is one coroutine that returns its answer and emits its story. Every limit is checked here, every ending is told
here. It does not know who listens, over which wire the request came, or how messages are kept.
"""

import asyncio
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from holodeck.agent.agent import Agent
from holodeck.agent.budget import Spending
from holodeck.agent.compaction import Compaction
from holodeck.agent.context import AgentContext
from holodeck.agent.emitter import RunEmitter, reason_for_cut
from holodeck.agent.kept_results import READ_RESULT, KeptResults
from holodeck.agent.pending import Decision, decide
from holodeck.agent.prediction import Predictor, announcement
from holodeck.agent.prompting import initial_state, prompt_for
from holodeck.agent.response import AgentResponse, Status
from holodeck.agent.tool_calls import Batch, ToolRunner
from holodeck.core.events import HISTORY, TOOLS_UNAVAILABLE, CustomSent, Emit, Interrupt, MessagesReplaced, Outcome
from holodeck.core.ids import new_ulid
from holodeck.core.messages import AssistantMessage, Message, PendingStep, ToolCall, can_be_answered, now
from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.errors import (
    BadToolArguments,
    ContentFiltered,
    HoloDeckError,
    InternalError,
    InvalidRequest,
    RunTimeout,
)
from holodeck.models.port import ModelReply, Prompt
from holodeck.resilience.step_timeout import StepTimeout
from holodeck.tools.port import ToolContext
from holodeck.tools.state import UPDATE_STATE, StateToolset

log = logging.getLogger(__name__)

FILES = "holodeck.files"  # the custom event that says what the model received of each file
OWN_TOOLS = (READ_RESULT.name, UPDATE_STATE.name)  # tools that the loop itself brings
REPAIR_TURNS = 2  # how often in a row a model may send arguments that cannot be used


async def run(agent: Agent, context: AgentContext, emit: Emit) -> AgentResponse:
    """Runs the agent once. Raises nothing but CancelledError, and that only after the story has its ending."""
    one = _Run(agent, context, emit)
    try:
        return await one.go_in_time()
    except asyncio.CancelledError:
        one.emit_cancelled()
        raise
    except HoloDeckError as error:
        return one.emit_failed(error)
    except Exception:  # the one place where a defect of ours becomes an ending instead of a dead stream
        log.exception("run %s broke", context.run_id)
        return one.emit_failed(InternalError("The run failed because of an internal error; the server's log has it."))


@dataclass
class _Run:
    agent: Agent
    context: AgentContext
    emit: Emit
    iterations: int = 0
    text: str | None = None
    warnings: list[str] = field(default_factory=list)
    unusable_turns: int = 0

    def __post_init__(self) -> None:
        context, conversation = self.context, self.context.conversation
        self.emitter = RunEmitter(
            self.emit,
            run_id=context.run_id,
            session_id=context.session_id,
            used_call_ids=_call_ids(conversation.messages, conversation.pending),
        )
        self.state = StateToolset(initial_state(self.agent.state, context), self.emit) if self.agent.state else None
        self.spending = Spending(self.agent.loop.budget)
        self.compaction = Compaction(self.agent, conversation, self.emitter, self.spending)
        kept = KeptResults(self.agent.max_result_characters)
        self.tools = ToolRunner(
            catalogue=self.agent.catalogue,
            state=self.state,
            spending=self.spending,
            kept=kept,
            emitter=self.emitter,
            context=ToolContext(
                user_id=context.user_id,
                session_id=context.session_id,
                run_id=context.run_id,
                timezone=context.timezone,
                emit=self.emit,
            ),
            attempts=1 + self.agent.loop.retry_attempts if self.agent.loop.enable_retry else 1,
            max_characters=self.agent.max_result_characters,
        )

    # the run, read aloud

    async def go_in_time(self) -> AgentResponse:
        seconds = self.agent.loop.run_timeout
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self.go()
        except TimeoutError:
            if not limit.expired():
                raise  # somebody else's, and a defect
            raise RunTimeout(f"The run took longer than {seconds:g} s (loop.run_timeout).", "run_timeout") from None

    async def go(self) -> AgentResponse:
        self.emitter.run_started(parent_run_id=self.context.parent_run_id, model=self.agent.model.name)
        self._warn_of_withdrawn_tools()
        self._emit_files()
        self._emit_state()
        await self._settle()
        await self._accept()
        self._emit_history(if_client_lacks_some=True)
        for number in range(1, self.agent.loop.max_iterations + 1):
            self.iterations = number
            await self.compaction.before_step()
            response = await self._step(number)
            if response is not None:
                return response
        return self._out_of_iterations()

    async def _step(self, number: int) -> AgentResponse | None:
        """One model call and the tool calls it asks for. A response ends the run."""
        self.emitter.step_started(number)
        seconds = self.agent.loop.iteration_timeout
        try:
            async with StepTimeout(seconds, lambda: self.emitter.silent):
                batch, reply = await self._ask()
                await self._act(batch)
        except TimeoutError:
            raise RunTimeout(f"Iteration {number} took longer than {seconds:g} s (loop.iteration_timeout).") from None
        self.emitter.step_finished(reply.usage)
        if batch.waits:
            return await self._wait_for_input(batch, reply)
        await self._keep(batch)
        if not batch.assistant.tool_calls:
            return self._completed(reply)
        self._count_unusable(batch)
        self.spending.check()
        return None

    async def _ask(self) -> tuple[Batch, ModelReply]:
        """The model's reply as a batch of calls. What it said before it failed is kept, marked as cut."""
        prompt = self._prompt()
        try:
            reply = await self.agent.model.reply(prompt, self._listener())
        except (asyncio.CancelledError, HoloDeckError) as error:
            await self._keep_partial(reason_for_cut(error))
            raise
        self.emitter.reply_ended()
        self.spending.model_call(prompt, reply)
        if reply.finish_reason == "content_filter":
            await self._keep_partial("content_filter")
            raise ContentFiltered("The provider's content filter stopped the reply.", started=True)
        cut = "length" if reply.finish_reason == "length" else None
        self._warn_of(cut)
        self.text = reply.text or self.text
        message = AssistantMessage(
            id=self.emitter.message_id,
            content=reply.text,
            reasoning=reply.reasoning,
            tool_calls=() if cut else tuple(self.emitter.own(call) for call in reply.tool_calls),
            tokens_used=reply.usage,
            cut=cut,
            extra=reply.extra,
        )
        return Batch(message), reply

    async def _act(self, batch: Batch) -> None:
        if not batch.assistant.tool_calls:
            await self._keep_state()
            return
        try:
            await self.tools.run(batch, self.context.client_tools)
        except BaseException:  # cancelled or out of time: the step is stored whole, then the exception goes on
            self.tools.abandon(batch)
            await self._keep(batch)
            raise
        finally:
            await self._keep_state()

    # before the first step

    async def _accept(self) -> None:
        conversation, new = self.context.conversation, self.context.input
        if not can_be_answered(new or conversation.messages):
            raise InvalidRequest("There is no message to answer.", field="messages")
        if new:
            await conversation.commit(list(new))

    async def _settle(self) -> None:
        """Brings a step that waited for somebody to its end, with what they answered."""
        conversation = self.context.conversation
        pending = conversation.pending
        decision = decide(pending, self.context.resume, self.context.client_results)
        if pending is None:
            return
        batch = Batch(decision.applied_to(pending.assistant), {result.call_id: result for result in pending.results})
        # Taken before anything is carried out: a resume that comes twice finds nothing to approve.
        await conversation.commit([], msgspec.structs.replace(pending, approvals={}, client_calls=()))
        try:
            async with asyncio.timeout(self.agent.loop.iteration_timeout):
                await self._carry_out(batch, decision)
        except TimeoutError:
            log.warning("approved calls of run %s ran out of time", self.context.run_id)
        finally:
            self.tools.abandon(batch)
            await self._keep(batch)
            await self._keep_state()

    async def _carry_out(self, batch: Batch, decision: Decision) -> None:
        for message in decision.client_results:
            self.tools.take(batch, message)
        for call, text in decision.refused:
            self.tools.answer(batch, call, ToolResult.failure(text))
        await self.tools.run_approved(batch, decision.approved)

    # what the model is shown, and who hears it

    def _prompt(self) -> Prompt:
        offered = self.tools.offered()
        server_tools = [entry.schema for entry in offered.values()]
        return prompt_for(self.agent, self.context, [*server_tools, *self._client_tools(offered)], self.state)

    def _client_tools(self, ours: Container[str]) -> list[ToolSchema]:
        """Frontend tools that do not take the name of one of ours."""
        return [schema for schema in self.context.client_tools if schema.name not in ours]

    def _listener(self) -> RunEmitter | Predictor:
        if self.agent.state is None or not self.agent.state.predictions:
            return self.emitter
        return Predictor(self.emitter, self.agent.state.predictions)

    # keeping

    async def _keep(self, batch: Batch) -> None:
        if batch.assistant.content or batch.assistant.tool_calls or batch.assistant.extra:
            await self._commit(batch.messages())

    async def _keep_partial(self, cut: str) -> None:
        said = self.emitter.said()
        self.emitter.reply_ended()
        if said.strip():
            await self._commit([AssistantMessage(id=self.emitter.message_id, content=said, cut=cut)])

    async def _commit(self, messages: Sequence[Message], pending: PendingStep | None = None) -> None:
        """A run that is cancelled meanwhile still stores the step whole: stores promise it."""
        await self.context.conversation.commit(messages, pending)

    async def _keep_state(self) -> None:
        if self.state is not None:
            await self.context.conversation.put_state(self.state.value)

    def _emit_files(self) -> None:
        if self.context.files:
            self.emit(CustomSent(FILES, msgspec.to_builtins(list(self.context.files))))
        if self.context.history_note:
            self.emit(CustomSent(HISTORY, dict(self.context.history_note)))

    def _emit_state(self) -> None:
        if self.state is None:
            return
        self.state.tell()
        if self.agent.state is not None and self.agent.state.predictions:
            self.emit(announcement(self.agent.state.predictions))

    def _emit_history(self, *, if_client_lacks_some: bool) -> None:
        """Shows the client our history, unless that would take from it messages that we do not have."""
        theirs = self.context.client_ids
        if theirs is None:
            return
        history = tuple(self.context.conversation.messages)
        ours = {message.id for message in history}
        if theirs <= ours and not (if_client_lacks_some and ours == theirs):
            self.emit(MessagesReplaced(history))

    # limits and warnings

    def _count_unusable(self, batch: Batch) -> None:
        self.unusable_turns = self.unusable_turns + 1 if batch.all_unusable else 0
        if self.unusable_turns > REPAIR_TURNS:
            raise BadToolArguments(
                f"The model sent unusable tool calls {self.unusable_turns} times in a row.", started=True
            )

    def _warn_of_withdrawn_tools(self) -> None:
        if withdrawn := self.agent.catalogue.withdrawn():
            names = ", ".join(withdrawn)
            self._warn(TOOLS_UNAVAILABLE, f"Not available at the moment, because they keep failing: {names}.")

    def _warn_of(self, cut: str | None) -> None:
        if cut == "length":
            self._warn("reply-cut", "The reply was cut off at the model's token limit (model.max_tokens).")

    def _warn(self, code: str, message: str) -> None:
        self.warnings.append(message)
        self.emitter.warning(code, message)

    # endings

    def _completed(self, reply: ModelReply) -> AgentResponse:
        self.text = reply.text
        if not reply.text:
            self.warnings.append("The model answered with nothing.")
        if self.tools.executions:
            self._emit_history(if_client_lacks_some=False)
        self.emitter.run_finished(
            finish_reason=reply.finish_reason,
            iterations=self.iterations,
            usage=self.spending.usage,
            warning=self._warning(),
        )
        return self._response("completed", finish_reason="length" if reply.finish_reason == "length" else "completed")

    async def _wait_for_input(self, batch: Batch, reply: ModelReply) -> AgentResponse:
        expires = now() + timedelta(seconds=self.agent.approval_seconds)
        interrupts = tuple(_question(call, expires) for call in batch.approvals)
        await self._commit(
            [],
            PendingStep(
                assistant=batch.assistant,
                results=tuple(batch.results.values()),
                approvals={interrupt.id: interrupt.call_id for interrupt in interrupts},
                client_calls=tuple(call.id for call in batch.on_client),
                expires_at=expires,
            ),
        )
        outcome = Outcome.INTERRUPTED if interrupts else Outcome.CLIENT_TOOLS
        self.emitter.run_finished(
            outcome=outcome,
            finish_reason=reply.finish_reason,
            iterations=self.iterations,
            usage=self.spending.usage,
            interrupts=interrupts,
            pending_calls=tuple(call.id for call in batch.on_client),
            warning=self._warning(),
        )
        return self._response("completed", finish_reason=outcome.value, outcome=outcome)

    def _out_of_iterations(self) -> AgentResponse:
        limit = self.agent.loop.max_iterations
        self._warn("max-iterations", f"Stopped after {limit} iterations (loop.max_iterations) without a final answer.")
        self.emitter.run_finished(
            outcome=Outcome.MAX_ITERATIONS,
            finish_reason="max_iterations",
            iterations=self.iterations,
            usage=self.spending.usage,
            warning=self._warning(),
        )
        return self._response("max_iterations_reached", finish_reason="max_iterations", outcome=Outcome.MAX_ITERATIONS)

    def emit_failed(self, error: HoloDeckError) -> AgentResponse:
        self.emitter.run_failed(error, self.spending.usage)
        self.text = None
        return self._response("error", finish_reason="error", error=error.message, error_code=error.code)

    def emit_cancelled(self) -> None:
        forced_by = self.context.why_stopped()
        if forced_by is not None:
            self.emitter.run_failed(forced_by, self.spending.usage)
        else:
            self.emitter.run_finished(
                outcome=Outcome.CANCELLED,
                finish_reason="cancelled",
                iterations=self.iterations,
                usage=self.spending.usage,
            )

    def _warning(self) -> str | None:
        return " ".join(self.warnings) or None

    def _response(self, status: Status, **fields: Any) -> AgentResponse:
        return AgentResponse(
            status=status,
            final_response=self.text,
            history=tuple(self.context.conversation.messages),
            iterations=self.iterations,
            warning=self._warning(),
            usage=self.spending.usage,
            executions=tuple(self.tools.executions),
            **fields,
        )


def _question(call: ToolCall, expires: Any) -> Interrupt:
    return Interrupt(
        id=new_ulid(),
        call_id=call.id,
        tool=call.name,
        arguments=call.arguments,
        message=f"Allow {call.name} with {call.arguments or '{}'}?",
        expires_at=expires,
    )


def _call_ids(messages: Sequence[Message], pending: PendingStep | None) -> set[str]:
    waiting = [pending.assistant] if pending else []
    replies = [message for message in messages if isinstance(message, AssistantMessage)]
    return {call.id for message in [*replies, *waiting] for call in message.tool_calls}
