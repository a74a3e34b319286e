"""agent.yaml → AgentFile: what is refused and how, what is filled in, what is left out."""

from pathlib import Path

import pytest

from holodeck.config.agent_schema import InlineInstructions, SystemPrompt
from holodeck.config.load import LoadedConfig, load_config
from holodeck.config.tool_schema import FunctionToolSettings, McpToolSettings
from holodeck.config.validation_errors import one_of
from holodeck.errors import ConfigError
from tests.config.bad_files import BAD, START


def load(folder: Path, text: str | bytes, **environment: str) -> LoadedConfig:
    file = folder / "agent.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_config(file, environment=environment)


def refusal(folder: Path, text: str | bytes, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **environment)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.req("SRV-02", "T35")
@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_a_mistake_is_named_with_its_place_and_the_remedy(tmp_path, text, message):
    assert refusal(tmp_path, text) == f"agent.yaml{message}"


@pytest.mark.req("D04")
@pytest.mark.parametrize("store", ["redis", "postgresql", "sqlite:/x/y", "Memory "])
def test_a_store_that_cannot_be_had_is_never_replaced_by_memory(tmp_path, store):
    assert "is not one of memory, sqlite, postgres" in refusal(tmp_path, START + f'sessions: {{store: "{store}"}}\n')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sessions: {store: postgres}", "store postgres needs an address"),
        ("sessions: {store: sqlite, url: 'postgresql://h/d'}", "only store postgres has a url"),
        ("cluster: {take_over_seconds: 5}", "servers share a database"),
    ],
)
def test_a_database_is_named_where_it_is_used(tmp_path, text, words):
    assert words in refusal(tmp_path, START + text + "\n")


@pytest.mark.req("SRV-02")
def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(tmp_path):
    lines = refusal(
        tmp_path, "model: {provider: demo}\nfiles: {max_files: -1}\nloop: {max_iterations: 0}\n"
    ).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["name", "files.max_files", "loop.max_iterations"]


def test_more_than_ten_mistakes_are_counted(tmp_path):
    wrong = "".join(f"  k{n}: 1\n" for n in range(14))
    assert refusal(tmp_path, START + "files:\n" + wrong).splitlines()[-1] == "agent.yaml: and 4 more"


@pytest.mark.req("T35")
def test_a_billion_laughs_are_refused_before_they_are_laughed(tmp_path):
    levels = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    message = refusal(tmp_path, START + "\n".join(levels) + "\n")  # all values together would not fit into memory
    assert "aliases make this larger than 20000 values" in message


@pytest.mark.req("T35")
@pytest.mark.parametrize(
    ("text", "part"),
    [
        (START + "description: " + "x" * 300_000, "too long for an agent file (at most 256 kB)"),
        (START + "tools: " + "[" * 5000, "nested deeper than 32 levels"),
        (START + "tools: " + "{a: " * 500, "nested deeper than 32 levels"),
        (b"name: \xff\n", "agent.yaml:1: the file is not UTF-8"),
        ("name: a\ndescription: \x07\n", "a control character is not allowed"),
        ("name: a\x00b\n", "a control character is not allowed"),
        (START + 'instructions: {file: "a\\0b"}\n', "instructions.file: has a character that is not allowed here"),
        (
            START + 'tools: [{name: t, type: mcp, command: x, args: ["a\\0b"]}]\n',
            "tools[0].args[0]: has a character that is not allowed here",
        ),
    ],
)
def test_invalid_text_or_too_much_of_it_is_refused(tmp_path, text, part):
    assert part in refusal(tmp_path, text)


def test_a_time_limit_that_is_never_reached_is_warned_of(tmp_path):
    tools = "tools: [{name: t, type: mcp, command: x, timeout: 120}, {name: u, type: mcp, command: x, timeout: 30}]\n"
    loaded = load(tmp_path, "name: a\nmodel: {provider: demo, fallback: [{provider: demo, timeout: 31}]}\n" + tools)
    assert [warning.partition("agent.yaml")[2] for warning in loaded.warnings] == [
        ":2:62: model.fallback[0].timeout: 31 s are never reached: loop.iteration_timeout ends the step after 30 s",
        ":3:51: tools[0].timeout: 120 s are never reached: loop.iteration_timeout ends the step after 30 s",
    ]
    assert load(tmp_path, START + tools + "loop: {iteration_timeout: 150}\n").warnings == ()
    assert load(tmp_path, START + "loop: {iteration_timeout: 5}\n").warnings == ()  # the file does not name the others


def test_a_folder_stands_for_its_agent_yaml(tmp_path):
    (tmp_path / "agent.yaml").write_text(START)
    assert load_config(tmp_path, environment={}).agent.name == "a"


def test_a_missing_file_says_how_to_get_one(tmp_path):
    with pytest.raises(
        ConfigError, match=r"there is no such file; give the path of an agent file or its folder, or describe"
    ):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "agent.yml").write_text(START)
    with pytest.raises(ConfigError, match=r"agent\.yaml: there is no such file; did you mean .*agent\.yml\?"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("${WHO}", "Ada"),
        ("'${WHO}'", "Ada"),
        ("${NOBODY:-somebody}", "somebody"),
        ("${EMPTY:-somebody}", "somebody"),
        ("${EMPTY}", ""),
        ("${NOBODY:-}", ""),
        ("'${NOBODY:-a:-b c}'", "a:-b c"),
        ("hello ${WHO} and ${WHO}", "hello Ada and Ada"),
        ("'$${WHO}'", "${WHO}"),
        ("'$$${WHO}'", "$${WHO}"),
        ("$WHO costs $5", "$WHO costs $5"),
        ("${NESTED}", "${WHO}"),
        ("'{{7*7}} {0} %s ${WHO}'", "{{7*7}} {0} %s Ada"),
    ],
)
@pytest.mark.req("T03")
def test_placeholders_are_filled_in_as_plain_text(tmp_path, value, read):
    loaded = load(tmp_path, START + f"description: {value}\n", WHO="Ada", EMPTY="", NESTED="${WHO}")
    assert loaded.agent.description == read


def test_a_placeholder_can_be_a_number_or_a_boolean(tmp_path):
    text = START + "loop: {max_iterations: '${N}', enable_retry: '${YES}', iteration_timeout: '${T:-2.5}'}\n"
    loop = load(tmp_path, text, N="7", YES="yes").agent.loop
    assert (loop.max_iterations, loop.enable_retry, loop.iteration_timeout) == (7, True, 2.5)


def test_placeholders_in_keys_and_comments_are_left_alone(tmp_path):
    text = START + "# ${NOBODY}\ntools:\n  - {name: t, type: mcp, command: x, bind: {'${NOBODY}': 1}}\n"
    assert list(load(tmp_path, text).agent.tools[0].bind) == ["${NOBODY}"]


@pytest.mark.req("SRV-02")
def test_an_unset_variable_is_named_with_its_place(tmp_path):
    message = refusal(tmp_path, START + "description: ${NOBODY} and ${NOONE}\n")
    assert message.splitlines() == [
        f"agent.yaml:3:14: description: {name} is not set; export it, or write {name}=… into .env beside the file, "
        f"or use ${{{name}:-default}}"
        for name in ("NOBODY", "NOONE")
    ]


@pytest.mark.parametrize("text", ["${}", "${A B}", "${A:?no}", "${A", "${1A}"])
def test_what_only_looks_like_a_placeholder_is_refused_with_the_way_out(tmp_path, text):
    message = refusal(tmp_path, START + f"description: '{text}'\n", A="x")
    assert message.startswith("agent.yaml:3:14: description: ${")
    assert "$${ for a plain ${" in message


def test_env_beside_the_file_fills_in_but_the_process_wins_and_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("WHO", "process")
    monkeypatch.delenv("WHERE", raising=False)
    (tmp_path / ".env").write_text("WHO=file\nWHERE='a $HOME b'\nBARE\n")
    (tmp_path / "agent.yaml").write_text(START + "description: ${WHO} ${WHERE}\n")
    loaded = load_config(tmp_path / "agent.yaml")
    assert loaded.agent.description == "process a $HOME b"
    assert "WHERE" not in __import__("os").environ


@pytest.mark.req("AGT-02")
@pytest.mark.parametrize(
    "text",
    [
        "name: a\nmodel: {provider: openai, name: x, temperature: '${KEY}'}\n",
        "name: a\nmodel: {provider: '${KEY}', name: x}\n",
        "name: a\nmodel: ${KEY}\n",
        "name: a\nmodel: {provider: openai, name: x, api_key: [sk-planted]}\n",
        START + "tools: [{name: t, type: mcp, url: 'http://localhost/', headers: {Authorization: [sk-planted]}}]\n",
        START + "tools: [{name: t, type: mcp, command: x, env: {KEY: [sk-planted]}}]\n",
    ],
)
def test_a_secret_never_gets_into_a_message(tmp_path, text):
    assert "sk-planted" not in refusal(tmp_path, text, KEY="sk-planted")


def test_a_secret_never_gets_into_a_repr(tmp_path):
    loaded = load(tmp_path, "name: a\nmodel: {provider: openai, name: x, api_key: sk-planted}\n")
    assert "sk-planted" not in repr(loaded.agent)


OWN_FORMAT = """\
name: support
author: Ada
model: {provider: ollama, name: llama3, temperature: 0.3, auth_provider: api_key}
instructions: {inline: You help.}
tools:
  - {name: kb, type: vectorstore, description: Search, source: data/, database: '${NO_SUCH_DB}'}
  - {name: memory, type: mcp, description: Memory, command: npx, args: [-y, server-memory], request_timeout: 60,
     load_tools: true, config: {allowed_tools: [read]}}
  - {name: lookup, type: function, description: Look, file: t.py, function: f, parameters: {a: {type: string}}}
  - {name: shorter, type: prompt, template: x}
evaluations: {metrics: [{metric: f1, model: '${NOT_SET}'}]}
test_cases: [{input: hi}]
deployment: {target: azure}
claude: {max_turns: 3}
embedding_provider: {provider: openai}
response_format: {type: object}
execution: {llm_timeout: 9}
something_new: 1
observability: {enabled: true, traces: {enabled: true}, exporters: {otlp: {endpoint: '${NOT_SET}'}}}
"""


def test_holodecks_own_files_load_with_one_warning_for_each_upstream_part(tmp_path):
    loaded = load(tmp_path, OWN_FORMAT)
    assert loaded.agent.instructions == InlineInstructions(inline="You help.")
    assert [(tool.name, tool.timeout) for tool in loaded.agent.tools] == [("memory", 60), ("lookup", 25)]
    assert isinstance(loaded.agent.tools[0], McpToolSettings)
    assert isinstance(loaded.agent.tools[1], FunctionToolSettings)
    named = [line.split(": ")[1] for line in loaded.warnings]
    assert sorted(named) == sorted(
        [
            "author",
            "evaluations",
            "test_cases",
            "deployment",
            "claude",
            "embedding_provider",
            "execution",
            "something_new",
            "model.auth_provider",
            "observability.traces",
            "observability.exporters",
            "kb",
            "shorter",
            "tools[1].load_tools",
            "tools[1].config",
            "tools[2].parameters",
        ]
    )
    assert all(str(tmp_path) in line for line in loaded.warnings)


def test_yaml_of_today_is_read(tmp_path):
    text = START + (
        "x-defaults: &d {timeout: 5, bind: {user_id: '{user_id}'}}\n"
        "tools:\n"
        "  - {<<: *d, name: a, type: mcp, command: no, args: [2024-10-21, 8080, true, 0x10], env: {DEBUG: false, N: 1}}\n"
        "  - {<<: [{timeout: 7}, *d], name: b, type: mcp, url: 'http://localhost/mcp', timeout: 9}\n"
    )
    first, second = load(tmp_path, text).agent.tools
    assert isinstance(first, McpToolSettings)
    assert (first.timeout, first.command, first.args) == (5, "no", ["2024-10-21", "8080", "true", "16"])
    assert (first.env, first.bind) == ({"DEBUG": "false", "N": "1"}, {"user_id": "{user_id}"})
    assert second.timeout == 9


@pytest.mark.req("AGT-03", "AGT-04")
def test_the_four_parts_of_a_system_prompt_and_the_limits_of_the_loop(tmp_path):
    text = START + "instructions: {role_definition: You sort mail.}\nloop: {max_iterations: 3}\n"
    agent = load(tmp_path, text).agent
    assert isinstance(agent.instructions, SystemPrompt)
    assert "You sort mail." in agent.instructions.to_prompt_string("u1")
    assert agent.loop.max_iterations == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mcp"], "mcp"),
        (["mcp", "function"], "mcp or function"),
        (["mcp", "function", "clock"], "mcp, function or clock"),
    ],
)
def test_alternatives_are_listed_in_plain_english(words, text):
    assert one_of(words) == text
