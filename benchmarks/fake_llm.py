"""native/fake_llm.c in Python, for machines without a C compiler: bursts only, `fake-N` is N tokens.

Prints the port it listens on.
"""

import asyncio
import time

from fake_server import HEAD, chunk, serve_replies

EVENT = (
    'data: {"id":"chatcmpl-fake00000000000000000000000000","object":"chat.completion.chunk","created":1760000000,'
    '"model":"fake","service_tier":"default","system_fingerprint":"fp_fake000000",'
    '"choices":[{"index":0,"delta":{%s},"logprobs":null,"finish_reason":%s}]}\n\n'
)
DONE = b"data: [DONE]\n\n"


def reply(_path: bytes, tokens: int) -> bytes:
    start = time.monotonic_ns() // 1000
    deltas = [(f'"content":" @{(start + i) % 10**10:010d}"', "null") for i in range(tokens)]
    events = [('"role":"assistant","content":""', "null"), *deltas, ("", '"stop"')]
    return HEAD + b"".join(chunk((EVENT % event).encode()) for event in events) + chunk(DONE) + b"0\r\n\r\n"


if __name__ == "__main__":
    asyncio.run(serve_replies(reply))
