# Every target does its own set-up: a Python 3.11 with venv, make and the package registry are all it needs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: install demo test test-chaos test-parallel test-oracle lint format serve bench

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,dev]'
	touch $@

demo: install
	rm -rf build/demo-model
	$(BIN)/regatta demo --model-dir build/demo-model

test: install
	$(BIN)/pytest

test-chaos: install
	$(BIN)/pytest -m chaos

# Every combination of layout, family and method, and a table of how far each is from one process.
test-parallel: install
	$(BIN)/pytest -m '' tests/parallel tests/end_to_end/test_argument_files_in_parallel.py

# Against transformers itself, in an environment of its own (torch is large).
test-oracle: install .oracle/installed
	REGATTA_ORACLE_PYTHON=$(CURDIR)/.oracle/bin/python $(BIN)/pytest -m oracle

.oracle/installed: pyproject.toml
	$(PYTHON) -m venv .oracle
	.oracle/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 'transformers>=5' peft trl sentencepiece protobuf
	touch $@

bench: install
	$(BIN)/python benchmarks/start_overhead.py
	$(BIN)/python benchmarks/load_memory.py
	$(BIN)/python benchmarks/preference_memory.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/quantize_memory.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/async_save.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

serve: install
	$(BIN)/regatta up
