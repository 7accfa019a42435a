# Every target does its own set-up: a Python 3.11 with venv, make and the package registry are all it needs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: install chromium demo test test-browser bench-browser test-chaos chaos test-fuzz test-parallel test-oracle screenshots lint format serve bench bench-peers bench-gpu

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,dev]'
	touch $@

# What the tests of the dashboard run in: REGATTA_CHROMIUM, or Debian's. Where it cannot be had, they skip and say so.
chromium:
	@command -v "$${REGATTA_CHROMIUM:-chromium}" > /dev/null || { \
		[ "$$(id -u)" = 0 ] || root="sudo -n"; \
		$$root apt-get update -qq && $$root apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; \
	} || echo 'The tests of the dashboard will skip. To run them, install the packages chromium and fonts-dejavu-core.'

demo: install
	rm -rf build/demo-model
	$(BIN)/regatta demo --model-dir build/demo-model

# Two files at a time.
test: install chromium
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

test-browser: install chromium
	$(BIN)/pytest tests/browser

# How long the dashboard takes to answer, with thousands of jobs, lines and numbers.
bench-browser: install chromium
	$(BIN)/pytest -m browser_speed tests/browser

# The pictures of the documentation.
screenshots: install chromium
	$(BIN)/pytest -m screenshots tests/browser

test-chaos: install
	$(BIN)/pytest -m chaos

# Jobs of all tasks on several hosts while every few seconds something is killed, frozen or cut off; `SEED=7` repeats a
# run, `CHAOS="--minutes 3 --real"` changes it (`.venv/bin/python -m tests.chaos.run --help`).
chaos: install
	$(BIN)/python -m tests.chaos.run $(if $(SEED),--seed $(SEED)) $(CHAOS)

# Many random calls of every operation, on both databases: a quarter of an hour.
test-fuzz: install
	$(BIN)/pytest -m fuzz tests/api/test_schemathesis.py

# Every combination of layout, family and method, and a table of how far each is from one process.
test-parallel: install
	$(BIN)/pytest -m '' tests/parallel tests/end_to_end/test_argument_files_in_parallel.py

# Against transformers itself, in an environment of its own (torch is large); what is compiled there needs a C
# compiler. ORACLE=path/to/python takes an environment that has the oracle extra already.
ORACLE ?= .oracle/bin/python
test-oracle: install $(if $(filter .oracle/%,$(ORACLE)),.oracle/installed)
	REGATTA_ORACLE_PYTHON=$(abspath $(ORACLE)) TORCHDYNAMO_DISABLE=1 $(BIN)/pytest -m oracle

.oracle/installed: pyproject.toml
	$(PYTHON) -m venv .oracle
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["oracle"], sep="\n")' > .oracle/packages
	.oracle/bin/pip install --quiet --disable-pip-version-check -r .oracle/packages
	touch $@

bench: install
	$(BIN)/python benchmarks/start_overhead.py
	$(BIN)/python benchmarks/start_latency.py
	$(BIN)/python benchmarks/scheduling.py
	$(BIN)/python benchmarks/log_followers.py
	$(BIN)/python benchmarks/api_speed.py --jobs 100000
	$(BIN)/python benchmarks/load_memory.py
	$(BIN)/python benchmarks/preference_memory.py
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/memory_estimate.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/quantize_memory.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/async_save.py
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/checkpoint_speed.py

# Beside transformers, PEFT and TRL, in an environment of their own (torch is large). PEERS=path/to/python takes one
# that has the peers extra already; DATA is a folder with sft/train.json, dpo/train.jsonl and kto/train.jsonl.
PEERS ?= .peers/bin/python
DATA ?= ../shared/data
bench-peers: install $(if $(filter .peers/%,$(PEERS)),.peers/installed)
	$(BIN)/python -m benchmarks.peers.compare --peers $(PEERS) --data $(DATA)

.peers/installed: pyproject.toml
	$(PYTHON) -m venv .peers
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["peers"], sep="\n")' > .peers/packages
	.peers/bin/pip install --quiet --disable-pip-version-check -r .peers/packages
	touch $@

# On one GPU: at most ten minutes. Needs the gpu extra instead of the cpu one.
bench-gpu:
	$(BIN)/python benchmarks/gpu_step.py

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
