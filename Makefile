# Every target does its own set-up: a Python 3.11 with venv, make and the package registry are all it needs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: install demo test test-chaos test-oracle lint format serve bench clean

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
