# The only door. `make` lists what it opens; every target does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

CARGO      ?= cargo
SEEDS      ?= 2000
SEED       ?=
FUZZ_CASES ?= 2000000
FUZZ_SEED  ?= 1
LISTEN     ?= 127.0.0.1:8080
KILLS      ?= 60
STOPS      ?= 20
BROKER_KILLS ?= 30
POWER_CUTS ?= 5
MESSAGES   ?= 100000
MINUTES    ?= 3
SOAK       ?= 180
ROUNDS     ?= 3
KIND       ?=

# Where a run's log is kept: the day, the cores and the processor's family.
RUN        ?= perf/runs/$$(date -u +%F)-$$(nproc)core-$$(awk '/^model name/ { gsub(/\(.*\)/, "", $$5); print tolower($$5); exit }' /proc/cpuinfo)

# `--cfg loom` rebuilds all it touches, so those builds live apart.
LOOM := RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --release -p shards-loom --test models
# The tests around the released program.
RELEASED := CORELANE_BIN=$(CURDIR)/target/release/corelane $(CARGO) test -q -p corelane --test it
SIM  := $(CARGO) test --release -p shards --features sim --test sim -- --nocapture

.PHONY: help run test check lint deny sim loom fuzz faults queue-faults broker-faults arithmetic soak brokers browser bench perf docs clean setup

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: setup ## Build, then run the router in target/run with made-up traffic; Ctrl-C ends it
	$(CARGO) build --release --bin corelane
	@mkdir -p target/run
	@cd target/run; PATH="$(CURDIR)/target/release:$$PATH"; export CORELANE_URL=http://$(LISTEN); router=$$$$; \
	{ until corelane status || ! kill -0 $$router; do sleep 0.2; done; \
	  while corelane seed --count 200 --endpoint fast --mode 1of8 && corelane seed --count 3 --endpoint slow --mode single; do sleep 1; done; \
	} >/dev/null 2>&1 & \
	exec corelane run --listen $(LISTEN)

test: check ## Everything that must be green: check, all tests, benches as smoke, loom, 200 seeds of the simulator, the dashboard in a browser
	$(CARGO) test --workspace --no-fail-fast
	$(LOOM)
	@$(MAKE) --no-print-directory sim SEEDS=200
	@$(MAKE) --no-print-directory browser

check: setup lint deny docs ## Format, clippy, licences and advisories, docs

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features shards/sim -- -D warnings

deny: setup
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	  $(CARGO) deny check licenses bans sources; \
	  if $(CARGO) deny fetch db 2>/dev/null; then \
	    $(CARGO) deny check advisories; \
	  else \
	    echo '!! SKIPPED: the advisory database can not be fetched here; advisories were NOT checked.'; \
	  fi; \
	else \
	  echo '!! SKIPPED: cargo deny is not installed; licences and advisories were NOT checked.'; \
	  echo '!!          cargo install --locked cargo-deny'; \
	fi

sim: setup ## Simulate SEEDS=2000 runs, or replay one with SEED=n
	SEEDS=$(SEEDS) $(if $(SEED),SEED=$(SEED)) $(SIM)

loom: setup ## Model-check bell, permits and rate in every interleaving
	$(LOOM)

fuzz: setup ## Long differential fuzz of the HTTP/1.1 parser: FUZZ_CASES=2000000 FUZZ_SEED=1
	FUZZ_CASES=$(FUZZ_CASES) FUZZ_SEED=$(FUZZ_SEED) $(CARGO) test --release -p shards --test courier_fuzz -- --nocapture

faults: queue-faults broker-faults ## Everything that can be killed, in full (about 12 minutes, and two hours for the brokers)

queue-faults: setup ## Kill, end, starve and flood the router on its own queue: KILLS=60 STOPS=20 MINUTES=3
	$(CARGO) build --release --bin corelane
	mkdir -p $(RUN)
	KILLS=$(KILLS) STOPS=$(STOPS) BACKLOG=20000 QUEUED=200000 MINUTES=$(MINUTES) $(RELEASED) -- \
	  kills:: drains:: limits:: --test-threads=1 --nocapture 2>&1 | tee $(RUN)/faults.log

broker-faults: setup ## Kill each broker, its router, and both: BROKER_KILLS=30 MESSAGES=100000 POWER_CUTS=5, KIND=nats for one
	$(CARGO) build --release --bin corelane
	mkdir -p $(RUN)
	KILLS=$(BROKER_KILLS) MESSAGES=$(MESSAGES) POWER_CUTS=$(POWER_CUTS) CORELANE_BIN=$(CURDIR)/target/release/corelane \
	  $(CARGO) test -q -p corelane --test e2e -- $(KIND) 'under load' 2>&1 | tee $(RUN)/faults-brokers$(addprefix -,$(KIND)).log

arithmetic: setup ## So many messages of so many groups at 100 ms each: expected and measured, and off fails
	$(CARGO) build --release --bin corelane
	mkdir -p $(RUN)
	ulimit -n $$(ulimit -Hn) && ARITHMETIC=1 $(RELEASED) -- arithmetic:: --nocapture 2>&1 | tee $(RUN)/arithmetic.log

soak: setup ## Steady traffic for SOAK=180 seconds: memory, descriptors, threads and files must not grow
	$(CARGO) build --release --bin corelane
	mkdir -p $(RUN)
	SOAK=$(SOAK) $(RELEASED) -- soak:: --nocapture 2>&1 | tee $(RUN)/soak.log

brokers: setup ## Each broker's adapter beside its plain client: deliveries/s, CPU per message; KIND=nats ROUNDS=3
	$(CARGO) build --release --bin corelane
	ulimit -n $$(ulimit -Hn) && RUN=$(CURDIR)/$(RUN) ROUNDS=$(ROUNDS) CORELANE_BIN=$(CURDIR)/target/release/corelane \
	  $(CARGO) test --release -q -p corelane --test e2e -- --measure $(KIND)

browser: setup ## Drive the dashboard in a real browser; screenshots go to target/screenshots
	tests/services/browser.sh
	$(CARGO) test -p corelane --test browser -- --nocapture

bench: setup ## Micro-benches, in full
	$(CARGO) bench -p corelane --benches

perf: setup ## Yardstick, baseline and corelane, interleaved, beside their budgets (about 8 minutes)
	$(CARGO) build --release --workspace
	ulimit -n $$(ulimit -Hn) && target/release/compare --out perf/out/$$(date -u +%F)-$$(hostname)

docs: setup ## Build the API docs; a broken link fails
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

clean: ## Remove what was built
	$(CARGO) clean

# A Rust toolchain is given; the rest is brought here, loudly. Rust links with cc, ring and glommio compile
# with it, and glommio's build script starts git (and panics without one).
setup:
	@command -v $(CARGO) >/dev/null || { echo '!! cargo is missing: install a Rust toolchain first'; exit 1; }
	@missing=; command -v cc >/dev/null || missing="gcc libc6-dev"; command -v git >/dev/null || missing="$$missing git"; \
	if [ -n "$$missing" ]; then \
	  echo "-- missing: $$missing. Installing by apt."; \
	  if [ "$$(id -u)" = 0 ]; then as=; else as=sudo; fi; \
	  $$as apt-get update -q && $$as apt-get install -y -q --no-install-recommends $$missing; \
	fi
	@$(CARGO) fmt --version >/dev/null 2>&1 || { echo '-- adding rustfmt'; rustup component add rustfmt; }
	@$(CARGO) clippy --version >/dev/null 2>&1 || { echo '-- adding clippy'; rustup component add clippy; }
