# The commands of the project (CONTRIBUTING.md has the table). Needs Python >= 3.11, git and make; everything else is installed into .venv from the lock file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_WORKERS ?= 2
FUZZ_SECONDS ?= 600
FUZZERS ?=
# Hundreds of processes are started by tests and the demo; where no bytecode is kept each compiles all of it anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo sandbox test check docs bench fuzz lint format types layers unit quick lock schema clean

install: $(STAMP)

$(STAMP): requirements-dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Muster needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: install
	$(BIN)/muster demo

sandbox: install
	$(BIN)/muster sandbox

test: install
	$(MAKE) --no-print-directory --jobs 3 lint types layers
	$(MAKE) --no-print-directory unit

# Every commit: about four minutes on two cores. What is slow waits for `make test`.
check: install
	$(MAKE) --no-print-directory --jobs 2 lint types layers quick

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

layers: install
	$(BIN)/lint-imports

unit: install
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal tests

quick: install
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal -m "not slow" tests

# Strict: a dead link, a lost anchor or a page that is in no menu is an error (not with --quiet, which drops warnings).
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

bench: install
	$(BIN)/python -m bench

# Made-up input for so long, shared by all fuzzers or those named (FUZZERS="loader http"); says how many inputs it ran.
fuzz: install
	$(BIN)/python -m tests.fuzz $(FUZZERS) --seconds $(FUZZ_SECONDS)

format: install
	$(BIN)/ruff check --fix-only --exit-zero .
	$(BIN)/ruff format .

schema: install
	$(BIN)/python -m tools.schema schemas
	$(BIN)/python -m tools.field_tables docs/kinds
	$(BIN)/python -m tools.crds deploy/crds
	$(BIN)/python -m tools.roles deploy
	$(BIN)/python -m tools.dashboards deploy
	$(BIN)/python -m tools.alerts deploy
	$(BIN)/python -m tools.chart deploy

# Needs uv; the lock carries hashes, no index address, and the extras that pip asks for by name where it checks hashes.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-strip-extras --no-header pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-strip-extras --no-header --extra sandbox --group dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
