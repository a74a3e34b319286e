"""The layers, read from the imports: lower ones never know upper ones."""

import ast
import importlib
import inspect
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from holodeck.core.events import AnyEvent, Observer, RunFailed, TextAdded, TextStarted
from holodeck.server.wires import WIRES
from holodeck.wires.reply import EventReader

SOURCE = Path(__file__).parent.parent / "src" / "holodeck"

# What each package may import of holodeck, besides itself. The packages of ARCHITECTURE.md, as a table.
CORE = {"core", "errors", "blocks", "_version"}
PORTS = CORE | {"models", "tools", "sessions", "resilience"}
ALLOWED = {
    "errors": set(),
    "blocks": set(),
    "valkey_pool": set(),
    "core": {"errors"},
    "resilience": CORE,
    "http": set(),
    "models": CORE | {"resilience", "http"},
    "tools": CORE | {"resilience"},
    "sessions": CORE,
    "stores": CORE | {"sessions", "runs", "valkey_pool"},
    "files": CORE | {"http"},
    "agent": PORTS,
    "runs": PORTS | {"agent"},
    "access": CORE | {"http"},
    "limits": CORE | {"valkey_pool"},
    "wires": CORE,
    "telemetry": CORE,
    "config": PORTS | {"agent", "runs", "stores", "files", "wires", "access"},
    "server": PORTS | {"agent", "runs", "wires", "config", "files", "telemetry", "access", "limits", "http"},
    "cli": PORTS | {"agent", "runs", "stores", "config", "server", "telemetry", "access", "wires", "http"},
    "todo": set(),
    "_version": set(),
    "api": PORTS | {"agent", "runs", "config", "files"},
    "asgi": PORTS | {"agent", "config", "server", "api"},
    "testing": {"models"},
    "__init__": PORTS | {"agent", "config", "api", "asgi", "testing"},
    "__main__": {"cli"},
}
THIRD_PARTY_OF_CORE = {"msgspec"}
IMPLEMENTATIONS = {  # named only where everything is put together
    "holodeck.models.chat_completions_model", "holodeck.models.openai_responses.responses_model",
    "holodeck.models.anthropic.messages_model", "holodeck.models.bedrock.converse_model",
    "holodeck.models.vertex.vertex_models", "holodeck.models.demo.model", "holodeck.models.wrappers",
    "holodeck.tools.mcp_toolset", "holodeck.tools.functions", "holodeck.sessions.memory",
}  # fmt: skip


def modules():
    return sorted(SOURCE.rglob("*.py"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports_of(path: Path) -> list[tuple[int, str]]:
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_what_is_below_it(path):
    package = package_of(path)
    assert package in ALLOWED, f"{package} is not in ALLOWED"
    for line, name in imports_of(path):
        if name.startswith("holodeck."):
            other = name.split(".")[1]
            assert other == package or other in ALLOWED[package], f"{path.name}:{line} ({package}) imports {name}"


def test_core_needs_nothing_but_msgspec():
    used = defaultdict(set)
    for path in modules():
        if package_of(path) == "core":
            for _, name in imports_of(path):
                used[name.split(".")[0]].add(path.name)
    import sys

    foreign = {name for name in used if name not in sys.stdlib_module_names and name != "holodeck"}
    assert foreign <= THIRD_PARTY_OF_CORE


def test_only_two_modules_check_signatures_of_tokens():
    """joserfc accepts tokens that our own checks refuse; PyJWT is there for the MCP SDK only."""
    found = {str(path.relative_to(SOURCE)) for path in modules() for _, name in imports_of(path) if name.split(".")[0] in ("joserfc", "jwt", "jose", "authlib")}  # fmt: skip
    assert found == {"access/jwk.py", "access/tokens.py"}


def test_implementations_are_named_only_where_agents_are_put_together():
    for path in modules():
        own = "holodeck." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for line, name in imports_of(path):
            named = {implementation for implementation in IMPLEMENTATIONS if name.startswith(implementation + ".")}
            if named and package_of(path) != "config":
                same_port = own.split(".")[1] == next(iter(named)).split(".")[1]
                assert same_port, f"{path.name}:{line} names {name}"


def test_packages_hold_no_code_in_their_init():
    for path in SOURCE.rglob("__init__.py"):
        if path.parent == SOURCE:
            continue
        body = [node for node in ast.parse(path.read_text()).body if not _is_docstring(node)]
        assert body == [], f"{path} holds code"


def _is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_wires_do_not_wait():
    """Translators are pure and sync: event in, bytes out."""
    for path in modules():
        if package_of(path) == "wires":
            waits = [n for n in nodes_of(path) if isinstance(n, ast.AsyncFunctionDef | ast.Await)]
            assert waits == [], f"{path} awaits"


FORBIDDEN_NAMES = ("Manager", "Handler", "Helper", "Util")


def test_names_say_what_things_are():
    for path in modules():
        assert path.stem not in {"utils", "helpers", "common", "misc"}, path
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                assert not node.name.endswith((*FORBIDDEN_NAMES, "Impl")), f"{path}: {node.name}"
                assert not node.name.startswith(("Base", "Abstract")), f"{path}: {node.name}"


SAME_FILE_NAMES = {  # why modules of this name may exist in several packages; any other name is used once
    "__main__": "what `python -m` runs",
    "port": "the protocol that a package's implementations fulfil",
    "request": "`core` has the request for a run; each wire makes it from bytes",
    "runs": "the routes of the runs that `runs` starts and stops",
    "metrics": "the route of the metrics that `telemetry` counts",
}
NAMED_AFTER_WHAT_THEY_SERVE = {"server/routes", "cli"}  # a module for each route or command: runs, sessions, mcp …


def _has_a_place(path: Path) -> bool:
    """Whether a module is one of a row with the same names elsewhere.

    A wire's folder has a module for each thing that it translates (request, response, stream), and a thing may have both
    a route and a command.
    """
    folder = path.parent.relative_to(SOURCE)
    is_of_wire = folder.parts[:1] == ("wires",) and len(folder.parts) > 1
    return is_of_wire or str(folder) in NAMED_AFTER_WHAT_THEY_SERVE


def test_file_names_are_used_once():
    found = defaultdict(list)
    for path in modules():
        if path.stem != "__init__":
            found[path.stem].append(path)
    doubled = {name for name, paths in found.items() if len(paths) > 1 and not all(map(_has_a_place, paths))}
    unexplained = {name: found[name] for name in doubled - set(SAME_FILE_NAMES)}
    assert unexplained == {}, "two modules of one name mean different things; rename one, or write down why not"
    assert set(SAME_FILE_NAMES) <= doubled, "an explanation is no longer needed"


INDEPENDENT = {"todo"}  # shares nothing with the rest
ALIAS = re.compile(r"_?[A-Z]\w*[a-z]\w*")  # constants have no small letters, type variables may be one letter


def type_names(path: Path) -> Iterator[str]:
    """Classes, type aliases and type variables of a module, private ones too: tracebacks and searches show them."""
    for node in nodes_of(path):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for node in ast.parse(path.read_text()).body:
        blocks = [node, *node.body] if isinstance(node, ast.If) else [node]  # `if TYPE_CHECKING:`
        for each in blocks:
            targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
            yield from (name.id for name in targets if isinstance(name, ast.Name) and ALIAS.fullmatch(name.id))


def doubled_type_names(paths: list[Path]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for path in paths:
        for name in type_names(path):
            found[name].append(path.name)
    return {name: places for name, places in found.items() if len(places) > 1}


def test_names_of_types_are_used_once():
    paths = [path for path in modules() if package_of(path) not in INDEPENDENT]
    assert doubled_type_names(paths) == {}, "two types of one name mean different things; rename one, or import it"


def test_a_type_alias_with_the_name_of_a_class_is_found(tmp_path):
    (tmp_path / "one.py").write_text("class Wire: ...\nKey = int | str\nLIMIT = _MOST = 1\nclass _Row: ...\n")
    (tmp_path / "two.py").write_text(
        "Wire: TypeAlias = dict\nif TYPE_CHECKING:\n    Key = str\nLIMIT = _MOST = 2\n_Key = 3\nclass _Row: ...\n"
    )
    found = doubled_type_names(sorted(tmp_path.iterdir()))
    assert found == {key: ["one.py", "two.py"] for key in ("Wire", "Key", "_Row")}


EVENTS_BY_NAME = {re.sub(r"\B(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(AnyEvent)}


def subclasses_of(cls: type) -> Iterator[type]:
    for each in cls.__subclasses__():
        yield each
        yield from subclasses_of(each)


def readers_of_events() -> list[type]:
    for path in modules():
        if re.search(r"\b(?:Observer|EventReader|ReplyReader)\b", path.read_text()):
            importlib.import_module(".".join(path.relative_to(SOURCE.parent).with_suffix("").parts))
    found = [*subclasses_of(Observer), *subclasses_of(EventReader)]
    return [each for each in found if each.__module__.startswith("holodeck.")]


def misnamed_handlers(cls: type) -> list[str]:
    """Public methods that take one event and are not named as that event is: nothing would call them."""
    misnamed = []
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        parameters = list(inspect.signature(method).parameters.values())
        if name.startswith("_") or len(parameters) != 2:  # itself and the event
            continue
        hint = get_type_hints(method).get(parameters[1].name)
        taken = set(EVENTS_BY_NAME.values()).intersection(get_args(hint) or (hint,))
        if (taken or name in EVENTS_BY_NAME) and EVENTS_BY_NAME.get(name) not in taken:
            misnamed.append(f"{cls.__name__}.{name}")
    return misnamed


def test_every_method_that_takes_an_event_is_named_as_the_event_is():
    """Readers and observers find their handlers by name: one that is misspelt would be silent."""
    found = readers_of_events()
    assert {"Meter", "RunLogger", "TaskReader", "UiMessageEncoder"} <= {each.__name__ for each in found}
    assert [name for each in found for name in misnamed_handlers(each)] == []


def test_a_misspelt_handler_is_found():
    class Misspelt(Observer):
        def text_aded(self, event: TextAdded) -> None: ...
        def text_ended(self, event: TextStarted) -> None: ...
        def run_failed(self, event: RunFailed) -> None: ...

    assert misnamed_handlers(Misspelt) == ["Misspelt.text_aded", "Misspelt.text_ended"]


FORBIDDEN_WORDS = re.compile(
    r"\b(told|tells?|said|heard|hears?|stor(y|ies)|whoever|somebody|nobody|seldom|read aloud|of which|twins?|dearest|crowd)\b",
    re.IGNORECASE,
)


_IN_NAMES = "told|tells?|said|heard|hears?|stor(y|ies)|whoever|somebody|nobody|seldom|twins?|crowd|essence"
FORBIDDEN_IN_NAMES = re.compile(rf"\b({_IN_NAMES})\b", re.IGNORECASE)
FORBIDDEN_ANYWHERE = re.compile(rf"(?<![a-z])({_IN_NAMES})(?![a-z])", re.IGNORECASE)
TEST_CODE = [
    path
    for folder in ("tests", "benchmarks", "docs")
    for path in sorted((SOURCE.parent.parent / folder).rglob("*.py"))
    if not {"node_modules", "venvs"} & set(path.parts)
]


def test_prose_uses_plain_words():
    """Docstrings and comments name an agent and use the field's words (CONTRIBUTING.md, "Rules that a review will ask for")."""
    for path in modules():
        for line, text in _prose(path) if FORBIDDEN_WORDS.search(path.read_text()) else ():  # the tokenizer is slow
            found = FORBIDDEN_WORDS.search(text)
            assert found is None, f"{path}:{line} has {found[0]!r}; write what happens and who does it"


def test_the_playgrounds_comments_use_plain_words():
    for path in sorted((SOURCE / "server" / "playground").glob("*.js")):
        for line, text in enumerate(path.read_text().splitlines(), 1):
            comment = re.search(r"(^|\s)(//|/\*\*|\*) .*", text)
            found = comment and FORBIDDEN_WORDS.search(comment[0])
            assert not found, f"{path}:{line} has {found[0]!r}; write what happens and who does it"


STUMBLES = re.compile(  # phrases that make a reader stop: write continues, again, yourself, is not a …
    r"\b((go|goes|going|went|gone) on|anew|by hand|otherwise than|does the talking|what is none"
    r"|(?<!there )(is|are) no (JSON|UTF-8|text|file|address|event|object|list|message|number|URL|id))\b",
    re.IGNORECASE,
)
OLD_TEXT = "as older versions stored it"  # marks a line with a text that is found in stored sessions


def test_texts_have_no_stumbling_phrases():
    """Everything that users and readers of the source see: docstrings, comments, error texts, help, docs, the playground."""
    root = SOURCE.parent.parent
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    scripts = sorted((SOURCE / "server" / "playground").glob("*.js"))
    for path in (*modules(), *scripts, *pages):
        for line, text in enumerate(path.read_text().splitlines(), 1):
            found = None if OLD_TEXT in text else STUMBLES.search(_without_names(text))
            assert found is None, f"{path}:{line} has {found[0]!r}; write it in other words"


def _without_names(line: str) -> str:
    """The line without the names of tests, which the pages of findings quote."""
    return re.sub(r"tests/[\w/.:\[\]-]+", "", line)


def words_of(name: str) -> str:
    """`mayGo_on` as `may Go on`: an underscore is a letter for \\b."""
    return re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", name)


def unclear_names(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.NAME:
                words = words_of(token.string)
                if FORBIDDEN_IN_NAMES.search(words) or STUMBLES.search(words):
                    yield token.start[0], token.string


def test_names_in_the_playground_use_plain_words():
    for path in sorted((SOURCE / "server" / "playground").glob("*.js")):
        code = re.sub(r'"[^"\n]*"|`[^`]*`', "", path.read_text())  # texts are checked with all others
        found = FORBIDDEN_IN_NAMES.search(words_of(code))
        assert found is None, f"{path.name} has {found[0]!r}: name it by what it is"


def test_names_use_plain_words():
    """A variable, a function or a test is named by what it is, in the field's words."""
    for path in (*modules(), *TEST_CODE):
        text = path.read_text()
        if FORBIDDEN_ANYWHERE.search(text) or STUMBLES.search(words_of(text)):  # few files; the tokenizer is slow
            found = next(unclear_names(path), None)
            assert found is None, f"{path}:{found[0]} {found[1]}: name it by what it is (events, text, result …)"


def test_a_phrase_inside_a_name_is_found(tmp_path):
    path = tmp_path / "names.py"
    path.write_text("may_go_on = goingOn = _anew = 1\ncontinues = ongoing = 'released'\n")
    assert list(unclear_names(path)) == [(1, "may_go_on"), (1, "goingOn"), (1, "_anew")]


def test_the_tests_prose_uses_plain_words():
    for path in TEST_CODE:
        for line, text in _prose(path) if FORBIDDEN_WORDS.search(path.read_text()) else ():
            found = FORBIDDEN_WORDS.search(text)
            assert found is None, f"{path}:{line} has {found[0]!r}; write what happens and who does it"


def _prose(path):
    for node in nodes_of(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for text in filter(None, [ast.get_docstring(node, clean=False)]):
                yield node.body[0].lineno, text
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def test_only_one_module_of_the_server_knows_anonymous_clients():
    """Identity has one source: the principal that `server/identity.py` puts into the scope."""
    found = {path.name for path in (SOURCE / "server").rglob("*.py") if "ANONYMOUS" in path.read_text()}
    assert found == {"identity.py"}


def test_the_clause_that_isolates_owners_is_written_once():
    """Statements of PostgreSQL about one owner's rows use `OF_OWNER`: a copy could lose one of the three columns."""
    texts = {path.name: path.read_text() for path in (SOURCE / "stores").glob("postgres_*.py")}
    clause = "tenant = %(tenant)s AND user_name = %(user)s"
    assert {name: text.count(clause) for name, text in texts.items() if clause in text} == {"postgres_database.py": 1}


def test_limits_and_runs_get_the_spender_and_the_meter_as_arguments():
    """The one context variable is for log lines: no module that counts, admits or starts runs reads it."""
    imported = {path: {name for _, name in imports_of(path)} for path in modules()}
    made = {path.name for path, names in imported.items() if "contextvars.ContextVar" in names}
    assert made == {"log_context.py"}
    reading = {path for path, names in imported.items() if "holodeck.telemetry.log_context.current" in names}
    assert not reading & {SOURCE / "server" / name for name in ("quota.py", "agent_server.py", "app.py")}
    assert {package_of(path) for path in reading} == {"server", "telemetry"}


def test_only_begin_starts_runs():
    starting = {
        path.name
        for path in (SOURCE / "server").rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("runs.start")
    }
    assert starting == {"intake.py"}


def calls_of(node: ast.AST, name: str) -> list[ast.Call]:
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    return [call for call in calls if ast.unparse(call.func).rpartition(".")[2] == name]


def start_lines(source: str) -> dict[str, int]:
    """How many lines each function that makes an `Arrival` needs to start its run."""
    lines, functions = source.splitlines(), [node for node in ast.parse(source).body if isinstance(node, ast.AsyncFunctionDef)]  # fmt: skip
    found = {}
    for function in functions:
        if not calls_of(function, "Arrival"):
            continue
        body = [node for node in function.body if not _is_docstring(node)]
        last = max(i for i, node in enumerate(body) if calls_of(node, "begin"))
        prepared = {ast.unparse(call.args[0]) for call in calls_of(function, "partial")}
        counted = [(body[0].lineno, body[last].end_lineno or 0)]
        counted += [(each.lineno, each.end_lineno or 0) for each in functions if each.name in prepared]
        texts = [line.strip() for first, end in counted for line in lines[first - 1 : end]]
        found[function.name] = len([text for text in texts if text and not text.startswith("#")])
    return found


def test_every_wire_starts_its_runs_in_few_lines():
    """Counts from the first statement of the function that makes the `Arrival` to the one that calls `begin`.

    The function that makes the `RunRequest` after admission is counted too, local or not. Blank lines, comments and the
    signature of the first function are not counted, nor are functions with a subject of their own: decoding a body,
    finding the session of a completion, encoding the answer.
    """
    found = {path.stem: start_lines(path.read_text()) for path in (SOURCE / "server").rglob("*.py")}
    long = {(name, function): n for name, each in found.items() for function, n in each.items() if n >= 15}
    assert not long
    assert {wire.open_encoder.__module__.rpartition(".")[2] for wire in WIRES.values()} <= {name for name, each in found.items() if each}  # fmt: skip


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('async def a(r):\n    """Doc."""\n    # why\n    run = await begin(Arrival(r))\n\n    return run\n', 1),
        ("async def a(r):\n    p = partial(b, r)\n    return await begin(Arrival(r, p))\nasync def b(r):\n    return r\n", 4),
        ("async def a(r):\n    async def b():\n        return r\n    return await i.begin(i.Arrival(r, b))\n", 3),
    ],
)  # fmt: skip
def test_the_lines_of_a_start_are_counted(source, lines):
    assert list(start_lines(source).values()) == [lines]


def test_functions_stay_readable():
    for path in modules():
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno
                assert length <= 60, f"{path}:{node.lineno} {node.name} is {length} lines long"


BROAD = {"Exception", "BaseException"}


def broad_handlers(source: str) -> Iterator[tuple[int, bool]]:
    """The line of each broad `except`, and whether the handler only cleans up: it ends by raising."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(each is None or (isinstance(each, ast.Name) and each.id in BROAD) for each in caught):
                yield node.lineno, isinstance(node.body[-1], ast.Raise)


def unexplained(source: str) -> list[int]:
    lines = source.splitlines()
    return [n for n, raises in broad_handlers(source) if not raises and not re.search(r":  # \S", lines[n - 1])]


def test_a_broad_except_says_why():
    """ARCHITECTURE.md, "Errors". One that only cleans up and raises again needs no reason."""
    found = [f"{path.relative_to(SOURCE)}:{line}" for path in modules() for line in unexplained(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("handler", "lines"),
    [
        ("except Exception:\n    pass", [3]),
        ("except (ValueError, BaseException) as error:\n    print(error)", [3]),
        ("except:\n    pass", [3]),
        ("except Exception:  # a user's own code\n    pass", []),
        ("except BaseException:\n    close()\n    raise", []),
        ("except ValueError:\n    pass", []),
    ],
)
def test_an_unexplained_broad_except_is_found(handler, lines):
    assert unexplained(f"try:\n    run()\n{handler}\n") == lines


OWN_PART = re.compile(r"^\| (?P<part>[^|]*`[^|]+) \| (?P<lines>[\d,]+) \|", re.MULTILINE)
MAX_DRIFT = 0.15  # share by which a figure may differ from the count


def own_parts() -> list[tuple[str, list[str], int]]:
    page = (SOURCE.parent.parent / "ARCHITECTURE.md").read_text()
    section = page.partition("## What we write ourselves")[2]
    rows = [(found["part"], found["lines"]) for found in OWN_PART.finditer(section)]
    assert len(rows) == section.count("\n| ") - 1, "each row names its files in backticks and has a number of lines"
    return [(part, re.findall(r"`([^`]+)`", part), int(lines.replace(",", ""))) for part, lines in rows]


@pytest.mark.parametrize(
    ("part", "globs", "stated"), own_parts(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_lines_of_what_we_write_ourselves_are_right(part, globs, stated):
    files = {glob: sorted(SOURCE.glob(glob)) for glob in globs}
    assert all(files.values()), f"{part}: no file for {[glob for glob in globs if not files[glob]]}"
    counted = sum(len(path.read_text().splitlines()) for paths in files.values() for path in paths)
    assert abs(counted - stated) <= MAX_DRIFT * counted, f"{part}: has {counted} lines; ARCHITECTURE.md says {stated}"


FRAGMENT = re.compile(r"\S  # (of|that|whose|which|besides) ")


def test_a_comment_names_what_it_is_about():
    """`MAX_ROWS = 5_000  # rows per sheet`, not `# of a sheet`: a fragment leaves the subject to the reader."""
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in modules()
        for line, text in enumerate(path.read_text().splitlines(), 1)
        if FRAGMENT.search(text)
    ]
    assert found == []
