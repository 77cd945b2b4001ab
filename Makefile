# Plimsoll. `make demo` and `make test` install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

CARGO ?= cargo
# A program is the same in whatever folder it is built.
override RUSTFLAGS := $(shell RUSTFLAGS='$(RUSTFLAGS)' tools/rustflags)
export RUSTFLAGS
# Notes which test programs ran, for the check at the end of make test.
CARGO_TEST := $(CARGO) --config 'target."cfg(all())".runner = ["$(CURDIR)/tools/record-test"]' test
BIN := target/release/plimsoll
# Without the sched_ext scheduler, which needs clang to build, and in a folder
# of its own, so that the two do not overwrite each other.
DEMO_DIR := target/demo
SHELL_SCRIPTS := $(shell git grep -lIE '^\#!(/usr/bin/env bash|/bin/bash|/bin/sh)' 2>/dev/null)
# Tests of the scheduler whose outcome depends on the kernel: 6.18 has no ext server, so that the
# supervisor lends starved tasks to the fair class; it loads and ejects schedulers in its own way,
# and keeps cpu.max in its own way.
SCHED_EXT_ON_6_18 := inversion::a_fair_task servers strictness tolerance watchdog exits fairness::a_bound bandwidth::the_cpu_max handover::next_owner_runs_starved
C_SOURCES := $(shell git ls-files 'policy/*.c' 'policy/*.h' 'vm/*.c' 'crates/plimsoll-scx/src/bpf/*' 2>/dev/null)

.PHONY: build demo test tests-begin test-programs timing-test lint unit bpf prove native-test vm-test systemd-test sched-ext-test sched-ext-a-to-h sched-ext-i-to-z sched-ext-more deny metrics-test report figures lab lab-full lab-report lab-programs bench-daemon sim-bench soak install uninstall clean help

help:
	@echo "make demo         see the main job on this machine, in about a minute"
	@echo "make test         everything: lints, units, proofs, native and VM tests"
	@echo "make build        the release binary, $(BIN)"
	@echo "make sched-ext-test  the tests of the scheduler, in VMs in virtual time"
	@echo "make install      into PREFIX (/usr/local); make uninstall takes it away"
	@echo "make figures      measure the figures that the README quotes"
	@echo "make lab          Plimsoll beside its peers in virtual time, in half an hour"
	@echo "make lab CELL=7/2/sched-ext/service-400   one cell of it, in two minutes"
	@echo "make lab-full     the whole matrix; goes on where it was stopped"
	@echo "make lab-report   make docs/results.md and the README's table of docs/results.json"
	@echo "make bench-daemon  measure what the daemon costs and how soon it reacts"
	@echo "make sim-bench    measure what the simulators cost"
	@echo "make soak         the daemon under all faults at random, for 20 minutes"
	@echo "single parts: lint unit bpf prove native-test vm-test timing-test sched-ext-test sched-ext-more systemd-test deny metrics-test report"

build:
	tools/install-deps build scx
	$(CARGO) build --release -p plimsoll

demo:
	tools/install-deps build
	$(CARGO) build --release -p plimsoll --no-default-features --target-dir $(DEMO_DIR)
	$(DEMO_DIR)/release/plimsoll demo

# Parts that use both cores run first. The others run two at a time, the longest first, because a
# guest uses one core.
test: tests-begin
	$(MAKE) lint unit bpf deny
	$(MAKE) test-programs
	$(MAKE) --jobs=2 --output-sync=target $(PARTS)
	tools/check-tests-ran
	@echo "all parts passed"

PARTS := sched-ext-a-to-h sched-ext-i-to-z timing-test sched-ext-more native-test vm-test systemd-test prove metrics-test report

# Once, so that the parts do not wait for each other's compiler.
test-programs: build
	$(CARGO) test --release -p plimsoll --tests --no-run
	$(CARGO) test --release -p plimsoll --test sched_ext --test timing --no-run

# What ran before does not count.
tests-begin:
	rm -f target/tests-ran

lint:
	tools/install-deps build scx lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) clippy -p plimsoll --test sched_ext --test timing --quiet -- -D warnings
	$(CARGO) clippy -p plimsoll-engine --features simulated --all-targets --quiet -- -D warnings
	clang-format-19 --dry-run -Werror $(C_SOURCES)
	shellcheck -x -P SCRIPTDIR $(SHELL_SCRIPTS)

unit:
	tools/install-deps build scx lint
	$(CARGO_TEST) --workspace --lib --bins
	$(CARGO_TEST) --workspace --doc
	$(CARGO_TEST) -p plimsoll-policy -p plimsoll-sim --tests
	$(CARGO_TEST) --release -p plimsoll-engine --features simulated --test simulated
	$(CARGO_TEST) -p plimsoll-daemon --test 'control_*'
	$(CARGO) run --quiet -p plimsoll-lab -- report --check

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
	PLIMSOLL_REQUIRE_PROMETHEUS=1 $(CARGO_TEST) -p plimsoll-daemon --test metrics

# Optimised, as the guests need them. (Those of virtual time run only where they are named.)
native-test: build
	tools/install-deps native
	$(CARGO_TEST) --release -p plimsoll --tests -- --nocapture

# Times and shares, in virtual time.
timing-test: build
	tools/install-deps vm
	crates/plimsoll/tests/in-vm --timeout 3600 timing
	crates/plimsoll/tests/in-vm --timeout 1800 --cgroup v1 $(addprefix --filter ,$(TIMING_ON_V1)) timing

# The simulators ask nothing of a kernel, and top wants tmux: native-test has them.
NOT_IN_VM := $(addprefix --except ,sched_ext timing bench sim_host sim_interference top)
# What only cgroup v1 has, on whatever hierarchy this machine is.
V1_ONLY := nothing_counts_the_time_of renamed_cgroup what_has_failed_is_tried
# Of times and shares, a handful on v1.
TIMING_ON_V1 := each_under_a_cap_per_task changes_under_run burst_is_at_most normal_groups_share
vm-test: build
	tools/install-deps vm
	vm/selftest
	crates/plimsoll/tests/in-vm $(NOT_IN_VM) --except daemon --except faults
	crates/plimsoll/tests/in-vm --timeout 1800 daemon faults
	crates/plimsoll/tests/in-vm --cgroup v1 $(addprefix --filter ,$(V1_ONLY)) set daemon

# The service's unit under this machine's systemd, in a VM.
systemd-test: build
	tools/install-deps vm systemd
	crates/plimsoll/tests/systemd-in-vm

# In two guests, which run side by side.
sched-ext-test: sched-ext-a-to-h sched-ext-i-to-z
sched-ext-a-to-h: build
	tools/install-deps vm
	crates/plimsoll/tests/in-vm --kernel 7 --timeout 5400 --filter '^[a-h]' --skip '^four_cpus::' sched_ext
sched-ext-i-to-z: build
	tools/install-deps vm
	crates/plimsoll/tests/in-vm --kernel 7 --timeout 5400 --filter '^[i-z]' --skip '^one_cpu::' sched_ext

# With one CPU, with four, and on 6.18.
sched-ext-more: build
	tools/install-deps vm
	crates/plimsoll/tests/in-vm --kernel 7 --cpus 1 --filter '^one_cpu::' sched_ext
	crates/plimsoll/tests/in-vm --kernel 7 --timeout 1800 --cpus 4 --filter '^four_cpus::' sched_ext
	crates/plimsoll/tests/in-vm --kernel 6.18 --timeout 3600 $(addprefix --filter ^,$(SCHED_EXT_ON_6_18)) sched_ext

# A short demo, whose report is looked at with a browser.
report: build
	tools/install-deps report
	$(BIN) demo --phase 2s --report target/demo.html
	bench/check-report target/demo.html

figures: build
	bench/figures

LAB_DIR := target/lab
LAB := $(LAB_DIR)/plimsoll-lab
# The build's identifier depends on debug information, and so on the folder.
STRIP := strip --remove-section=.note.gnu.build-id
lab-programs:
	tools/install-deps build scx vm lab
	$(CARGO) build --release -p plimsoll
	$(CARGO) build --release -p plimsoll-lab
	mkdir -p $(LAB_DIR)
	$(STRIP) -o $(LAB_DIR)/plimsoll $(BIN)
	$(STRIP) -o $(LAB) target/release/plimsoll-lab

# JOBS guests side by side, each of which keeps one core busy. WRITE=docs/results.json puts the
# figures into the project's own results.
JOBS := 2
lab lab-full: lab-programs
	$(LAB) run --jobs $(JOBS) $(if $(filter lab-full,$@),--full) $(addprefix --cell ,$(CELL)) $(if $(WRITE),--write $(WRITE))

lab-report: lab-programs
	$(LAB) report

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
	# Debuggers, and backtraces, find the debug information by the link.
	install -d $(DESTDIR)$(PREFIX)/bin/.debug
	objcopy --only-keep-debug $(BIN) $(DESTDIR)$(PREFIX)/bin/.debug/plimsoll.debug
	objcopy --strip-unneeded --add-gnu-debuglink=$(DESTDIR)$(PREFIX)/bin/.debug/plimsoll.debug \
		$(BIN) $(DESTDIR)$(PREFIX)/bin/plimsoll
	chmod 755 $(DESTDIR)$(PREFIX)/bin/plimsoll
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
	rm -f $(DESTDIR)$(PREFIX)/bin/plimsoll $(DESTDIR)$(PREFIX)/bin/.debug/plimsoll.debug
	rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/bin/.debug
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/plimsoll{,-*}.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/plimsoll $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_plimsoll $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/plimsoll.fish
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/plimsoll.service $(DESTDIR)$(PREFIX)/lib/sysusers.d/plimsoll.conf
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/plimsoll

clean:
	$(CARGO) clean
