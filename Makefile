# The two commands of the README, and the rest. Each creates .venv and installs what it needs first.

APP ?= examples.hello:app
ARGS ?=

.PHONY: help serve test test-oldest test-consumers test-freethreaded conformance check format settings site site-test bench-setup bench-baselines gate clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/\1:/p' Makefile

serve:  ## serve $APP (default: examples.hello:app) on 127.0.0.1:8000; ARGS="--reload" adds options
	@scripts/install standard
	@exec .venv/bin/python -m uvicorn $(APP) --host 127.0.0.1 --port 8000 $(ARGS)

test:  ## run every test; ARGS="tests/test_cli.py -k version" runs some, ARGS=--cov measures coverage
	@scripts/install test
	@scripts/test $(ARGS)

test-oldest:  ## run every test on the oldest Python there is; ARGS as for test
	@scripts/test-oldest $(ARGS)

test-consumers:  ## start programs that depend on the server with upstream and with this one, and compare (3 GB, half an hour)
	@scripts/test-consumers $(ARGS)

test-freethreaded:  ## run the tests about threads on a free-threaded Python, made by uv or pyenv if there is none
	@scripts/test-freethreaded $(ARGS)

conformance:  ## put h2spec against HTTP/2 (needs go), and Autobahn's fuzzing client against each WebSocket implementation (needs Python 2.7; a quarter of an hour each)
	@scripts/install test
	@.venv/bin/python scripts/h2spec
	@scripts/conformance $(ARGS)

check:  ## lint, formatting, types, layers, generated files
	@scripts/install dev
	@scripts/check

format:  ## format the code and apply the fixes ruff is sure of
	@scripts/install dev
	@.venv/bin/python -m ruff format .
	@.venv/bin/python -m ruff check --fix .

settings:  ## generate code and documents from the table of settings
	@[ -x .venv/bin/uvicorn ] || scripts/install standard  # not again: what Rust names now may still have to be generated
	@.venv/bin/python scripts/sync-settings

site:  ## build the documentation site into site/
	@[ -x .venv/bin/python ] || scripts/install standard
	@.venv/bin/python scripts/site

site-test: site  ## build the site, and read every page in a headless Chromium
	@scripts/install test
	@.venv/bin/python -m pytest -m "" tests/site $(ARGS)

bench-setup:  ## install what python -m bench needs: its packages, the pinned peers, wrk, h2load
	@scripts/bench-setup

bench-baselines:  ## measure everything the documents show (an hour, can be interrupted); ARGS="--quick" tries it out
	@scripts/install standard
	@scripts/bench-setup
	@.venv/bin/python -m bench publish $(ARGS)

gate:  ## fail when this tree got slower than the stored figures allow
	@scripts/install test
	@scripts/bench-setup gate
	@.venv/bin/python -m bench gate $(ARGS)

clean:  ## remove the environment and everything that was made
	@rm -rf .venv .venv-oldest .venv-freethreaded .venv-conformance .venv-consumers .venv-peers .venv-site build dist site *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
