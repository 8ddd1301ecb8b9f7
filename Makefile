# Two commands on a fresh machine with python3, make and a C compiler:
#
#   make demo                    steps 16 environments through the sample replays
#   make demo REPLAYS=~/replays  the same on your own
#   make test                    installs everything and runs the tests
#
#   make bench                   the measurements of the README
#   make sanitize                the tests of the compiled core, with every access checked
#
# TORCH picks another build of torch for the tests, e.g. TORCH="torch==2.13.0"; PYTEST_ARGS goes
# to pytest, and SC2GYM_TEST_DATA names the folder of real replays.

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

bench: $(VENV)/test.stamp
	@for file in benchmarks/[a-z]*.py; do \
		echo "== $$file"; $(BIN)/python $$file || exit 1; \
	done

# A copy of its own, so that the ordinary build stays as it is. Python itself is not built with
# the sanitizers, so their libraries come in front of it; it never frees all, so leaks are not
# looked for.
SANITIZED := build/sanitized
SANITIZE_TESTS ?= $(addprefix tests/test_,$(addsuffix .py,mpq replay replay_hostile wire features \
	tracks episode vector feed recorded_episode))
sanitize: $(VENV)/test.stamp
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	cp -R sc2gym tests tools setup.py pyproject.toml README.md LICENSE $(SANITIZED)
	rm -f $(SANITIZED)/sc2gym/_fast/*.so $(SANITIZED)/sc2gym/_fast/*.c
	cd $(SANITIZED) && SC2GYM_DEBUG=1 SC2GYM_SANITIZE=1 \
		$(abspath $(BIN))/python setup.py -q build_ext -i
	cd $(SANITIZED) && \
		LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		SC2GYM_TEST_DATA="$${SC2GYM_TEST_DATA:-$(abspath ../shared/data)}" \
		$(abspath $(BIN))/python -m pytest -p no:cacheprovider $(SANITIZE_TESTS) $(PYTEST_ARGS)

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
