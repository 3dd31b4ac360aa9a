# make report: the main job, from nothing to an HTML report. make test, lint, wheel: what continuous integration runs.
PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
ARGS   ?=
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check install -c constraints.txt
PINS   := constraints.txt pyproject.toml
CODE   := stability models analysis reports tests benchmarks examples

# One thread for each process: the work is spread over processes, and two levels of threads slow each other down.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.PHONY: help report test test-slow mutants nest lint wheel oldest newest others docs gallery clean
.DEFAULT_GOAL := help

help:
	@echo "make report     install into $(VENV), train and analyse the default models, write the HTML report"
	@echo "make test       install the test tools and run the tests (without the slow ones)"
	@echo "make test-slow  the slow tests only (some need the full data sets, see docs/your-model.md)"
	@echo "make mutants    change the trusted kernel in one place after another: does a test notice? (many hours; ARGS selects)"
	@echo "make lint       ruff and pyright"
	@echo "make wheel      build the wheel and try it from an empty environment"
	@echo "make oldest     the same with the oldest releases of what it needs that resolve together; make newest: the newest"
	@echo "make others     certificates of reservoirs against the real reservoirpy, in an environment of its own"
	@echo "make docs       the documentation as pages: build/site/index.html"
	@echo "make gallery    four reports of four families of models, for the documentation"
	@echo "make clean      remove what these made, except reports (runs/)"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $(PYTHON) is older: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(PINS) | $(BIN)/python
	@echo "installing the toolkit into $(VENV) (some minutes the first time; about 1.5 GB, or 6 GB with the CUDA build of torch)"
	$(PIP) --editable '.[cluster]'
	@touch $@

$(VENV)/.installed-test: $(PINS) | $(BIN)/python
	@echo "installing the toolkit and its test tools into $(VENV) (some minutes the first time; about 1.5 GB, or 6 GB with the CUDA build of torch)"
	$(PIP) --editable '.[test,oracle,lint,docs]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-mutants: $(VENV)/.installed-test
	$(PIP) --editable '.[mutants]'
	@touch $@

report: $(VENV)/.installed
	$(BIN)/stability report $(ARGS)

# Each process has tests that stand together (and takes others' at the end): what a module's tests share is made once.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow" $(ARGS)

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -n $(JOBS) -m slow $(ARGS)

# ARGS="stability.kernel.arithmetic*" for some modules; results: .venv/bin/mutmut results
mutants: $(VENV)/.installed-mutants
	nice $(BIN)/mutmut run --max-children $(JOBS) $(ARGS)

# pyright reads the package as plain files: links to all of them, laid out as the import system sees them (it neither
# follows links to folders nor enters folders whose name begins with a dot).
nest:
	@rm -rf build/nest
	@find stability models analysis reports -name '*.py' | while read -r file; do \
	  to=build/nest/stability/$${file#stability/}; mkdir -p "$${to%/*}"; ln -s "$(CURDIR)/$$file" "$$to"; done

lint: $(VENV)/.installed-test nest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/pyright --pythonpath $(BIN)/python

wheel: | $(BIN)/python
	bash .ci/try-wheel $(BIN)/python

# The wheel with the oldest releases that resolve together (kept in .ci/oldest.txt), and with the newest there are.
oldest: | $(BIN)/python
	bash .ci/oldest $(BIN)/python

newest: | $(BIN)/python
	CONSTRAINTS=newest bash .ci/try-wheel $(BIN)/python

# Tests against reservoirpy, in an environment of its own: it would change the pinned versions.
others: | $(BIN)/python
	bash .ci/try-others $(BIN)/python

# The documentation as pages in build/site; "make gallery" first puts four reports into it.
docs: $(VENV)/.installed-test
	$(BIN)/python docs/picture.py
	$(BIN)/python -m sphinx -q -E -W --keep-going -b html docs build/site
	@echo "documentation: build/site/index.html"

gallery: $(VENV)/.installed
	$(BIN)/python docs/gallery.py

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .coverage htmlcov $(VENV)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
