//! The state, as everybody who asks gets it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use plimsoll_engine::enforcer::Sample;
use plimsoll_engine::knobs::Class;

use super::Service;
use super::book::Entry;
use super::planner;
use super::wish::Place;
use crate::state::{Daemon, Group, Machine, State};

/// So many groups are looked at before the control loop has its turn.
const CHUNK: usize = 16;

/// What the enforcer says of one group.
struct Seen {
    sample: Option<Sample>,
    shown: Option<PathBuf>,
    problem: Option<String>,
}

fn usec(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// By a clock of the kernel.
fn clock_usec(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| usec(Duration::from(time)))
}

/// This process's resident memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1);
    let pages: u64 = pages.and_then(|pages| pages.parse().ok()).unwrap_or(0);
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    let page = page.ok().flatten().unwrap_or(4096);
    pages * u64::try_from(page).unwrap_or(4096)
}

impl Service {
    /// The state: of all groups, or of those named. `details`: with the plan
    /// of each and the counts of each CPU.
    pub(super) fn state(&mut self, only: Option<&[String]>, details: bool) -> State {
        let names: Vec<String> = match only {
            Some(names) => names.to_vec(),
            None => self.book.entries().map(|(name, _)| name.clone()).collect(),
        };
        let groups = self.groups(&names, details);
        let (headroom, scheduler) = {
            let enforcer = self.shared().enforcer();
            (enforcer.headroom(), enforcer.scheduler())
        };
        State {
            daemon: self.daemon(),
            machine: self.machine(),
            headroom,
            scheduler,
            groups,
        }
    }

    /// All that is known, for people who look for a fault.
    pub(super) fn debug_text(&mut self) -> String {
        let state = self.state(Some(&[]), true);
        let mut text = format!(
            "groups {}, cgroups {}, with attributes {} (read {} times), demanded headroom {}\n",
            self.book.len(),
            self.known.len(),
            self.attributes.len(),
            self.attributes_read,
            self.demanded()
        );
        let processes = self
            .processes
            .as_ref()
            .map_or("not watched", |w| w.method());
        text += &format!("processes: {processes}\n");
        for (name, entry) in self.book.entries() {
            if let Some(problem) = &entry.problem {
                text += &format!("{name}: {problem}\n");
            }
        }
        text += &serde_json::to_string_pretty(&state).unwrap_or_default();
        text
    }

    /// Groups by their names, as they are now.
    pub(super) fn groups(&self, names: &[String], details: bool) -> Vec<Group> {
        let mut groups = Vec::with_capacity(names.len());
        for chunk in names.chunks(CHUNK) {
            let seen: Vec<Seen> = {
                let enforcer = self.shared().enforcer();
                let see = |name: &String| {
                    let applied = self.book.is_applied(name);
                    Seen {
                        sample: applied.then(|| enforcer.sample(name).ok()).flatten(),
                        shown: enforcer.shown_path(name).ok(),
                        problem: enforcer.problem(name),
                    }
                };
                chunk.iter().map(see).collect()
            };
            for (name, seen) in chunk.iter().zip(seen) {
                if let Some(entry) = self.book.get(name) {
                    groups.extend(self.group(name, entry, seen, details));
                }
            }
        }
        groups
    }

    fn group(&self, name: &str, entry: &Entry, seen: Seen, details: bool) -> Option<Group> {
        let Seen {
            sample,
            shown,
            problem,
        } = seen;
        let wish = entry.wish.as_ref()?;
        let cgroup = match wish.place {
            Place::Cgroup => Path::new(name).to_owned(),
            _ => shown.unwrap_or_default(),
        };
        let sample = sample.map(|mut sample| {
            if let (Some(batch), false) = (&mut sample.batch, details) {
                batch.cpus = Vec::new();
            }
            if !details {
                // The same for all: it is told once.
                sample.headroom = None;
                sample.scheduler = None;
            }
            sample
        });
        let plan = details.then(|| self.plan_of(name, entry)).flatten();
        Some(Group {
            name: name.to_owned(),
            group: wish.group.clone(),
            origin: wish.origin,
            cgroup,
            subject: wish.subject.clone(),
            knobs: entry.applied.as_ref().map_or_else(
                || wish.knobs.clone(),
                |applied| {
                    // A normal group's headroom is what batch groups leave.
                    let mut knobs = applied.clone();
                    knobs.headroom = knobs.headroom.or(wish.knobs.headroom);
                    knobs.tolerance = knobs.tolerance.or(wish.knobs.tolerance);
                    if !self.burst_enabled() {
                        // Switched off, and not forgotten.
                        knobs.burst = wish.knobs.burst;
                    }
                    knobs
                },
            ),
            enforcer: wish.enforcer(),
            plan: plan.unwrap_or_default(),
            statistics: sample,
            problem: entry.problem.clone().or(problem),
            note: wish.contest(),
        })
    }

    /// The headroom in force, for people.
    fn demanded(&self) -> String {
        match self.demand.in_force(self.planner.nr_cpus()) {
            None => "none".into(),
            Some(headroom) => format!("{headroom} with tolerance {}", self.demand.tolerance()),
        }
    }

    fn plan_of(&self, name: &str, entry: &Entry) -> Option<serde_json::Value> {
        let wish = super::wish::Wish {
            best_effort: true,
            ..entry.wish.clone()?
        };
        let knobs = super::wish::laid_down(&wish, self.demand, self.planner.nr_cpus());
        let planned = self.planner.plan(&wish, &knobs).ok()?;
        Some(planner::shown(&planned.plan, name))
    }

    fn daemon(&self) -> Daemon {
        Daemon {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_usec: usec(self.started.elapsed()),
            config: self.config_path.clone(),
            enforcer: self.shared().enforcer().kind(),
            mode: self.planner.mode(),
            enforce: self.config.enforce,
            burst_off: !self.burst_enabled(),
            problems: self.problems.values().cloned().collect(),
            counters: self.counters,
            control_delay: self.shared().delays(),
            resident_bytes: resident_bytes(),
            cpu_usec: clock_usec(ClockId::CLOCK_PROCESS_CPUTIME_ID),
        }
    }

    fn machine(&mut self) -> Machine {
        if let Ok(busy_ns) = self.busy.busy_ns() {
            self.busy_usec += busy_ns / 1_000;
        }
        self.count_batch_work();
        Machine {
            at_usec: clock_usec(ClockId::CLOCK_MONOTONIC),
            nr_cpus: self.planner.nr_cpus(),
            busy_usec: self.busy_usec,
            batch_usec: self.batch_usec,
        }
    }

    /// Adds what batch groups have used since the last time. What they used
    /// before they were batch groups does not count.
    fn count_batch_work(&mut self) {
        let batch = self.book.entries().filter(|(_, entry)| {
            let applied = entry.applied.as_ref();
            applied.is_some_and(|knobs| knobs.class == Some(Class::Batch))
        });
        let names: Vec<String> = batch.map(|(name, _)| name.clone()).collect();
        let mut seen = BTreeMap::new();
        for chunk in names.chunks(CHUNK) {
            let enforcer = self.control.shared().enforcer();
            for name in chunk {
                let Ok(usage_usec) = enforcer.usage_usec(name) else {
                    continue;
                };
                let before_usec = self.batch_seen.get(name).copied();
                self.batch_usec += usage_usec.saturating_sub(before_usec.unwrap_or(usage_usec));
                seen.insert(name.clone(), usage_usec);
            }
        }
        self.batch_seen = seen;
    }
}
