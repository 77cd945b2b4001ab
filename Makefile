# Plimsoll. `make demo` and `make test` install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# Rust unit tests of every crate; the integration tests that need cgroups
# have targets of their own.
CARGO ?= cargo
BIN := target/release/plimsoll
# Without the sched_ext scheduler, which needs clang to build, and in a folder
# of its own, so that the two do not overwrite each other.
DEMO_DIR := target/demo
SHELL_SCRIPTS := $(shell git grep -lIE '^\#!(/usr/bin/env bash|/bin/bash|/bin/sh)' 2>/dev/null)
# The scheduler's tests that are part of make test, and the kernels they run on.
SCHED_EXT_KERNELS := 6.18 7
SCHED_EXT_QUICK := ^(undo|exits|handover|left_behind|reload|bandwidth|cpu_limit|fairness|daemon)::
# Of these, what wants a quiet machine: sched-ext-test runs it.
SCHED_EXT_NOT_QUICK := ^daemon::reaction
C_SOURCES := $(shell git ls-files 'policy/*.c' 'policy/*.h' 'crates/plimsoll-scx/src/bpf/*' 2>/dev/null)

.PHONY: build demo test lint unit bpf prove native-test vm-test systemd-test sched-ext-test deny metrics-test report figures bench bench-daemon sim-bench soak install uninstall clean help

help:
	@echo "make demo         see the main job on this machine, in about a minute"
	@echo "make test         everything: lints, units, proofs, native and VM tests"
	@echo "make build        the release binary, $(BIN)"
	@echo "make sched-ext-test  all tests of the scheduler, in VMs; an hour"
	@echo "make install      into PREFIX (/usr/local); make uninstall takes it away"
	@echo "make figures      measure the figures that the README quotes"
	@echo "make bench        measure in a virtual machine what the scheduler costs"
	@echo "make bench-daemon  measure what the daemon costs and how soon it reacts"
	@echo "make sim-bench    measure what the simulators cost"
	@echo "make soak         the daemon under all faults at random, for 20 minutes"
	@echo "single parts: lint unit bpf prove native-test vm-test systemd-test deny metrics-test report"

build:
	tools/install-deps build scx
	$(CARGO) build --release -p plimsoll

demo:
	tools/install-deps build
	$(CARGO) build --release -p plimsoll --no-default-features --target-dir $(DEMO_DIR)
	$(DEMO_DIR)/release/plimsoll demo

test: lint unit bpf prove deny metrics-test native-test vm-test systemd-test report
	@echo "all parts passed"

lint:
	tools/install-deps build scx lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	clang-format-19 --dry-run -Werror $(C_SOURCES)
	shellcheck -x -P SCRIPTDIR $(SHELL_SCRIPTS)

unit:
	tools/install-deps build scx lint
	$(CARGO) test --workspace --lib --bins
	$(CARGO) test --workspace --doc
	$(CARGO) test -p plimsoll-policy -p plimsoll-sim --tests

# The core's headers are the kernel's too: they must compile for BPF.
bpf:
	tools/install-deps lint
	policy/check-bpf

prove:
	tools/install-deps prove
	policy/proofs/run
	policy/proofs/run --mutations

deny:
	tools/install-deps build
	tools/cargo-deny check licenses bans sources
	@if compgen -G "$${CARGO_HOME:-$$HOME/.cargo}/advisory-dbs/*/.git" >/dev/null; then \
		tools/cargo-deny --offline check advisories; \
	else \
		echo "SKIPPED: advisories, for there is no advisory database here; 'cargo deny fetch' gets one"; \
	fi

# With a real Prometheus on loopback.
metrics-test:
	tools/install-deps build metrics
	PLIMSOLL_REQUIRE_PROMETHEUS=1 $(CARGO) test -p plimsoll-daemon --test metrics

# Optimised, as the guest of vm-test needs them.
native-test: build
	tools/install-deps native
	$(CARGO) test --release -p plimsoll --tests -- --nocapture

# What is about the simulators is tested by native-test alone: they ask nothing
# of a kernel, and where they are compared with the machine, an emulated CPU takes
# a quarter longer for a burst of requests, which no model of a host can know.
NOT_IN_VM := $(addprefix --except ,sched_ext model bench sim_host sim_interference)
vm-test: build
	tools/install-deps vm
	vm/selftest
	crates/plimsoll/tests/in-vm $(NOT_IN_VM) --except daemon --except faults
	crates/plimsoll/tests/in-vm --timeout 1800 daemon faults
	for kernel in $(SCHED_EXT_KERNELS); do \
		crates/plimsoll/tests/in-vm --kernel "$$kernel" --timeout 1200 --filter '$(SCHED_EXT_QUICK)' --skip '$(SCHED_EXT_NOT_QUICK)' sched_ext; \
	done

# The service's unit under this machine's systemd, in a VM.
systemd-test: build
	tools/install-deps vm systemd
	crates/plimsoll/tests/systemd-in-vm

# All tests of the scheduler, also those that take minutes or a quiet machine.
sched-ext-test: build
	tools/install-deps vm
	for kernel in $(SCHED_EXT_KERNELS); do \
		crates/plimsoll/tests/in-vm --kernel "$$kernel" --long --timeout 3600 --skip four_cpus:: sched_ext; \
		crates/plimsoll/tests/in-vm --kernel "$$kernel" --timeout 900 --cpus 4 --filter four_cpus:: sched_ext; \
	done

# A short demo, whose report is looked at with a browser.
report: build
	tools/install-deps report
	$(BIN) demo --phase 2s --report target/demo.html
	bench/check-report target/demo.html

figures: build
	bench/figures

# The first time, scx_lavd is built to compare with.
bench: build
	tools/install-deps vm bench
	bench/scheduler

bench-daemon: build
	PLIMSOLL_BIN=$(BIN) bench/daemon

# With nothing else running; ends with a table of all that was measured.
sim-bench:
	tools/install-deps build
	$(CARGO) bench -p plimsoll-sim

# The daemon on this machine, with every fault that can be had, for 20 minutes;
# native-test has half a minute of it.
soak: build
	bench/soak

PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
# A configuration that is there stays; the example is in share/doc, too.
install: build
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/plimsoll
	$(BIN) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BIN) completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/plimsoll
	$(BIN) completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_plimsoll
	$(BIN) completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/plimsoll.fish
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' deploy/systemd/plimsoll.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/plimsoll.service
	install -D -m 644 deploy/sysusers/plimsoll.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/plimsoll.conf
	install -D -m 644 deploy/plimsoll.toml $(DESTDIR)$(PREFIX)/share/doc/plimsoll/plimsoll.toml
	if [[ ! -e $(DESTDIR)$(SYSCONFDIR)/plimsoll/plimsoll.toml ]]; then \
		install -D -m 644 deploy/plimsoll.toml $(DESTDIR)$(SYSCONFDIR)/plimsoll/plimsoll.toml; \
	fi

# What is in SYSCONFDIR is the operator's, and stays.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/plimsoll $(DESTDIR)$(PREFIX)/share/man/man1/plimsoll{,-*}.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/plimsoll $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_plimsoll $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/plimsoll.fish
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/plimsoll.service $(DESTDIR)$(PREFIX)/lib/sysusers.d/plimsoll.conf
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/plimsoll

clean:
	$(CARGO) clean
