//! Events of processes, and the groups that are made of processes.

use std::path::Path;
use std::time::Instant;

use plimsoll_engine::own_groups;

use super::Service;
use super::members::is_this_process;
use crate::processes;

impl Service {
    /// Watches processes if a group is made of them, and matches all that run.
    pub(super) fn watch_processes(&mut self) {
        self.processes.rescanned();
        if !self.config().has_process_rules() {
            self.processes.unwatch();
            return;
        }
        if let Some(watch) = self.processes.watch() {
            let text = format!("processes are noticed by {}", watch.method());
            let refused = watch.refused().map(str::to_owned);
            self.notices.log.info("processes", &text);
            self.notices.note_problem("processes", refused);
        }
        self.match_processes(&processes::all());
    }

    /// Follows the events of processes.
    pub(super) fn follow_processes(&mut self) {
        let Some(changes) = self.processes.changes(Instant::now()) else {
            return;
        };
        if changes.lost {
            self.notices.counters.events_lost += 1;
            self.match_processes(&processes::all());
        } else {
            self.match_processes(&changes.appeared);
        }
    }

    /// Moves processes into their groups. A process in an own group stays there: it was put
    /// there by name, or is a descendant of a member.
    fn match_processes(&mut self, pids: &[i32]) {
        for pid in pids {
            self.match_process(*pid, None);
        }
    }

    /// `parents`: the group of its parent. A process that a member started before it was
    /// noticed belongs to the member's group, unless a rule matches it.
    fn match_process(&mut self, pid: i32, parents: Option<&str>) {
        let Some(found) = processes::look(&self.hierarchy, pid) else {
            return;
        };
        let process = found.process;
        if own_groups::is_own(&self.hierarchy, Path::new(&process.cgroup)) || is_this_process(pid) {
            return;
        }
        let matched = self.config().match_process(&process);
        let matched = matched.map(|matched| matched.rule.name.clone());
        let Some(name) = matched.or_else(|| parents.map(str::to_owned)) else {
            return;
        };
        if !self.table.is_applied(&name) {
            // All processes are matched again when the group is applied.
            return;
        }
        let added = self.enforcement.enforcer().add_process(&name, pid);
        match added {
            Ok(()) => {
                let text = format!("{name}: took in process {pid} ({})", process.command);
                self.notices.log.debug("member", &text);
                for child in processes::children(pid) {
                    self.match_process(child, Some(&name));
                }
            }
            Err(error) if error.is_gone() || !runs(pid) => (),
            Err(error) => {
                self.notices.counters.apply_failures += 1;
                let text = format!("{name}: cannot take in process {pid}: {error}");
                self.notices.log.warning("member", &text);
            }
        }
    }
}

fn runs(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
