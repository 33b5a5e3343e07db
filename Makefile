# `make run` and `make test` work in a fresh clone on a machine that has Python 3.11 or newer and make.

VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Whatever the shell says: the tests start hundreds of processes, each of which would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE
.SHELLFLAGS := -euc
.DEFAULT_GOAL := help
.PHONY: help run test check bench soak shots lock browser servers

help:
	@echo "make run    set up and serve; prints the link that logs you in"
	@echo "make test   set up for development, then all checks and tests"
	@echo "make check  lint, format, types, import contracts"
	@echo "make bench  the benchmarks; make soak: the long tests"
	@echo "make shots  the pictures of the README, from a real run"
	@echo "make lock   resolve the dependencies of pyproject.toml anew (needs uv)"

run: $(VENV)/.ready
	@$(BIN)/nightbook serve

# Most of the time a test waits for a process: several at once use the cores. A file stays in one process, as some
# tests look for what they started among all that runs.
test: check browser servers
	$(BIN)/pytest -n 3 --dist loadfile tests e2e

check: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.ready-dev
	$(BIN)/python -m tests.bench

soak: $(VENV)/.ready-dev browser servers
	NIGHTBOOK_SOAK=1 $(BIN)/pytest tests e2e

shots: $(VENV)/.ready-dev browser
	$(BIN)/python -m tests.shots

# The environment, made again only when what it is made of changed.

$(VENV)/.pip:
	@if ! $(BIN)/python -c pass 2>/dev/null; then \
	  for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	    if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      echo "Setting up $(VENV) with $$($$python --version) …"; $$python -m venv --clear $(VENV); break; \
	    fi; \
	  done; \
	fi
	@if ! $(BIN)/python -c pass 2>/dev/null; then \
	  echo "Nightbook needs Python 3.11 or newer with its venv module, and found none." >&2; \
	  echo "Install it (Debian and Ubuntu: apt install python3 python3-venv) and try again." >&2; exit 1; \
	fi
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@touch $@

$(VENV)/.ready: requirements.lock pyproject.toml | $(VENV)/.pip
	@echo "Installing what Nightbook needs (once) …"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-index --no-build-isolation --editable .
	@touch $@

$(VENV)/.ready-dev: requirements-dev.lock $(VENV)/.ready
	@echo "Installing what its development needs (once) …"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	@touch $@

# The browser of the tests: the system's Chromium where there is one, else Playwright's own.
# A continuous integration machine may have neither, nor bubblewrap; there, as root, both come from its packages.
browser: $(VENV)/.ready-dev
	@if [ "$${CI:-}" = true ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  wanted=; [ -x /usr/bin/chromium ] || wanted="chromium fonts-dejavu-core"; \
	  command -v bwrap >/dev/null || wanted="$$wanted bubblewrap"; \
	  shell=; [ -x /usr/bin/chromium-headless-shell ] || shell=chromium-headless-shell; \
	  install="env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"; \
	  if [ -n "$$wanted$$shell" ]; then \
	    apt-get update -qq || true; \
	    $$install $$wanted $$shell || { [ -z "$$wanted" ] || $$install $$wanted; } \
	      || echo "apt-get could not install: $$wanted" >&2; \
	  fi; \
	fi
	@[ -x /usr/bin/chromium-headless-shell ] || [ -x /usr/bin/chromium ] || $(BIN)/python -m playwright install chromium

# Tool servers from npm, pinned by their lock, for the one test that uses them; without npm it is skipped and says so.
servers: e2e/npm/node_modules/.ready
e2e/npm/node_modules/.ready: e2e/npm/package-lock.json
	@if command -v npm >/dev/null; then \
	  { npm ci --prefix e2e/npm --omit=dev --ignore-scripts --no-audit --no-fund --fetch-retries=1 --loglevel=error \
	    >/dev/null && touch $@; } || echo "npm could not install the tool servers of e2e/npm: their test is skipped" >&2; \
	fi

# Both files pin everything with hashes, for every platform; the second adds to the first.
UV ?= uv
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-annotate --custom-compile-command "make lock"
lock:
	printf 'hatchling\neditables\n' | $(COMPILE) --upgrade pyproject.toml - -o requirements.lock
	$(COMPILE) --upgrade --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock
	! grep -nE 'https?://|--(extra-)?index-url' requirements.lock requirements-dev.lock
