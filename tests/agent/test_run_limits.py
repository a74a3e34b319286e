"""What a run may take and spend: each limit stops it where it says, with its own code, and leaves a whole history."""

import asyncio

import pytest

from holodeck.agent.budget import NOT_PAID_FOR, Spending
from holodeck.agent.settings import RunBudget
from holodeck.core import events as e
from holodeck.core.messages import ToolCall, ToolMessage, UserMessage
from holodeck.core.request import Resume
from holodeck.core.tools import ToolResult
from holodeck.core.usage import TokenUsage
from holodeck.errors import BudgetExceeded, ModelUnreachable
from holodeck.models.port import ModelReply, Prompt
from holodeck.models.scripted import Turn, calls, says
from holodeck.models.wrappers import GuardedModel
from holodeck.resilience.breaker import CircuitBreaker, CircuitBreakerConfig, Phase
from tests.agent.agent_fixture import AgentFixture, PlainTools, echo, stuck


@pytest.mark.req("A28")
@pytest.mark.parametrize(("budget", "asked", "steps"), [(0, 1, 1), (1, 1, 2), (3, 1, 4), (3, 2, 2), (4, 2, 3)])
async def test_a_budget_of_tool_calls_stops_at_exactly_that_many(budget, asked, steps):
    fixture = AgentFixture(calls(*[("echo", "{}")] * asked), budget={"tool_calls": budget})
    response = await fixture.play("go")
    assert len(fixture.tools.called) == budget
    assert (response.status, response.error_code, response.iterations) == ("error", "budget-exceeded", steps)
    assert (fixture.ending.code, fixture.ending.reason, fixture.ending.retryable) == (
        "budget-exceeded",
        "tool_calls",
        False,
    )
    assert f"{budget} tool_calls (loop.budget.tool_calls)" in fixture.ending.message
    results = [message for message in fixture.conversation.messages if isinstance(message, ToolMessage)]
    assert len(results) == steps * asked
    assert [result.content == NOT_PAID_FOR for result in results] == [False] * budget + [True] * (len(results) - budget)


@pytest.mark.req("A28")
async def test_a_run_that_needs_just_its_budget_is_completed():
    turn = calls(("echo", "{}"), ("echo", "{}"), usage=TokenUsage(prompt_tokens=10, completion_tokens=5))
    end = says("done", usage=TokenUsage(prompt_tokens=20, completion_tokens=5))
    fixture = AgentFixture(turn, end, budget={"tool_calls": 2, "tokens": 60, "seconds": 60})
    response = await fixture.play("go")
    assert (response.status, response.final_response) == ("completed", "done")


async def test_calls_that_are_not_carried_out_anyway_cost_nothing():
    fixture = AgentFixture(
        calls(("echo", "not json")), calls(("nothing", "{}")), says("I see"), budget={"tool_calls": 0}
    )
    assert (await fixture.play("go")).status == "completed"


async def test_approved_calls_are_paid_for_too():
    fixture = AgentFixture(
        calls(("echo", "{}"), ("echo", "{}")),
        says("done"),
        tools=PlainTools(approval=frozenset({"echo"}), echo=echo),
        budget={"tool_calls": 1},
    )
    await fixture.play("go")
    questions = fixture.ending.interrupts
    await fixture.play(resume=[Resume(interrupt_id=each.id, approved=True) for each in questions])
    assert len(fixture.tools.called) == 1
    assert [result.content == NOT_PAID_FOR for result in fixture.emitted(e.ToolFinished)] == [True, False]


@pytest.mark.parametrize(("tokens", "steps"), [(1, 1), (1500, 1), (1501, 1), (1700, 2), (4500, 3)])
async def test_a_budget_of_tokens_stops_after_the_step_that_spent_them(tokens, steps):
    fixture = AgentFixture(
        calls(("echo", "{}"), usage=TokenUsage(prompt_tokens=1000, completion_tokens=500)), budget={"tokens": tokens}
    )
    response = await fixture.play("go")
    assert (fixture.ending.code, fixture.ending.reason, response.iterations) == ("budget-exceeded", "tokens", steps)
    assert fixture.ending.usage.total_tokens == 1500 * steps
    assert len(fixture.tools.called) == steps, "the step that was begun is finished"


async def test_a_step_whose_prompt_does_not_fit_into_the_budget_is_not_begun():
    async def large(arguments, context):
        return ToolResult(content="x" * 4000)

    turn = calls(("large", "{}"), usage=TokenUsage(prompt_tokens=400, completion_tokens=100))
    fixture = AgentFixture(turn, says("done"), tools=PlainTools(large=large), budget={"tokens": 1400})
    response = await fixture.play("go")
    assert (fixture.ending.reason, response.iterations, len(fixture.model.prompts)) == ("tokens", 1, 1)


async def test_an_endpoint_that_does_not_say_what_it_costs_is_estimated():
    spending = Spending(RunBudget(tokens=1000))
    prompt = Prompt(system="s" * 400, messages=(UserMessage(content="m" * 3200),))
    reply = ModelReply(text="t" * 200, tool_calls=(ToolCall(id="c", name="n" * 40, arguments="a" * 100),))
    spending.model_call(prompt, reply)
    spending.check()  # 100 + 800 + 4 + 50 + 35 = 989
    spending.model_call(Prompt(), ModelReply(text="x" * 44))
    with pytest.raises(BudgetExceeded) as caught:
        spending.check()
    assert caught.value.reason == "tokens"


def test_a_budget_of_seconds_lets_no_further_step_begin():
    now = [100.0]
    spending = Spending(RunBudget(seconds=5), clock=lambda: now[0])
    now[0] = 104.9
    spending.check()
    now[0] = 105.0
    with pytest.raises(BudgetExceeded, match=r"budget of 5 seconds \(loop\.budget\.seconds\)"):
        spending.check()


async def test_a_step_that_takes_longer_than_the_budget_of_seconds_is_finished():
    async def slow(arguments, context):
        await asyncio.sleep(0.03)
        return ToolResult(content="slow but there")

    fixture = AgentFixture(calls(("slow", "{}")), tools=PlainTools(slow=slow), budget={"seconds": 0.02})
    response = await fixture.play("go")
    assert (fixture.ending.code, fixture.ending.reason, response.iterations) == ("budget-exceeded", "seconds", 1)
    assert fixture.conversation.messages[-1].content == "slow but there"


@pytest.mark.req("ORC-07")
async def test_run_timeout_cuts_a_run_in_the_middle_of_a_tool():
    fixture = AgentFixture(calls(("stuck", "{}"), ("echo", "{}")), run_timeout=0.5)
    response = await fixture.play("go")
    assert (response.status, response.error_code) == ("error", "timeout")
    assert "0.5 s (loop.run_timeout)" in (response.error or "")
    assert fixture.ending.reason == "run_timeout"
    results = [message for message in fixture.conversation.messages if isinstance(message, ToolMessage)]
    assert [result.failed for result in results] == [True, False]


@pytest.mark.req("ORC-07")
async def test_run_timeout_cuts_a_reply_and_keeps_the_text():
    fixture = AgentFixture(Turn(text=["so far"], pause=asyncio.Event().wait), run_timeout=0.5)
    response = await fixture.play("go")
    assert response.error_code == fixture.ending.code == "timeout"
    assert (fixture.conversation.messages[-1].content, fixture.conversation.messages[-1].cut) == ("so far", "stopped")


async def test_run_timeout_spans_all_steps():
    fixture = AgentFixture(calls(("echo", "{}")), calls(("echo", "{}")), calls(("stuck", "{}")), run_timeout=1)
    response = await fixture.play("go")
    assert (response.error_code, response.iterations) == ("timeout", 3)
    assert "loop.run_timeout" in (response.error or "")


async def test_a_run_that_is_stopped_while_it_has_a_time_limit_is_stopped():
    fixture = AgentFixture(calls(("stuck", "{}")), tools=PlainTools(stuck=stuck), run_timeout=60)
    task = asyncio.current_task()

    def stop(event):
        if isinstance(event, e.ToolCallEnded):
            asyncio.get_running_loop().call_soon(task.cancel)

    with pytest.raises(asyncio.CancelledError):
        await fixture.play("go", on=stop)
    task.uncancel()
    assert fixture.ending.outcome is e.Outcome.CANCELLED


async def test_another_timeout_is_a_defect_not_the_runs_limit():
    fixture = AgentFixture(says("hi"), run_timeout=60)

    def end(messages, pending, *, state, ending):
        raise TimeoutError("the store's own")

    fixture.conversation.end = end
    await fixture.play("go")
    assert fixture.ending.code == "internal-error"


def breaker_once():
    return CircuitBreaker("m", CircuitBreakerConfig(failure_threshold=1))


@pytest.mark.req("A30", "A07")
@pytest.mark.parametrize(("turn", "phase"), [(Turn(text=["words"]), Phase.CLOSED), (Turn(), Phase.OPEN)])
async def test_only_a_model_that_says_nothing_all_the_step_has_failed(turn, phase):
    fixture = AgentFixture(turn, iteration_timeout=0.3)
    breaker, inner = breaker_once(), fixture.model

    class Hanging:
        name = "hanging"

        async def reply(self, prompt, listener):
            await inner.reply(prompt, listener)
            await asyncio.Event().wait()

    object.__setattr__(fixture.agent, "model", GuardedModel(Hanging(), breaker))
    response = await fixture.play("go")
    assert response.error_code == "timeout"
    assert breaker.phase is phase


@pytest.mark.req("ORC-10", "ORC-07")
async def test_an_open_breaker_is_a_clear_end_with_the_time_to_wait():
    fixture = AgentFixture(Turn(error=ModelUnreachable("No connection to the endpoint.")))
    object.__setattr__(fixture.agent, "model", GuardedModel(fixture.model, breaker_once()))
    await fixture.play("go")
    assert fixture.ending.reason == "upstream_unavailable"
    await fixture.play("again")
    assert len(fixture.model.prompts) == 1
    assert (fixture.ending.code, fixture.ending.retryable) == ("model-unavailable", True)
    assert 29 < fixture.ending.retry_after <= 30
