"""Which model did it: events name the model that answered, also when it is a fallback."""

import pytest

from holodeck.core import events as e
from holodeck.errors import ModelUnreachable
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.models.wrappers import FallbackModel
from tests.agent.parts import Scene


def named(name: str, *turns: Turn) -> ScriptedModel:
    model = ScriptedModel(turns)
    model.name = name
    return model


def scene_with(*models: ScriptedModel) -> Scene:
    scene = Scene()
    object.__setattr__(scene.agent, "model", FallbackModel(models))
    return scene


@pytest.mark.req("MOD-03")
async def test_steps_and_the_ending_name_the_model_that_answered():
    first = named("a/first", calls(("echo", '{"text": "x"}')), Turn(error=ModelUnreachable()))
    scene = scene_with(first, named("b/second", says("Done.")))
    await scene.play("go")
    assert scene.emitted(e.RunStarted)[0].model == "a/first"
    assert [step.model for step in scene.emitted(e.StepFinished)] == ["a/first", "b/second"]
    assert scene.ending.model == "b/second"


async def test_a_failure_names_the_model_that_failed_last():
    names = ("a/first", "b/second")
    scene = scene_with(*(named(name, Turn(error=ModelUnreachable())) for name in names))
    await scene.play("go")
    assert [step.model for step in scene.emitted(e.StepFinished)] == ["b/second"]
    assert isinstance(scene.ending, e.RunFailed)
    assert scene.ending.model == "b/second"


async def test_a_model_without_fallbacks_is_named_as_well():
    scene = Scene(says("Hi."))
    await scene.play("go")
    assert (scene.emitted(e.StepFinished)[0].model, scene.ending.model) == ("scripted", "scripted")
