# Each target sets up what it needs in .venv; PYTHON chooses the interpreter that makes it.
PYTHON ?= python3
BIN := .venv/bin
# processes that run tests
WORKERS ?= 2
# accelerate uses one CPU thread unless it is told otherwise
THREADS := $(shell getconf _NPROCESSORS_ONLN)
LAUNCH := $(BIN)/accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
	--num_cpu_threads_per_process $(THREADS)

.PHONY: quickstart test lint bench clean

quickstart: .venv/demo.done
	$(LAUNCH) recipes/bbc_news.py

test: .venv/test.done
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

lint: .venv/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: .venv/demo.done
	$(BIN)/python -m benchmarks.bbc_news

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.done: .venv/bin/python setup.cfg constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demo]"
	touch $@

.venv/test.done: .venv/bin/python setup.cfg constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[demo,test]"
	touch $@

clean:
	rm -rf .venv build *.egg-info
