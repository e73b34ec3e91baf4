# Every target does its own set-up: a fresh machine needs only Python 3.11 or newer and make.
# `make help` lists the rules whose line ends in `## text`. Keep it readable in 100 columns.

VENV := .venv
RUN := $(VENV)/bin/python -m
STAMP := $(VENV)/.installed
SDK_STAMP := .venvs/sdk/.installed
# Clients and servers in Python, by the name of their folder in tests/peers.
PYTHON_CLIENTS := $(patsubst %,.venvs/%/.installed,fastmcp mcp1 mcp1-2025-03 pydantic-ai langchain google-adk openai-agents stdio-servers)
OFFICE_STAMP := .venvs/office-servers/.installed
SERVERS_STAMP := .venvs/servers/.installed
OBJECTS_STAMPS := .venvs/objects-fastmcp/.installed .venvs/objects-mcp1/.installed
FASTMCP_TASKS_STAMP := .venvs/fastmcp-tasks/.installed
ENVOY_STAMP := .venvs/envoy/.installed
NODE_STAMP := .venvs/node/.installed
PUBLISHED_STAMP := .venvs/published/.installed
BROWSER_STAMP := .venvs/browser/.installed
AGENTS_STAMP := .venvs/agents/.installed
FUZZ_STAMP := .venvs/fuzz/.installed
DOCS_STAMP := .venvs/docs/.installed
TYPING_STAMP := .venvs/typing/.installed
PREVIOUS_STAMP := .venvs/previous/.installed
AUDIT_STAMP := .venvs/audit/.installed
DEPLOY_STAMP := .venvs/deploy/.installed
PROSE_STAMP := .venvs/prose/.installed
REDIS_STAMP := .venvs/redis/.installed
TESTED := $(VENV)/.tested
COMPILED := build/compiled
PORT ?= 8080
# Tests that load a cluster belong to `make loadtest`; scenarios need the machine for themselves.
WITH_USERS := tests/under_load tests/integration/test_live_keys.py tests/loadtest/test_cluster.py tests/loadtest/test_users.py \
	tests/loadtest/test_command.py tests/loadtest/sizing/test_command.py tests/deploy/test_topology.py tests/deploy/test_dashboard_live.py
SCENARIOS := tests/loadtest/scenarios
# Real clients, each in its own environment, belong to `make conformance`, as do the scenarios of a proposal.
CLIENTS := tests/integration/clients tests/integration/frameworks tests/wires/draft/test_modes.py tests/wires/draft/test_streaming.py
# Tests of the playground and of pages on other sites drive Chromium; `make playground` runs them.
BROWSED := tests/playground
# Agents that people use take a gigabyte; `make agents` runs them by hand, and `make test` replays what they sent.
AGENTS := tests/agents/test_live.py
# Servers that people use take a gigabyte too; `make published` runs them by hand, and `make conformance` the small ones.
# One process runs each file, because all of its servers would start in each one.
REFERENCE_SERVERS := tests/published/test_reference.py tests/published/test_asking.py
PUBLISHED_SERVERS := tests/published/test_office.py tests/published/test_sdks.py tests/published/test_fastmcp_examples.py
# Third-party proxies belong to `make proxies`; `make test` does not need them.
BEHIND_PROXIES := tests/proxies
# The previous release has an environment of its own; `make releases` runs it beside this one.
SIDE_BY_SIDE := tests/releases/test_side_by_side.py
# pyright has an environment of its own, so `make check` tests the types of user programs.
TYPES := tests/typing
# The website needs MkDocs, and the tutorial an environment of its own and the linter of `make slow`. `make ci` tests
# both after `make slow` and `make docs`.
AFTER_DOCS := tests/docs/test_site.py tests/docs/test_tutorial.py
# A bill of materials needs an environment of its own, so `make sbom` tests what it writes.
BILLS := tests/sbom
# The lists of what others install: the image, what builds it, and what develops it.
BILLED := image build development
# Fast tests of the compiled modules: `make ci` also runs them on compiled code.
CORE := tests/engine tests/protocol tests/sealing tests/admission tests/http tests/web tests/auth tests/authoring tests/json_schema tests/registry tests/observability/test_audit.py tests/observability/test_line_writer.py tests/repository/test_compiled.py
# Files with tests that `make slow` runs. They are marked, whole or in part, so there is no list of them.
SLOW = $(shell grep -rlF mark.slow --include='test_*.py' tests)
SLOW_AS_A_WHOLE = $(shell grep -rl '^pytestmark = .*mark[.]slow' --include='test_*.py' tests)
# Tests that `make test` runs once or with few examples; `make ci` repeats them on compiled code, with more data.
REPEATED := $(addprefix tests/,calls http_client loadtest observability process runtime security settings sizing storage tasks upstreams wires workers)
# Tests of the packages without I/O, which `make quick` runs.
PURE := tests/engine tests/json_schema tests/protocol tests/sealing tests/tasks
CODE := gateway gateway_pytest workers deploy loadtest bench scripts tests
SOURCES := pyproject.toml locked/development.txt $(shell find $(CODE) -name '*.py' -o -name '*.mjs' 2>/dev/null)

# Tests start hundreds of processes, which must not compile modules again, whatever the shell's settings.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run demo test slow quick check disconnected compiled conformance published agents proxies releases playground chaos loadtest soak fuzz docs sbom audit ci bench

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(STAMP) ## Serve the demo tools at 127.0.0.1:8080/mcp: two replicas, a worker (PORT=…)
	@$(RUN) gateway dev --port $(PORT)

demo: $(STAMP) ## Call the demo tools with the real MCP client, and show where each leg runs
	@$(RUN) scripts.demo --url http://127.0.0.1:$(PORT)/mcp

test: $(STAMP) ## Run the tests that a change needs, with real processes, and measure coverage
	@$(run_tests)

slow: $(STAMP) $(DEPLOY_STAMP) $(PROSE_STAMP) ## Run the other tests, which a release needs: costs of hostile input, packaging, whole documents
	@$(need_programs) && $(RUN) pytest -n 3 -m "slow and not repeats" --dist worksteal $(SLOW)

quick: $(STAMP) ## After every edit: check format, lint, types, imports; test the pure packages
	@$(check_sources)
	@$(RUN) pytest -n 2 -q -m "not slow" $(PURE)

check: $(STAMP) $(TYPING_STAMP) $(PROSE_STAMP) $(TESTED) ## Check format, lint, types, imports, language and coverage (runs outdated tests)
	@$(check_sources)
	@$(RUN) pytest -n 2 -q $(TYPES)
	@.venvs/prose/bin/python -m scripts.prose
	@$(RUN) coverage report

disconnected: $(STAMP) ## Check that a test fails for each setting without its effect (SETTINGS="peers auth")
	@SETTINGS="$(SETTINGS)" $(RUN) scripts.disconnected

compiled: $(STAMP) ## Update build/compiled, a compiled copy (make -C build/compiled chaos)
	@$(need_compiler)
	@$(RUN) scripts.compiled

conformance: $(STAMP) $(NODE_STAMP) $(if $(CONFORMANCE),,$(PYTHON_CLIENTS) $(SERVERS_STAMP) $(OBJECTS_STAMPS) $(PUBLISHED_STAMP)) ## Run the official suite and real clients (CONFORMANCE="--scenario …")
	@$(need_redis)
	@$(if $(CONFORMANCE),,$(need_chromium))
	@$(RUN) tests.conformance.run $(CONFORMANCE)
	@$(if $(CONFORMANCE),,$(RUN) pytest -n 2 $(CLIENTS) && $(RUN) pytest -n 0 $(REFERENCE_SERVERS))

published: $(STAMP) $(NODE_STAMP) $(PYTHON_CLIENTS) $(PUBLISHED_STAMP) $(SDK_STAMP) $(OFFICE_STAMP) ## Call each tool of published servers through two replicas (PUBLISHED="-k excel")
	@$(RUN) pytest -n 0 $(PUBLISHED_SERVERS) $(PUBLISHED)

agents: $(STAMP) $(AGENTS_STAMP) ## Drive Claude Code, Codex and other agents, and record what they send (AGENT="-k codex")
	@$(need_tmux)
	@$(need_redis)
	@$(RUN) pytest -n 0 $(AGENTS) $(AGENT)

proxies: $(STAMP) ## Test HAProxy, nginx and Caddy with their files in deploy/ (PROXIES="-k nginx")
	@$(need_haproxy)
	@$(need_nginx)
	@$(need_caddy)
	@$(RUN) pytest -n 2 $(BEHIND_PROXIES) $(PROXIES)

releases: $(STAMP) $(PREVIOUS_STAMP) ## Roll from the previous release to this one and back (RELEASES_SECONDS=600)
	@$(need_redis)
	@$(need_haproxy)
	@$(RUN) pytest -n 0 --capture=no $(SIDE_BY_SIDE)

playground: $(STAMP) $(BROWSER_STAMP) ## Drive the playground in Chromium (PLAYGROUND="-k stories")
	@$(need_redis)
	@$(need_chromium)
	@$(RUN) pytest -n 2 $(BROWSED) $(PLAYGROUND)

chaos: $(STAMP) ## Break processes, networks, disks and clocks on purpose (CHAOS="-k replica")
	@$(need_redis)
	@$(need_haproxy)
	@$(need_nginx)
	@$(need_caddy)
	@$(need_faketime)
	@$(RUN) tests.chaos.run -n 2 $(CHAOS)

loadtest: $(STAMP) $(if $(SCENARIO),$(if $(findstring sdk,$(LOADTEST)),$(SDK_STAMP)),$(SDK_STAMP)) ## Run all load tests briefly, or one (SCENARIO=soak LOADTEST="--seconds 90")
	@$(need_redis)
	@$(need_haproxy)
	@$(if $(SCENARIO),,$(need_prometheus))
	@$(if $(SCENARIO),$(RUN) loadtest $(SCENARIO) $(LOADTEST),$(RUN) pytest -n 2 $(WITH_USERS) && $(RUN) pytest -n 0 $(SCENARIOS))

soak: $(STAMP) ## Run tasks while everything fails at random (SOAK_SECONDS=600, SOAK_SEED=1)
	@$(need_redis)
	@$(need_haproxy)
	@$(need_faketime)
	@$(RUN) tests.soak.run

fuzz: $(FUZZ_STAMP) ## Fuzz the parsers of untrusted input (FUZZ="hosts", FUZZ_SECONDS=600)
	@.venvs/fuzz/bin/python -m tests.fuzz.run $(FUZZ)

docs: $(DOCS_STAMP) ## Build the documentation website in build/site; any warning fails
	@NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/mkdocs build

sbom: $(STAMP) $(AUDIT_STAMP) ## Write a software bill of materials (CycloneDX) for each lock list into build/sbom
	@mkdir -p build/sbom
	@for list in $(BILLED); do .venvs/audit/bin/python -W ignore::UserWarning -m cyclonedx_py requirements locked/$$list.txt --pyproject pyproject.toml \
		--mc-type application --spec-version 1.6 --output-reproducible --validate --output-file build/sbom/$$list.cdx.json || exit 1; done
	@$(RUN) pytest -n 0 -q $(BILLS)

# It asks the JSON API of PyPI itself: a mirror of its files is not enough, and a package without an answer fails (--strict).
# It installs nothing, because the lists name every package.
audit: $(AUDIT_STAMP) ## Compare the lock lists with the known vulnerabilities on PyPI (needs the network)
	@for list in $(BILLED); do .venvs/audit/bin/pip-audit --vulnerability-service pypi --strict --require-hashes --disable-pip \
		--progress-spinner off --requirement locked/$$list.txt || failed=1; done; exit $${failed:-0}

# Conformance, proxies, releases, chaos and load tests run on compiled code, as users of the image do. It cannot be
# broken from outside, so the broken twins of the load tests run on the sources.
ci: $(REDIS_STAMP) ## Do what .ci/run does: all tests and checks, mostly on compiled code
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory slow
	@$(MAKE) --no-print-directory docs
	@$(RUN) pytest -n 2 $(AFTER_DOCS)
	@$(MAKE) --no-print-directory compiled
	@cd $(COMPILED) && $(RUN) pytest -n 3 --hypothesis-profile=many $(CORE) && \
		$(RUN) pytest -n 4 --hypothesis-profile=many -m "repeats or hypothesis" $(REPEATED)
	@$(MAKE) --no-print-directory --directory $(COMPILED) conformance
	@$(MAKE) --no-print-directory --directory $(COMPILED) proxies
	@$(MAKE) --no-print-directory --directory $(COMPILED) releases
	@$(MAKE) --no-print-directory --directory $(COMPILED) playground
	@$(MAKE) --no-print-directory --directory $(COMPILED) chaos
	@$(MAKE) --no-print-directory --directory $(COMPILED) loadtest
	@$(RUN) pytest -n 0 $(SCENARIOS) -k broken_twin
	@FUZZ_SECONDS=20 $(MAKE) --no-print-directory fuzz

bench: $(STAMP) $(SDK_STAMP) $(FASTMCP_TASKS_STAMP) $(ENVOY_STAMP) $(if $(findstring --interpreted,$(BENCH)),,compiled) ## Compare speed with other servers; measure growth, overload (BENCH="--help")
	@$(need_redis)
	@cd $(if $(findstring --interpreted,$(BENCH)),.,$(COMPILED)) && $(RUN) bench $(BENCH)

define check_sources
{ $(RUN) ruff format --check --quiet . || { echo "Not formatted: run $(RUN) ruff format ."; exit 1; }; } && \
	$(RUN) ruff check --quiet . && $(RUN) mypy && $(VENV)/bin/lint-imports --no-logo
endef

# Tests use the system's Redis server besides the two that come in wheels, as only it has redis-cli and TLS.
define need_redis
command -v redis-server >/dev/null || sh scripts/need.sh redis-server "the Redis server for tests of tasks"
endef

define need_curl
command -v curl >/dev/null || sh scripts/need.sh curl "curl, which tests the pages for clients and authors"
endef

define need_haproxy
command -v haproxy >/dev/null || test -x /usr/sbin/haproxy || sh scripts/need.sh haproxy "HAProxy, the load balancer of the test clusters"
endef

define need_nginx
command -v nginx >/dev/null || test -x /usr/sbin/nginx || sh scripts/need.sh nginx "nginx, one of the tested proxies"
endef

define need_caddy
command -v caddy >/dev/null || sh scripts/need.sh caddy "Caddy, one of the tested proxies"
endef

define need_faketime
command -v faketime >/dev/null || sh scripts/need.sh faketime "faketime, which sets the clocks of processes in tests"
endef

define need_chromium
command -v chromium >/dev/null || sh scripts/need.sh chromium "Chromium, which runs the web page of a tested client"
endef

define need_tmux
command -v tmux >/dev/null || sh scripts/need.sh tmux "tmux, the terminal of the tested agents"
endef

define need_prometheus
command -v prometheus >/dev/null || sh scripts/need.sh prometheus "Prometheus, which tests the dashboard and the alerts"
endef

define need_logrotate
command -v logrotate >/dev/null || test -x /usr/sbin/logrotate || sh scripts/need.sh logrotate "logrotate, which moves the audit log in tests"
endef

define need_systemd
command -v systemd-analyze >/dev/null || sh scripts/need.sh systemd "systemd-analyze, which checks the units"
endef

define need_programs
{ $(need_redis); } && { $(need_curl); } && { $(need_haproxy); } && { $(need_prometheus); } && { $(need_logrotate); } && { $(need_systemd); }
endef

# Debian has Python's headers in a separate package.
define need_compiler
{ command -v gcc >/dev/null || sh scripts/need.sh build-essential "a C compiler"; } && \
	{ test -e "$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || \
	sh scripts/need.sh "$$($(VENV)/bin/python -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')" "Python's header files"; }
endef

# Coverage of an earlier run must not leak into this one; the file $(TESTED) records that these sources passed.
# Three pytest workers even on two cores, as tests of processes mostly wait. Each starts with a third of the tests, in
# order, so that the fixtures of a module start only once.
define run_tests
$(need_programs) && rm -f $(TESTED) .coverage .coverage.* && \
	$(RUN) pytest -n 3 -m "not slow and not repeats" --dist worksteal $(addprefix --ignore=,tests/chaos $(BEHIND_PROXIES) $(SIDE_BY_SIDE) $(BROWSED) $(AGENTS) $(REFERENCE_SERVERS) $(PUBLISHED_SERVERS) $(TYPES) $(BILLS) $(AFTER_DOCS) $(WITH_USERS) $(SCENARIOS) $(CLIENTS) $(SLOW_AS_A_WHOLE)) --cov --cov-report= --cov-fail-under=0 && touch $(TESTED)
endef

$(TESTED): $(STAMP) $(SOURCES)
	@$(run_tests)

$(STAMP): pyproject.toml locked/development.txt
	@sh scripts/venv.sh $(VENV) locked/development.txt -- --editable .
	@touch $@

$(PREVIOUS_STAMP): tests/releases/previous.txt
	@sh scripts/previous.sh .venvs/previous $<
	@touch $@

$(SDK_STAMP): bench/peers/sdk/locked.txt
	@sh scripts/venv.sh .venvs/sdk $<
	@touch $@

$(PYTHON_CLIENTS) $(OFFICE_STAMP) $(DOCS_STAMP) $(TYPING_STAMP) $(AUDIT_STAMP) $(DEPLOY_STAMP) $(PROSE_STAMP) $(REDIS_STAMP): .venvs/%/.installed: tests/peers/%/locked.txt
	@sh scripts/venv.sh .venvs/$* $<
	@touch $@

$(FASTMCP_TASKS_STAMP): bench/peers/fastmcp/locked.txt
	@sh scripts/venv.sh .venvs/fastmcp-tasks $<
	@touch $@

$(ENVOY_STAMP): bench/peers/envoy/locked.txt
	@sh scripts/venv.sh .venvs/envoy $<
	@touch $@

# These servers run our code, which PYTHONPATH leads to.
$(SERVERS_STAMP): locked/image.txt tests/peers/servers/locked.txt
	@sh scripts/venv.sh .venvs/servers $^
	@touch $@

# In these, replicas serve objects that need another package.
$(OBJECTS_STAMPS): .venvs/objects-%/.installed: locked/image.txt tests/peers/%/locked.txt
	@sh scripts/venv.sh .venvs/objects-$* $^
	@touch $@

# The fuzzer runs our code with our versions of all dependencies, so it needs both lists.
$(FUZZ_STAMP): pyproject.toml locked/build.txt tests/peers/fuzz/locked.txt
	@sh scripts/venv.sh .venvs/fuzz locked/build.txt tests/peers/fuzz/locked.txt -- --editable .
	@touch $@

$(BROWSER_STAMP): $(addprefix tests/peers/browser/,locked.txt package.json package-lock.json)
	@sh scripts/node.sh .venvs/browser tests/peers/browser
	@touch $@

$(AGENTS_STAMP): $(addprefix tests/peers/agents/,locked.txt package.json package-lock.json)
	@sh scripts/node.sh .venvs/agents tests/peers/agents
	@touch $@

$(PUBLISHED_STAMP): $(addprefix tests/peers/published/,locked.txt package.json package-lock.json)
	@sh scripts/node.sh .venvs/published tests/peers/published
	@touch $@

$(NODE_STAMP): $(addprefix tests/peers/node/,locked.txt package.json package-lock.json)
	@sh scripts/node.sh .venvs/node tests/peers/node
	@touch $@
