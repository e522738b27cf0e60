# make demo    NCM beside SSS on the embedded benchmark, figures under runs/
# make test    formatting, linting, types, import directions, tests; JOBS=4 runs the tests in four processes
# make install the environment alone, with all extras: to serve, to export, to watch, to compare on a cluster
# make docs    the documentation, as a site in site/; broken links fail
# make format  the code in the form that `make test` asks for
# make clean   remove the environment and the caches of the tools; runs/ is your work, and stays
# make help    print these lines

VENV   := .venv
BIN    := $(VENV)/bin
EXTRAS := dev,docs,photos,serve,export,cluster,watch,tensorboard,wandb
PYTHON ?= python3
JOBS   ?= 2

# The environment is rebuilt when the dependencies change, not when a version or a lint rule does.
WANTED := $(shell $(PYTHON) -c "import hashlib, json, tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
print(hashlib.sha256(json.dumps([p['dependencies'], p['optional-dependencies']]).encode()).hexdigest()[:16])")
STAMP  := $(VENV)/installed-$(WANTED)
CORE   := $(VENV)/core-$(WANTED)
ifeq ($(WANTED),)
$(error $(PYTHON) is not Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS))
endif

.PHONY: install demo test docs format clean help
.NOTPARALLEL:  # the demo and the tests share an environment

install: $(STAMP)

$(STAMP): PACKAGE := .[$(EXTRAS)]
$(STAMP): SIZE := 7
$(CORE): PACKAGE := .
$(CORE): SIZE := 6
$(STAMP) $(CORE):
	@echo "Installing into $(VENV): about $(SIZE) GB, torch and its libraries for GPUs above all. What is not"
	@echo "there yet is downloaded, which takes minutes and shows nothing meanwhile."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable "$(PACKAGE)"
	rm -f $(VENV)/installed-* $(VENV)/core-* && touch $@

# What the tests need is more than enough for the demo.
demo: $(or $(wildcard $(STAMP)),$(CORE))
	$(BIN)/fairshot compare ncm sss --benchmark doodles --out runs/demo
	@echo
	@echo "Next:"
	@echo "  . $(BIN)/activate                              # makes fairshot a command of this shell"
	@echo "  fairshot report runs/demo                         # the demo as a page"
	@echo "  fairshot new my-store --from runs/demo/sss-seed0  # a store to teach: docs/teaching.md"

# A file's tests share fixtures, so that a file stays in one process; each process has one core for itself.
test: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(JOBS) --dist loadfile

# Building is also part of the tests (tests/docs), into another folder.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site
	@echo "open site/index.html"

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Not runs/: what was trained there is the user's, and may have taken days.
clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

help:
	@sed -n 's/^# make /make /p' $(firstword $(MAKEFILE_LIST))
