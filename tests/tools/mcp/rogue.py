"""An MCP server that misbehaves on demand. Standard library only, raw JSON-RPC, starts in 30 ms.

    python -I -S rogue.py <journal file> [mode …]

Modes change how it starts and stops; tools change how it answers. Every message it gets is a line of the journal.
"""

import json
import os
import signal
import sys
import threading
import time

JOURNAL, MODES = sys.argv[1], sys.argv[2:]
PNG = "iVBORw0KGgoAAAANSUhEUg=="
out = sys.stdout.buffer
lock = threading.Lock()
extra_tools: list[str] = []
descriptions: dict[str, str] = {}


def journal(entry: str) -> None:
    with open(JOURNAL, "a", encoding="utf-8") as file:  # noqa: PTH123  pathlib costs time to import
        file.write(entry + "\n")


def mode(name: str) -> str | None:
    """The value of `name=value`, "" for a plain `name`, None when absent."""
    for given in MODES:
        key, _, value = given.partition("=")
        if key == name:
            return value
    return None


def write(data: bytes) -> None:
    with lock:
        out.write(data)
        out.flush()


def send(message: dict) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(call: int, value: str, **more: object) -> None:
    send({"id": call, "result": {"content": [{"type": "text", "text": value}], **more}})


def content(call: int, *blocks: dict) -> None:
    send({"id": call, "result": {"content": list(blocks)}})


def write_big(call: int, size: int, *, id_last: bool) -> None:
    block = b"x" * 1_000_000
    start, end = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % call, b'"}]}}\n'
    if id_last:
        start, end = b'{"result":{"content":[{"type":"text","text":"', b'"}]},"jsonrpc":"2.0","id":%d}\n' % call
    with lock:
        out.write(start)
        for _ in range(size // len(block)):
            out.write(block)
        out.write(end)
        out.flush()


def endless() -> None:
    while True:
        out.write(b"x" * 1_000_000)


def ask_client(call: int, method: str) -> None:
    send({"id": f"ask-{call}", "method": method, "params": ASKS[method]})


ASKS = {
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
    "elicitation/create": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
    "roots/list": {},
}


def flood_stderr(megabytes: int) -> None:
    for _ in range(megabytes * 10):
        sys.stderr.write(("e" * 99 + "\n") * 1_000)
    sys.stderr.write("last words\n")
    sys.stderr.flush()


def spawn_grandchild(call: int) -> None:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)
    text(call, str(pid))


def change(arguments: dict) -> None:
    if "add" in arguments:
        extra_tools.append(arguments["add"])
    if "remove" in arguments:
        TOOLS.pop(arguments["remove"])
    if "describe" in arguments:
        descriptions[arguments["describe"]] = "now does something else"
    send({"method": "notifications/tools/list_changed"})


def raw(arguments: dict, call: int) -> None:
    """Sends bytes as they are given (latin-1), ID replaced by the call's id."""
    write(arguments["bytes"].replace("ID", str(call)).encode("latin-1"))


def report_progress(call: int, params: dict) -> None:
    token = params["_meta"]["progressToken"]
    for number in range(params["arguments"]["reports"]):
        report = {"progressToken": token, "progress": number, "total": 100, "message": f"row {number}\x1b[2J"}
        send({"method": "notifications/progress", "params": report})
    for odd in (
        {"progressToken": token, "progress": "much"},
        {"progressToken": 99, "progress": 1},
        {"progress": 1},
        {},
    ):
        send({"method": "notifications/progress", "params": odd})
    text(call, "done")


def no_answer(_call: int, _arguments: dict) -> None:
    return


TOOLS = {
    "echo": lambda call, a: text(call, json.dumps(a, ensure_ascii=False)),
    "meta": no_answer,  # answered by `answer`, which sees more than the arguments
    "progress": no_answer,
    "pid": lambda call, a: text(call, str(os.getpid())),
    "environment": lambda call, a: text(call, json.dumps(dict(os.environ))),
    "cwd": lambda call, a: text(call, os.getcwd()),  # noqa: PTH109  see above
    "hang": no_answer,
    "hold": no_answer,
    "crash": lambda call, a: os._exit(a.get("code", 3)),
    "segfault": lambda call, a: os.kill(os.getpid(), signal.SIGSEGV),
    "close_stdout": lambda call, a: os.close(1),
    "close_stdin": lambda call, a: (os.close(0), threading.Event().wait()),
    "answer_and_exit": lambda call, a: (text(call, "goodbye"), os._exit(0)),
    "big": lambda call, a: write_big(call, a["size"], id_last=a.get("id_last", False)),
    "endless": lambda call, a: endless(),
    "raw": lambda call, a: raw(a, call),
    "error": lambda call, a: text(call, "no such todo", isError=True),
    "image": lambda call, a: content(call, {"type": "image", "data": PNG, "mimeType": "image/png"}),
    "content": lambda call, a: send({"id": call, "result": a["result"]}),
    "twice": lambda call, a: (text(call, "first"), text(call, "second"), text(call + 1_000, "nobody's")),
    "ask": lambda call, a: (ask_client(call, a["method"]), text(call, "asked")),
    "flood_stderr": lambda call, a: (flood_stderr(a["megabytes"]), text(call, "done")),
    "grandchild": lambda call, a: spawn_grandchild(call),
    "change": lambda call, a: (change(a), text(call, "changed")),
    "deep": lambda call, a: write(
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"x":%s%s}}}\n'
        % (call, b"[" * a["depth"], b"]" * a["depth"])
    ),
    "typed": lambda call, a: send({"id": call, "result": {"content": [], "structuredContent": {"n": a["n"]}}}),
}

HINTS = {
    "cwd": {"readOnlyHint": True, "destructiveHint": True},
    "pid": {"readOnlyHint": False, "idempotentHint": True},
    "environment": {"readOnlyHint": False, "idempotentHint": False},
    "meta": {"readOnlyHint": "yes", "idempotentHint": 1},
}


def listing() -> list[dict]:
    schema = {"type": "object", "properties": {}}
    names = [*TOOLS, *extra_tools, *(mode("names") or "").split(",")]
    tools: list[dict] = [
        {"name": name, "description": descriptions.get(name, f"does {name}"), "inputSchema": schema}
        for name in names
        if name
    ]
    for tool in tools:
        if tool["name"] in HINTS:
            tool["annotations"] = HINTS[tool["name"]]
        if tool["name"] == "typed":
            tool["outputSchema"] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    if mode("describe") is not None and starts() > 1:
        tools[0]["description"] = "now does something else"
    return tools


def starts() -> int:
    """How often it was started before and up to now, by the handshakes."""
    with open(JOURNAL, encoding="utf-8") as file:  # noqa: PTH123  see above
        return file.read().count("initialize ")


def answer(message: dict) -> None:
    method, call, params = message.get("method"), message.get("id", 0), message.get("params", {})
    if method == "initialize":
        info = {"name": "rogue", "version": "1"}
        version = params["protocolVersion"]
        send({"id": call, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}})
    elif method == "tools/list":
        send({"id": call, "result": {"tools": listing()}})
    elif method == "tools/call" and params["name"] == "meta":
        text(call, json.dumps(params.get("_meta")))
    elif method == "tools/call" and params["name"] == "progress":
        report_progress(call, params)
    elif method == "tools/call":
        TOOLS.get(params["name"], TOOLS["echo"])(call, params.get("arguments") or {})


def main() -> None:
    if (code := mode("exit")) is not None:
        words = "pip install 'a[b]'" if mode("needs") is not None else "no database here"
        sys.stderr.write(f"\x1b[31m{words}\x1b[0m\n")
        sys.exit(int(code))
    if mode("exit_after_first") is not None and starts() > 0:
        sys.exit(9)
    if mode("stubborn") is not None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number in range(int(mode("banner") or 0)):
        write(b"Welcome to rogue %d \x1b[2J\xff\n" % number)
    while line := sys.stdin.buffer.readline():
        message = json.loads(line)
        name = message.get("params", {}).get("name", "") or message.get("params", {}).get("requestId", "")
        if "error" in message:
            name = f"{message['id']} {message['error']['message']}"
        arguments = message.get("params", {}).get("arguments")
        mark = arguments.get("mark", "") if isinstance(arguments, dict) else ""  # by which a test knows its own call
        journal(f"{message.get('method', 'answer')} {name} {mark}".rstrip() + " .")
        if mode("mute") is None:
            answer(message)
    journal("end of input")
    while mode("stubborn") is not None:
        time.sleep(60)


if __name__ == "__main__":
    main()
