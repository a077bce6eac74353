# Two commands do everything: `make demo` and `make test`. Both create .venv and install what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

$(BIN)/.deps: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q 'setuptools>=77' wheel
	$(BIN)/python -m pip install -q --no-build-isolation -e '.[dev]' --config-settings editable_mode=strict
	touch $@
	rm -f $(BIN)/.files

# Strict editable links show a new file only after a re-install: the stamp holds the list of files.
.PHONY: install
install: $(BIN)/.deps
	@find framework workers spots store -name '*.py' -o -name '*.lua' | sort > $(BIN)/.files.new; \
	if ! cmp -s $(BIN)/.files.new $(BIN)/.files; then \
	  $(BIN)/python -m pip install -q --no-deps --no-build-isolation -e . --config-settings editable_mode=strict \
	  && mv $(BIN)/.files.new $(BIN)/.files; fi

.PHONY: lint types
lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
types: install
	$(BIN)/mypy
