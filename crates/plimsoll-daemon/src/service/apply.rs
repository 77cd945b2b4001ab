//! Makes what is in force equal to what is asked.

use std::path::PathBuf;
use std::time::Instant;

use plimsoll_engine::EngineError;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::policy_set::{GroupPolicy, Selector};
use plimsoll_engine::undo::UndoReport;

use super::Service;
use super::wish::{self, Place, Wish};

/// So many groups are applied before the control loop has its turn and
/// requests are answered.
const CHUNK: usize = 64;

/// A group that is new to the enforcer.
struct Addition {
    name: String,
    policy: GroupPolicy,
    loss: Option<String>,
}

fn selector(name: &str, wish: &Wish) -> Selector {
    match wish.place {
        Place::Cgroup => Selector::Cgroup(PathBuf::from(name.trim_start_matches('/'))),
        Place::Processes => Selector::Processes,
        Place::Command { pid, .. } => Selector::Process(pid),
    }
}

impl Service {
    /// Applies all that has changed, and takes in who belongs to new groups.
    pub(super) fn settle(&mut self) {
        self.apply();
        if self.processes_are_new {
            self.watch_processes();
        }
    }

    /// Applies all that has changed.
    pub(super) fn apply(&mut self) {
        if !self.book.needs_settling(Instant::now()) {
            return;
        }
        if self.book.take_changed() {
            self.find_demand();
        }
        let mut settled = false;
        loop {
            let names = self.book.take_unsettled(CHUNK, Instant::now());
            if names.is_empty() {
                break;
            }
            settled = true;
            self.settle_some(&names);
            self.shared().service_is_alive();
        }
        if settled {
            self.shared().look_now();
        }
    }

    /// Whether groups may save up unused quota.
    pub(super) fn burst_enabled(&self) -> bool {
        self.config.burst_enabled && !self.remembered.burst_off
    }

    /// Merges the headroom demands of all groups again.
    fn find_demand(&mut self) {
        let demand = wish::demand(self.book.wishes());
        if demand != self.demand {
            self.demand = demand;
            // Of those that it does not concern nothing will differ.
            self.book.unsettle_all();
        }
    }

    fn settle_some(&mut self, names: &[String]) {
        let mut additions = Vec::new();
        for name in names {
            let Some(entry) = self.book.get(name) else {
                continue;
            };
            let Some(wish) = entry.wish.clone() else {
                self.take_away(name);
                continue;
            };
            let knobs = wish::laid_down(&wish, self.demand, self.planner.nr_cpus());
            match self.planner.plan(&wish, &knobs) {
                Err(error) => self.note_failure(name, &error),
                Ok(mut planned) => {
                    planned.knobs = wish::with_burst(planned.knobs, self.burst_enabled());
                    match entry.applied.clone() {
                        None => additions.push(Addition {
                            name: name.clone(),
                            policy: GroupPolicy {
                                name: name.clone(),
                                selector: selector(name, &wish),
                                knobs: planned.knobs,
                                scheduler: wish.scheduler.map(|scheduler| scheduler.mode),
                            },
                            loss: planned.loss,
                        }),
                        Some(applied) if applied == planned.knobs && !entry.is_doubtful => {
                            self.book.applied(name, applied, planned.loss);
                        }
                        Some(_) => self.change(name, planned.knobs, planned.loss),
                    }
                }
            }
        }
        self.add(additions);
    }

    fn add(&mut self, additions: Vec<Addition>) {
        if additions.is_empty() {
            return;
        }
        let subject = |name: &str| {
            let wish = self.book.wish(name);
            match wish.map(|wish| wish.subject.as_str()) {
                None | Some("") => name.to_owned(),
                Some(subject) => subject.to_owned(),
            }
        };
        let policies: Vec<(GroupPolicy, String)> = additions
            .iter()
            .map(|addition| (addition.policy.clone(), subject(&addition.name)))
            .collect();
        let results = self.shared().enforcer().add_all(&policies);
        for (addition, result) in additions.into_iter().zip(results) {
            let Addition { name, policy, loss } = addition;
            match result {
                Ok(()) => {
                    self.tell_applied(&name, &policy.knobs, &loss);
                    self.book.applied(&name, policy.knobs, loss);
                    // Its processes may have come before it.
                    self.processes_are_new |= policy.selector == Selector::Processes;
                }
                Err(error) => self.note_failure(&name, &error),
            }
        }
    }

    fn tell_applied(&self, name: &str, knobs: &Knobs, loss: &Option<String>) {
        self.log
            .debug("apply", &format!("{name}: in force: {knobs}"));
        if let Some(loss) = loss {
            self.log.warning("apply", &format!("{name}: {loss}"));
        }
    }

    fn change(&mut self, name: &str, knobs: Knobs, loss: Option<String>) {
        let changed = self.shared().enforcer().change(name, &knobs);
        match changed {
            Ok(()) => {
                self.tell_applied(name, &knobs, &loss);
                self.book.applied(name, knobs, loss);
            }
            Err(error) => self.note_failure(name, &error),
        }
    }

    /// Puts back what was done for a group that is not asked for any more.
    pub(super) fn take_away(&mut self, name: &str) -> UndoReport {
        let mut report = UndoReport::default();
        // Also of one that could not be applied: an earlier owner may have left it limited.
        let removed = self.shared().enforcer().remove(name);
        match removed {
            Ok(undone) => {
                report = undone;
                self.log.debug("apply", &format!("{name}: put back"));
            }
            Err(EngineError::NoTarget { .. }) => (),
            Err(error) => {
                self.note_failure(name, &error);
                report.problems.push(error.to_string());
                return report;
            }
        }
        for problem in &report.problems {
            self.log.warning("undo", problem);
        }
        self.book.removed(name);
        report
    }

    fn note_failure(&mut self, name: &str, error: &EngineError) {
        let is_cgroup = self
            .book
            .wish(name)
            .is_some_and(|wish| wish.place == Place::Cgroup);
        let is_another = error.is_gone() && self.book.failure(name).is_none();
        if is_cgroup && (is_another || !self.folder_exists(name)) {
            // It went between match and write: there is nothing to do, and
            // nothing to tell. The watch tells that it has gone, and that
            // another of its name is there.
            self.book.failed(name, error.to_string(), Instant::now());
            return;
        }
        self.counters.apply_failures += 1;
        let problem = error.to_string();
        let now = Instant::now();
        if self.book.failed(name, problem.clone(), now) {
            self.log.error("apply", &format!("{name}: {problem}"));
        }
    }

    pub(super) fn folder_exists(&self, name: &str) -> bool {
        let path = PathBuf::from(name.trim_start_matches('/'));
        self.hierarchy.cpu_folder(&path).is_dir()
    }
}
