# Everything runs from here. Needs make, Python 3.11 or newer and pip; the rest is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
BENCH := .venv-bench/bin
LOCKS := pyproject.toml constraints.txt
# Two test workers on two cores: one thread each. XLA takes the number of its threads from NPROC.
ONE_THREAD := NPROC=1 XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help demo test tests check house test-ray torture bench bench-quick studies study-pybamm reproduce reproduce-full clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | awk -F '\t' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: .venv/.base ## train, audit, share live and report on the platoon, in three minutes; writes into demo/
	@$(BIN)/veil demo

test: .venv/.dev ## lint, format and types, and beside them the tests (two workers)
	@$(MAKE) --no-print-directory -j 2 check tests

tests: .venv/.dev
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal --durations=30 --durations-min=5

check: .venv/.dev ## lint, format and types, nothing else
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

house: .venv/.base ## how far apart things are in the code, beside version 0.1; draws the import graph into build/house
	@$(BIN)/python tools/house.py

test-ray: .venv-ray/.ray ## the tests of workers by Ray, in an environment of their own
	$(ONE_THREAD) .venv-ray/bin/python -m pytest -m ray tests/test_ray.py

torture: .venv/.dev ## kill a live stream 300 times, attack its files 100 times, look for anything that readers could notice
	$(ONE_THREAD) $(BIN)/python -m tests.torture --kills 300 --steps 2000

bench: .venv-bench/.bench .venv-peers/.peers ## speed, memory and fits against peers, in environments of their own; adds to bench/history.jsonl
	$(BENCH)/python -m bench.run --write

bench-quick: .venv-bench/.bench ## the hot loops only, in three minutes, against the last entry of the history
	$(BENCH)/python -m bench.run --quick

studies: .venv/.dev ## long numerical studies of the paper's theorems; writes into build/studies
	$(BIN)/python paper/study_consistency.py --out build/studies
	$(BIN)/python paper/study_bellman.py --out build/studies
	$(BIN)/python paper/study_filter_hacks.py --out build/studies
	$(BIN)/python paper/study_learning_wins.py --out build/studies
	$(BIN)/python paper/study_robust.py --out build/studies
	$(BIN)/python paper/study_budget.py --out build/studies
	$(BIN)/python -m tests.stream_study all --out build/studies/stream.json
	$(BIN)/python -m paper.study_resolution --out build/studies
	$(BIN)/python -m paper.study_readings --out build/studies/readings.json
	$(BIN)/python -m paper.study_systems --out build/studies
	$(BIN)/python -m paper.study_fitting --out build/studies
	$(BIN)/python -m paper.study_twin --out build/studies
	$(BIN)/python -m paper.study_linkage --out build/studies
	$(BIN)/python -m paper.study_long_training --out build/studies/long_training.json --folder build/studies/long
	$(BIN)/python -m paper.study_control --out build/studies/control.json --folder build/studies/control
	$(BIN)/python -m pytest -m study

study-pybamm: .venv-pybamm/.pybamm ## cells simulated by PyBaMM, seen by the battery system; in an environment of its own, writes into build/studies
	PYBAMM_DISABLE_TELEMETRY=true .venv-pybamm/bin/python -m paper.study_pybamm --out build/studies

reproduce: .venv/.base ## the paper's experiment beside its printed numbers; writes reproduce/ and paper/RESULTS.md
	@$(BIN)/python -m paper.reproduction --publish paper

reproduce-full: .venv/.base ## the same with five seeds of the printed learner, ρ = 0, and a long A2C; goes on where it was
	@$(BIN)/python -m paper.reproduction --full --publish paper

clean: ## remove everything that make made
	rm -rf .venv .venv-bench .venv-peers .venv-pybamm .venv-ray build demo audit runs frontier reproduce bench/results veil.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(1): environment, $(2): what to install
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Veil needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(1)/bin/python || { echo "Creating $(1) ..."; $(PYTHON) -m venv $(1); }
	@echo "Installing into $(1) (a minute or two, once) ..."
	@$(1)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(2)
	@touch $@
endef

.venv/.base: $(LOCKS)
	$(call install,.venv,-e .)

.venv/.dev: $(LOCKS)
	$(call install,.venv,-e '.[dev]')
	@touch .venv/.base

.venv-bench/.bench: $(LOCKS) bench/requirements.txt bench/requirements-nodeps.txt
	$(call install,.venv-bench,-e . -r bench/requirements.txt)
	@$(BENCH)/python -m pip install --quiet --disable-pip-version-check --no-deps -r bench/requirements-nodeps.txt

.venv-ray/.ray: $(LOCKS)
	$(call install,.venv-ray,-e '.[dev]' -e '.[ray]')

.venv-pybamm/.pybamm: $(LOCKS)
	$(call install,.venv-pybamm,-e '.[pybamm]')

# Without the constraints of Veil: these peers ask for an older jax. They run as a program of their own.
.venv-peers/.peers: bench/requirements-fitting.txt
	@test -x .venv-peers/bin/python || { echo "Creating .venv-peers ..."; $(PYTHON) -m venv .venv-peers; }
	@echo "Installing into .venv-peers (a minute or two, once) ..."
	@.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r bench/requirements-fitting.txt
	@touch $@
