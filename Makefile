# `make up` starts the box; `make check` is what CI runs.

PYTHON ?= python3
BIN := .venv/bin
BOOTSTRAP := $(PYTHON) -I appliance/bootstrap.py

.PHONY: up test check format lint types contracts bench bench-engine gpu-check clean tools

up:
	@$(BOOTSTRAP)
	@exec $(BIN)/hisar up

# What the checks below run with: the environment, PostgreSQL, the small models, Keycloak.
tools:
	@$(BOOTSTRAP) --tests
	@$(BIN)/python -m tests.small_model
	@$(BIN)/python -m tests.embedding_model
	@$(BIN)/python -m tests.keycloak_server

check: format lint types contracts test

test: tools
	$(BIN)/python -m pytest

format: tools
	$(BIN)/ruff format --check .

lint: tools
	$(BIN)/ruff check .

types: tools
	$(BIN)/mypy

contracts: tools
	$(BIN)/lint-imports

bench: tools
	$(BIN)/python -m tests.bench

# The engine against its rivals; llama-server is built on first use, `python -m tests.bench.rivals`
# brings the others.
bench-engine: tools
	$(BIN)/python -m tests.bench.engine

# On a GPU: is it right, and how fast. With the Python that has torch for that GPU, and no network;
# ARGS="--json PATH" writes the figures, too.
gpu-check:
	$(PYTHON) -m tests.gpu.check $(ARGS)

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
