# The verbs of the project. `make` alone lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench clean

help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/runtime: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (about a minute, once) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "HoloDeck needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 …"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/development: $(VENV)/runtime
	@echo "Installing what the tests need …"
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[test,check]'
	@touch $@

$(VENV)/clients.ready: $(VENV)/development tests/clients/package.json tests/clients/requirements.txt tests/clients/setup.sh
	@echo "Installing the AG-UI clients that the tests meet …"
	@PYTHON=$(BIN)/python tests/clients/setup.sh
	@touch $@

setup: $(VENV)/development $(VENV)/clients.ready ## create .venv with everything the project and its tests need

demo: $(VENV)/runtime ## start the todo agent on the offline demo model and print where to talk to it
	@$(BIN)/holodeck serve --demo

test: setup check ## run the whole default suite
	$(BIN)/python -m pytest -n auto

check: $(VENV)/development ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/development ## let ruff tidy the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/development ## print CPU per token, packages, start time, memory
	$(BIN)/python -m benchmarks

clean: ## remove everything that is not in git
	git clean -fdx
