"""Who waits while a large file or a long history arrives: the longest answer of /health, asked every 5 ms, from the first byte to the reply."""

import base64
import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.report import CannotMeasureError, Row, Target
from benchmarks.systems import HOLODECK, HOLODECK_REST

BOTH = replace(HOLODECK, argv=(*HOLODECK.argv, "--protocol", "rest", "--protocol", "openai"))
COMPLETIONS = "/v1/chat/completions"
PERIOD = 0.005
IDLE_SECONDS = 1.0
MEASURE = "worst delay of /health"
TARGET = Target(limit=30)
FILES = ("form", "base64")
MB = 1_000_000
BOUNDARY = "holodeck-benchmark"
LINE = b"a line of a long text, which goes on\n"


def text(size: int) -> bytes:
    return (LINE * (size // len(LINE) + 1))[:size]


def form(size: int) -> tuple[bytes, str]:
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="message"\r\n\r\nRead it [[fake-1]]\r\n'
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="long.txt"\r\n'
        "Content-Type: text/plain\r\n\r\n"
    )
    return head.encode() + text(size) + f"\r\n--{BOUNDARY}--\r\n".encode(), f"multipart/form-data; boundary={BOUNDARY}"


def in_json(size: int) -> tuple[bytes, str]:
    file = {"content": base64.b64encode(text(size)).decode(), "mime_type": "text/plain", "filename": "long.txt"}
    return json.dumps({"message": "Read it [[fake-1]]", "files": [file]}).encode(), "application/json"


def messages(count: int) -> tuple[bytes, str]:
    """A whole conversation, as clients of Chat Completions send it; all but the last message by one side."""
    sent = [{"role": "user", "content": "x" * 200}] * count
    return json.dumps(
        {"messages": [*sent, {"role": "user", "content": "[[fake-1]]"}], "store": True}
    ).encode(), "application/json"


def send(port: int, body: bytes, content_type: str, path: str = HOLODECK_REST.path) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": content_type})
        answer = connection.getresponse()
        received = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise CannotMeasureError(f"the upload was answered {answer.status}: {received[:200]!r}")
    finally:
        connection.close()


def worst_delay_ms(port: int, work: Callable[[], None]) -> float:
    """Asks /health over and over in another thread for as long as `work` takes."""
    done, delays = threading.Event(), [0.0]

    def probe() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while not done.is_set():
            asked = time.perf_counter()
            connection.request("GET", "/health")
            connection.getresponse().read()
            delays.append(time.perf_counter() - asked)
            done.wait(PERIOD)
        connection.close()

    prober = threading.Thread(target=probe)
    prober.start()
    try:
        work()
    finally:
        done.set()
        prober.join()
    return max(delays) * 1e3


def run(options: Options) -> list[Row]:
    bodies: dict[str, tuple[bytes, str, str]] = {
        "50 MB form": (*form(50 * MB), HOLODECK_REST.path),
        "10 MB in base64": (*in_json(10 * MB), HOLODECK_REST.path),
        "9,999 messages": (*messages(9_998), COMPLETIONS),
    }
    samples: dict[str, list[float]] = {"nothing": [], **{name: [] for name in bodies}}
    with fake_model() as model_port:
        for _ in range(options.rounds):
            with BOTH.start(model_port, options.scratch / "server.log") as server:
                send(server.port, *in_json(1_000))  # lazy imports are not what is measured
                samples["nothing"].append(worst_delay_ms(server.port, partial(time.sleep, IDLE_SECONDS)))
                for name, body in bodies.items():
                    samples[name].append(worst_delay_ms(server.port, partial(send, server.port, *body)))
    return [
        Row(
            measure=MEASURE,
            system=f"while {name} arrive" if name.endswith("s") else f"while {name} arrives",
            unit="ms",
            samples=values,
            target=TARGET if name.endswith(FILES) else None,  # a history takes several turns of the loop
        )
        for name, values in samples.items()
    ]
