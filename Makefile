# Two commands on a fresh machine with python3, make and a C compiler:
#
#   make demo                    steps 16 environments through the sample replays
#   make demo REPLAYS=~/replays  the same on your own
#   make test                    installs everything and runs the tests
#
# TORCH picks another build of torch for the tests, e.g. TORCH="torch==2.13.0".

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch
REPLAYS ?=
BIN    := $(VENV)/bin

.PHONY: demo test lint bench sanitize clean

demo: $(VENV)/demo.stamp
	$(BIN)/python -m sc2gym demo $(if $(REPLAYS),--replays "$(REPLAYS)")

test: $(VENV)/test.stamp
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/test.stamp
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m mypy

SOURCES := pyproject.toml setup.py $(wildcard sc2gym/_fast/*.pyx sc2gym/_fast/*.pxd)

$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	touch $@

$(VENV)/demo.stamp: $(VENV)/pip.stamp $(SOURCES)
	$(BIN)/python -m pip install -q -e ".[video]"
	touch $@

$(VENV)/test.stamp: $(VENV)/pip.stamp $(SOURCES)
	$(BIN)/python -m pip install -q "$(TORCH)"
	$(BIN)/python -m pip install -q -e ".[test]"
	touch $@

clean:
	rm -rf build dist *.egg-info $(VENV) sc2gym/_fast/*.c sc2gym/_fast/*.so
