# Everything a person types lives here; .ci/run calls the same targets.
VENV   := .venv
PY     := $(VENV)/bin/python
SHELL  := /bin/bash
PYTHON ?= python3
# One more than there are processors: tests wait for servers half of their time.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

.PHONY: help install setup servers demo stack generate board-pictures screenshots reference vendored test test-all test-failed attack faults check format bench measure peers docs clean

help:            ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/pip
	$(PY) -m pip install --quiet --editable '.[zstd]'
	@touch $@

$(VENV)/.setup: pyproject.toml $(VENV)/.installed
	$(PY) -m pip install --quiet --editable '.[zstd,dev]'
	@touch $@

install: $(VENV)/.installed   ## .venv/bin/ragmon

setup: $(VENV)/.setup         ## .venv with everything tests and checks need

demo: install                 ## a real small RAG pipeline, monitored live until Ctrl-C; after 15 seconds it breaks
	$(VENV)/bin/ragmon demo $(ARGS)

stack: install servers         ## demo, ragmon serve, Prometheus and Alertmanager on loopback, without containers
	$(PY) deploy/stack.py $(ARGS)

servers:                      ## Debian's prometheus, alertmanager and Java, which some tests need
	@why=; as=; if command -v promtool >/dev/null && command -v amtool >/dev/null && command -v java >/dev/null; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then why="there is no apt-get here"; \
	elif [ "$$(id -u)" = 0 ]; then as=env; \
	elif sudo -n true 2>/dev/null; then as="sudo -n env"; \
	else why="it takes root, or sudo without a password"; fi; \
	if [ -z "$$why" ]; then \
		$$as apt-get update -qq && \
		$$as DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends prometheus prometheus-alertmanager openjdk-17-jre-headless >/dev/null && exit 0; \
		why="apt-get failed"; \
	fi; \
	echo "make servers: prometheus, alertmanager or Java is not installed ($$why); the tests that need it are skipped"

# Whole files go to a worker, the longest first. Programs that tests start must not compile ragmon every time.
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

vendored: setup               ## the pinned chart library of the pages, from npm
	$(PY) -m tests.support.vendored

test: setup servers           ## every package and every real server, without what is slow: three minutes
	RAGMON_EXAMPLES=few $(PYTEST) -m "not slow" $(ARGS)

test-all: setup servers       ## every test, the files shared out among WORKERS: what CI runs
	$(PYTEST) $(ARGS)

# A run with more than ten failures, or one that ended before it wrote them down, gets no second try.
test-failed: setup            ## the tests that failed in the last run, once more, one after another
	$(PY) -c 'import json; assert len(json.load(open(".pytest_cache/v/cache/lastfailed"))) <= 10, "too many failed"'
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest --last-failed -v $(ARGS)

attack: setup                 ## ten minutes of every attack beside honest clients
	RAGMON_ATTACK_SECONDS=$${RAGMON_ATTACK_SECONDS:-600} $(PY) -m pytest -s tests/server/test_mixed_attack.py $(ARGS)

faults: setup                 ## small faults in what is computed, one after the other: which ones do the tests find?
	$(PY) -m tests.support.faults $(ARGS)

check: setup                  ## lint, format, import layers, types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy tests/typing

generate: setup               ## deploy/prometheus, deploy/kubernetes and grafana anew from deploy/ragmon.toml
	$(VENV)/bin/ragmon generate rules -c deploy/ragmon.toml -o deploy/prometheus/ragmon.rules.yml
	$(VENV)/bin/ragmon generate rules -c deploy/stream.toml -o deploy/prometheus/ragmon.kafka.rules.yml
	$(VENV)/bin/ragmon generate rules -c deploy/ragmon.toml --format kubernetes -o deploy/kubernetes/base/prometheusrule.yaml
	$(VENV)/bin/ragmon generate rules -c deploy/stream.toml --format kubernetes -o deploy/kubernetes/stream/prometheusrule.yaml
	$(VENV)/bin/ragmon generate dashboard -c deploy/ragmon.toml -o grafana

board-pictures: setup servers ## docs/images/boards anew, from grafana: takes chromium, npm and nine minutes
	$(PY) -m tests.support.drawing.pictures

screenshots: setup            ## docs/images/pages anew, from the pages during an incident: takes chromium
	$(PY) -m tests.support.screenshots

reference: setup              ## docs/reference and the index of decisions anew
	PYTHONPATH=. $(PY) docs/reference/generate.py

format: setup                 ## rewrite to the house format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

peers: setup                  ## the decorator beside other tracers, replay beside query engines (installed apart)
	$(PY) -m bench.peers $(ARGS)
	$(VENV)/bin/pip install --quiet --upgrade --target .venv-peers/engines chdb duckdb polars
	PYTHONPATH=.venv-peers/engines $(PY) -m bench.peers.engines

docs: setup                   ## the documentation site in site/; every example and every link is tried
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build
	$(PY) -m pytest -q -n $(WORKERS) tests/project

bench: setup                  ## ratios measured in one run
	$(PY) -m bench.replay
	$(PY) -m bench.groundedness
	$(PY) -m bench.capture
	$(PY) -m bench.otlp
	$(PY) -m bench.ingest
	$(PY) -m bench.serve
	$(PY) -m bench.imports
	$(PY) -m bench.refusals
	$(PY) -m bench.detector
	$(PY) -m bench.scenario
	$(PY) -m bench.scenario.live
	$(PY) -m bench.stream
	$(PY) -m bench.alarm_delay
	$(PY) -m bench.readings
	$(PY) -m bench.day
	$(PY) -m bench.curves

measure: setup                ## the size and the shape of the package, and how far four requests travel through it
	$(PY) -m bench.house $(ARGS)

clean:                        ## drop the virtual environment and caches
	rm -rf $(VENV) site .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis
