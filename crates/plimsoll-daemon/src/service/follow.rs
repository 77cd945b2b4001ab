//! What comes and goes on the host, and what that means for the groups.

use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_engine::EngineError;
use plimsoll_engine::knobs::{KnobError, Knobs};
use plimsoll_engine::own_groups;

use super::Service;
use super::wish::{Place, Wish};
use crate::attributes;
use crate::config::Rule;
use crate::processes;
use crate::state::Origin;
use crate::watch::{CgroupChange, ProcessWatch};

/// A cgroup to which somebody writes again and again is looked at this often.
const AUDIT_INTERVAL: Duration = Duration::from_millis(500);
/// The attributes of a cgroup, which anybody may own and write to in a loop,
/// are read this often.
pub(super) const ATTRIBUTES_INTERVAL: Duration = Duration::from_millis(100);
/// So long the watch is left alone after it told no news:
/// long enough that who writes in a loop wakes nobody up each time, and short
/// enough that the kernel's queue has room for what comes meanwhile.
const CGROUPS_REST: Duration = Duration::from_millis(10);
/// The same after the queue ran over: all cgroups have been looked at.
const OVERFLOW_REST: Duration = Duration::from_millis(100);
/// Of the attributes of one cgroup that are ignored, so many are told.
const REFUSED_MAX: usize = 4;

impl Service {
    /// Follows what has happened to cgroups.
    pub(super) fn follow_cgroups(&mut self) {
        let now = Instant::now();
        if self.cgroups_again(now).is_some() {
            return;
        }
        let changes = match self.cgroups.changes() {
            Ok(changes) => changes,
            Err(error) => {
                let problem = format!("cannot read what happens to cgroups: {error}");
                self.note_problem("watch", Some(problem));
                return;
            }
        };
        let overflows = self.cgroups.overflows();
        let lost = overflows - self.overflows;
        self.counters.events_lost += lost;
        self.overflows = overflows;
        let is_told = !changes.is_empty();
        let is_of_use = self.take_changes(changes);
        if lost > 0 {
            self.cgroups_rest_until = Instant::now() + OVERFLOW_REST;
        } else if is_told && !is_of_use {
            self.cgroups_rest_until = now + CGROUPS_REST;
        }
    }

    /// The same, although the watch rests.
    pub(super) fn follow_cgroups_now(&mut self) {
        self.cgroups_rest_until = Instant::now();
        self.follow_cgroups();
    }

    /// Returns whether any of them was news, and not put off.
    pub(super) fn take_changes(&mut self, changes: Vec<CgroupChange>) -> bool {
        let mut is_of_use = false;
        for change in changes {
            match change {
                CgroupChange::Appeared(path) => {
                    is_of_use = true;
                    self.look_at_cgroup(&path);
                    self.known.insert(path);
                }
                CgroupChange::Gone(path) => {
                    is_of_use = true;
                    self.known.remove(&path);
                    self.attributes.remove(&path);
                    self.attributes_refused.remove(&path);
                    self.attributes_pace.forget(&path);
                    self.written.remove(&path);
                    self.changed_by_others.remove(&path);
                    self.cgroup_has_gone(&path);
                }
                CgroupChange::Attributes(path) => {
                    if self.attributes_pace.admits(&path, Instant::now()) {
                        is_of_use = true;
                        self.look_at_cgroup(&path);
                    }
                }
                CgroupChange::Written(path) => {
                    let own =
                        own_groups::group_of(&self.hierarchy, Path::new(&path)).map(str::to_owned);
                    let name = own.unwrap_or(path);
                    if self.book.is_applied(&name) && !self.written.contains_key(&name) {
                        is_of_use = true;
                        self.written.insert(name, Instant::now() + AUDIT_INTERVAL);
                    }
                }
            }
        }
        is_of_use
    }

    /// Asks for a cgroup what file, attributes and command line say, with its
    /// attributes as they are now.
    pub(super) fn look_at_cgroup(&mut self, path: &str) {
        self.read_attributes(path);
        self.ask_cgroup(path);
    }

    /// Reads the attributes that were written again too soon.
    pub(super) fn look_at_attributes(&mut self) {
        for path in self.attributes_pace.take_due(Instant::now()) {
            self.look_at_cgroup(&path);
        }
    }

    fn cgroup_has_gone(&mut self, path: &str) {
        if self.book.get(path).is_some() {
            // At once: one of the same path that comes next is another.
            self.book.ask(path, None);
            self.take_away(path);
            return;
        }
        // Somebody has removed one of ours: it is made again. One that is there
        // has been: this one was put back before, by ourselves.
        if self.folder_exists(path) {
            return;
        }
        let Some(name) = own_groups::group_of(&self.hierarchy, Path::new(path)) else {
            return;
        };
        let is_applied = |entry: &super::book::Entry| {
            entry.applied.is_some()
                && entry
                    .wish
                    .as_ref()
                    .is_some_and(|w| w.place != Place::Cgroup)
        };
        if self.book.get(name).is_some_and(is_applied) {
            let shown = self.shared().enforcer().shown_path(name);
            if shown.is_ok_and(|shown| shown == Path::new(path)) {
                // What of it is left is put back.
                let _ = self.shared().enforcer().remove(name);
                self.book.removed(name);
                self.book.unsettle(name);
                let text = format!("{path}: was removed by somebody else; it is made again");
                self.log.warning("removed", &text);
                self.take_back_command(name);
            }
        }
    }

    fn read_attributes(&mut self, path: &str) {
        self.attributes_read += 1;
        let folder = self.hierarchy.cpu_folder(Path::new(&path[1..]));
        let allowed = &self.config.allow_xattr;
        let read = attributes::read(&folder, allowed, &|knobs| self.check(path, knobs));
        self.note_refused(path, read.refused);
        if read.knobs.is_empty() {
            self.attributes.remove(path);
        } else {
            self.attributes.insert(path.to_owned(), read.knobs);
        }
    }

    /// Whether the knobs of a cgroup's attributes can be had beside what the
    /// file and the command line ask. Otherwise its owner could have all of it
    /// fail.
    fn check(&self, path: &str, attributes: &Knobs) -> Result<(), KnobError> {
        let plan = |attributes| match self.wish_beside(path, attributes) {
            Some(wish) => self.planner.check(&wish),
            None => Ok(()),
        };
        match plan(Some(attributes)) {
            // What cannot be had without them either is not their fault.
            Err(error) if plan(None).is_ok() => Err(as_knob(error)),
            _ => Ok(()),
        }
    }

    /// Tells and counts what is ignored, once for each change.
    fn note_refused(&mut self, path: &str, mut refused: Vec<String>) {
        // Anybody may write as many as they like.
        refused.truncate(REFUSED_MAX);
        let before = self.attributes_refused.get(path);
        if before.map_or(&[][..], Vec::as_slice) == refused {
            return;
        }
        for line in &refused {
            if before.is_none_or(|before| !before.contains(line)) {
                self.counters.attributes_refused += 1;
                self.log.warning("attributes", &format!("{path}: {line}"));
            }
        }
        if refused.is_empty() {
            self.attributes_refused.remove(path);
        } else {
            self.attributes_refused.insert(path.to_owned(), refused);
        }
    }

    pub(super) fn read_all_attributes(&mut self) {
        let known: Vec<String> = self.known.iter().cloned().collect();
        for path in known {
            self.read_attributes(&path);
        }
    }

    /// Asks for every cgroup what file, attributes and command line say.
    pub(super) fn ask_all_cgroups(&mut self) {
        let known: Vec<String> = self.known.iter().cloned().collect();
        for path in known {
            self.ask_cgroup(&path);
        }
    }

    fn ask_cgroup(&mut self, path: &str) {
        let wish = self.wish_of_cgroup(path);
        self.tell_contest(path, wish.as_ref());
        self.book.ask(path, wish);
    }

    /// Tells once that two groups of the file claim the same cgroups.
    fn tell_contest(&mut self, path: &str, wish: Option<&Wish>) {
        let Some((wish, text)) = wish.and_then(|wish| Some((wish, wish.contest()?))) else {
            return;
        };
        let rivals = (wish.group.clone(), wish.rival.clone().unwrap_or_default());
        if self.rivals_told.insert(rivals) {
            self.log.warning("rivals", &format!("{path}: {text}"));
        }
    }

    /// What is asked of a cgroup; `None`: nothing, it is nobody's business.
    pub(super) fn wish_of_cgroup(&self, path: &str) -> Option<Wish> {
        self.wish_beside(path, self.attributes.get(path))
    }

    /// The same, as if its attributes were these.
    fn wish_beside(&self, path: &str, attributes: Option<&Knobs>) -> Option<Wish> {
        if path == "/" || own_groups::is_own(&self.hierarchy, Path::new(path)) {
            return None;
        }
        let claim = self.config.claim_of_cgroup(path);
        let rule = claim.map(|claim| claim.rule);
        let mut wish = match claim {
            Some(claim) => Wish {
                rival: claim.rival.map(|rival| rival.name.clone()),
                ..self.wish_of_rule(claim.rule)
            },
            None => Wish {
                group: path.to_owned(),
                origin: Origin::File,
                place: Place::Cgroup,
                knobs: Knobs::default(),
                subject: String::new(),
                best_effort: false,
                scheduler: self.planner.scheduler(),
                rival: None,
            },
        };
        let by_rule = rule.and_then(|rule| self.remembered.overrides.get(&rule.name));
        if let Some(attributes) = attributes {
            // The command line stays above what the attributes say.
            wish.knobs = wish.knobs.overlaid(attributes);
            if let Some(asked) = by_rule {
                wish.knobs = wish.knobs.overlaid(&asked.knobs);
            }
            wish.origin = wish.origin.min(Origin::Attributes);
        }
        let own = self.remembered.overrides.get(path);
        if let Some(asked) = own {
            wish.knobs = wish.knobs.overlaid(&asked.knobs);
            wish.best_effort |= asked.best_effort;
            wish.scheduler = wish.scheduler.or(asked.scheduler);
            wish.origin = Origin::CommandLine;
        }
        let anybody = rule.is_some() || own.is_some() || attributes.is_some();
        anybody.then_some(wish)
    }

    /// What the file and the command line ask of a group of the file.
    pub(super) fn wish_of_rule(&self, rule: &Rule) -> Wish {
        let place = if rule.matches.is_of_processes() {
            Place::Processes
        } else {
            Place::Cgroup
        };
        let mut wish = Wish {
            group: rule.name.clone(),
            origin: Origin::File,
            place,
            knobs: rule.knobs.clone(),
            subject: String::new(),
            best_effort: false,
            scheduler: self.planner.scheduler(),
            rival: None,
        };
        if let Some(asked) = self.remembered.overrides.get(&rule.name) {
            wish.knobs = wish.knobs.overlaid(&asked.knobs);
            wish.best_effort = asked.best_effort;
            wish.origin = Origin::CommandLine;
        }
        wish
    }

    /// Asks for the groups that are made of processes; those that the file has
    /// no more go.
    pub(super) fn ask_rules(&mut self) {
        let of_processes = |rule: &&Rule| rule.matches.is_of_processes();
        let wishes: Vec<Wish> = self
            .config
            .rules
            .iter()
            .filter(of_processes)
            .map(|rule| self.wish_of_rule(rule))
            .collect();
        let is_left = |name: &str| !wishes.iter().any(|wish| wish.group == name);
        let gone = self.book.entries().filter(|(name, entry)| {
            let wish = entry.wish.as_ref();
            wish.is_some_and(|wish| wish.place == Place::Processes) && is_left(name)
        });
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.book.ask(&name, None);
        }
        for wish in wishes {
            self.book.ask(&wish.group.clone(), Some(wish));
        }
    }

    /// Watches processes if a group is made of them, and takes in those that
    /// are there.
    pub(super) fn watch_processes(&mut self) {
        self.processes_are_new = false;
        if !self.config.has_process_rules() {
            self.processes = None;
            return;
        }
        if self.processes.is_none() {
            let watch = ProcessWatch::start();
            let text = format!("processes are noticed by {}", watch.method());
            self.log.info("processes", &text);
            let refused = watch.refused().map(str::to_owned);
            self.note_problem("processes", refused);
            self.processes = Some(watch);
        }
        self.look_at_processes(&processes::all());
    }

    /// Follows what has happened to processes.
    pub(super) fn follow_processes(&mut self) {
        let now = Instant::now();
        if self.processes_again(now).is_some() {
            return;
        }
        let Some(watch) = &mut self.processes else {
            return;
        };
        self.processes_read = now;
        let changes = watch.changes();
        if changes.lost {
            self.counters.events_lost += 1;
            self.look_at_processes(&processes::all());
        } else {
            self.look_at_processes(&changes.appeared);
        }
    }

    /// Moves processes into their groups. One that is in a group of Plimsoll's
    /// stays there: it was put there by name, or is a descendant of a member.
    fn look_at_processes(&mut self, pids: &[i32]) {
        for pid in pids {
            self.look_at_process(*pid, None);
        }
    }

    /// `parents`: the group of the process that has started it. What a member
    /// started before it was noticed belongs to its group, unless a rule
    /// claims it by itself.
    fn look_at_process(&mut self, pid: i32, parents: Option<&str>) {
        let Some(found) = processes::look(&self.hierarchy, pid) else {
            return;
        };
        let process = found.process;
        if own_groups::is_own(&self.hierarchy, Path::new(&process.cgroup)) || is_this_process(pid) {
            return;
        }
        let claim = self.config.claim_of_process(&process);
        let claimed = claim.map(|claim| claim.rule.name.clone());
        let Some(name) = claimed.or_else(|| parents.map(str::to_owned)) else {
            return;
        };
        if !self.book.is_applied(&name) {
            // It is looked at again when the group is there.
            return;
        }
        let added = self.shared().enforcer().add_process(&name, pid);
        match added {
            Ok(()) => {
                let text = format!("{name}: took in process {pid} ({})", process.command);
                self.log.debug("member", &text);
                for child in processes::children(pid) {
                    self.look_at_process(child, Some(&name));
                }
            }
            Err(error) if error.is_gone() || !is_there(pid) => (),
            Err(error) => {
                self.counters.apply_failures += 1;
                let text = format!("{name}: cannot take in process {pid}: {error}");
                self.log.warning("member", &text);
            }
        }
    }
}

/// What is wrong with an attribute.
fn as_knob(error: EngineError) -> KnobError {
    const ALLOWED: &str = "what this host can do beside the group's other knobs";
    match error {
        EngineError::Knob(error) => error,
        EngineError::NotEnforceable {
            knob,
            value,
            reason,
        } => KnobError::new(knob, value, format!("cannot be here: {reason}"), ALLOWED),
        other => KnobError::new("", "", other.to_string(), ALLOWED),
    }
}

pub(super) fn is_this_process(pid: i32) -> bool {
    i32::try_from(std::process::id()).is_ok_and(|own| own == pid)
}

fn is_there(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
