"""Carries out an example of docs/workflows.md in the environment of its engine: `engine_driver.py dbos|temporal PAGE URL`.

The first answer of each step is lost on its way, so the engine, or this driver in its place, makes the step again. Prints the
answer.
"""

import asyncio
import re
import sys
import tempfile
from pathlib import Path

import httpx2


def example(page: Path, heading: str, url: str) -> str:
    found = re.search(rf"^## {heading}$.*?^```python[^\n]*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1].replace("http://localhost:8000", url)


class LostOnce:
    """A call whose first answer does not arrive."""

    def __init__(self, call):
        self.call, self.made = call, 0

    def _count(self):
        self.made += 1
        if self.made == 1:
            raise httpx2.ReadError("the connection was lost")

    def __call__(self, *arguments, **options):
        answer = self.call(*arguments, **options)
        self._count()
        return answer

    async def awaited(self, *arguments, **options):
        answer = await self.call(*arguments, **options)
        self._count()
        return answer


def dbos(code: str) -> str:
    from dbos import DBOS, SetWorkflowID

    lost = LostOnce(httpx2.post)
    with tempfile.TemporaryDirectory() as folder:
        DBOS(config={"name": "steps", "system_database_url": f"sqlite:///{folder}/steps.sqlite", "log_level": "ERROR"})
        names: dict = {}
        setattr(httpx2, "post", lost)  # noqa: B010  mypy would take it for a mistake
        exec(compile(code, "docs/workflows.md", "exec"), names)
        DBOS.launch()
        with SetWorkflowID("order-17"):
            answer = names["remind"]("order 17")
        DBOS.destroy()
    assert lost.made == 2, f"the step was made {lost.made} times"
    return answer


def temporal(code: str) -> str:
    """The activity alone: its server comes from its makers' site, not from a registry."""
    from temporalio.testing import ActivityEnvironment

    lost = LostOnce(httpx2.AsyncClient.post)
    names: dict = {"__name__": "__main__"}  # a workflow belongs to a module that is there

    async def post(*arguments, **options):  # a method is bound to its client, an object that can be called is not
        return await lost.awaited(*arguments, **options)

    setattr(httpx2.AsyncClient, "post", post)  # noqa: B010  mypy would take it for a mistake
    exec(compile(code, "docs/workflows.md", "exec"), names)

    async def attempts() -> str:
        environment = ActivityEnvironment()
        try:
            return await environment.run(names["ask_agent"], "Remind me of order 17")
        except httpx2.ReadError:
            return await environment.run(names["ask_agent"], "Remind me of order 17")

    return asyncio.run(attempts())


def main() -> None:
    engine, page, url = sys.argv[1:]
    heading = {"dbos": "DBOS", "temporal": "Temporal"}[engine]
    code = example(Path(page), heading, url)
    sys.stdout.write({"dbos": dbos, "temporal": temporal}[engine](code))


if __name__ == "__main__":
    main()
