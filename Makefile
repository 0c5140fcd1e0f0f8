# Boatlift's tasks. `make` lists them; the text after ## is what it shows.

.DEFAULT_GOAL := help
.PHONY: help setup kafka-jars check format test test-all crash mutants views identities endurance demo demo-standby demo-evolve demo-flights demo-lake demo-shop demo-views kafka-demo bench lock docs clean
SHELL := /bin/sh

python := .venv/bin/python
sources := src tests benchmarks examples scripts

help: ## Lists these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Makes .venv from python3 >= 3.11 and sees to a Java >= 17; quick when there is nothing to do
	@PYTHON="$(PYTHON)" scripts/setup.sh

kafka-jars: setup ## Fetches the jars of the Kafka broker that tests start, by Maven; quick when there is nothing to do
	@$(python) scripts/kafka_jars.py

check: setup ## Checks format, lint, types, layers and dependencies
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy --strict src benchmarks
	.venv/bin/lint-imports
	.venv/bin/deptry src

format: setup ## Formats the code and mends what can be mended
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

test: setup ## Runs the tests, without a JVM, then on Spark and Kafka; long ones take turns by commit: TURNS=n shares (32)
	@scripts/test.sh $(ARGS)

test-all: setup ## Runs every test, the long ones of all turns too, and writes their times to tests/durations.json (75 minutes)
	@TURN=record scripts/test.sh $(ARGS)

crash: setup ## Kills real processes at every crash point there is; writes docs/crash-points.md (an hour)
	@printf '%s\n' '# Crash points' '' 'Written by `make crash`: a real process is killed by SIGKILL before and after every call that a run makes on its store' 'and its sinks, on the first, a middle and the last visit, and again on the first visit of every call that a recovery' 'makes. It is then started again, and what its sinks hold is compared, float bits included, with an undisturbed run.' 'A recovery is killed at one of its calls after the other, and compared when it has come to its end.' > docs/crash-points.md
	BOATLIFT_CRASH_POINTS=all BOATLIFT_CRASH_TABLE=$(CURDIR)/docs/crash-points.md $(python) -m pytest -n 2 --dist loadfile tests/crash tests/connectors/test_kafka_sink_crashes.py $(ARGS)

mutants: setup ## Searches seeds that catch each deliberate fault of the core; writes tests/simulation/mutant_seeds.json
	$(python) scripts/mutants.py $(ARGS)

views: setup ## Random queries as views, every step held against Spark; SEEDS=n says how many times ten queries
	cd tests && ../$(python) -m views --seeds $(or $(SEEDS),10) $(ARGS)

identities: setup ## Compiles each query that tests know 8 times in each of 4 processes: one identity each (half an hour)
	BOATLIFT_IDENTITIES=all $(python) -m pytest tests/views/test_identity.py

demo: setup ## The main job: four regimes in one application over 336,776 real flights, every part killed, comes out right
	@$(python) examples/demo.py

kafka-demo: setup kafka-jars ## Flights through two dataflows over a real Kafka broker; all are killed, where SEED=n draws it; each row comes out once (3 minutes)
	@$(python) examples/kafka_demo.py $(SEED)

demo-standby: setup kafka-jars ## Flights over a real Kafka broker; the owner is killed five times while another process stands by (some 6 minutes)
	@$(python) examples/standby_demo.py

demo-evolve: setup ## A program is changed three times on one store, taken back once, and killed on each way (some 2 minutes)
	@$(python) examples/evolve_demo.py

demo-flights: setup ## The first example, killed again and again: bit for bit what an undisturbed run gives (some 4 minutes)
	@$(python) examples/demo_flights.py

demo-lake: setup kafka-jars ## Kafka to Delta, Parquet and PostgreSQL, the store in a bucket; driver and servers killed; DuckDB compares (3 minutes)
	@$(python) examples/lake_demo.py $(SEED)

demo-shop: setup kafka-jars ## Orders, customers that move and clicks in Kafka; six outputs; killed and compared with plain Python (some 4 minutes)
	@$(python) examples/shop_demo.py

demo-views: setup ## Six views in SQL over five real tables, killed again and again: bit for bit what an undisturbed run gives
	@$(python) examples/demo_views.py

endurance: setup ## Half an hour of pushes and files, killed twice; a table of memory, bytes and files by minute, which must not grow
	@$(python) scripts/endurance $(ARGS)

bench: setup ## Measures against Structured Streaming; writes benchmarks/results/latest.json and latest.md
	$(python) -m benchmarks

docs: setup ## Writes the generated pages, and builds the site into site/, strictly and offline
	$(python) scripts/errors_table.py
	$(python) scripts/metrics_pages.py
	@test -x .venv-docs/bin/zensical || { python3 -m venv .venv-docs && \
		.venv-docs/bin/python -m pip install --quiet --require-hashes -r requirements/docs.txt; }
	PATH=$(CURDIR)/.venv-docs/bin:$$PATH $(python) scripts/site.py

lock: setup ## Writes the hashed locks in requirements/ anew
	@scripts/lock.sh

clean: ## Removes what was built, measured and cached; keeps .venv
	rm -rf artifacts build dist demo-output .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
