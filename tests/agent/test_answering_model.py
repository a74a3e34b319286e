"""Which model did it: events name the model that answered, also when it is a fallback."""

import pytest

from holodeck.core import events as e
from holodeck.errors import ModelUnreachable
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.models.wrappers import FallbackModel
from tests.agent.agent_fixture import AgentFixture


def named(name: str, *turns: Turn) -> ScriptedModel:
    model = ScriptedModel(turns)
    model.name = name
    return model


def fixture_with(*models: ScriptedModel) -> AgentFixture:
    fixture = AgentFixture()
    object.__setattr__(fixture.agent, "model", FallbackModel(models))
    return fixture


@pytest.mark.req("MOD-03")
async def test_steps_and_the_ending_name_the_model_that_answered():
    first = named("a/first", calls(("echo", '{"text": "x"}')), Turn(error=ModelUnreachable()))
    fixture = fixture_with(first, named("b/second", says("Done.")))
    await fixture.play("go")
    assert fixture.emitted(e.RunStarted)[0].model == "a/first"
    assert [step.model for step in fixture.emitted(e.StepFinished)] == ["a/first", "b/second"]
    assert fixture.ending.model == "b/second"


async def test_a_failure_names_the_model_that_failed_last():
    names = ("a/first", "b/second")
    fixture = fixture_with(*(named(name, Turn(error=ModelUnreachable())) for name in names))
    await fixture.play("go")
    assert [step.model for step in fixture.emitted(e.StepFinished)] == ["b/second"]
    assert isinstance(fixture.ending, e.RunFailed)
    assert fixture.ending.model == "b/second"


async def test_a_model_without_fallbacks_is_named_as_well():
    fixture = AgentFixture(says("Hi."))
    await fixture.play("go")
    assert (fixture.emitted(e.StepFinished)[0].model, fixture.ending.model) == ("scripted", "scripted")
