# Two commands set up everything on a machine that has Python: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2
FAST ?= fast

.PHONY: help install java demo test test-faults check format lint types imports fast lock clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(STAMP) ## set up .venv from the lock file (once)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "headgate needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": run make PYTHON=/path/to/python3.11")'
	@echo "setting up $(VENV) (once, about two minutes)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "python3 -m venv failed: on Debian or Ubuntu install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

java: ## check for Java 17 or newer; install it where that is possible
	@bash tools/java.sh

demo: install ## watch a skewed word count on Spark level out
	@bash tools/java.sh || { echo "without Java there is still the race of the planners: $(BIN)/headgate race"; exit 1; }
	@$(BIN)/headgate demo

test: install java ## run every test
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-faults: install java ## kill the driver more than 60 times, in many minutes, and compare
	@HEADGATE_FAULTS=full $(BIN)/python -m pytest -s tests/integration/test_crashes.py

check: install format lint types imports $(FAST) ## format, lint, types, import rules, fast tests

format:
	@$(BIN)/ruff format --check .
lint:
	@$(BIN)/ruff check .
types:
	@$(BIN)/mypy
imports:
	@$(BIN)/lint-imports
fast:
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow and not spark"

lock: $(STAMP) ## compile requirements.lock anew
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 \
	  --group dev --extra spark --extra prometheus --extra polars pyproject.toml -o requirements.lock --custom-compile-command "make lock"

clean: ## remove what the commands made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
