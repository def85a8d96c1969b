# Everything starts here, from nothing: `make demo` and `make test` set up .venv on first use and are quick after.
# PYTHON=python3.13 picks another interpreter, ARGS="-k chain" narrows the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WHEEL := build/wheel
SAMPLE := src/transom/data/sample/fix-retry-after.jsonl.gz
CLIENTS_DIR ?= $(HOME)/.cache/agent-clients
SOURCES := pyproject.toml $(shell find src -type f -not -name '*.pyc')

.PHONY: demo demo-replay test test-slow test-clients check style coverage bench docs format clean

demo: $(VENV)/.demo
	$(BIN)/transom demo --folder out/demo
	@$(MAKE) --no-print-directory demo-replay

demo-replay: $(VENV)/.demo
	@mkdir -p out
	test -t 1 || export COLUMNS=120; \
	$(BIN)/transom replay $(SAMPLE) --context-limit 48k --store out/store --html out/replay.html
	@echo "The sample is made up, its usage too. What the policies are: docs/replay.md"
	@echo "The same as a page: $(CURDIR)/out/replay.html"

test: $(VENV)/.dev
	$(BIN)/pytest $(ARGS)

# 2,000 examples a law and the kill loops; minutes to an hour, not part of every check.
test-slow: $(VENV)/.dev
	HYPOTHESIS_PROFILE=slow $(BIN)/pytest -m "not clients" --timeout=3600 $(ARGS)

# Real coding agents behind the gateway; their installer is not ours. About 2 GB the first time, then an hour.
test-clients: $(VENV)/.dev
	CLIENTS_DIR="$(CLIENTS_DIR)" bash tests/clients/install.sh
	CLIENTS_DIR="$(CLIENTS_DIR)" $(BIN)/pytest -m clients tests/clients $(ARGS)
	@$(BIN)/python -m tests.clients.table

check: style coverage

style: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# What is tested here is the built wheel: PYTHONPATH puts it before the editable install.
coverage: $(WHEEL)
	rm -f .coverage .coverage.*
	PYTHONPATH=$(CURDIR)/$(WHEEL) $(BIN)/python -c 'import transom; assert "$(WHEEL)" in transom.__file__, transom.__file__'
	PYTHONPATH=$(CURDIR)/$(WHEEL) COVERAGE_CORE=ctrace $(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include='*/transom/core/*' --fail-under=100 --skip-covered --show-missing
	$(BIN)/coverage report --omit='*/transom/core/*' --fail-under=95 --skip-covered --show-missing

$(WHEEL): $(SOURCES) README.md LICENSE $(VENV)/.dev
	rm -rf build/wheel dist
	$(PIP) wheel --no-deps --wheel-dir dist .
	$(PIP) install --no-deps --target $@ dist/transom-*.whl
	@touch $@

bench: $(VENV)/.dev
	$(BIN)/python -m bench $(ARGS)

docs: $(VENV)/.dev
	$(BIN)/python tools/make_docs.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .bootstrap build dist out .coverage .coverage.*

# An editable install already has all that the demo needs.
$(VENV)/.demo: $(SOURCES) | $(VENV)/.made
	@test -e $(VENV)/.dev || { echo "installing transom into $(VENV)"; $(PIP) install ".[all]"; }
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.made
	@echo "installing transom and its tools into $(VENV)"
	@$(PIP) install --editable ".[dev]"
	@touch $@

# Debian splits `venv` from python3; virtualenv brings its own pip and may stand in a folder of ours (PEP 668 forbids
# the system's).
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Transom needs Python 3.11 or newer; this is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@if $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	  $(PYTHON) -m pip install --disable-pip-version-check --quiet --target .bootstrap virtualenv && \
	  PYTHONPATH=.bootstrap $(PYTHON) -m virtualenv --quiet $(VENV); \
	else echo "Transom needs python3-venv or pip. On Debian: apt-get install python3-venv" >&2; exit 1; fi
	@touch $@
