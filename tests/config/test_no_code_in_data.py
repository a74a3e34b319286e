"""Nothing that a file, a user or a model says is ever run as code or as a template (T03): read from the source itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent.parent / "src" / "holodeck"
CALLS = {"eval", "exec", "compile", "__import__"}
MODULES = {"pickle", "marshal", "shelve", "dill", "jinja2", "mako", "cloudpickle"}
METHODS = {
    ("yaml", "load"),
    ("yaml", "load_all"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("os", "system"),
    ("os", "popen"),
    ("asyncio", "create_subprocess_shell"),
    ("subprocess", "getoutput"),
}


def offences(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if (owner, name) in METHODS:
                yield f"{owner}.{name}"
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                yield "shell=True"
            case ast.Import(names=names) if {alias.name.split(".")[0] for alias in names} & MODULES:
                yield "import"
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                yield "import"


@pytest.mark.req("T01", "T03")
def test_the_source_evaluates_nothing():
    found = {
        str(path.relative_to(SOURCE)): list(offences(ast.parse(path.read_text()))) for path in SOURCE.rglob("*.py")
    }
    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.parametrize(
    "code",
    [
        "eval('1')",
        "import pickle",
        "from jinja2 import Template",
        "yaml.load(x, Loader=y)",
        "subprocess.run('ls', shell=True)",
        "os.system('ls')",
        "asyncio.create_subprocess_shell('ls')",
    ],
)
def test_the_check_sees_what_it_looks_for(code):
    assert list(offences(ast.parse(code)))
