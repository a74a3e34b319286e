"""Runs examples of the documentation that need other projects' packages. Runs in an environment of its own.

A JSON list of {name, code} on standard input; one line of JSON out for each: {name, printed}. All are run in one process and at the
same time, each in a thread, where `asyncio.run` works as in a program: the demo model takes its time.
"""

import ast
import io
import json
import sys
import threading
import traceback


class Printed(io.TextIOBase):
    """Standard output that keeps apart what each thread prints."""

    def __init__(self) -> None:
        self._own = threading.local()

    def begin(self) -> io.StringIO:
        self._own.text = io.StringIO()
        return self._own.text

    def write(self, text: str) -> int:
        return int(self._own.text.write(text))


def _import(code: str) -> None:
    """Imports what an example imports, before the threads begin: packages that several threads import at once may deadlock."""
    imports: list[ast.stmt] = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), "imports", "exec"), {})


class Example(threading.Thread):
    def __init__(self, name: str, code: str, printed: Printed) -> None:
        super().__init__()
        self.example, self._code, self._printed = name, code, printed
        self.text = io.StringIO()

    def run(self) -> None:
        self.text = self._printed.begin()
        try:
            exec(compile(self._code, self.example, "exec"), {"__name__": "__main__"})
        except BaseException:  # noqa: BLE001  it is printed, and the test shows it
            self.text.write(traceback.format_exc())


def main() -> None:
    output, printed = sys.stdout, Printed()
    given = json.load(sys.stdin)
    for each in given:
        _import(each["code"])
    sys.stdout = printed
    examples = [Example(each["name"], each["code"], printed) for each in given]
    for example in examples:
        example.start()
    for example in examples:
        example.join()
        output.write(json.dumps({"name": example.example, "printed": example.text.getvalue()}) + "\n")


if __name__ == "__main__":
    main()
