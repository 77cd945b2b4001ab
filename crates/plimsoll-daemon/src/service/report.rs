//! The state that clients and metrics read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use plimsoll_cgroupfs::name;
use plimsoll_engine::knobs::{Class, Knob, Knobs};
use plimsoll_engine::plan::{Fidelity, PlanItem};
use plimsoll_engine::sample::{MachineSample, Sample};
use plimsoll_engine::tasks;

use super::Service;
use super::desired::Desired;
use super::parts::GroupEntry;
use crate::state::{Daemon, GroupState, MachineState, State};

/// Groups that are read under one lock of the enforcer, for which the control loop waits.
const CHUNK: usize = 16;

/// Extent of a report on groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Brief,
    /// With the plan of each group and the counts of each CPU.
    Full,
    /// Also with the usage rates of tasks.
    WithTasks,
}

struct Seen {
    sample: Option<Sample>,
    shown: Option<PathBuf>,
}

fn usec(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn clock_usec(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| usec(Duration::from(time)))
}

impl Service {
    /// The state of all groups, or of those named.
    pub(super) fn state(&mut self, only: Option<&[String]>, detail: Detail) -> State {
        let names: Vec<String> = match only {
            Some(names) => names.to_vec(),
            None => self.table.entries().map(|(name, _)| name.clone()).collect(),
        };
        self.usage.read_machine();
        let at_usec = clock_usec(ClockId::CLOCK_MONOTONIC);
        let groups = self.groups(&names, detail);
        let MachineSample {
            headroom,
            scheduler,
        } = self.enforcement.enforcer().sample_machine();
        State {
            daemon: self.daemon(),
            machine: self.machine(at_usec, &groups),
            headroom,
            scheduler,
            groups,
        }
    }

    /// The service's own state, for people who debug it.
    pub(super) fn debug_text(&mut self) -> String {
        let state = self.state(None, Detail::Full);
        let mut text = format!(
            "groups {}, cgroups {}, demanded headroom {}\n",
            self.table.len(),
            self.cgroups.paths().len(),
            self.demanded()
        );
        for (name, entry) in self.table.entries() {
            if let Some(problem) = &entry.problem {
                text += &format!("{name}: {problem}\n");
            }
        }
        text += &serde_json::to_string_pretty(&state).unwrap_or_default();
        text
    }

    pub(super) fn groups(&self, names: &[String], detail: Detail) -> Vec<GroupState> {
        let with_tasks = detail == Detail::WithTasks;
        let mut groups = Vec::with_capacity(names.len());
        for chunk in names.chunks(CHUNK) {
            let seen: Vec<Seen> = {
                let mut enforcer = self.enforcement.enforcer();
                let see = |name: &String| {
                    let applied = self.table.is_applied(name);
                    let mut sample = || enforcer.sample(name, with_tasks).ok();
                    Seen {
                        sample: applied.then(&mut sample).flatten(),
                        shown: enforcer.stock().shown_path(name).ok(),
                    }
                };
                chunk.iter().map(see).collect()
            };
            for (name, seen) in chunk.iter().zip(seen) {
                if let Some(entry) = self.table.get(name) {
                    groups.extend(self.group(name, entry, seen, detail));
                }
            }
        }
        groups
    }

    fn group(
        &self,
        name: &str,
        entry: &GroupEntry,
        seen: Seen,
        detail: Detail,
    ) -> Option<GroupState> {
        let Seen { sample, shown } = seen;
        let details = detail != Detail::Brief;
        let desired = entry.desired.as_ref()?;
        let cgroup = match desired.is_foreign() {
            true => name.to_owned(),
            false => shown.map(name::text_of).unwrap_or_default(),
        };
        let problem = sample.as_ref().and_then(|sample| sample.problem.clone());
        let sample = sample.map(|mut sample| {
            if let (Some(batch), false) = (&mut sample.batch, details) {
                batch.cpus = Vec::new();
            }
            if !details {
                // The state has them once, for all groups.
                sample.headroom = None;
                sample.scheduler = None;
            }
            sample
        });
        let plan = details.then(|| self.plan_of(desired)).flatten();
        Some(GroupState {
            name: name.to_owned(),
            group: desired.group.clone(),
            origin: desired.origin,
            cgroup,
            subject: desired.policy.subject.clone(),
            knobs: self.shown_knobs(desired, entry.applied.as_ref()),
            enforcer: desired.enforcer(),
            plan,
            statistics: sample,
            problem: entry.problem.clone().or(problem),
            lacks_guard: false,
            note: desired
                .overlap_note()
                .or_else(|| self.namesake_note(desired)),
        })
    }

    /// A note on the group of a command whose name the file has taken since.
    pub(super) fn namesake_note(&self, desired: &Desired) -> Option<String> {
        let has_namesake = !desired.is_foreign() && self.file.rule(&desired.group).is_some();
        has_namesake.then(|| {
            "the file has a group of that name, too, which applies; until the command's ends, \
             the name means the command's"
                .to_owned()
        })
    }

    fn shown_knobs(&self, desired: &Desired, applied: Option<&Knobs>) -> Knobs {
        let Some(applied) = applied else {
            return desired.knobs().clone();
        };
        let demand = self.table.demand();
        let mut knobs = match desired.is_batch() {
            true => self.enforcement.planner.in_force(desired, applied, demand),
            false => applied.clone(),
        };
        if !self.burst_enabled() {
            // The burst is desired still, though none is applied.
            knobs.burst = desired.knobs().burst;
        }
        knobs
    }

    /// The headroom in force, for people.
    fn demanded(&self) -> String {
        let demand = self.table.demand();
        match demand.in_force(self.enforcement.planner.nr_cpus()) {
            None => "none".into(),
            Some(headroom) => format!("{headroom} with tolerance {}", demand.tolerance()),
        }
    }

    fn plan_of(&self, desired: &Desired) -> Option<Vec<PlanItem>> {
        let desired = Desired {
            best_effort: true,
            ..desired.clone()
        };
        let planned = self
            .enforcement
            .planner
            .plan(&desired, self.table.demand())
            .ok()?;
        Some(self.shown_items(planned.plan.items))
    }

    /// A plan, with no burst in force while bursts are off for all groups.
    pub(super) fn shown_items(&self, mut items: Vec<PlanItem>) -> Vec<PlanItem> {
        if !self.burst_enabled() {
            let bursts = items.iter_mut().filter(|item| item.knob == Knob::Burst);
            bursts.for_each(|item| {
                let reason = "bursts of all groups are off".into();
                item.fidelity = Fidelity::Impossible { reason };
            });
        }
        items
    }

    fn daemon(&self) -> Daemon {
        Daemon {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_usec: usec(self.lifetime.uptime()),
            config: self.file.path().to_owned(),
            is_on_demand: self.lifetime.is_on_demand(),
            enforcer: self.enforcement.planner.kind(),
            enforce: self.config().enforce,
            burst_off: !self.burst_enabled(),
            unmatched: self.unmatched(),
            problems: self.notices.problems(),
            guard: self.fair.guard.state(),
            host_tuning: self.fair.tuning.state(),
            counters: self.notices.counters,
            control_delay: self.enforcement.shared.delays(),
            resident_bytes: tasks::resident_bytes(),
            cpu_usec: clock_usec(ClockId::CLOCK_PROCESS_CPUTIME_ID),
        }
    }

    fn unmatched(&self) -> Vec<String> {
        let desired = self.table.desired_states().filter(|it| it.is_foreign());
        let groups = desired.flat_map(|it| [Some(&it.group), it.overlap.as_ref()]);
        let matched: HashSet<&str> = groups.flatten().map(String::as_str).collect();
        let names = self.config().rules.iter().map(|rule| &rule.name);
        let unmatched = names.filter(|name| !matched.contains(name.as_str()));
        unmatched.cloned().collect()
    }

    /// `at_usec`: when the machine's use was read.
    fn machine(&mut self, at_usec: u64, reported: &[GroupState]) -> MachineState {
        let batch = self.batch_usage(reported);
        self.usage.add_batch(batch);
        MachineState {
            at_usec,
            nr_cpus: self.enforcement.planner.nr_cpus(),
            busy_usec: self.usage.busy_usec(),
            batch_usec: self.usage.batch_usec(),
        }
    }

    /// Returns the CPU time of each batch group, read anew where it is not in the report.
    fn batch_usage(&self, reported: &[GroupState]) -> BTreeMap<String, u64> {
        let sampled = reported.iter().filter_map(|group| {
            let statistics = group.statistics.as_ref()?;
            Some((&*group.name, statistics.usage_usec))
        });
        let sampled: HashMap<&str, u64> = sampled.collect();
        let batch = self.table.entries().filter(|(_, entry)| {
            let applied = entry.applied.as_ref();
            applied.is_some_and(|knobs| knobs.class == Some(Class::Batch))
        });
        let names: Vec<&String> = batch.map(|(name, _)| name).collect();
        let mut usage_usec = BTreeMap::new();
        for chunk in names.chunks(CHUNK) {
            let mut enforcer = self.enforcement.enforcer();
            let stock = enforcer.stock();
            let read = |name: &&String| {
                let sampled = sampled.get(name.as_str()).copied();
                let usage_usec = sampled.or_else(|| stock.usage_usec(name).ok())?;
                Some(((*name).clone(), usage_usec))
            };
            usage_usec.extend(chunk.iter().filter_map(read));
        }
        usage_usec
    }
}
