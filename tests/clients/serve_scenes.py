"""Serves the scenes until standard input ends. Says where in one line of JSON: {"plain": address, …}.

`plain` and `state` are the two agents; `forgetful` is the first again, with runs that cannot be read afterwards. The log
goes to standard error.
"""

import asyncio
import json
import sys

from holodeck.agent.definition import AgentDefinition
from holodeck.files.reader import FileReader
from holodeck.runs.run_settings import RunSettings
from holodeck.server.agent_server import AgentServer
from holodeck.server.listen import bind
from holodeck.server.options import ServerSettings
from holodeck.server.process import FLUSH_SECONDS, http_server
from holodeck.server.protocol import HttpServer
from holodeck.server.wires import WIRES
from holodeck.sessions.memory import MemorySessionStore
from holodeck.telemetry import logs
from tests.clients.scenes import agent_with_state, plain_agent
from tests.server.serving import server_block

DETACH_GRACE = 4.0  # enough for a client to come back on a loaded machine; "speak slowly" takes longer
CALLED = "http://127.0.0.1:9"  # for A2A clients that register an address; tasks that have ended call none
STDERR = 2
SERVERS = {
    "plain": (plain_agent, RunSettings(detach_grace=DETACH_GRACE)),
    "state": (agent_with_state, RunSettings(detach_grace=DETACH_GRACE)),
    "forgetful": (plain_agent, RunSettings(detach_grace=DETACH_GRACE, replay_window=0)),
}


async def _started(agent: AgentDefinition, settings: RunSettings) -> tuple[str, AgentServer, HttpServer]:
    protocols = ServerSettings(protocols=tuple(WIRES), block=server_block(push_to=[CALLED]))
    files = FileReader(vision=True)
    server = AgentServer(agent, MemorySessionStore(), settings=protocols, run_settings=settings, files=files)
    await server.start()
    server.serve()
    listener = bind("127.0.0.1", 0)
    http = http_server(server)
    await http.listen([listener])
    return f"http://127.0.0.1:{listener.getsockname()[1]}", server, http


async def main() -> None:
    started = {name: await _started(agent(), settings) for name, (agent, settings) in SERVERS.items()}
    sys.stdout.write(json.dumps({name: address for name, (address, *_) in started.items()}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for _, server, http in started.values():
        await server.drain(0)
        await http.stop(FLUSH_SECONDS)
        await server.close()


if __name__ == "__main__":
    output = logs.configure(fd=STDERR)
    asyncio.run(main())
    output.close()
