# Two commands do everything: `make demo` and `make test`. Both create .venv and install what they need.
# `make help` lists the rest.
#
#   PYTHON=python3.12   the Python to make the environment with (a command or a path)
#   VENV=.venv          the environment
#   ARGS="-k store -x"  further arguments for the program that is run
VENV ?= .venv
BIN := $(VENV)/bin
PREPARE = PYTHON="$(PYTHON)" sh .ci/prepare "$(VENV)"
# Beside the package itself, which pyproject.toml names, mypy checks these as strictly.
TYPED := $(wildcard .ci/*.py tests examples bench)
# Without compiled modules on disk every process that starts compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help
help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

.PHONY: demo bench
demo: ## a month of flights over a cluster whose objects keep moving (RATE=0: full speed, FLIGHTS=all: the year)
	@$(PREPARE) demo
	@$(BIN)/python -m examples.flights $(ARGS)
bench: ## measure beside what this machine can do at best (ARGS=--quick: a minute instead of several)
	@$(PREPARE) run
	@$(BIN)/python -m bench $(ARGS)

.PHONY: install
install: ## bring .venv up to date (every target below does so itself)
	@$(PREPARE) dev

.PHONY: test
test: install ## everything that must pass: format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@echo "$(BIN)/mypy (tests, examples, bench)"; $(BIN)/mypy $(TYPED)
	$(BIN)/python -m pytest -n auto $(ARGS)

.PHONY: test-all
test-all: install lint types ## the tests on every supported Python that really runs here
	@ran=""; failed=""; \
	for version in 3.11 3.12 3.13; do \
	  python=$$(sh .ci/find-python $$version 2>/dev/null) || { echo "== Python $$version: none that runs"; continue; }; \
	  echo "== Python $$version: $$python"; ran="$$ran $$version"; \
	  $(MAKE) --no-print-directory pytest VENV=.venv-$$version PYTHON="$$python" || failed="$$failed $$version"; \
	done; \
	echo "== ran on:$${ran:- none}; failed on:$${failed:- none}"; test -n "$$ran" && test -z "$$failed"

.PHONY: pytest
pytest: install ## the tests alone
	$(BIN)/python -m pytest -n auto $(ARGS)

.PHONY: lint types format
lint: install ## format check and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
types: install ## mypy, strict
	$(BIN)/mypy
	@echo "$(BIN)/mypy (tests, examples, bench)"; $(BIN)/mypy $(TYPED)
format: install ## rewrite the files the way the format check wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .


SEEDS ?= 0:200
SECONDS ?= 30
.PHONY: sim sim-fresh drills explore
sim: install ## simulate whole clusters from seeds; SEEDS=0:5000 plays a range, SEEDS=17 tells the story of one
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)
sim-fresh: install ## simulate seeds that nobody has played, for half a minute (SECONDS=600: for ten)
	@$(BIN)/python -m tests.simulation --fresh --seconds $(SECONDS) $(ARGS)
drills: install ## planted bugs that the simulation must catch; a checker that cannot fail proves nothing
	@$(BIN)/python -m tests.simulation.drills $(ARGS)
explore: install ## every interleaving of a handoff, of one object and of a unit, with two faults, over hashed states
	@$(BIN)/python -m tests.simulation.explore $(ARGS)

.PHONY: coverage
coverage: install ## tests with branch coverage, child processes included; a table for each folder
	$(BIN)/python .ci/coverage_by_folder.py $(ARGS)

.PHONY: lines
lines: install ## lines of code for each folder
	@$(BIN)/python -m tests.tidy.lines

.PHONY: clean distclean
clean: ## remove what can be built again, but not the environments
	rm -rf build dist *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
distclean: clean ## remove the environments as well
	rm -rf .venv .venv-* .venv.lock
