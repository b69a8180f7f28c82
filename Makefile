# Everything runs in .venv, which stamp files keep in step with requirements/*.lock and pyproject.toml.
#
# Order of installation: the lock (hashes required, nothing resolved), then torch, then this package. torch comes from
# no lock (its wheels differ by platform), so it is resolved under constraints cut from the lock: pip adds torch and its
# accelerator wheels and fails rather than move anything else (but triton, of which its CUDA wheels want their own
# release). `pip check` proves the result complete.

PYTHON ?= python3
TORCH_VERSION := 2.13.0
TORCH_INDEX ?=
FUZZ ?= --runs=500
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCK_TOOLS := build/lock-tools

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint types imports fuzz lock clean

help:
	@echo 'make demo    score three shipped conversations with the embedded scorer'
	@echo 'make test    lint, types, import contracts, tests: all that has to pass; WORKERS=2 processes run the tests'
	@echo 'make lint    ruff: rules and format'
	@echo 'make types   mypy, strict'
	@echo 'make imports the contracts between rooms'
	@echo 'make fuzz    every fuzz target for a moment, with atheris (Linux on x86-64); FUZZ=--seconds=120 for longer'
	@echo 'make lock    recompile requirements/*.lock with Python 3.11 (LOCK_FLAGS=--upgrade to raise every pin)'
	@echo 'make clean   remove .venv, caches and builds'
	@echo
	@echo 'PYTHON=python3.12   the interpreter .venv is made from, 3.11 or newer (now: $(PYTHON))'
	@echo 'TORCH_INDEX=URL     where torch $(TORCH_VERSION) comes from. On Linux the default wheels carry CUDA; without'
	@echo '                    a GPU use https://download.pytorch.org/whl/cpu (after make clean, if .venv exists)'

demo: $(VENV)/.runtime
	$(BIN)/mainspring demo

test: lint types imports
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

fuzz: $(VENV)/.dev
	@if $(BIN)/python -c 'import atheris' 2>/dev/null; then $(BIN)/python fuzz/run.py all $(FUZZ); \
	else echo 'no atheris for this system: the targets run under Hypothesis alone, with make test'; fi

lock: $(LOCK_TOOLS)/.done
	$(LOCK_TOOLS)/bin/python requirements/compile.py $(LOCK_FLAGS)

clean:
	rm -rf $(VENV) build dist  .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench requirements -type d -name __pycache__ -prune -exec rm -rf {} +

define install
	$(PIP) install --quiet --require-hashes --no-deps -r requirements/$(1).lock
	sed -n '/^triton==/d; s/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' requirements/$(1).lock > $(VENV)/constraints.txt
	$(PIP) install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -c $(VENV)/constraints.txt \
		torch==$(TORCH_VERSION)
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	$(PIP) check
endef

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'Python 3.11 or newer is needed and $(PYTHON) is not: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
		echo '$(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.made requirements/runtime.lock pyproject.toml Makefile
	$(call install,runtime)
	@touch $@

# The dev lock is a superset with equal versions, so it satisfies both stamps.
$(VENV)/.dev: $(VENV)/.made requirements/dev.lock requirements/runtime.lock pyproject.toml Makefile
	$(call install,dev)
	@touch $(VENV)/.runtime $@

$(LOCK_TOOLS)/.done:
	$(PYTHON) -m venv $(LOCK_TOOLS)
	$(LOCK_TOOLS)/bin/python -m pip --disable-pip-version-check install --quiet pip-tools==7.6.2
	@touch $@
