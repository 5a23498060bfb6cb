# Every target but help sets up .venv by itself, so a fresh clone needs no other step.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.lmsweep-setup

# One torch thread per process, one process per core: more threads than cores make OpenMP spin.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Which figure (a file of sweeps/), how large, and how many runs at once (default: one per core or GPU).
FIG   ?= fig2_mnist_noise
SCALE ?= smoke
JOBS  ?=
# Where runs, attacks and figures are mirrored to: none, wandb or tensorboard.
TRACKING ?= none
# What runs the jobs: local (worker processes here) or slurm (a job array on a cluster).
LAUNCHER ?= local
# DRY=1 only says what would be done; ARGS are further words: ARGS="seed=7,8 trainer.max_steps=100".
DRY   ?=
ARGS  ?=
REPRODUCE = $(PY) -m lmsweep reproduce --scale $(SCALE) $(if $(JOBS),--jobs $(JOBS)) \
	tracking=$(TRACKING) hydra/launcher=$(LAUNCHER) $(if $(DRY),dry_run=true) $(ARGS)

# A variable that no target knows would be ignored, and a rehearsal become a sweep.
KNOWN   = FIG SCALE JOBS TRACKING LAUNCHER DRY ARGS ROW PUBLISH PYTHON PYTEST OMP_NUM_THREADS
EMPTY  :=
GIVEN   = $(subst \$(EMPTY) $(EMPTY),+,$(MAKEOVERRIDES))
UNKNOWN = $(filter-out $(KNOWN),$(foreach given,$(GIVEN),$(firstword $(subst =, ,$(given)))))
$(if $(strip $(UNKNOWN)),$(error $(UNKNOWN) is not allowed: it must be one of $(KNOWN)))

# Three processes for two cores, because tests wait for commands that they start. A file stays in one process,
# so that what its tests share is made once; tests/conftest.py says which files come first.
PYTEST = $(PY) -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
# What depends on how a CPU rounds: torch and oneDNN have kernels for each kind, and these variables choose them.
NUMERIC = tests/margin tests/attacks tests/models tests/training tests/data/test_augment.py \
  tests/commands/test_reproduce.py::test_a_figure_that_is_not_drawn_is_verified_by_training_one_cell_again

.PHONY: help setup test test-all test-kernels lint format reproduce-figure reproduce-all verify-figure publish report status sync dashboard bench lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## build .venv from requirements.lock (nothing to do when it is up to date)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
	  { echo "lmsweep needs Python 3.11, 3.12 or 3.13; choose one with: make PYTHON=python3.11 setup" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(PY) -c 'import torchvision' 2>/dev/null || $(PY) -c "from lmsweep._torchvision import install_at_start as i; i()"
	@touch $@

test: setup ## run the tests but the slow ones
	$(PYTEST) -m "not slow"

test-all: setup ## run every test, also real Slurm, browsers, whole figures and kill -9 at random moments
	$(PYTEST)

test-kernels: setup ## run the numeric tests with the instructions of older CPUs
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(PYTEST) -m "not slow" $(NUMERIC)
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(PYTEST) -m "not slow" $(NUMERIC)

lint: setup ## ruff, mypy, and who may import whom
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: setup ## let ruff format and fix what it can
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

reproduce-figure: setup ## train what a figure needs and draw it: [FIG=fig2_mnist_noise] [SCALE=smoke] [JOBS=2] [LAUNCHER=slurm] [TRACKING=wandb] [DRY=1] [ARGS="seed=7,8"]
	$(REPRODUCE) $(FIG)

reproduce-all: setup ## every figure: [SCALE=smoke] [JOBS=2]
	$(REPRODUCE) --all

reproduce-fig%: setup
	$(REPRODUCE) fig$*

verify-figure: setup ## compare a figure, or one cell of it trained again, with the committed numbers: [FIG=...] [SCALE=...]
	$(PY) -m lmsweep verify $(FIG) --scale $(SCALE) $(if $(JOBS),--jobs $(JOBS))

publish: setup ## keep drawn figures in results/<SCALE>/, with a page about their claims: [SCALE=laptop]
	$(PY) -m lmsweep publish --scale $(SCALE)

report: setup ## all drawn figures on one page: outputs/report/index.html
	$(PY) -m lmsweep report

status: setup ## sweeps and runs by state, with their results
	@$(PY) -m lmsweep status

sync: setup ## upload to W&B what was recorded offline and is not there yet
	$(PY) -m lmsweep sync

dashboard: setup ## build a W&B workspace and a report for a figure: [FIG=...] [SCALE=...]
	$(PY) -m lmsweep dashboard --sweep $(FIG) --scale $(SCALE)

bench: setup ## measure speed, side by side with others, against the bars: [ROW=part-of-a-name] [PUBLISH=1]
	$(PY) -m benchmarks $(if $(ROW),"$(ROW)") $(if $(PUBLISH),--publish)

lock: ## resolve requirements.lock anew from pyproject.toml (keeps the torch and torchvision pins)
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet $$(grep -E '^torch(vision)?==' requirements.lock)
	.venv-lock/bin/pip install --quiet --editable '.[dev]'
	.venv-lock/bin/pip freeze --exclude-editable | sed -E 's/^(torch==[^+]+)\+.*/\1/' > requirements.lock.new
	mv requirements.lock.new requirements.lock && rm -rf .venv-lock

clean: ## remove .venv and caches; outputs/ is kept
	rm -rf $(VENV) .venv-lock .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
