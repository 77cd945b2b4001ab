//! The daemon under changes and kills at random, for a given time; by hand, with `make soak`. Other
//! faults, each with its own test, are in `facts`.
//!
//! `PLIMSOLL_SOAK_SECONDS` says how long (default 30), `PLIMSOLL_SEED` repeats a sequence; not its
//! timing, which is the machine's.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../facts/daemon/rig.rs"]
mod rig;

mod actions;
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use common::random::{Random, SEED_VARIABLE};
use common::{Host, Looks};
use model::{Model, Slot, knobs};
use plimsoll_engine::knobs::{Bandwidth, Knobs};

use rig::{Daemon, kill_all};

/// Default enforcer of the daemons in these tests.
const ENFORCER: &str = "cgroup";
const SECONDS_VARIABLE: &str = "PLIMSOLL_SOAK_SECONDS";
/// Interval between complete checks.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(7);
/// Number of actions between two lines of progress.
const CHECKPOINTS_TOLD: u64 = 8;
/// Number of the last actions that are printed after a failure.
const TOLD: usize = 200;
/// Cgroups that come and go, of each kind.
const SLOTS: [(&str, usize); 5] = [("q", 6), ("b", 4), ("c", 3), ("m", 2), ("n", 4)];

struct Soak<'h> {
    random: Random,
    host: &'h Host,
    daemon: Daemon<'h>,
    model: Model,
    started: Instant,
    log: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    nr_checkpoints: u64,
}

impl Drop for Soak<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let from = self.log.len().saturating_sub(TOLD);
            eprintln!("the last actions:\n{}", self.log[from..].join("\n"));
            eprintln!("{}={}", SEED_VARIABLE, self.random.seed);
        }
    }
}

impl<'h> Soak<'h> {
    fn tell(&mut self, what: String) {
        let at = self.started.elapsed().as_secs_f64();
        self.log.push(format!("{at:9.3} {what}"));
    }

    /// Lists all deviations from the model.
    fn problems(&self) -> Vec<String> {
        let mut problems = self.model.problems();
        let names = self.model.names();
        let now: BTreeSet<String> = self.daemon.names().into_iter().collect();
        let differ = names.symmetric_difference(&now);
        let differ: Vec<&String> = differ.collect();
        if !differ.is_empty() {
            problems.push(format!(
                "groups that are there and should not, or the reverse: {differ:?}"
            ));
        }
        problems
    }

    /// Checks, without faults, that everything converges to the policy.
    fn checkpoint(&mut self) {
        self.tell("checkpoint".into());
        let mut looks = Looks::begin();
        loop {
            let problems = self.problems();
            if problems.is_empty() {
                break;
            }
            assert!(
                looks.again(),
                "not as the policy says:\n{}\nthe daemon knows: {:#?}",
                problems.join("\n"),
                self.daemon
                    .state()
                    .groups
                    .iter()
                    .filter(|group| group.problem.is_some())
                    .collect::<Vec<_>>()
            );
        }
        self.nr_checkpoints += 1;
    }

    fn print_progress(&self) {
        if self.nr_checkpoints.is_multiple_of(CHECKPOINTS_TOLD) {
            let seconds = self.started.elapsed().as_secs();
            let total: u64 = self.counts.values().sum();
            let memory = self.daemon.state().daemon.resident_bytes >> 20;
            println!(
                "{seconds} s: {total} actions, {} checkpoints; the daemon has {memory} MiB",
                self.nr_checkpoints
            );
        }
    }

    /// Ends all processes, stops the daemon, and compares with the state before.
    fn end(&mut self) {
        for index in 0..self.model.slots.len() {
            if self.model.slots[index].is_there && !self.model.slots[index].is_permanent {
                self.remove(index);
            }
        }
        self.checkpoint();
        self.daemon.end();
        self.model.assert_put_back();
        // The next owner keeps each `set` until then.
        self.host.run(["restore"]).good();
        self.host.end_idle_owner();
        self.daemon.assert_as_before();
    }
}

/// Initial groups of the file.
fn first_rules() -> BTreeMap<String, Knobs> {
    let rules = [
        ("quota", r#"{"quota": "20ms/100ms", "weight": "50"}"#),
        ("batch", r#"{"class": "batch"}"#),
        ("cap", r#"{"cap": "25%"}"#),
        ("main", r#"{"headroom": "30%"}"#),
    ];
    let rules = rules.map(|(name, json)| (name.to_owned(), knobs(json)));
    rules.into_iter().collect()
}

/// A permanent cgroup of each kind, with values of its own.
fn permanent(host: &mut Host) -> Vec<Slot> {
    let mut slots = Vec::new();
    for (kind, quota, weight) in [
        ("q", "80ms/100ms", 250),
        ("b", "90ms/100ms", 100),
        ("c", "70ms/50ms", 333),
        ("n", "max", 20),
    ] {
        let group = host.group(&format!("{kind}-permanent"));
        group.write_weight(weight).unwrap();
        let found = Bandwidth::of(quota.parse().unwrap(), None);
        group.write_cpu_max(&found.into()).unwrap();
        slots.push(Slot::permanent(group));
    }
    slots
}

fn duration() -> Duration {
    let asked = std::env::var(SECONDS_VARIABLE).ok();
    Duration::from_secs(asked.map_or(30, |text| text.parse().unwrap()))
}

#[test]
fn knobs_match_the_policy_after_random_changes_and_kills_and_are_restored_at_the_end() {
    let random = Random::of_this_run("soak");
    let mut host = Host::new();
    let mut slots = permanent(&mut host);
    for (kind, number) in SLOTS {
        slots.extend((0..number).map(|index| Slot::new(&host, &format!("{kind}-{index}"))));
    }
    let burner = host.start_load_in(&slots[1].group, "burn --threads 1 --duration 86000s");
    let model = Model {
        slots,
        rules: first_rules(),
        overrides: BTreeMap::new(),
    };
    let daemon = Daemon::start(&host, &model.text(&host));
    let mut soak = Soak {
        random,
        host: &host,
        daemon,
        model,
        started: Instant::now(),
        log: Vec::new(),
        counts: BTreeMap::new(),
        nr_checkpoints: 0,
    };
    let (duration, mut looked) = (duration(), Instant::now());
    while soak.started.elapsed() < duration {
        soak.act();
        if looked.elapsed() >= CHECKPOINT_INTERVAL {
            soak.checkpoint();
            soak.print_progress();
            looked = Instant::now();
        }
    }
    soak.checkpoint();
    soak.end();
    let total: u64 = soak.counts.values().sum();
    println!(
        "soak of {duration:?}: {total} actions, {} checkpoints",
        soak.nr_checkpoints
    );
    for (action, count) in &soak.counts {
        println!("{count:8} {action}");
    }
    kill_all(&[burner.pid()]);
}
