# Everything needed is Python 3.11 or later and make; the rest comes from the pinned requirements.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export HOLDFAST_HOME ?= .holdfast
export PORT ?= 8000

.PHONY: demo test smoke check bench chaos lab clean

$(VENV)/%.installed: requirements/%.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing $*"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

demo: $(VENV)/demo.installed  ## the whole shop on this machine; Ctrl-C stops it
	@exec $(BIN)/python -m sandbox.demo

test: check  ## checks, then the whole suite
	$(BIN)/python -m pytest -n 2 --dist loadgroup

smoke: $(VENV)/demo.installed  ## one incident from order to audit in under a minute
	@exec $(BIN)/python -m sandbox.smoke

check: $(VENV)/dev.installed  ## static checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy config orders payments resilience sandbox manage.py
	$(BIN)/lint-imports
	$(BIN)/djlint --check --lint --quiet templates
	$(BIN)/python -m tests.check_migrations

clean:
	rm -rf $(VENV) .holdfast
