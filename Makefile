# Pilothouse. `make` alone lists what there is.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help run test acceptance check lab bench lock packages clean venv venv-dev
PY := .venv/bin/python
# For commands that load the settings but use no secret and no server: never for a panel.
DRY := SECRET_KEY=only-for-checks-0123456789abcdefghijkl FIELD_KEYS=b25seS1mb3ItY2hlY2tzLTAxMjM0NTY3ODlhYmNkZWY=
LOCK := uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11
ARGS ?=

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

run: venv ## the whole panel on this machine, until Ctrl-C
	@exec $(PY) -m controlplane.embedded

test: venv-dev packages ## unit, golden, architecture and integration tests (ARGS="-k word" narrows)
	$(PY) -m pytest tests/unit tests/golden tests/architecture tests/integration $(ARGS)

acceptance: venv-dev packages ## the long tests: lab hosts with the real engine, pages in a real browser
	$(PY) -m pytest tests/acceptance tests/browser $(ARGS)

check: venv-dev ## format, lint, types, import contracts, Django's checks, migrations
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache
	$(DRY) $(PY) manage.py check --fail-level WARNING
	$(DRY) $(PY) .ci/migrations_are_complete.py

lab: venv-dev packages ## two lab hosts, registered in the running panel, until Ctrl-C
	@exec $(PY) -m tests.lab panel $(ARGS)

bench: venv-dev packages ## measure; a table, and JSON under build/bench/
	$(PY) -m benchmarks $(ARGS)

lock: venv-dev ## resolve the requirements again (UPGRADE=1 takes newer versions)
	.venv/bin/$(LOCK) $(if $(UPGRADE),--upgrade) pyproject.toml -o requirements.txt
	.venv/bin/$(LOCK) $(if $(UPGRADE),--upgrade) --extra dev -c requirements.txt pyproject.toml -o requirements-dev.txt

packages: # what the lab and the browser need from the system; says what is missing where it may not install
	@sh tests/lab/install-packages || [ -z "$$CI" ]

clean: ## remove what was built; the panel's data in var/ stay
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv:
	@.ci/venv run

venv-dev:
	@.ci/venv dev
