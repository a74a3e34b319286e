"""A store on a file with what a killed process left in it, and a server that starts on it."""

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core import events as e
from holodeck.core.messages import AssistantMessage, ToolCall, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.models.scripted import ScriptedModel, says
from holodeck.runs.interrupted_runs import InterruptedRuns
from holodeck.runs.port import RunRecord
from holodeck.runs.run_settings import RunSettings
from holodeck.runs.runs import Runs
from holodeck.runs.stored_runs import StoredRuns
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools, echo
from tests.runs.following import more

QUESTION = UserMessage(content="go", id="q", run_id="r")
CALLS = tuple(ToolCall(id=f"c{n}", name="echo", arguments="{}") for n in (1, 2, 3))
REPLY = AssistantMessage(id="a", content="let me see", tool_calls=CALLS, run_id="r")
RECORD = RunRecord(run_id="r", owner=ME, session_id="s", request=RunRequest(run_id="r", messages=(QUESTION,)))
BEGINNING = [
    e.RunStarted("r", "s"),
    e.StepStarted(1),
    e.TextStarted("a"),
    e.TextAdded("a", "let "),
    e.TextAdded("a", "me"),
]
CALLING = [
    *BEGINNING,
    e.TextEnded("a"),
    *(
        event
        for call in CALLS
        for event in (e.ToolCallStarted(call.id, "echo", "a"), e.ToolCallEnded(call.id, "echo", "{}"))
    ),
]


class Restarted:
    """A store on a file, and what a server that starts on it makes of it."""

    def __init__(self, path, *turns, tools=None, **settings):
        self.path, self.turns, self.settings = path, turns or (says("fresh answer"),), settings
        self.tools = tools or PlainTools(echo=echo)

    async def __aenter__(self):
        file = SqliteFile(self.path)
        self.records = SqliteRunStore(file, "tester")
        self.store = SqliteSessionStore(file, "tester", runs=self.records)
        await self.store.start()
        self.model = ScriptedModel(self.turns)
        agent = AgentDefinition(name="tester", model=self.model, tools=Catalogue.of(self.tools))
        self.runs = Runs(agent, self.store, RunSettings(**self.settings), records=self.records)
        self.stored = StoredRuns(self.runs, self.store, self.records)
        self.interrupted = InterruptedRuns(self.runs)
        return self

    async def __aexit__(self, *_):
        await self.runs.close(0)
        await self.store.close()

    async def left(self, *messages, pending=None, events=(), record=RECORD):
        """What a process that was killed leaves behind."""
        self.records.register(record)
        conversation = await self.store.open("s", owner=ME, run_id=record.run_id, create=True)
        if messages:
            await conversation.commit(messages)
        else:
            await self.records.begin(record)
        if pending is not None:
            await conversation.begin_calls(pending)
        conversation.close()
        if events:
            from holodeck.stores import records as bodies

            body, insert = bodies.encode(list(events)), "INSERT INTO pieces SELECT key, 0, ? FROM runs WHERE id = ?"
            await self.store.file.write(lambda connection: connection.execute(insert, (body, record.run_id)).rowcount)

    async def history(self):
        stored = await self.store.read("s", owner=ME)
        assert stored is not None
        return stored.messages


@pytest.fixture
def restarted(tmp_path):
    return lambda *turns, **settings: Restarted(tmp_path / "sessions.db", *turns, **settings)


def events_of(run):
    return [event for part in run.parts for event in part.log.since(0)]


async def follow(server, run):
    server.runs.attach(run)
    events = [event for part in run.parts[:-1] for event in part.log.since(0)]
    number = 0
    while await more(run.log, number):
        new = run.log.since(number)
        events += new
        number += len(new)
    server.runs.detach(run)
    return events
