"""Agent files with one mistake each: the text, and the message that has to come (without the file's name)."""

PROVIDERS = "openai, anthropic, gemini, azure_openai, ollama, openai_compatible, bedrock, vertex, demo"
NAME_RULE = "may hold letters, digits, spaces and . _ - and starts with a letter or digit, e.g. todo-assistant"
START = "name: a\nmodel: {provider: demo}\n"

BAD = {
    # not YAML
    "an api that the provider has not": (
        "name: a\nmodel:\n  provider: gemini\n  name: x\n  api: responses\n",
        ":5:8: model.api: provider gemini has no api: responses; leave it out",
    ),
    "tools of the provider by chat completions": (
        "name: a\nmodel:\n  provider: openai\n  name: x\n  api: chat\n  provider_tools: [{type: web_search}]\n",
        ":6:19: model.provider_tools: chat completions have no such tools; set api: responses, or leave them out",
    ),
    "a Cyrillic letter in a key": (
        "n\u0430me: a\nmodel: {provider: demo}\n",
        ":1:1: n\u0430me: unknown key; did you mean name, without U+0430 (CYRILLIC SMALL LETTER A)?",
    ),
    "an invisible character in a value": (
        "name: a\nmodel: {provider: de\u200bmo}\n",
        f":2:19: model.provider: 'demo' is not one of {PROVIDERS}; did you mean demo, without U+200B (ZERO WIDTH SPACE)?",
    ),
    "typographic quotes": (
        "name: “a”\nmodel: {provider: demo}\n",
        f":1:7: name: {NAME_RULE}; it contains U+201C (LEFT DOUBLE QUOTATION MARK)",
    ),
    "a typographic quote before a URL": (
        "name: a\nmodel: {provider: openai_compatible, name: x, endpoint: “http://127.0.0.1}\n",
        ":2:57: model.endpoint: must be a URL that starts with http:// or https://; it contains U+201C (LEFT DOUBLE QUOTATION MARK)",
    ),
    "an umlaut beside the mistake": (
        "name: a\nmodel: {provider: openai_compatible, name: x, endpoint: ws://münchen.test}\n",
        ":2:57: model.endpoint: must be a URL that starts with http:// or https://",
    ),
    "a dash of a word processor": (
        START + "tools:\n  \u2013 name: x\n",
        ":4:3: tools: must be a list (lines that start with -), not a block; it contains U+2013 (EN DASH)",
    ),
    "a number with its unit": (
        "name: a\nmodel: {provider: demo, timeout: 30s}\n",
        ":2:34: model.timeout: must be a number, not '30s'; write the number alone (times are in seconds)",
    ),
    "a key without its unit": (
        START + "sessions: {ttl: 60}\n",
        ":3:12: sessions.ttl: unknown key; did you mean ttl_seconds?",
    ),
    "empty": ("", ": the file is empty; `holodeck init` writes one to start from"),
    "only a comment": ("# todo\n", ": the file is empty; `holodeck init` writes one to start from"),
    "tab": ("name: a\nmodel:\n\tprovider: demo\n", ":3:1: a tab indents this line; YAML wants spaces"),
    "tab after spaces": ("name: a\nmodel:\n  \tprovider: demo\n", ":3:3: a tab indents this line; YAML wants spaces"),
    "colon in a value": (
        "name: a\ndescription: note: this\n",
        ":2:18: a ':' is out of place; put the value in quotes, or check the indentation and the line above",
    ),
    "no colon": ("name: a\nmodel\nloop: {}\n", ":3:1: this line is not 'key: value'; is a ':' missing?"),
    "indentation": (
        "name: a\n  model: 1\n",
        ":2:8: a ':' is out of place; put the value in quotes, or check the indentation and the line above",
    ),
    "no colon in the first line": (
        "name a\nmodel: {provider: demo}\n",
        ":2:6: a ':' is out of place; put the value in quotes, or check the indentation and the line above",
    ),
    "variable in braces": (
        "name: a\nmodel: {provider: openai, name: x, api_key: ${KEY}}\n",
        ':2:46: write "${KEY}" in quotes: inside { } and [ ], a brace starts a block',
    ),
    "variable in brackets": (
        "name: a\ntools: [${KEY}]\n",
        ':2:10: write "${KEY}" in quotes: inside { } and [ ], a brace starts a block',
    ),
    "open bracket": ("name: a\ntools: [a, b\n", ":3:1: a list in [ ] is not closed; it opens in line 2"),
    "open brace": (
        "name: a\nmodel: {provider: demo\nloop: {}\n",
        ":3:5: a block in { } is not closed; it opens in line 2",
    ),
    "open quote": ('name: "a\n', ":2:1: a quote is not closed; it opens in line 1"),
    "percent": ("name: %a\n", ":1:7: this character cannot start a value; put the value in quotes"),
    "unknown alias": ("name: *a\n", ":1:7: *a has no anchor &a that ends before it"),
    "alias of itself": ("name: a\ntools: &t [*t]\n", ":2:12: *t has no anchor &t that ends before it"),
    "two documents": (START + "---\nname: b\n", ":3:1: a second document starts here; a file describes one agent"),
    "a list": ("- name: a\n", ":1:1: an agent file is a block of 'key: value' lines, starting with name:"),
    "a word": ("hello\n", ":1:1: an agent file is a block of 'key: value' lines, starting with name:"),
    "duplicate key": ("name: a\nname: b\n", ":2:1: name: given twice; the first is in line 1"),
    "duplicate deep": (
        "name: a\nmodel:\n  provider: demo\n  provider: openai\n",
        ":4:3: provider: given twice; the first is in line 3",
    ),
    "number as key": ("name: a\n1: b\n", ":2:1: the key 1 is not text; put it in quotes"),
    "null as key": ("name: a\n~: b\n", ":2:1: the key ~ is not text; put it in quotes"),
    "list as key": ("name: a\n[b]: c\n", ":2:1: a key must be text; was a list or block meant to be quoted?"),
    "python tag": (
        "name: !!python/object/apply:os.system ['id']\n",
        ":1:7: the tag tag:yaml.org,2002:python/object/apply:os.system is not allowed; an agent file holds plain values",
    ),
    "own tag": ("name: !env HOME\n", ":1:7: the tag !env is not allowed; an agent file holds plain values"),
    "merge of a word": (START + "loop:\n  <<: word\n", ":4:7: <<: takes an alias of a block"),
    # keys
    "near miss": (START + "instuctions: x\n", ":3:1: instuctions: unknown key; did you mean instructions?"),
    "singular": (START + "tool: []\n", ":3:1: tool: unknown key; did you mean tools?"),
    "plural": (START + "models: {}\n", ":3:1: models: unknown key; did you mean model?"),
    "other name": (START + "system_prompt: x\n", ":3:1: system_prompt: unknown key; did you mean instructions?"),
    "wrong case": (START + "Loop: {}\n", ":3:1: Loop: unknown key; did you mean loop?"),
    "other name of the address": (
        "name: a\nmodel: {provider: openai_compatible, name: m, base_url: http://localhost:1234/v1}\n",
        ":2:47: model.base_url: unknown key; did you mean endpoint?",
    ),
    "other name in a fallback": (
        "name: a\nmodel:\n  provider: demo\n  fallback: [{provider: openai, model: gpt-5}]\n",
        ":4:33: model.fallback[0].model: unknown key; did you mean name?",
    ),
    "near miss deep": (
        "name: a\nmodel:\n  provider: demo\n  temprature: 1\n",
        ":4:3: model.temprature: unknown key; did you mean temperature?",
    ),
    "unknown deep": (
        START + "files:\n  colour: red\n",
        ":4:3: files.colour: unknown key; known here: max_files, max_file_mb, max_request_mb, allow_hosts",
    ),
    "key of a tool": (
        START + "tools:\n  - name: t\n    type: mcp\n    comand: x\n    url: http://localhost:1/\n",
        ":6:5: tools[0].comand: unknown key; did you mean command?",
    ),
    "key of the other tool": (
        START + "tools:\n  - name: t\n    type: function\n    file: a.py\n    functoin: f\n",
        ":7:5: tools[0].functoin: unknown key; did you mean function?",
    ),
    "key of a fallback": (
        "name: a\nmodel:\n  provider: demo\n  fallback:\n    - {provider: demo, nmae: x}\n",
        ":5:24: model.fallback[0].nmae: unknown key; did you mean name?",
    ),
    "near miss of a key that must be there": (
        "name: a\nmodel: {provder: demo}\n",
        ":2:9: model.provder: unknown key; did you mean provider?",
    ),
    "near miss of a block that must be there": (
        "name: a\nmodell: {provider: demo}\n",
        ":2:1: modell: unknown key; did you mean model?",
    ),
    "slip of a tool's key": (
        START + "tools:\n  - {nmae: t, type: mcp, command: x}\n",
        ":4:6: tools[0].nmae: unknown key; did you mean name?",
    ),
    "key of the prompt": (
        START + "instructions:\n  role_definiton: x\n",
        ":4:3: instructions.role_definiton: unknown key; did you mean role_definition?",
    ),
    "key of the state": (START + "state: {predct: []}\n", ":3:9: state.predct: unknown key; did you mean predict?"),
    # values
    "missing name": ("model: {provider: demo}\n", ":1:1: name: is required, e.g. name: my-agent"),
    "missing model": ("name: a\n", ":1:1: model: is required, e.g. model: {provider: demo}"),
    "missing provider": ("name: a\nmodel: {name: x}\n", ":2:1: model.provider: is required, e.g. provider: openai"),
    "a model by its name": (
        "name: a\nmodel: gpt-5\n",
        ":2:8: model: must be a block of keys, not 'gpt-5'; write model: {provider: …, name: gpt-5}",
    ),
    "a model by provider and name": (
        "name: a\nmodel: claude/opus\n",
        ":2:8: model: must be a block of keys, not 'claude/opus'; write model: {provider: anthropic, name: opus}",
    ),
    "a model by its provider": (
        "name: a\nmodel: demo\n",
        ":2:8: model: must be a block of keys, not 'demo'; write model: {provider: demo}",
    ),
    "a provider by another name": (
        "name: a\nmodel: {provider: google, name: x}\n",
        f":2:19: model.provider: 'google' is not one of {PROVIDERS}; did you mean gemini?",
    ),
    "a provider behind OpenAI's API": (
        "name: a\nmodel: {provider: Mistral, name: x}\n",
        ":2:19: model.provider: 'Mistral' is not a provider here; write provider: openai_compatible and its address as endpoint",
    ),
    "an option of serve": (
        START + "server: {port: 8080}\n",
        ":3:10: server.port: unknown key; it is an option: holodeck serve --port, or HOLODECK_PORT",
    ),
    "tab after a dash": (START + "tools:\n  -\tname: x\n", ":4:4: a tab indents this line; YAML wants spaces"),
    "no-break space": (
        "name: a\nmodel:\n\u00a0 provider: demo\n",
        ":3:1: a no-break space (U+00A0, often copied from a web page) is in this line; replace it by a plain one",
    ),
    "empty block": ("name: a\nmodel:\n", ":2:7: model: must be a block of keys, not empty"),
    "list expected": (
        START + "tools: {a: b}\n",
        ":3:8: tools: must be a list (lines that start with -), not a block",
    ),
    "provider": (
        "name: a\nmodel:\n  provider: gemni\n  name: x\n",
        (f":3:13: model.provider: 'gemni' is not one of {PROVIDERS}; did you mean gemini?"),
    ),
    "thinking with a small budget": (
        "name: a\nmodel:\n  provider: anthropic\n  name: x\n  reasoning: {budget_tokens: 500}\n",
        ":5:14: model.reasoning: budget_tokens must be at least 1024 with provider anthropic",
    ),
    "thinking and a temperature": (
        "name: a\nmodel:\n  provider: anthropic\n  name: x\n  temperature: 0\n  reasoning: {effort: low}\n",
        ":6:14: model.reasoning: provider anthropic takes no temperature together with reasoning; leave one out",
    ),
    "thinking and a forced tool": (
        "name: a\nmodel:\n  provider: anthropic\n  name: x\n  tool_choice: required\n  reasoning: {effort: low}\n",
        (
            ":6:14: model.reasoning: provider anthropic cannot be forced to use a tool while it thinks; "
            "set tool_choice: auto"
        ),
    ),
    "too hot for anthropic": (
        "name: a\nmodel:\n  provider: anthropic\n  name: x\n  temperature: 1.5\n",
        ":5:16: model.temperature: provider anthropic takes a temperature from 0 to 1",
    ),
    "option that anthropic lacks": (
        "name: a\nmodel:\n  provider: anthropic\n  name: x\n  seed: 3\n",
        ":5:9: model.seed: provider anthropic has no seed. Leave it out",
    ),
    "key and token": (
        "name: a\nmodel:\n  provider: anthropic\n  name: x\n  api_key: k\n  auth_token: t\n",
        ":6:15: model.auth_token: set api_key or auth_token, not both",
    ),
    "region of another provider": (
        "name: a\nmodel:\n  provider: openai\n  name: x\n  region: us-east-1\n",
        ":5:11: model.region: provider openai has no region; only bedrock has. Leave it out",
    ),
    "project of another provider": (
        "name: a\nmodel:\n  provider: bedrock\n  name: x\n  project: p\n",
        ":5:12: model.project: provider bedrock has no project; only vertex has. Leave it out",
    ),
    "option that bedrock lacks": (
        "name: a\nmodel:\n  provider: bedrock\n  name: x\n  parallel_tool_calls: false\n",
        ":5:24: model.parallel_tool_calls: provider bedrock has no parallel_tool_calls. Leave it out",
    ),
    "api of bedrock": (
        "name: a\nmodel:\n  provider: bedrock\n  name: x\n  api: responses\n",
        ":5:8: model.api: provider bedrock has no api: responses; leave it out",
    ),
    "thinking in tokens on bedrock": (
        "name: a\nmodel:\n  provider: bedrock\n  name: amazon.nova-pro-v1\n  reasoning: {budget_tokens: 2000}\n",
        (
            ":5:14: model.reasoning: on bedrock, only Anthropic's models take budget_tokens; set effort, "
            "or extra.additionalModelRequestFields"
        ),
    ),
    "thinking on bedrock above the limit": (
        "name: a\nmodel:\n  provider: bedrock\n  name: eu.anthropic.claude-x\n  reasoning: {budget_tokens: 20}\n",
        ":5:14: model.reasoning: budget_tokens must be at least 1024 with provider bedrock",
    ),
    "vertex without a publisher": (
        "name: a\nmodel: {provider: vertex, name: gemini-2.5-flash}\n",
        (
            ":2:8: model: name must begin with the model's publisher: google/gemini-2.5-flash, "
            "or anthropic/gemini-2.5-flash"
        ),
    ),
    "tools of gemini on vertex": (
        "name: a\nmodel:\n  provider: vertex\n  name: google/x\n  provider_tools: [{type: web_search}]\n",
        ":5:19: model.provider_tools: chat completions have no such tools; set api: responses, or leave them out",
    ),
    "cache": (
        "name: a\nmodel:\n  provider: anthropic\n  name: x\n  cache: 2h\n",
        ":5:10: model.cache: '2h' is not one of auto, 1h, off",
    ),
    "thinking above the limit": (
        "name: a\nmodel:\n  provider: gemini\n  name: x\n  max_tokens: 2000\n  reasoning: {budget_tokens: 2000}\n",
        (
            ":6:14: model.reasoning: budget_tokens (2000) must be less than max_tokens (2000); raise max_tokens or "
            "lower it"
        ),
    ),
    "thinking in tokens": (
        "name: a\nmodel:\n  provider: openai\n  name: x\n  reasoning: {budget_tokens: 2000}\n",
        ":5:14: model.reasoning: provider openai takes no budget_tokens; set effort instead",
    ),
    "thinking twice": (
        "name: a\nmodel:\n  provider: gemini\n  name: x\n  reasoning: {budget_tokens: 2000, effort: low}\n",
        ":5:14: model.reasoning: provider gemini takes effort or budget_tokens, not both; leave one out",
    ),
    "unknown effort": (
        "name: a\nmodel:\n  provider: openai\n  name: x\n  reasoning: {effort: hihg}\n",
        (
            ":5:23: model.reasoning.effort: 'hihg' is not one of none, minimal, low, medium, high, xhigh, max; "
            "did you mean high?"
        ),
    ),
    "option of another provider": (
        "name: a\nmodel:\n  provider: openai\n  name: x\n  betas: [a-2025-01-01]\n",
        ":5:10: model.betas: provider openai has no betas; only anthropic, bedrock, vertex have. Leave it out",
    ),
    "extra that is ours": (
        "name: a\nmodel:\n  provider: openai\n  name: x\n  extra: {stream: false, top_k: 3}\n",
        ":5:10: model.extra: must not hold stream: the runtime writes it. Leave it out",
    ),
    "model without name": (
        "name: a\nmodel: {provider: openai}\n",
        ":2:8: model: name is required: which model of openai?",
    ),
    "no endpoint": (
        "name: a\nmodel: {provider: openai_compatible, name: x}\n",
        ":2:8: model: endpoint is required with provider: openai_compatible",
    ),
    "endpoint without scheme": (
        "name: a\nmodel: {provider: ollama, name: x, endpoint: localhost:11434}\n",
        ":2:46: model.endpoint: must be a URL that starts with http:// or https://",
    ),
    "too hot": (
        "name: a\nmodel:\n  provider: demo\n  temperature: 3\n",
        ":4:16: model.temperature: must be at most 2, not 3",
    ),
    "warm": (
        "name: a\nmodel:\n  provider: demo\n  temperature: warm\n",
        ":4:16: model.temperature: must be a number, not 'warm'",
    ),
    "not a number": (
        "name: a\nmodel: {provider: demo, temperature: .nan}\n",
        ":2:38: model.temperature: must be a number, not '.nan'",
    ),
    "no iterations": (START + "loop: {max_iterations: 0}\n", ":3:24: loop.max_iterations: must be at least 1, not 0"),
    "51 iterations": (
        START + "loop: {max_iterations: 51}\n",
        ":3:24: loop.max_iterations: must be at most 50, not 51",
    ),
    "half an iteration": (
        START + "loop: {max_iterations: 1.5}\n",
        ":3:24: loop.max_iterations: must be a whole number, not 1.5",
    ),
    "no time": (
        START + "loop: {iteration_timeout: 0}\n",
        ":3:27: loop.iteration_timeout: must be more than 0, not 0",
    ),
    "name is a number": ("name: 12\nmodel: {provider: demo}\n", ":1:7: name: must be text, not 12; put it in quotes"),
    "name with a slash": (
        "name: a/b\nmodel: {provider: demo}\n",
        ":1:7: name: may hold letters, digits, spaces and . _ - and starts with a letter or digit, e.g. todo-assistant",
    ),
    "boolean": (
        START + "observability: {enabled: maybe}\n",
        ":3:26: observability.enabled: must be true or false, not 'maybe'",
    ),
    "store": (
        START + "sessions: {store: redis}\n",
        ":3:19: sessions.store: 'redis' is not one of memory, sqlite, postgres",
    ),
    "type of a tool": (
        START + "tools:\n  - name: t\n    type: mpc\n",
        ":5:11: tools[0].type: 'mpc' is not one of mcp, function; did you mean mcp?",
    ),
    "tool without type": (START + "tools:\n  - name: t\n", ":4:5: tools[0].type: is required: mcp or function"),
    "tool without a way": (
        START + "tools:\n  - name: t\n    type: mcp\n",
        ":4:5: tools[0]: give it either a command (a program) or a url (an HTTP endpoint)",
    ),
    "tool with two ways": (
        START + "tools:\n  - {name: t, type: mcp, command: x, url: 'http://localhost/'}\n",
        ":4:5: tools[0]: give it either a command (a program) or a url (an HTTP endpoint)",
    ),
    "args without command": (
        START + "tools:\n  - {name: t, type: mcp, url: 'http://localhost/', args: [a]}\n",
        ":4:5: tools[0]: args needs command, which is not set",
    ),
    "two tools of one name": (
        START + "tools:\n  - &t {name: t, type: function, file: a.py}\n  - *t\n",
        ":4:3: tools: two tools are called t; give each its own name",
    ),
    "approval": (
        START + "tools:\n  - {name: t, type: mcp, command: x, approval: {y: alway}}\n",
        ":4:52: tools[0].approval.y: 'alway' is not one of never, always; did you mean always?",
    ),
    "no isolation": (
        START + "instructions:\n  operational_rules: [be nice]\n",
        (
            ":4:22: instructions.operational_rules: needs a rule that keeps users apart, for example: Never read or change "
            "what belongs to another user."
        ),
    ),
    "no brevity": (
        START + "instructions:\n  response_guidelines: [be nice]\n",
        ":4:24: instructions.response_guidelines: needs a guideline that asks for brevity, for example: Keep answers short.",
    ),
    "empty instructions": (START + "instructions: ''\n", ":3:15: instructions: must not be empty"),
    "middleware": (
        START + "middleware: [{type: lgo}]\n",
        ":3:21: middleware[0].type: 'lgo' is not one of log, filter, throttle, annotate; did you mean log?",
    ),
}
