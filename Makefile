# One command per check, the same for people and for CI. Each target sets itself up:
# the environment is .venv, and a stamp in it records the extra that is installed.

VENV := .venv
BIN := $(VENV)/bin
CANDIDATES := $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check

# The pytest workers run side by side, so each gets one thread.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PYTEST := $(ONE_THREAD) MPLBACKEND=Agg $(BIN)/python -m pytest

# Any warning fails, so that every link within the site leads somewhere.
SPHINX := $(ONE_THREAD) $(BIN)/python -m sphinx -q -W --keep-going -c docs

# The tests hold for any seed. Changes are tested with the same seed; `test-seeds` tries
# other seeds, before a release or after statistical tests have changed.
SEEDS := 5

# The oldest scikit-learn that pyproject.toml allows, in addition to the newest one.
FLOOR := scikit-learn==1.6.1
FLOOR_TESTS := tests/test_layers.py $(wildcard tests/test_sklearn_compat.py)

BENCHMARKS := default_speed fit_speed family_speed fast_dropout network_speed predict_speed serving streams mixtures uci recalibration abstention \
	detection noise epistemic search_speed optuna_speed search_memory scaling import_time

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: demo test test-seeds test-floor lint bench docs linkcheck clean help

demo: $(VENV)/.extra-demo ## run examples/plot_stacking.py: less than a minute
	@echo "demo: examples/plot_stacking.py"
	@$(BIN)/python examples/plot_stacking.py

test: $(VENV)/.extra-test ## run the tests and the doctests (ARGS="-k name" goes to pytest)
	@echo "test: pytest"
	@$(PYTEST) $(ARGS)

test-seeds: $(VENV)/.extra-test ## run the tests with SEEDS (5) seeds that are drawn at random
	@for seed in $$(od -An -N$$((2 * $(SEEDS))) -tu2 /dev/urandom); do \
		echo "test-seeds: SKBAYESNN_SEED=$$seed"; \
		SKBAYESNN_SEED=$$seed $(PYTEST) -q $(ARGS) || exit 1; \
	done

test-floor: $(VENV)/.floor ## run the tests of scikit-learn's interface with its oldest
	@echo "test-floor: pytest, $(FLOOR)"
	@PYTHONPATH=$(VENV)/floor $(PYTEST) -n 0 $(FLOOR_TESTS)

lint: $(VENV)/.extra-dev ## conflict marks, ruff check, ruff format --check, mypy; code lines
	@echo "lint: conflict marks"
	@! git grep --line-number --extended-regexp '^(<<<<<<<|[|]{7}|>>>>>>>)( |$$)'
	@echo "lint: ruff check"
	@$(BIN)/ruff check .
	@echo "lint: ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "lint: mypy skbayesnn"
	@$(BIN)/mypy skbayesnn
	@echo "lint: code lines of each folder and its longest file, without a limit"
	@$(BIN)/python tools/code_lines.py skbayesnn tests

bench: $(VENV)/.extra-bench ## run the benchmarks one after another
	@set -e; for name in $(BENCHMARKS); do \
		echo "bench: benchmarks/$$name.py"; \
		$(BIN)/python benchmarks/$$name.py; \
	done

docs: $(VENV)/.extra-docs ## build the documentation site in build/site
	@echo "docs: build/site/docs/index.html"
	@$(SPHINX) -b html . build/site

linkcheck: $(VENV)/.extra-docs ## check the links of the documentation to other sites
	@echo "linkcheck: sphinx"
	@SKBAYESNN_GALLERY=none $(SPHINX) -b linkcheck . build/linkcheck

clean: ## remove the environment, the caches and the builds
	rm -rf $(VENV) build dist docs/api docs/gallery .pytest_cache .mypy_cache .ruff_cache htmlcov .coverage .coverage.*
	find skbayesnn tests examples benchmarks reproductions -type d -name __pycache__ -prune \
		-exec rm -rf {} + 2>/dev/null || true

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The first candidate that is new enough and can make an environment.
$(VENV)/.python:
	@found=; for candidate in $(CANDIDATES); do \
		if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
			2>/dev/null; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "skbayesnn needs Python >= 3.11 with its venv module; none of these is one:" \
			"$(strip $(CANDIDATES)). Install one, or name it: make PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi; \
	echo "set-up: $(VENV) with $$("$$found" --version) ($$found)"; \
	"$$found" -m venv $(VENV)
	@touch $@

# Always with the constraints: they are the versions that the tests were run with.
$(VENV)/.extra-%: $(VENV)/.python pyproject.toml constraints.txt
	@echo "set-up: pip install -c constraints.txt -e '.[$*]'"
	@$(PIP_INSTALL) -c constraints.txt -e '.[$*]'
	@touch $@

# Without its dependencies, which stay as they are in the environment.
$(VENV)/.floor: $(VENV)/.extra-test Makefile
	@echo "set-up: pip install --target $(VENV)/floor --no-deps $(FLOOR)"
	@rm -rf $(VENV)/floor
	@$(PIP_INSTALL) --target $(VENV)/floor --no-deps $(FLOOR)
	@touch $@
