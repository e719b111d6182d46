# Two commands on a fresh machine with Python 3.11+ and make: `make sim` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
COVERED := processors replay schemas streams
CODE := actors processors producers replay schemas sim src streams tests training views

.DEFAULT_GOAL := help
.PHONY: help sim demo-train test test-train coverage compose-test lint lint-all format bench bench-long campaign scenarios generate clean

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

sim: $(VENV)/.runtime ## Start a simulated cluster, break a GPU, watch the job shrink (about a minute)
	@$(BIN)/nemesis demo

demo-train: $(VENV)/.train ## Train on four real processes, kill one, watch the loss go on; the same under torchrun (torch is installed: a GB or more)
	@$(BIN)/nemesis demo train

test: $(VENV)/.dev ## Run every test, fault tests included; skipped ones are listed with their reason
	@$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup --no-loadscope-reorder

test-train: $(VENV)/.dev $(VENV)/.train ## Run what needs torch: ranks over gloo, ten runs with drawn faults (torch is installed: a GB or more)
	@$(BIN)/python -m pytest -m "torch and not compose"

coverage: $(VENV)/.dev ## Run every test and measure the core, child processes too; fails below 95 % (half an hour)
	@$(BIN)/coverage erase
	@status=0; \
	$(BIN)/coverage run -m pytest --timeout=600 || status=1; \
	$(BIN)/coverage combine --quiet || status=1; \
	rm -f .coverage.*; : what a child left that was killed while it wrote; \
	for folder in $(COVERED); do \
	  printf '%-12s' "$$folder"; \
	  $(BIN)/coverage report --include="$$folder/*" --format=total --fail-under=95 || status=1; \
	done; exit $$status

compose-test: $(VENV)/.dev ## Bring `docker compose up` up for real, kill two services, see recovery, take all down
	@$(BIN)/python -m pytest -p no:randomly -m compose tests/test_compose.py

lint: $(VENV)/.dev ## Style, imports and types (mypy is the gate)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy

lint-all: lint ## lint, and the second type checker, spelling and project metadata
	@$(BIN)/pyright
	@$(BIN)/codespell $(CODE) README.md CHANGELOG.md docs Makefile
	@$(BIN)/validate-pyproject pyproject.toml

format: $(VENV)/.dev ## Let ruff rewrite what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev ## Measure the pipeline and print Table 1, goal beside result (about nine minutes)
	@$(BIN)/python -m tests.bench

bench-long: $(VENV)/.dev ## The soaks: catch-up of 5 million messages within 1 GB; a lost rank under NEMESIS, torchrun and torchft
	@$(BIN)/python -m tests.bench --long

campaign: $(VENV)/.dev ## Fault campaigns, 50 repetitions a cut, 1,000 drawn scenarios, 2,500 quiet node-days, 20,000 GPU-days foreseen, and mutation testing (hours)
	@$(BIN)/python -m tests.faults.campaign

scenarios: $(VENV)/.dev ## Every scenario with ten seeds, in virtual time (two minutes); `python -m tests.scenarios --speed 4` on the wire
	@$(BIN)/python -m tests.scenarios

generate: $(VENV)/.dev ## Rebuild what is generated: tables, JSON Schema, AsyncAPI
	@$(BIN)/python -m tests.generate

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist mutants mutants.log *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache

# One clear line where a virtual environment cannot be made, instead of ensurepip's page of text.
$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: $(PYTHON) is not found: install Python 3.11 or newer, or say make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $(PYTHON) is older than 3.11: install Python 3.11 or newer, or say make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "make: $(PYTHON) has no venv module: install it (Debian: apt install python3-venv), then run make again" >&2; exit 1; }
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing NEMESIS and what it needs, about half a minute ..."
	@$(PIP) -e .
	@touch $@

$(VENV)/.train: $(VENV)/.runtime
	@echo "installing torch, which takes minutes ..."
	@$(PIP) -e '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "installing the tools for tests and lint ..."
	@$(PIP) -e '.[dev]'
	@touch $@
