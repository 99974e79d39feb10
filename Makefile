# The tasks of this repository: `make help`.

SHELL := /bin/sh
.DEFAULT_GOAL := help

VERSIONS := 3.10 3.11 3.12 3.13 3.14 3.15
# All tests run on these. On the others run those that depend on the version.
WHOLE := 3.10 3.13 3.15
FREE_THREADED := 3.14t 3.15t
MONITORING_VERSIONS := 3.12 3.13 3.14 3.15
# Runs a command where Pythons are that this machine lacks; see scripts/test-version.
export NEWER_PYTHON ?= $(abspath $(wildcard ../shared/tools/newer-python))
# Runs a command where a runtime of containers is; see scripts/test-version.
export REAL_DOCKER ?= $(abspath $(wildcard ../shared/tools/real-docker/run))

SIDE_BY_SIDE := --numprocesses auto --dist worksteal

# What `make quick` runs: the verdicts, and what changes most.
CORE := tests/policy tests/denials/test_denied.py tests/originals/test_differential.py \
	$(patsubst %,tests/calls/test_%.py,call_sites calls named_calls tools) \
	$(patsubst %,tests/events/test_%.py,databases descriptors events file_actions landing paths processes silent) \
	$(patsubst %,tests/guard/test_%.py,approvals callbacks executors host_tools later lying_objects scope tamper) \
	$(patsubst %,tests/sessions/test_%.py,steps values)

VENV := .venv
PY := $(VENV)/bin/python
SOURCES := $(shell find src fastaudit_rs -name '*.rs' -o -name '*.py' -o -name '*.pyi') \
	Cargo.toml Cargo.lock build.rs pyproject.toml

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

# The environment and the build in it, with more EXTRAS if they are named. Touched only when all of it
# succeeded.
$(VENV)/.built: $(SOURCES) scripts/find-python scripts/make-venv
	scripts/make-venv "$$(scripts/find-python --best)" $(VENV) develop adapters dask demo docker lint notebook ray recipes sandbox test $(EXTRAS)
	@touch $(VENV)/.demo $@

# The same with what the demo needs alone.
$(VENV)/.demo: $(SOURCES) scripts/find-python scripts/make-venv
	scripts/make-venv "$$(scripts/find-python --best)" $(VENV) develop demo
	@touch $@

.PHONY: demo
demo: $(VENV)/.demo ## Build, and run snippets of the kind a language model writes under a guard
	$(PY) demo/run.py

.PHONY: quick
quick: ## Build without optimizing, and run the tests that say most: within a minute of an edit
	[ -x $(PY) ] || $(MAKE) $(VENV)/.built
	cargo test --quiet --no-default-features --lib
	@rm -f $(VENV)/.built $(VENV)/.demo
	CARGO_TARGET_DIR=target/quick VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/maturin develop --quiet --skip-install
	$(PY) -m ruff check
	$(PY) -m pytest --quiet $(SIDE_BY_SIDE) -m "not slow" $(CORE)

.PHONY: test
test: $(VENV)/.built ## Build, and run the quick tests, for about three minutes, on the newest Python here
	cargo test --quiet --no-default-features
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not slow"

.PHONY: test-slow
test-slow: WHICH = slow
test-slow: $(VENV)/.built ## Build, and run the slow tests, but for those that `make nightly` has
	BUILDS=$(abspath target/py$(shell $(PY) -c 'import sys; print("%d.%d" % sys.version_info[:2])')) \
		$(PY) -m pytest $(SIDE_BY_SIDE) -m "($(WHICH)) and not nightly"

.PHONY: test-full
test-full: test test-slow ## The quick tests and the slow ones

.PHONY: check
check: lint test-full ## Everything that a change must pass: lint, and all tests but those for the night

.PHONY: nightly
nightly: ## Everything that takes long: each Python, wheels, containers, conformance, instructions, fuzzing, random faults
	scripts/nightly

.PHONY: lint
lint: lint-rust lint-python ## Check formatting, lints and types of Rust and Python

.PHONY: lint-rust
lint-rust: $(VENV)/.built
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	# The lock file of the fuzz targets is apart: a new dependency must be in both.
	cargo update --quiet --workspace --locked --manifest-path fuzz/Cargo.toml
	cargo clippy --quiet --no-default-features --all-targets -- -D warnings
	PYO3_PYTHON=$(abspath $(PY)) CARGO_TARGET_DIR=target/lint cargo clippy --quiet --all-targets -- -D warnings
	# Before 3.12, without events of calls, other code is built.
	if old=$$(scripts/find-python 3.11 || scripts/find-python 3.10); then \
		PYO3_PYTHON=$$old CARGO_TARGET_DIR=target/lint cargo clippy --quiet --lib -- -D warnings; fi

.PHONY: lint-python
lint-python: $(VENV)/.built
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy --strict fastaudit_rs
	$(PY) -m mypy.stubtest fastaudit_rs --allowlist tests/stubtest-allowlist.txt
	$(PY) -m pyright --pythonpath $(PY) fastaudit_rs
	$(VENV)/bin/zizmor --offline --quiet .github
	$(PY) scripts/check_examples.py
	$(PY) -m pytest --quiet tests/repository

.PHONY: fmt
fmt: $(VENV)/.built ## Format Rust and Python
	cargo fmt
	cargo fmt --manifest-path fuzz/Cargo.toml
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

# QUICK=1 leaves out the slow tests, and those that do not depend on the version of Python.
.PHONY: test-all
test-all: $(VERSIONS:%=test-%) ## Install and test on each Python from 3.10 to 3.15

.PHONY: $(VERSIONS:%=test-%)
$(VERSIONS:%=test-%): test-%:
	scripts/test-version $* $(if $(QUICK),quick,$(if $(filter $*,$(WHOLE)),tests,version))

.PHONY: $(FREE_THREADED:%=test-%)
$(FREE_THREADED:%=test-%): test-%: ## Run the tests of guards on a free-threaded build, with the lock off, TIMES times
	scripts/test-version $* threads

.PHONY: $(VERSIONS:%=install-%)
$(VERSIONS:%=install-%): install-%:
	scripts/test-version $* install

.PHONY: test-docker
test-docker: ## Run the tests of sandboxes in containers on a real runtime, on 3.13
	scripts/test-version 3.13 containers

.PHONY: test-kernel
test-kernel: ## Run the tests of sandboxes on Debian 12's kernel, in an emulated machine: needs qemu-system-x86 and busybox-static
	scripts/test-version 3.13 kernel

.PHONY: test-aarch64
test-aarch64: $(VENV)/.built ## Run the tests of guards, native code and sandboxes on an emulated aarch64 machine: needs qemu-system-arm, mmdebstrap, busybox-static and gcc-aarch64-linux-gnu
	scripts/test-aarch64

.PHONY: conformance
conformance: $(MONITORING_VERSIONS:%=conformance-%) ## Run fastaudit 0.1.0's own tests on this package, on 3.12 to 3.15

.PHONY: $(MONITORING_VERSIONS:%=conformance-%)
$(MONITORING_VERSIONS:%=conformance-%): conformance-%:
	scripts/test-version $* conformance

.PHONY: conformance-smolagents
conformance-smolagents: $(VENV)/.built ## Run smolagents' own tests of its executors on ours, and show in docs/adapters.md which differ
	$(PY) scripts/smolagents_tests.py --publish

.PHONY: cpython-tests
cpython-tests: ## Run CPython's own tests bare and under two guards, show it in docs/ordinary.md, and fail on a difference that is not listed, on 3.13
	scripts/test-version 3.13 cpython

.PHONY: scenarios
scenarios: $(VENV)/.built ## Run what must be stopped and what must be allowed under each guard, and show it in docs/assurance.md
	$(PY) scripts/scenarios.py --publish

.PHONY: promises-page
promises-page: ## Try what a sandbox promises, and write the table of docs/assurance.md (needs REAL_DOCKER)
	scripts/test-version 3.13 promises

# `ordinary-torch` adds PyTorch, of 3 GB.
ORDINARY ?= ordinary

.PHONY: ordinary
ordinary: ## Run ordinary snippets with a hundred packages under each guard, write docs/ordinary.md, and fail where one is stopped
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/ordinary install $(ORDINARY)
	.venvs/ordinary/bin/python scripts/ordinary.py --publish

.PHONY: library-suites
library-suites: ## Run the test suites of libraries bare and under `pytest --audit=record`, and fail where a test ends differently
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/suites install
	.venvs/suites/bin/python scripts/library_suites.py --install --publish

.PHONY: foreign-programs
foreign-programs: ## Run the solutions of benchmarks of programs bare and under the presets, and fail where one differs without a reason
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/benchmarks install
	.venvs/benchmarks/bin/python scripts/foreign_programs.py --install --publish $(if $(DATA),--data $(DATA))

.PHONY: external
external: ## Run RedCode-Exec's, SandboxEval's and HumanEval's programs under guards and peers, show it in docs/comparison.md, and fail where an act is not stopped (needs root)
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/external install sandbox secrets peers
	.venvs/external/bin/python scripts/external.py --install --publish $(if $(DATA),--data $(DATA))

FUZZ_SECONDS ?= 30

.PHONY: fuzz
fuzz: ## Fuzz paths, SQL, policies and events, for FUZZ_SECONDS each
	scripts/fuzz $(FUZZ_SECONDS)

SOAK_SECONDS ?= 60

.PHONY: soak
soak: $(VENV)/.built ## Random work with faults for SOAK_SECONDS; fails on a wrong verdict, or where anything is left
	$(PY) scripts/soak.py $(SOAK_SECONDS)

STRESS_SECONDS ?= 60

.PHONY: stress
stress: ## Native code of many packages under different guards at once, for STRESS_SECONDS by what it does and by what is called; fails on a wrong verdict
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/stress install test native
	.venvs/stress/bin/python scripts/stress.py acts $(STRESS_SECONDS)
	.venvs/stress/bin/python scripts/stress.py calls $(STRESS_SECONDS)

.PHONY: bench
bench: $(VENV)/.built ## Measure what a guard costs beside both releases of the original, and show it in docs/performance.md
	$(PY) benches/run.py --publish
	$(MAKE) bench-sandbox
	$(MAKE) bench-sessions

.PHONY: bench-programs
bench-programs: $(VENV)/.built ## Measure whole programs under guards that watch calls, in both ways and by both originals, show it in docs/performance.md, and fail where a goal is missed
	$(PY) benches/programs.py --publish

.PHONY: bench-scaling
bench-scaling: $(VENV)/.built ## Measure how that grows with roots, paths, stacks, guards, tasks and threads
	$(PY) benches/scaling.py

.PHONY: bench-tools
bench-tools: $(VENV)/.built ## Measure what a tool's call costs more than the plain one, and fail above 2 µs under a guard
	$(PY) benches/tools.py

.PHONY: bench-observe
bench-observe: $(VENV)/.built ## Measure what observing costs more than a guard, and fail above 150 ns for an event
	$(PY) benches/observe.py

.PHONY: bench-log
bench-log: $(VENV)/.built ## Measure what a log of decisions costs more than a guard, and fail above 1 µs for a decision
	$(PY) benches/log.py

.PHONY: bench-sandbox
bench-sandbox: ## Measure what a run in a sandbox takes beside others, show it in docs/performance.md, and fail where a goal is missed
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/bench-sandbox install sandbox peers
	.venvs/bench-sandbox/bin/python benches/sandbox.py --publish

.PHONY: bench-sessions
bench-sessions: ## Measure steps of sessions, calls of tools and values beside others, show it in docs/performance.md, and fail where the goal is missed
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/bench-sandbox install sandbox peers
	.venvs/bench-sandbox/bin/python benches/sessions.py --publish

.PHONY: bench-ordinary
bench-ordinary: ## Measure the CPU time that ordinary snippets take under each guard, show it in docs/ordinary.md, and fail where the goal is missed
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/ordinary install $(ORDINARY)
	.venvs/ordinary/bin/python benches/ordinary.py --publish

.PHONY: bench-native
bench-native: ## Measure what it costs to judge native code, and fail where a goal is missed
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/ordinary install $(ORDINARY)
	.venvs/ordinary/bin/python -m pip --disable-pip-version-check install --quiet 'cython>=3'
	.venvs/ordinary/bin/python benches/native.py

.PHONY: bench-confined
bench-confined: $(VENV)/.built ## Measure what a confined call costs beside a bare thread, and fail above 0.25 ms
	$(PY) benches/confined.py

.PHONY: bench-policy
bench-policy: ## Measure the policy core alone
	cargo bench --no-default-features --bench policy

.PHONY: $(MONITORING_VERSIONS:%=bench-%)
$(MONITORING_VERSIONS:%=bench-%): bench-%:
	scripts/test-version $* bench

.PHONY: bench-instructions
bench-instructions: $(VENV)/.built ## Count the instructions of the hot paths, and fail if one grew by more than 3 %
	$(PY) benches/instructions.py
	$(PY) benches/programs.py --instructions

.PHONY: packages-page
packages-page: ## Write the table of docs/packages.md anew from src/policy/packages.toml
	"$$(scripts/find-python --best)" scripts/packages-page.py

.PHONY: native-code-page
native-code-page: ## Write docs/native-code.md anew from the tables of the tests
	"$$(scripts/find-python --best)" scripts/native-code-page.py

.PHONY: native-page
native-page: ## Run what real packages do in native code under a guard, and write the table of docs/native-libraries.md anew
	scripts/make-venv "$$(scripts/find-python --best)" .venvs/native install
	.venvs/native/bin/python scripts/native-page.py --install

.PHONY: events-page
events-page: ## Write docs/events.md anew from the rule tables
	FASTAUDIT_RS_WRITE_PAGE=1 cargo test --quiet --no-default-features --test events_page

.PHONY: wheel
wheel: sdist $(VERSIONS:%=wheel-%) ## Build a wheel for each Python and the source distribution into dist/, and use them

.PHONY: sdist
sdist: $(VENV)/.built
	rm -rf dist
	$(VENV)/bin/maturin sdist --out dist
	scripts/check-dist $(PY) dist/*.tar.gz

.PHONY: $(VERSIONS:%=wheel-%)
$(VERSIONS:%=wheel-%): wheel-%: sdist
	scripts/test-version $* wheel

.PHONY: docs
docs: $(VENV)/.docs ## Build the documentation into .cache/site, and fail on any warning
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

.PHONY: pictures
pictures: $(VENV)/.docs ## Take the pictures of the documentation anew (needs chromium); look at them afterwards
	$(PY) scripts/tutorial.py
	$(PY) scripts/pictures.py

$(VENV)/.docs: $(VENV)/.built
	$(PY) -m pip --disable-pip-version-check install --quiet --requirement docs/requirements.txt
	@touch $@

.PHONY: clean
clean: ## Remove what was built
	rm -rf target fuzz/target dist $(VENV) .venvs .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find fastaudit_rs -name '*.so' -delete
