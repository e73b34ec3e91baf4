# Every target does its own set-up: Python 3.11 or newer and make are all that a fresh machine needs.
# A rule whose line ends in `## text` shows up in `make help`.

VENV := .venv
RUN := $(VENV)/bin/python -m
STAMP := $(VENV)/.installed
SDK_STAMP := .venvs/sdk/.installed
# Clients in Python, by the name of their folder in tests/peers.
PYTHON_CLIENTS := $(patsubst %,.venvs/%/.installed,fastmcp mcp1 pydantic-ai langchain google-adk openai-agents)
FASTMCP_TASKS_STAMP := .venvs/fastmcp-tasks/.installed
NODE_STAMP := .venvs/node/.installed
FUZZ_STAMP := .venvs/fuzz/.installed
TESTED := $(VENV)/.tested
COMPILED := build/compiled
PORT ?= 8080
# What lets users at a cluster belongs to `make loadtest`; scenarios want the machine for themselves.
WITH_USERS := tests/under_load tests/integration/test_live_keys.py tests/loadtest/test_cluster.py tests/loadtest/test_users.py \
	tests/loadtest/test_command.py tests/loadtest/sizing/test_command.py tests/deploy/test_topology.py tests/deploy/test_dashboard_live.py
SCENARIOS := tests/loadtest/scenarios
# Real clients, each in an environment of its own, belong to `make conformance`, as do the scenarios of a proposal.
CLIENTS := tests/integration/clients tests/integration/frameworks tests/wires/draft/test_modes.py tests/wires/draft/test_streaming.py
# Other people's proxies, which `make test` does not need, belong to `make proxies`.
BEHIND_PROXIES := tests/proxies
# Tests of the modules that are compiled, and quick: `make ci` runs them on compiled code too.
CORE := tests/engine tests/protocol tests/sealing tests/admission tests/http tests/web tests/auth tests/authoring tests/observability/test_audit.py tests/observability/test_line_writer.py tests/repository/test_compiled.py
# Tests of the packages that do no I/O: `make quick` runs them.
PURE := tests/engine tests/protocol tests/sealing tests/tasks
CODE := gateway workers deploy loadtest bench scripts tests
SOURCES := pyproject.toml locked/development.txt $(shell find $(CODE) -name '*.py' -o -name '*.mjs' 2>/dev/null)

# Hundreds of processes start in tests: they compile nothing anew, whatever the shell they are started from prefers.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run demo test quick check compiled conformance proxies chaos loadtest soak fuzz ci bench

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(STAMP) ## Start two replicas and a worker with the demo tools on http://127.0.0.1:8080/mcp (PORT=… for another port)
	@$(RUN) gateway dev --port $(PORT)

demo: $(STAMP) ## Drive a running `make run` with the real MCP client: which replica served each leg, how tasks go on
	@$(RUN) scripts.demo --url http://127.0.0.1:$(PORT)/mcp

test: $(STAMP) ## Run the tests, with real processes, and measure coverage (those under load: make loadtest; other clients: make conformance)
	@$(run_tests)

quick: $(STAMP) ## Check format, lint, types and imports, and run the tests of the pure packages: after every edit
	@$(check_sources)
	@$(RUN) pytest -n 2 -q $(PURE)

check: $(STAMP) $(TESTED) ## Check format, lint, types, imports and the coverage floor (runs the tests if code changed since)
	@$(check_sources)
	@$(RUN) coverage report

compiled: $(STAMP) ## Keep build/compiled, a copy of everything with the hot path compiled (make -C build/compiled chaos: a suite on it)
	@$(need_compiler)
	@$(RUN) scripts.compiled

conformance: $(STAMP) $(NODE_STAMP) $(if $(CONFORMANCE),,$(PYTHON_CLIENTS)) ## Run the official suite, then real clients and the scenarios of a proposal (CONFORMANCE="--scenario …": the suite alone)
	@$(need_redis)
	@$(if $(CONFORMANCE),,$(need_chromium))
	@$(RUN) tests.conformance.run $(CONFORMANCE)
	@$(if $(CONFORMANCE),,$(RUN) pytest -n 2 $(CLIENTS))

proxies: $(STAMP) ## Put HAProxy, nginx and Caddy, as deploy/ sets them up, in front of two replicas (PROXIES="-k nginx")
	@$(need_haproxy)
	@$(need_nginx)
	@$(need_caddy)
	@$(RUN) pytest -n 2 $(BEHIND_PROXIES) $(PROXIES)

chaos: $(STAMP) ## Kill, pause, fill and cut off processes, logs and clocks, and see that nothing is lost (CHAOS="-k replica")
	@$(need_redis)
	@$(need_haproxy)
	@$(need_faketime)
	@$(RUN) tests.chaos.run -n 2 $(CHAOS)

loadtest: $(STAMP) $(if $(SCENARIO),$(if $(findstring sdk,$(LOADTEST)),$(SDK_STAMP)),$(SDK_STAMP)) ## Load a cluster up to a verdict (SCENARIO=rolling-upgrade LOADTEST="--seconds 90"); without SCENARIO all of them, briefly
	@$(need_redis)
	@$(need_haproxy)
	@$(if $(SCENARIO),,$(need_prometheus))
	@$(if $(SCENARIO),$(RUN) loadtest $(SCENARIO) $(LOADTEST),$(RUN) pytest -n 2 $(WITH_USERS) && $(RUN) pytest -n 0 $(SCENARIOS))

soak: $(STAMP) ## Let everything fail at random while tasks are ordered, then account for each (SOAK_SECONDS=600, SOAK_SEED=1)
	@$(need_redis)
	@$(need_faketime)
	@$(RUN) tests.soak.run

fuzz: $(FUZZ_STAMP) ## Fuzz all that reads what strangers send, guided by coverage (FUZZ="tokens hosts", FUZZ_SECONDS=600, FUZZ_SEED=1)
	@.venvs/fuzz/bin/python -m tests.fuzz.run $(FUZZ)

ci: ## Do what .ci/run does: test, check, compiled; there the core's tests, conformance, proxies, chaos and loadtest; here its broken twins; and fuzz for 20 seconds
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory compiled
	@cd $(COMPILED) && $(RUN) pytest -n 3 $(CORE)
	@$(MAKE) --no-print-directory --directory $(COMPILED) conformance
	@$(MAKE) --no-print-directory --directory $(COMPILED) proxies
	@$(MAKE) --no-print-directory --directory $(COMPILED) chaos
	@$(MAKE) --no-print-directory --directory $(COMPILED) loadtest
	@$(RUN) pytest -n 0 $(SCENARIOS) -k broken_twin
	@FUZZ_SECONDS=20 $(MAKE) --no-print-directory fuzz

bench: $(STAMP) $(SDK_STAMP) $(FASTMCP_TASKS_STAMP) $(if $(findstring --interpreted,$(BENCH)),,compiled) ## Race us, compiled, against the MCP SDK's server, fastmcp's, FastAPI and a raw ASGI echo, see how costs grow, and overload a replica (BENCH="--only overload --rounds 5")
	@$(need_redis)
	@cd $(if $(findstring --interpreted,$(BENCH)),.,$(COMPILED)) && $(RUN) bench $(BENCH)

define check_sources
{ $(RUN) ruff format --check --quiet . || { echo "Not formatted: run $(RUN) ruff format ."; exit 1; }; } && \
	$(RUN) ruff check --quiet . && $(RUN) mypy && $(VENV)/bin/lint-imports --no-logo
endef

# Tasks are tested on the system's own server too, beside the two that come in wheels: it alone has redis-cli and TLS.
define need_redis
command -v redis-server >/dev/null || sh scripts/need.sh redis-server "the Redis server that tasks are tested on"
endef

define need_curl
command -v curl >/dev/null || sh scripts/need.sh curl "curl, which the recipes of docs/start/connect.md are tried with"
endef

define need_haproxy
command -v haproxy >/dev/null || test -x /usr/sbin/haproxy || sh scripts/need.sh haproxy "HAProxy, the balancer that clusters are tested behind"
endef

define need_nginx
command -v nginx >/dev/null || test -x /usr/sbin/nginx || sh scripts/need.sh nginx "nginx, one of the proxies that are tried in front of replicas"
endef

define need_caddy
command -v caddy >/dev/null || sh scripts/need.sh caddy "Caddy, one of the proxies that are tried in front of replicas"
endef

define need_faketime
command -v faketime >/dev/null || sh scripts/need.sh faketime "faketime, which sets the clocks of processes in tests"
endef

define need_chromium
command -v chromium >/dev/null || sh scripts/need.sh chromium "Chromium, the browser in which a client's page is tested"
endef

define need_prometheus
command -v prometheus >/dev/null || sh scripts/need.sh prometheus "Prometheus, which the dashboard and the alerts are tested with"
endef

# Python's headers are in a package of their own where Python is Debian's.
define need_compiler
{ command -v gcc >/dev/null || sh scripts/need.sh build-essential "a C compiler"; } && \
	{ test -e "$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || \
	sh scripts/need.sh "$$($(VENV)/bin/python -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')" "Python's header files"; }
endef

# Coverage of an earlier run must not leak into this one; the mark says that these sources passed.
# Three at a time even on two cores: tests of processes wait more than they compute. Each begins with a third of them, in
# order, so that what the tests of a module share is started once.
define run_tests
{ $(need_redis); } && { $(need_curl); } && { $(need_haproxy); } && { $(need_prometheus); } && \
	rm -f $(TESTED) .coverage .coverage.* && $(RUN) pytest -n 3 --dist worksteal $(addprefix --ignore=,tests/chaos $(BEHIND_PROXIES) $(WITH_USERS) $(SCENARIOS) $(CLIENTS)) --cov --cov-report= --cov-fail-under=0 && touch $(TESTED)
endef

$(TESTED): $(STAMP) $(SOURCES)
	@$(run_tests)

$(STAMP): pyproject.toml locked/development.txt
	@sh scripts/venv.sh $(VENV) locked/development.txt -- --editable .
	@touch $@

$(SDK_STAMP): bench/peers/sdk/locked.txt
	@sh scripts/venv.sh .venvs/sdk $<
	@touch $@

$(PYTHON_CLIENTS): .venvs/%/.installed: tests/peers/%/locked.txt
	@sh scripts/venv.sh .venvs/$* $<
	@touch $@

$(FASTMCP_TASKS_STAMP): bench/peers/fastmcp/locked.txt
	@sh scripts/venv.sh .venvs/fastmcp-tasks $<
	@touch $@

# It fuzzes our code on our versions of everything, so it needs both lists.
$(FUZZ_STAMP): pyproject.toml locked/build.txt tests/peers/fuzz/locked.txt
	@sh scripts/venv.sh .venvs/fuzz locked/build.txt tests/peers/fuzz/locked.txt -- --editable .
	@touch $@

$(NODE_STAMP): $(addprefix tests/peers/node/,locked.txt package.json package-lock.json)
	@sh scripts/node.sh .venvs/node tests/peers/node
	@touch $@
