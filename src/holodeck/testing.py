"""For tests of your own agents: a model that plays the replies you wrote down.

`Agent(ScriptedModel([calls(("convert", '{"miles": 5}')), says("That is 8 km.")]), tools=[convert])` asks for one tool, then
answers; `model.prompts` holds what it was shown.
"""

from holodeck.models.scripted import ScriptedModel, Turn, calls, says

__all__ = ["ScriptedModel", "Turn", "calls", "says"]
