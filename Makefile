# make demo    NCM beside SSS on the embedded benchmark, figures under runs/
# make test    formatting, linting, types, import directions, tests
# make install the environment alone, with all extras: to serve, to export, to compare on a cluster

VENV   := .venv
BIN    := $(VENV)/bin
EXTRAS := dev,serve,export,cluster
PYTHON ?= python3

# The environment is rebuilt when the dependencies change, not when a version or a lint rule does.
WANTED := $(shell $(PYTHON) -c "import hashlib, json, tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
print(hashlib.sha256(json.dumps([p['dependencies'], p['optional-dependencies']]).encode()).hexdigest()[:16])")
STAMP  := $(VENV)/installed-$(WANTED)
CORE   := $(VENV)/core-$(WANTED)
ifeq ($(WANTED),)
$(error $(PYTHON) is not Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS))
endif

.PHONY: install demo test format clean
.NOTPARALLEL:  # the demo and the tests share an environment

install: $(STAMP)

$(STAMP): PACKAGE := .[$(EXTRAS)]
$(CORE): PACKAGE := .
$(STAMP) $(CORE):
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable "$(PACKAGE)"
	rm -f $(VENV)/installed-* $(VENV)/core-* && touch $@

# What the tests need is more than enough for the demo.
demo: $(or $(wildcard $(STAMP)),$(CORE))
	$(BIN)/fairshot compare ncm sss --benchmark doodles --out runs/demo

test: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
