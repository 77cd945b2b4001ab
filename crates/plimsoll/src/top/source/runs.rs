//! State without a daemon: each running `plimsoll run` is asked for its group,
//! and the kernel for the machine.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use nix::time::{ClockId, clock_gettime};
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::state::{Daemon, Group, Machine, Origin, State};
use plimsoll_engine::EngineError;
use plimsoll_engine::cgroup::BusyMeter;
use plimsoll_engine::enforcer::HeadroomSample;
use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::journal;
use plimsoll_engine::knobs::Class;
use plimsoll_engine::runtime::RuntimeFolder;

use crate::control::{self, GroupState, Request};
use crate::error::{CommandError, Result};

/// Length of a tick of `/proc/stat`.
const TICK_USEC: u64 = 10_000;

/// Counter of the machine's busy time.
enum Busy {
    /// The kernel's exact counters.
    Exact(Box<BusyMeter>),
    /// `/proc/stat`, in ticks, if there is no cgroup hierarchy.
    Ticks,
}

/// Client of the runs.
pub struct Runs {
    runtime: RuntimeFolder,
    busy: Option<Busy>,
    busy_usec: u64,
    /// Last known usage of each batch group.
    batch_groups: HashMap<String, u64>,
    batch_usec: u64,
    /// Last known plan of each run.
    plans: HashMap<String, serde_json::Value>,
}

/// Busy time of all CPUs in the text of `/proc/stat`, in ticks.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
    let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else {
        return None;
    };
    Some(user + nice + system + irq + softirq)
}

fn monotonic_usec() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_err(|error| CommandError::io("the monotonic clock")(error.into()))?;
    // The clock counts from boot and is never negative.
    Ok(now.tv_sec().unsigned_abs() * 1_000_000 + now.tv_nsec().unsigned_abs() / 1_000)
}

impl Runs {
    /// Creates a client.
    pub fn new(runtime: RuntimeFolder) -> Self {
        Self {
            runtime,
            busy: None,
            busy_usec: 0,
            batch_groups: HashMap::new(),
            batch_usec: 0,
            plans: HashMap::new(),
        }
    }

    /// Reads the current state.
    ///
    /// # Errors
    /// If the runtime folder or the kernel's counters cannot be read.
    pub fn state(&mut self) -> Result<State> {
        let answers = self.ask_all()?;
        self.count_batch(&answers);
        self.count_busy()?;
        let machine = Machine {
            at_usec: monotonic_usec()?,
            nr_cpus: nr_cpus_online(),
            busy_usec: self.busy_usec,
            batch_usec: self.batch_usec,
        };
        let sample = |answer: &GroupState| answer.statistics.clone();
        let samples = || answers.iter().filter_map(sample);
        let daemon = Daemon {
            version: env!("CARGO_PKG_VERSION").into(),
            enforcer: answers.first().map(|a| a.enforcer).unwrap_or_default(),
            ..Daemon::default()
        };
        let headroom = samples().filter_map(|sample| sample.headroom);
        let state = State {
            daemon,
            machine,
            // All batch groups share one controller state; a run that started
            // reading it recently has fewer updates.
            headroom: headroom.max_by_key(|headroom: &HeadroomSample| headroom.nr_updates),
            scheduler: samples().find_map(|sample| sample.scheduler),
            groups: Vec::new(),
        };
        self.plans.clear();
        let groups = answers.into_iter().map(|answer| {
            self.plans.insert(answer.name.clone(), answer.plan);
            Group {
                group: answer.name.clone(),
                name: answer.name,
                origin: Origin::CommandLine,
                cgroup: answer.cgroup,
                subject: answer.subject,
                knobs: answer.knobs,
                plan: serde_json::Value::Null,
                statistics: answer.statistics,
                problem: None,
                note: None,
            }
        });
        let mut groups: Vec<Group> = groups.collect();
        groups.sort_by(|one, two| one.name.cmp(&two.name));
        Ok(State { groups, ..state })
    }

    /// Plan of a group that existed at the last update.
    pub fn plan(&self, group: &str) -> Option<serde_json::Value> {
        self.plans.get(group).cloned()
    }

    fn ask_all(&self) -> Result<Vec<GroupState>> {
        let names = journal::list(self.runtime.path())?;
        let names = names.iter().filter_map(|path| path.file_stem()?.to_str());
        // A run that ends while it is asked is omitted.
        let ask = |name| {
            control::ask(&self.runtime, name, Request::Show)
                .ok()
                .flatten()
        };
        Ok(names.filter_map(ask).collect())
    }

    /// Accumulates the usage of batch groups, so that the sum does not shrink
    /// when one ends.
    fn count_batch(&mut self, answers: &[GroupState]) {
        let before = std::mem::take(&mut self.batch_groups);
        for answer in answers {
            let (Some(Class::Batch), Some(sample)) = (answer.knobs.class, &answer.statistics)
            else {
                continue;
            };
            let used_usec = sample.usage_usec;
            let last_usec = before.get(&answer.name).copied().unwrap_or(used_usec);
            self.batch_usec += used_usec.saturating_sub(last_usec);
            self.batch_groups.insert(answer.name.clone(), used_usec);
        }
    }

    fn count_busy(&mut self) -> Result<()> {
        let busy = self.busy.get_or_insert_with(|| {
            let hierarchy = Hierarchy::find().map(Arc::new);
            let busy = hierarchy
                .map_err(EngineError::from)
                .and_then(|hierarchy| BusyMeter::start(&hierarchy));
            match busy {
                Ok(meter) => Busy::Exact(Box::new(meter)),
                Err(_) => Busy::Ticks,
            }
        });
        match busy {
            Busy::Exact(meter) => self.busy_usec += meter.busy_ns()? / 1_000,
            Busy::Ticks => {
                let text =
                    fs::read_to_string("/proc/stat").map_err(CommandError::io("/proc/stat"))?;
                let no_line = || CommandError::Other("/proc/stat: no line of all CPUs".into());
                self.busy_usec = busy_ticks(&text).ok_or_else(no_line)? * TICK_USEC;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, class: Option<Class>, usage_usec: u64) -> GroupState {
        GroupState {
            name: name.into(),
            subject: "sleep".into(),
            cgroup: "/x".into(),
            pid: 1,
            knobs: plimsoll_engine::knobs::Knobs {
                class,
                ..Default::default()
            },
            plan: serde_json::Value::Null,
            enforcer: Default::default(),
            statistics: Some(plimsoll_engine::enforcer::Sample {
                usage_usec,
                ..Default::default()
            }),
        }
    }

    #[test]
    fn batch_time_does_not_shrink_when_a_group_ends() {
        let mut runs = Runs::new(RuntimeFolder::at("/nowhere"));
        let batch = Some(Class::Batch);
        runs.count_batch(&[run("a", batch, 500), run("b", None, 500)]);
        assert_eq!(
            runs.batch_usec, 0,
            "usage before the start of top is not counted"
        );
        runs.count_batch(&[run("a", batch, 700), run("b", None, 900)]);
        assert_eq!(runs.batch_usec, 200);
        runs.count_batch(&[]);
        runs.count_batch(&[run("a", batch, 50)]);
        assert_eq!(runs.batch_usec, 200);
        runs.count_batch(&[run("a", batch, 60)]);
        assert_eq!(runs.batch_usec, 210);
    }

    #[test]
    fn busy_ticks_are_neither_idle_nor_waiting() {
        let text = "cpu  10 2 3 1000 50 4 5 6 7 8\ncpu0 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(text), Some(24));
        assert_eq!(busy_ticks("cpu0 1 2 3\n"), None);
        assert_eq!(busy_ticks("cpu  1 2\n"), None);
    }

    #[test]
    fn without_any_run_the_machine_is_still_there() {
        let folder = tempfile::tempdir().unwrap();
        let mut runs = Runs::new(RuntimeFolder::at(folder.path()));
        let first = runs.state().unwrap();
        let second = runs.state().unwrap();
        assert!(first.groups.is_empty() && first.machine.nr_cpus > 0);
        assert!(second.machine.at_usec >= first.machine.at_usec);
        assert!(second.machine.busy_usec >= first.machine.busy_usec);
    }
}
