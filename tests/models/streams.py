"""Streams as real endpoints send them, written down readably: one entry a dialect.

`{…}` lines are the data of one event each; a line that begins with `:` is a comment. Expectations stand beside them.
"""

from dataclasses import dataclass, field
from typing import Any

from holodeck.core.usage import TokenUsage


@dataclass
class Dialect:
    lines: str
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str | None, str, str]] = field(default_factory=list)  # id (None: minted), name, arguments
    finish: str = "stop"
    usage: TokenUsage | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    call_extra: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        lines = (line.strip() for line in self.lines.strip().splitlines())
        framed = (line if line.startswith((":", "event:")) else f"data: {line}" for line in lines if line)
        return "".join(f"{line}\n" if line.startswith("event:") else f"{line}\n\n" for line in framed).encode()


def used(prompt: int, completion: int, **details: int) -> TokenUsage:
    return TokenUsage(prompt_tokens=prompt, completion_tokens=completion, **details)


DIALECTS = {
    "openai text": Dialect(
        """
        {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}
        {"id":"c","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null}
        {"id":"c","choices":[{"index":0,"delta":{"content":" world"},"logprobs":null,"finish_reason":null}],"usage":null}
        {"id":"c","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}
        {"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":7}}}
        [DONE]
        """,
        text="Hello world",
        usage=used(9, 12, cached_tokens=4, reasoning_tokens=7),
    ),
    "openai tools": Dialect(
        """
        {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"get_weather","arguments":""}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"city\\":"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\"Paris\\"}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}
        [DONE]
        """,
        calls=[("call_a", "get_weather", '{"city":"Paris"}')],
        finish="tool_calls",
    ),
    "gemini 2.5: whole call, stop, usage on every chunk": Dialect(
        """
        {"choices":[{"delta":{"role":"assistant","tool_calls":[{"function":{"arguments":"{\\"city\\":\\"Paris\\"}","name":"get_weather"},"id":"function-call-1","type":"function"}]},"index":0}],"usage":{"completion_tokens":5,"prompt_tokens":50,"total_tokens":55}}
        {"choices":[{"delta":{"role":"assistant"},"finish_reason":"stop","index":0}],"usage":{"completion_tokens":15,"prompt_tokens":50,"total_tokens":65}}
        [DONE]
        """,
        calls=[("function-call-1", "get_weather", '{"city":"Paris"}')],
        finish="tool_calls",
        usage=used(50, 15),
    ),
    "gemini 3: thought signature on the call": Dialect(
        """
        {"choices":[{"delta":{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"Q2hNRQ=="}},"function":{"arguments":"{}","name":"f"},"id":"x1","type":"function"}]},"index":0}]}
        {"choices":[{"delta":{"role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"x2","type":"function"}]},"finish_reason":"stop","index":0}]}
        [DONE]
        """,
        calls=[("x1", "f", "{}"), ("x2", "f", "{}")],
        call_extra=[{"extra_content": {"google": {"thought_signature": "Q2hNRQ=="}}}, {}],
        finish="tool_calls",
    ),
    "gemini 3: thought signature on the text": Dialect(
        """
        {"choices":[{"delta":{"content":"Hi","role":"assistant"},"index":0}]}
        {"choices":[{"delta":{"content":"","extra_content":{"google":{"thought_signature":"QUJD"}},"role":"assistant"},"finish_reason":"stop","index":0}]}
        [DONE]
        """,
        text="Hi",
        extra={"extra_content": {"google": {"thought_signature": "QUJD"}}},
    ),
    "gemini: thoughts marked inside the content": Dialect(
        """
        {"choices":[{"delta":{"content":"hmm","extra_content":{"google":{"thought":true}},"role":"assistant"},"index":0}]}
        {"choices":[{"delta":{"content":"Hi","role":"assistant"},"finish_reason":"stop","index":0}]}
        """,
        text="Hi",
        reasoning="hmm",
    ),
    "gemini: thoughts in tags, too": Dialect(
        """
        {"choices":[{"delta":{"content":"<thought>**Plan**","extra_content":{"google":{"thought":true}},"role":"assistant"},"index":0}]}
        {"choices":[{"delta":{"content":" it.","extra_content":{"google":{"thought":true}},"role":"assistant"},"index":0}]}
        {"choices":[{"delta":{"content":"</thought>Use ","role":"assistant"},"index":0}]}
        {"choices":[{"delta":{"content":"</thought> so.","role":"assistant"},"finish_reason":"stop","index":0}]}
        """,
        text="Use </thought> so.",
        reasoning="**Plan** it.",
    ),
    "gemini: completion tokens left out": Dialect(
        """
        {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop","index":0}],"usage":{"prompt_tokens":7,"total_tokens":30}}
        """,
        text="Hi",
        usage=used(7, 23),
    ),
    "ollama: no id, empty chunks": Dialect(
        """
        {"choices":[]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"index":0,"type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":null}]}
        {"choices":[]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"tool_calls"}]}
        [DONE]
        """,
        calls=[(None, "f", "{}")],
        finish="tool_calls",
    ),
    "ollama: thinking": Dialect(
        """
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"hm"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}
        [DONE]
        """,
        text="Hi",
        reasoning="hm",
    ),
    "vllm: nulls and role everywhere": Dialect(
        """
        {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"t1","function":{"name":"f","arguments":null}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"{}"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"tool_calls","stop_reason":null}]}
        [DONE]
        """,
        calls=[("t1", "f", "{}")],
        finish="tool_calls",
    ),
    "azure: filter results first and last": Dialect(
        """
        {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false}}}]}
        {"choices":[{"content_filter_results":{},"delta":{"content":"Hi"},"finish_reason":null,"index":0}]}
        {"choices":[{"content_filter_offsets":{"check_offset":1},"content_filter_results":{"hate":{"filtered":false}},"finish_reason":null,"index":0}]}
        {"choices":[{"content_filter_results":{},"delta":{},"finish_reason":"stop","index":0}]}
        [DONE]
        """,
        text="Hi",
    ),
    "deepseek: reasoning_content before text": Dialect(
        """
        {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"Let me"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":null,"reasoning_content":" think"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":"42","reasoning_content":null},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":"","reasoning_content":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}
        [DONE]
        """,
        text="42",
        reasoning="Let me think",
        usage=used(1, 2),
    ),
    "deepseek: thinking before a call goes back": Dialect(
        """
        {"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}
        [DONE]
        """,
        reasoning="hm",
        calls=[("a", "f", "{}")],
        finish="tool_calls",
        extra={"reasoning_content": "hm"},
    ),
    "groq: usage in x_groq": Dialect(
        """
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"hm"},"finish_reason":null}],"x_groq":{"id":"req_1"}}
        {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.1,"prompt_tokens":4,"completion_tokens":5,"total_tokens":9}}}
        [DONE]
        """,
        text="Hi",
        reasoning="hm",
        usage=used(4, 5),
    ),
    "moonshot: usage in the choice": Dialect(
        """
        {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":4,"completion_tokens":5,"total_tokens":9}}]}
        [DONE]
        """,
        text="Hi",
        usage=used(4, 5),
    ),
    "openrouter: comments, the same thought twice, details": Dialect(
        """
        : OPENROUTER PROCESSING
        : OPENROUTER PROCESSING
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a","index":0,"format":"x"}]},"finish_reason":null,"native_finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"b","reasoning_content":"b","reasoning_details":[{"type":"reasoning.text","text":"b","index":0,"format":"x"}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi","reasoning_details":[{"type":"reasoning.text","signature":"S","index":0}]},"finish_reason":"stop"}]}
        [DONE]
        """,
        text="Hi",
        reasoning="ab",
        extra={
            "reasoning_details": [{"type": "reasoning.text", "text": "ab", "index": 0, "format": "x", "signature": "S"}]
        },
    ),
    "mistral: content in parts with thinking": Dialect(
        """
        {"choices":[{"index":0,"delta":{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"Hi"}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":" there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"total_tokens":3,"completion_tokens":2}}
        [DONE]
        """,
        text="Hi there",
        reasoning="hm",
        usage=used(1, 2),
    ),
    "databricks: reasoning as a part": Dialect(
        """
        {"choices":[{"index":0,"delta":{"role":"assistant","content":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"Hi"}]},"finish_reason":"end_turn"}]}
        """,
        text="Hi",
        reasoning="hm",
    ),
    "together: figures in the delta, eos": Dialect(
        """
        {"choices":[{"index":0,"text":"Hi","delta":{"token_id":17,"role":"assistant","content":"Hi","tool_calls":null},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"token_id":2,"role":"assistant","content":"","tool_calls":null},"finish_reason":"eos"}],"usage":null}
        [DONE]
        """,
        text="Hi",
    ),
    "perplexity: the whole message beside each delta": Dialect(
        """
        {"choices":[{"index":0,"message":{"role":"assistant","content":"He"},"delta":{"role":"assistant","content":"He"},"finish_reason":null}]}
        {"choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"delta":{"role":"assistant","content":"llo"},"finish_reason":"stop"}]}
        """,
        text="Hello",
    ),
    "dashscope: empty ids in later deltas, empty finish reason": Dialect(
        """
        {"choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"index":0,"id":"q1","type":"function","function":{"name":"f","arguments":"{"}}]},"finish_reason":""}]}
        {"choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"index":0,"id":"","type":"function","function":{"name":"","arguments":"}"}}]},"finish_reason":""}]}
        {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"tool_calls"}]}
        [DONE]
        """,
        calls=[("q1", "f", "{}")],
        finish="tool_calls",
    ),
    "legacy function_call": Dialect(
        """
        {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{"function_call":{"arguments":"{}"}},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{},"finish_reason":"function_call"}]}
        [DONE]
        """,
        calls=[(None, "f", "{}")],
        finish="tool_calls",
    ),
    "no [DONE]": Dialect('{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}', text="Hi"),
    "[DONE] without a finish reason": Dialect(
        """
        {"choices":[{"index":0,"delta":{"content":"Hi"}}]}
        [DONE]
        """,
        text="Hi",
    ),
    "pings as events": Dialect(
        """
        event: ping
        {"type":"ping"}
        event: ping
        ping
        {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}
        """,
        text="Hi",
    ),
    "two choices": Dialect(
        """
        {"choices":[{"index":0,"delta":{"content":"Hi"}},{"index":1,"delta":{"content":"Yo"}}]}
        {"choices":[{"index":1,"delta":{"content":"!"}}]}
        {"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}
        {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}
        [DONE]
        """,
        text="Hi",
        warnings=["extra-choices"],
    ),
    "length": Dialect(
        """
        {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{},"finish_reason":"MAX_TOKENS"}]}
        """,
        text="Hi",
        finish="length",
    ),
    "length inside a call": Dialect(
        """
        {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\\"x\\":"}}]},"finish_reason":null}]}
        {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}
        """,
        finish="length",
        warnings=["tool-call-cut"],
    ),
    "nothing at all": Dialect(
        """
        {"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":"stop"}]}
        [DONE]
        """,
    ),
}
