"""Runs examples of the documentation that need other projects' packages. Runs in an environment of its own.

A JSON list of {name, code} on standard input; one line of JSON out for each: {name, printed}. All are run in one process, each in a
thread, where `asyncio.run` works as in a program.
"""

import contextlib
import io
import json
import sys
import threading
import traceback
from typing import Any


def _run(code: str, name: str, printed: io.StringIO) -> None:
    try:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    except BaseException:  # noqa: BLE001  it is printed, and the test shows it
        printed.write(traceback.format_exc())


def main() -> None:
    results: list[dict[str, Any]] = []
    for example in json.load(sys.stdin):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            thread = threading.Thread(target=_run, args=(example["code"], example["name"], printed))
            thread.start()
            thread.join()
        results.append({"name": example["name"], "printed": printed.getvalue()})
    sys.stdout.write("".join(json.dumps(each) + "\n" for each in results))


if __name__ == "__main__":
    main()
