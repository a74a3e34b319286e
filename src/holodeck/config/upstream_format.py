"""Removes blocks of upstream HoloDeck's format that are not supported here, with one warning each.

So upstream files run unchanged. The code works on the tree before placeholders are filled in: a variable that only an
evaluation needs may be unset. A key that looks like a typo of one of ours stays, so that validation can point at it.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from holodeck.config.agent_schema import AgentFile
from holodeck.config.yaml_source import Entry, Fields, Items, Mark, Node, Scalar

KNOWN_BLOCKS = frozenset(AgentFile.model_fields)
UPSTREAM_BLOCKS = frozenset(
    {
        "author",
        "claude",
        "deployment",
        "embedding_provider",
        "evaluations",
        "execution",
        "openai",
        "test_cases",
        "test_cases_file",
        "tool_filtering",
    }
)
SLIPS = {  # names in other formats → our names
    "agents": "name",
    "functions": "tools",
    "llm": "model",
    "mcp_servers": "tools",
    "mcpServers": "tools",
    "prompt": "instructions",
    "system": "instructions",
    "system_prompt": "instructions",
    "toolsets": "tools",
}
SLIPS_OF_MODEL = {**dict.fromkeys(("api_base", "base_url", "url"), "endpoint"), "id": "name", "model": "name"}
OTHER_PROVIDERS = {  # names in other programs → our names
    **dict.fromkeys(("claude",), "anthropic"),
    **dict.fromkeys(("google", "google_genai", "googleai", "google-gla"), "gemini"),
    **dict.fromkeys(("vertexai", "vertex_ai", "google-vertex", "gcp"), "vertex"),
    **dict.fromkeys(("aws", "amazon"), "bedrock"),
    **dict.fromkeys(("azure", "azure-openai", "azureopenai"), "azure_openai"),
    **dict.fromkeys(("gpt", "chatgpt", "openai-chat", "openai-responses"), "openai"),
    "local": "ollama",
}
GATEWAYS = frozenset(  # endpoints with the API of OpenAI
    {"mistral", "groq", "deepseek", "openrouter", "litellm", "together", "fireworks", "xai", "grok", "cohere", "nvidia"}
    | {"vllm", "lmstudio", "lm_studio", "lm-studio", "llamacpp", "llama.cpp", "llama_cpp", "huggingface", "perplexity"}
)
OPTIONS_OF_SERVE = {  # keys that people look for under `server`: they differ between machines
    name: name.replace("_", "-")
    for name in ("port", "host", "protocol", "log_level", "log_format", "root_path", "workers")
}
UPSTREAM_TOOLS = frozenset({"vectorstore", "hierarchical_document", "prompt", "plugin", "skill", "hosted"})
UPSTREAM_KEYS: Mapping[str, Mapping[str, str]] = {  # block → key → what to do instead
    "model": {"auth_provider": ""},
    "observability": {"traces": "", "metrics": "", "logs": "", "exporters": "set otlp_endpoint instead"},
    "mcp": {
        "config": "use include: to choose tools, args: and env: to configure the server",
        "env_file": "name the variables in env:",
        **dict.fromkeys(("server", "encoding", "load_tools", "load_prompts", "sse_read_timeout"), ""),
        **dict.fromkeys(("terminate_on_close", "is_retrieval", "registry_name", "defer_loading"), ""),
    },
    "function": {"parameters": "the schema comes from the function's signature", "defer_loading": ""},
}
RENAMED = {"mcp": {"request_timeout": "timeout"}}  # same meaning, other name


def nearest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """Returns the known word that is close enough to a misspelt one, if any."""
    close = get_close_matches(word.lower(), list(known), n=1, cutoff=cutoff)
    return close[0] if close else None


class UpstreamParts:
    """Removes the upstream parts of one file, with warnings."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.warnings: list[str] = []

    def taken_out_of(self, root: Fields) -> Fields:
        for key, entry in root.entries.items():
            is_ours = key in KNOWN_BLOCKS or key in SLIPS or nearest(key, KNOWN_BLOCKS)  # or a typo of one of ours
            if key in UPSTREAM_BLOCKS or not is_ours:
                self._warn(entry.mark, key, "is not used here; ignored")
                root = root.without(key)
        for block in ("model", "observability"):
            if block in root.entries:
                root = root.replacing(block, self._block(root.entries[block].node, block, block))
        tools = root.entries.get("tools")
        if tools and isinstance(tools.node, Items):
            root = root.replacing("tools", self._tools(tools.node))
        return root

    def _tools(self, tools: Items) -> Items:
        kept: list[Node] = []
        for number, tool in enumerate(tools.items):
            kind = _text(tool, "type")
            if kind in UPSTREAM_TOOLS:
                name = _text(tool, "name") or f"tools[{number}]"
                self._warn(tool.mark, name, f"tools of type {kind} are not served here; the agent runs without it")
            else:
                kept.append(self._block(tool, kind, f"tools[{number}]"))
        return Items(tools.mark, tuple(kept), tools.size)

    def _block(self, node: Node, kind: str, path: str) -> Node:
        if not isinstance(node, Fields):
            return node
        for key, hint in UPSTREAM_KEYS.get(kind, {}).items():
            if key in node.entries:
                self._warn(
                    node.entries[key].mark, f"{path}.{key}", f"is not used here{'; ' * bool(hint)}{hint}; ignored"
                )
                node = node.without(key)
        return _renamed(node, RENAMED.get(kind, {}))

    def _warn(self, mark: Mark, path: str, text: str) -> None:
        self.warnings.append(f"{self.file}:{mark.line}:{mark.column}: {path}: {text}")


def _renamed(node: Fields, names: Mapping[str, str]) -> Fields:
    entries: dict[str, Entry] = {}
    for key, entry in node.entries.items():
        if key in names and names[key] in node.entries:
            continue
        entries[names.get(key, key)] = entry
    return Fields(node.mark, entries, node.size)


def _text(node: Node, key: str) -> str:
    entry = node.entries.get(key) if isinstance(node, Fields) else None
    value = entry.node.value if entry and isinstance(entry.node, Scalar) else ""
    return value if isinstance(value, str) else ""
