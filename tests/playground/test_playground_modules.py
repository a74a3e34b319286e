"""The page's files: what the server sends, and what the modules do without a browser."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from holodeck.config.validation_errors import known_keys
from holodeck.server.options import ServerSettings
from holodeck.server.routes import playground as route
from tests.playground.webdriver import missing
from tests.server.serving import served

HERE = Path(__file__).parent
SOURCE = Path(route.__file__).parents[1] / "playground"
MODULES = sorted(SOURCE.glob("*.js"))
FILES = sorted(path for path in SOURCE.iterdir() if path.is_file() and path.suffix != ".ts")  # types are not served
MAX_LINES = 400


def test_the_modules_pass_their_own_tests():
    node = shutil.which("node")
    if node is None:
        missing("Node.js")
    done = subprocess.run([str(node), "--test", *map(str, sorted((HERE / "unit").glob("*.mjs")))], capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert int(re.search(r"^. pass (\d+)", done.stdout, re.MULTILINE)[1]) > 100


def test_hints_name_keys_that_an_agent_file_has():
    named = re.findall(r"\(([a-z]+)\.([a-z_]+)\)", (SOURCE / "hints.js").read_text())
    assert ("model", "endpoint") in named
    assert [each for each in named if each[1] not in known_keys((each[0],))] == []


@pytest.mark.timeout(300)  # the compiler needs several seconds of an idle processor
def test_the_types_of_the_modules_agree():
    checker = HERE / "node_modules" / "typescript" / "bin" / "tsc"
    node = shutil.which("node")
    if node is None or not checker.exists():
        missing("TypeScript")
    assert all(path.read_text().startswith("// @ts-check\n") for path in MODULES)
    done = subprocess.run([str(node), str(checker), "--project", str(HERE)], capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.req("T25")
async def test_the_page_is_sent_with_a_strict_policy():
    async with served() as s:
        async with s.get("/", Accept="text/html,*/*") as answer:
            page, headers = await answer.text(), answer.headers
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "connect-src": "'self'",
            "img-src": "'self' data:",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-DNS-Prefetch-Control"] == "off"
        loaded = re.findall(r'(?:src|href)="(playground/[^"]+)"', page)
        assert {path.rpartition("/")[2] for path in loaded} == {path.name for path in FILES} - {route.PAGE}
        for path in loaded:
            async with s.get(f"/{path}") as answer:
                assert answer.status == 200
                assert "immutable" in answer.headers["Cache-Control"]
                assert answer.headers["Content-Security-Policy"] == headers["Content-Security-Policy"]


async def test_a_page_that_is_known_is_not_sent_again():
    async with served() as s:
        async with s.get("/", Accept="text/html") as answer:
            etag = answer.headers["ETag"]
        async with s.get("/", **{"Accept": "text/html", "If-None-Match": etag}) as answer:
            assert answer.status == 304
            assert await answer.read() == b""
        for path in (
            "/playground/0/app.js",
            f"/playground/{route.playground().version}/..%2fapp.py",
            "/playground/app.js",
        ):
            async with s.get(path) as answer:
                assert answer.status == 404


STEPS = (
    "..",
    "%2e%2e",
    ".%2e",
    "..%2f..",
    "%2e%2e%2f%2e%2e",
    "..%5c..",
    "....",
    "..;",
    "%252e%252e",
    "..%c0%af..",
    "..%00",
)
GOALS = ("etc/passwd", "app.py", "playground/index.html", "routes/playground.py", "pyproject.toml")


@pytest.mark.req("T34")
async def test_no_address_leads_out_of_the_files_of_the_page():
    version = route.playground().version
    folders = ("/playground", f"/playground/{version}", "/docs")
    tried = [f"{folder}/{step}/{goal}" for folder in folders for step in STEPS for goal in GOALS]
    tried += [
        f"{folder}{more}" for folder in folders[:2] for more in ("/", "//app.js", "/.", "/*", "/app.js/", "/app.js%00")
    ]
    tried += [f"/playground/{version}/{name}" for name in ("index.html", "APP.JS", "__init__.py", "%61pp.js%20", "-")]
    async with served() as s:
        found = {}
        for path in tried:
            reader, writer = await s.connect()  # a client library would tidy the address up
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            found[path] = (await reader.read()).split(b"\r\n")[0]
            writer.close()
    served_twice = f"/playground/{version}/app.js/"  # a slash at the end changes nothing, here as elsewhere
    assert {path: line for path, line in found.items() if b" 404 " not in line} == {served_twice: b"HTTP/1.1 200 OK"}
    assert len(found) > 150


@pytest.mark.req("T34")
@pytest.mark.parametrize(
    "wanted", ["bytes=0-", "bytes=-1", "bytes=5-2", "bytes=" + ",".join(f"{n}-" for n in range(2_000)), "lines=1"]
)
async def test_a_range_request_gets_the_whole_file(wanted):
    kept = route.playground()
    async with served() as s, s.get(f"/playground/{kept.version}/app.js", Range=wanted) as answer:
        assert (answer.status, "Content-Range" in answer.headers) == (200, False)
        assert await answer.read() == kept.assets["app.js"][1]


@pytest.mark.req("D17")
@pytest.mark.parametrize("left", [(), ("index.html",), ("app.js",)], ids=["nothing", "only the page", "only a module"])
async def test_an_installation_without_the_pages_files_serves_its_agent(tmp_path, monkeypatch, left):
    (tmp_path / "playground").mkdir()
    for name in left:
        (tmp_path / "playground" / name).write_bytes((SOURCE / name).read_bytes())
    monkeypatch.setattr(route, "files", lambda _package: tmp_path)
    route.playground.cache_clear()
    try:
        async with served() as s:
            async with s.get("/", Accept="text/html") as answer:
                assert answer.status == (200 if route.PAGE in left else 500)
            async with s.get("/playground/0/app.js") as answer:
                assert answer.status == (404 if route.PAGE in left else 500)
            for path in ("/", "/health", "/ready", "/docs", "/openapi.json", "/awp/capabilities"):
                async with s.get(path) as answer:
                    assert answer.status == 200, path
            async with s.post() as answer:
                assert "RUN_FINISHED" in await answer.text()
    finally:
        route.playground.cache_clear()


async def test_a_server_without_ag_ui_has_no_playground():
    async with served(settings=ServerSettings(protocols=("rest",))) as s:
        async with s.client.get(f"{s.url}/", headers={"Accept": "text/html"}, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (307, "/docs")
        async with s.get("/") as answer:
            assert answer.status == 200


async def test_programs_get_the_address_even_before_the_agent_is_ready():
    async with served(ready=False) as s:
        async with s.get("/") as answer:
            assert (await answer.json())["links"]["playground"] == "/"
        async with s.get("/", Accept="text/html") as answer:
            assert answer.status == 200
        async with s.get("/awp/capabilities") as answer:
            assert answer.status == 503


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_small_ours_and_turns_no_text_into_markup(path):
    text = path.read_text()
    assert len(text.splitlines()) < MAX_LINES
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setAttribute\(.style|srcdoc|DOMParser|createContextualFragment|dangerously"  # fmt: skip
    assert not re.search(forbidden, text)
    elsewhere = [each for each in re.findall(r"https?://[\w.-]+", text) if not each.startswith("http://www.w3.org")]
    assert elsewhere == []


def test_every_import_is_one_of_our_files():
    for path in MODULES:
        for name in re.findall(r'from "(.+?)"', path.read_text()):
            assert (SOURCE / name).is_file(), f"{path.name} imports {name}"
