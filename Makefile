# Plimsoll. `make demo` and `make test` install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

CARGO ?= cargo
BIN := target/release/plimsoll
SHELL_SCRIPTS := $(shell git grep -lIE '^\#!(/usr/bin/env bash|/bin/bash|/bin/sh)' 2>/dev/null)
C_SOURCES := $(shell git ls-files 'policy/*.c' 'policy/*.h' 'crates/*/src/bpf/*' 2>/dev/null)

.PHONY: help build demo test test-kernel lint build-tests unit facts facts-here bpf proofs docs prove audit deny metrics-test systemd-test report seeds vm-selftest lab lab-full lab-report lab-programs lab-measure install uninstall clean

help:
	@echo "make demo         see the main job on this machine, in about 80 seconds"
	@echo "make build        the release binary, $(BIN)"
	@echo "make install      into PREFIX (/usr/local); make uninstall takes it away"
	@echo "make test         the gate: the same answer on every machine, however busy"
	@echo "make test-kernel  facts on real kernels, in virtual machines"
	@echo "make prove        all proofs of the policy core"
	@echo "make lab          everything that is measured, in virtual time; hours"
	@echo "make lab CELL=7/2/sched-ext/service-400   one cell of it, in two minutes"
	@echo "make lab FILTER=headroom   promises of tests with this in their names"
	@echo "make lab-full     the whole matrix; resumes after an interruption"
	@echo "make lab-report   docs/results.md and other tables from the recorded results"
	@echo "make audit        by hand: licences, Prometheus, browser, systemd, random seeds"
	@echo "parts of make test: $(GATE)"
	@echo "parts of make audit: $(AUDIT)"
	@echo "one test: tools/cargo-gate --test facts NAME; tools/test-kernel --filter NAME"

# libbpf is built by make as well, and would be installed below DESTDIR.
CARGO_APART := env -u MAKEFLAGS -u DESTDIR -u PREFIX $(CARGO)

# The flags make a program the same in whatever folder it is built, which
# measurements in virtual time need.
build install lab-programs lab-measure: export RUSTFLAGS := $(shell RUSTFLAGS='$(RUSTFLAGS)' tools/rustflags)
build:
	tools/install-deps build
	$(CARGO_APART) build --release --locked -p plimsoll

demo: build
	$(BIN) demo

# The gate. Nothing in it looks at a clock, boots a guest or needs the network
# once the packages and crates are there. The commit that passed is noted, so
# that a later look can tell.
GATE := lint build-tests unit facts bpf proofs docs
test:
	@rm -f target/passed
	@tools/check-rust
	@tools/parts $(GATE)
	@tools/note-passed

# The second clippy is for programs that cargo test leaves out, because they need root, guests or
# hours. Warnings are errors under the compiler with which the project was linted last;
# a newer one may know others.
lint:
	tools/install-deps build lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-features --all-targets --quiet -- $(shell tools/check-rust --deny-warnings)
	$(CARGO) clippy --locked --workspace --all-features --test '*' --quiet -- $(shell tools/check-rust --deny-warnings)
	clang-format-19 --dry-run -Werror $(C_SOURCES)
	shellcheck -x -P SCRIPTDIR $(SHELL_SCRIPTS)
	tools/lint-tests
	tools/check-circles
	tools/check-names
	tools/check-prose

# All programs at once, those of test-kernel included.
build-tests:
	tools/install-deps build
	tools/cargo-gate --no-run --lib --bins --test '*'

unit:
	tools/cargo-gate --no-fail-fast --lib --bins --tests
	tools/cargo-gate --no-fail-fast --doc

# They make cgroups of their own, so they need root.
facts:
	@tools/can-test facts && $(MAKE) --no-print-directory facts-here || [[ $$? == 3 ]]
facts-here:
	tools/install-deps native
	skips=$$(tools/can-test skips) && tools/cargo-gate --no-fail-fast --test facts --test top -- $$skips

# The core's headers are the kernel's too: they must compile for BPF.
bpf:
	tools/install-deps build lint
	policy/check-bpf

# What has changed since all was proved.
proofs:
	policy/proofs/run --changed

prove:
	tools/install-deps prove
	policy/proofs/run --all

docs:
	$(CARGO) build --quiet --locked --workspace --all-features --bin plimsoll-lab
	target/debug/plimsoll-lab report --check

test-kernel:
	@tools/can-test guests && tools/test-kernel || [[ $$? == 3 ]]

# What no gate may depend on, one after the other: other projects' programs,
# a browser, systemd, random choices.
AUDIT := deny metrics-test report systemd-test vm-selftest prove seeds
audit:
	@tools/parts $(AUDIT)

deny:
	tools/install-deps build
	tools/cargo-deny check licenses bans sources
	@if compgen -G "$${CARGO_HOME:-$$HOME/.cargo}/advisory-dbs/*/.git" >/dev/null; then \
		tools/cargo-deny --offline check advisories; \
	else \
		echo "NOT TESTED: advisories: there is no advisory database here; 'cargo deny fetch' gets one"; \
	fi

# With a real Prometheus on loopback.
metrics-test:
	tools/install-deps build metrics
	tools/cargo-gate -p plimsoll-daemon --test metrics -- --include-ignored

# A short demo, whose report is looked at with a browser.
report: build
	tools/install-deps report
	$(BIN) demo --phase 2s --report target/demo.html
	bench/check-report target/demo.html

# The service's unit under this machine's systemd, in a VM.
systemd-test: build
	tools/install-deps vm systemd
	crates/plimsoll/tests/systemd-in-vm

vm-selftest:
	tools/install-deps vm
	vm/selftest

# The gate's random tests with other choices than the gate's, and a million steps of the owner.
seeds:
	PROPTEST_RNG_SEED=$$RANDOM PLIMSOLL_SEED=$$RANDOM PLIMSOLL_STEPS=1000000 $(MAKE) unit facts

LAB_DIR := target/lab
LAB := $(LAB_DIR)/plimsoll-lab
# The build's identifier depends on debug information, and so on the folder.
STRIP := strip --remove-section=.note.gnu.build-id
lab-programs:
	tools/install-deps build vm lab
	$(CARGO) build --release --locked -p plimsoll -p plimsoll-lab
	mkdir -p $(LAB_DIR)
	$(STRIP) -o $(LAB_DIR)/plimsoll $(BIN)
	$(STRIP) -o $(LAB) target/release/plimsoll-lab

# The program whose figures are compared with what SPEC promises.
lab-measure: lab-programs
	$(STRIP) -o $(LAB_DIR)/measure "$$($(CARGO) test --release --locked -p plimsoll --test measure --no-run --message-format=json | sed -n 's/.*"name":"measure".*"executable":"\([^"]*\)".*/\1/p')"

# JOBS guests side by side, each of which keeps one core busy. WRITE=docs/results.json puts the
# figures of cells into the project's own results; those of promises are always written. CELL
# measures one cell and no promises, FILTER the promises that match and no cell.
JOBS := 2
LAB_RUN = $(LAB) run --jobs $(JOBS) $(if $(filter lab-full,$@),--full) $(addprefix --cell ,$(CELL)) $(if $(WRITE),--write $(WRITE))
PROMISES = --jobs $(JOBS) $(if $(FILTER),--filter '$(FILTER)')
lab lab-full: lab-programs $(if $(CELL),,lab-measure)
	$(if $(FILTER),,$(LAB_RUN))
	$(if $(CELL),,$(LAB) promises $(PROMISES) --write docs/promises.json)

lab-report: lab-programs
	$(LAB) report

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
	$(CARGO_APART) run --release --locked -p plimsoll --example man-pages $(DESTDIR)$(PREFIX)/share/man/man1
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
