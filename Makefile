# Everything needed is Python 3.11 or later and make; the rest comes from the pinned requirements.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export HOLDFAST_HOME ?= .holdfast
export PORT ?= 8000
MINUTES ?= 5
SEQUENCES ?= 500

# Static checks start no server; Django only has to be able to read its settings.
CHECK_ENV := HOLDFAST_ENV=test SECRET_KEY=static-checks DATABASE_URL=postgresql://127.0.0.1/none \
	BROKER_URL=redis://127.0.0.1/0 PAYMENT_URL=http://127.0.0.1 PAYMENT_API_KEY=none \
	CATALOG_URL=http://127.0.0.1 RATES_URL=http://127.0.0.1

.PHONY: demo test smoke check bench chaos simulate lab clean

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

bench: $(VENV)-bench/bench.installed $(VENV)/demo.installed  ## beside peers and floors, into docs/reference/
	@$(VENV)-bench/bin/python -m bench docs/reference
	@$(BIN)/python -m bench.outbox docs/reference
	@$(BIN)/python -m bench.pages docs/reference
	@$(BIN)/python -m bench.goodput docs/reference
	@$(BIN)/python -m bench.checkout docs/reference

$(VENV)-bench/bench.installed: requirements/bench.txt
	@test -x $(VENV)-bench/bin/python || $(PYTHON) -m venv $(VENV)-bench
	@echo "installing bench"
	@$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

chaos: $(VENV)/dev.installed  ## MINUTES of shopping while everything dies at random, then the audit
	@exec $(BIN)/python -m tests.chaos --minutes $(MINUTES)

lab: $(VENV)/demo.installed  ## every experiment, with plots, into HOLDFAST_HOME/lab
	@exec $(BIN)/python manage.py lab --out $(HOLDFAST_HOME)/lab

simulate: $(VENV)/dev.installed  ## SEQUENCES random lives of the shop, and the faults planted in it
	SIMULATION_SEQUENCES=$(SEQUENCES) $(BIN)/python -m pytest -n 2 tests/simulation/test_simulation.py tests/simulation/planted.py

check: $(VENV)/dev.installed  ## static checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(CHECK_ENV) $(BIN)/mypy bench config orders payments resilience sandbox manage.py
	$(BIN)/lint-imports
	$(BIN)/djlint --lint --quiet templates
	$(CHECK_ENV) $(BIN)/python manage.py makemigrations --check --dry-run

clean:
	rm -rf $(VENV) $(VENV)-bench .holdfast
