//! Requests, and what is answered.

use std::path::Path;

use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::host::SchedExt;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::own_groups;
use plimsoll_engine::policy_set::check_name;
use plimsoll_engine::undo::UndoReport;

use super::Service;
use super::planner;
use super::remembered::{Command, Override};
use super::wish::{self, Place, Wish};
use crate::config::{EnforcerWanted, PROCESS_GROUP};
use crate::control::authority::{self, Facts};
use crate::control::peer::Peer;
use crate::control::protocol::{Answer, Choice, Request, Run, SUBJECT_CHARS_MAX, Set};
use crate::control::target::Process;
use crate::processes;
use crate::state::{Group, Origin};

/// What somebody has named.
pub(super) enum Found {
    /// A group of the file.
    Rule(String),
    /// A cgroup of somebody else's, with a `/` in front.
    Cgroup(String),
    /// A group of a command or of a process.
    Command(String),
    /// A process that has no group of its own.
    Process(Process),
}

/// Why not: one line for people.
type Refused = String;

fn one_line(error: impl std::fmt::Display) -> Refused {
    error.to_string()
}

fn group_of(pid: i32) -> String {
    format!("{PROCESS_GROUP}{pid}")
}

impl Service {
    pub(super) fn answer(&mut self, peer: &Peer, request: Request) -> Answer {
        self.try_answer(peer, request).unwrap_or_else(|refused| {
            self.counters.requests_refused += 1;
            Answer::Refused(refused)
        })
    }

    fn try_answer(&mut self, peer: &Peer, request: Request) -> Result<Answer, Refused> {
        match &request {
            Request::Show { target, details } => self.show(target.as_deref(), *details),
            Request::Tasks { target } => self.show_tasks(target),
            Request::Set(set) => self.set(peer, &request, set),
            Request::Reset { target } => self.reset(peer, &request, target),
            Request::Run(run) => self.begin_run(peer, &request, run),
            Request::End { name, release } => self.end_run(peer, &request, name, *release),
            Request::Burst { enabled } => {
                authority::check(peer, &request, &Facts::default()).map_err(one_line)?;
                Ok(self.switch_burst(*enabled))
            }
            Request::Reload => {
                authority::check(peer, &request, &Facts::default()).map_err(one_line)?;
                self.answer_reload()
            }
            Request::Debug => {
                authority::check(peer, &request, &Facts::default()).map_err(one_line)?;
                Ok(Answer::Text(self.debug_text()))
            }
            Request::Restore => {
                authority::check(peer, &request, &Facts::default()).map_err(one_line)?;
                Ok(self.forget_sets())
            }
        }
    }

    /// By what a new group is enforced. The configuration file decides for everybody; an owner
    /// without one leaves the choice to operators. Others have stock knobs: a scheduler is
    /// everybody's.
    fn choose(
        &self,
        peer: &Peer,
        knobs: &Knobs,
        choice: Choice,
    ) -> Result<Option<SchedExt>, Refused> {
        if self.is_configured() {
            self.check_choice(choice)?;
            return Ok(self.planner.scheduler());
        }
        let enforcer = authority::enforcer_of(peer, choice).map_err(one_line)?;
        let chosen = self.starter.choose(knobs, enforcer, choice.mode);
        chosen.map_err(one_line)
    }

    /// The same for a group that is there: what enforces it was chosen when it began.
    fn choose_again(
        &self,
        name: &str,
        present: Option<SchedExt>,
        choice: Choice,
    ) -> Result<Option<SchedExt>, Refused> {
        if self.is_configured() {
            self.check_choice(choice)?;
            return Ok(self.planner.scheduler());
        }
        let (is, other, asked) = match present {
            None => ("cgroup", EnforcerWanted::SchedExt, "sched-ext"),
            Some(_) => ("sched-ext", EnforcerWanted::Cgroup, "cgroup"),
        };
        if choice.enforcer == other {
            return Err(format!(
                "enforcer: `{asked}` cannot take over group `{name}`, which `{is}` enforces; \
                 allowed: auto, {is} (or end the group and start it again)"
            ));
        }
        let mode = present.map(|scheduler| scheduler.mode).unwrap_or_default();
        match choice.mode.filter(|wanted| *wanted != mode) {
            Some(wanted) => Err(format!(
                "mode: `{wanted}` cannot be had for group `{name}`; allowed: {mode}"
            )),
            None => Ok(present),
        }
    }

    /// Refuses what the configuration file does not leave to users.
    fn check_choice(&self, choice: Choice) -> Result<(), Refused> {
        let (is, other, asked) = match self.shared().enforcer().kind() {
            EnforcerKind::Cgroup => ("cgroup", EnforcerWanted::SchedExt, "sched-ext"),
            EnforcerKind::SchedExt => ("sched-ext", EnforcerWanted::Cgroup, "cgroup"),
        };
        let file = self.config_path.display();
        if choice.enforcer == other {
            return Err(format!(
                "enforcer: `{asked}` is not what the daemon enforces with; allowed: auto, {is} \
                 (or another `enforcer` in {file})"
            ));
        }
        let mode = self.planner.mode();
        match choice.mode.filter(|wanted| *wanted != mode) {
            Some(wanted) => Err(format!(
                "mode: `{wanted}` is not the daemon's; allowed: {mode} (or another `mode` in \
                 {file})"
            )),
            None => Ok(()),
        }
    }

    /// Forgets every `set`. A configuration file's owner keeps what was asked of it.
    fn forget_sets(&mut self) -> Answer {
        let mut report = UndoReport::default();
        if !self.is_configured() {
            let commands = self.remembered.commands.keys();
            let of_processes = commands.filter(|name| name.starts_with(PROCESS_GROUP));
            let of_processes: Vec<String> = of_processes.cloned().collect();
            for name in &of_processes {
                self.end_command(name);
            }
            let overrides = std::mem::take(&mut self.remembered.overrides);
            self.remember();
            for name in overrides.into_keys().chain(of_processes) {
                self.book.ask(&name, None);
                report.problems.extend(self.take_away(&name).problems);
                report.undone.push(name);
            }
            if self.remembered.burst_off {
                self.allow_burst(true);
                report.undone.push("burst-enabled".into());
            }
        }
        let UndoReport { undone, problems } = report;
        Answer::Restored { undone, problems }
    }

    fn answer_reload(&mut self) -> Result<Answer, Refused> {
        if !self.is_configured() {
            return Err(
                "reload: this owner has no configuration file; `plimsoll daemon` reads one".into(),
            );
        }
        let warnings = self.reload()?;
        Ok(Answer::Reloaded {
            config: self.config_path.clone(),
            rules: self.config.rules.len(),
            groups: self.book.len(),
            warnings,
        })
    }

    fn allow_burst(&mut self, enabled: bool) {
        let was_enabled = self.burst_enabled();
        self.remembered.burst_off = !enabled;
        self.remember();
        if self.burst_enabled() != was_enabled {
            self.book.unsettle_all();
            self.settle();
        }
    }

    fn switch_burst(&mut self, enabled: bool) -> Answer {
        self.allow_burst(enabled);
        let file = self.config_path.display();
        let still_off = format!("bursts stay off: {file} says burst-enabled = false");
        Answer::Groups {
            groups: Vec::new(),
            warnings: (enabled && !self.burst_enabled())
                .then_some(still_off)
                .into_iter()
                .collect(),
        }
    }

    fn find(&self, name: &str) -> Result<Found, Refused> {
        if let Ok(pid) = name.parse::<i32>() {
            // Its children may have outlived a process whose number is another's
            // by now.
            let own = self.remembered.commands.get(&group_of(pid));
            if own.is_some_and(|command| command.pid == pid && command.lives()) {
                return Ok(Found::Command(group_of(pid)));
            }
            let process = Process::read(pid).ok_or(format!("{name}: no such process"))?;
            return Ok(Found::Process(process));
        }
        if self.remembered.commands.contains_key(name) {
            return Ok(Found::Command(name.to_owned()));
        }
        if self.config.rules.iter().any(|rule| rule.name == name) {
            return Ok(Found::Rule(name.to_owned()));
        }
        let no_such = || format!("{name}: no such group, cgroup or process");
        if !name.starts_with('/') {
            return Err(no_such());
        }
        if name.trim_matches('/').is_empty() {
            return Err(format!("{name}: is the root, which has no limits"));
        }
        let path = self.hierarchy.resolve(name).map_err(|_| no_such())?;
        let path = Path::new("/").join(path);
        if own_groups::is_own(&self.hierarchy, &path) {
            return self.group_at(&path).ok_or_else(no_such);
        }
        let path = path.to_str().ok_or_else(no_such)?.to_owned();
        if path == "/" {
            return Err(format!("{name}: is the root, which has no limits"));
        }
        Ok(Found::Cgroup(path))
    }

    /// The group of Plimsoll's own that is at, or above, a path.
    fn group_at(&self, path: &Path) -> Option<Found> {
        let enforcer = self.shared().enforcer();
        let own = self.book.entries().filter_map(|(name, entry)| {
            let wish = entry.wish.as_ref()?;
            (wish.place != Place::Cgroup).then_some((name, wish))
        });
        for (name, wish) in own {
            let shown = enforcer.shown_path(name);
            if shown.is_ok_and(|shown| path.starts_with(shown)) {
                return Some(match wish.place {
                    Place::Processes => Found::Rule(name.clone()),
                    _ => Found::Command(name.clone()),
                });
            }
        }
        None
    }

    /// The entries of the book that somebody means.
    fn names_of(&self, found: &Found) -> Vec<String> {
        match found {
            Found::Command(name) => vec![name.clone()],
            Found::Cgroup(path) => vec![path.clone()],
            Found::Rule(rule) => {
                let of_rule = self.book.entries().filter(|(_, entry)| {
                    entry.wish.as_ref().is_some_and(|wish| wish.group == *rule)
                });
                of_rule.map(|(name, _)| name.clone()).collect()
            }
            Found::Process(process) => self.names_of_process(process.pid),
        }
    }

    /// The group of the cgroup in which a process is.
    pub(super) fn names_of_process(&self, pid: i32) -> Vec<String> {
        let Some(found) = processes::look(&self.hierarchy, pid) else {
            return Vec::new();
        };
        let path = Path::new(&found.process.cgroup);
        if own_groups::is_own(&self.hierarchy, path) {
            let found = self.group_at(path);
            return found.map_or_else(Vec::new, |found| self.names_of(&found));
        }
        let above = path.ancestors().filter_map(Path::to_str);
        let names = above.filter(|path| self.book.get(path).is_some());
        names.take(1).map(str::to_owned).collect()
    }

    fn show(&mut self, target: Option<&str>, details: bool) -> Result<Answer, Refused> {
        let Some(target) = target else {
            return Ok(Answer::State(Box::new(self.state(None, details))));
        };
        let found = self.find(target)?;
        let mut names = self.names_of(&found);
        names.retain(|name| self.book.get(name).is_some());
        Ok(Answer::State(Box::new(self.state(Some(&names), details))))
    }

    fn show_tasks(&mut self, target: &str) -> Result<Answer, Refused> {
        let found = self.find(target)?;
        let mut names = self.names_of(&found);
        names.retain(|name| self.book.get(name).is_some());
        if names.len() > 1 {
            let several = names.len();
            return Err(format!(
                "{target}: has {several} groups; tasks are shown of one, such as {}",
                names[0]
            ));
        }
        let mut state = self.state(Some(&names), true);
        for group in &mut state.groups {
            let rates = self.shared().enforcer().task_rates(&group.name);
            if let Some(sample) = &mut group.statistics {
                sample.task_rates = rates.ok().flatten();
            }
        }
        Ok(Answer::State(Box::new(state)))
    }

    fn set(&mut self, peer: &Peer, request: &Request, set: &Set) -> Result<Answer, Refused> {
        if set.knobs.is_empty() {
            return Err("set: no knob is given".into());
        }
        let found = self.find(&set.target)?;
        authority::check(peer, request, &self.facts(peer, &found)).map_err(one_line)?;
        match &found {
            Found::Process(process) => {
                let name = group_of(process.pid);
                let command = Command {
                    pid: process.pid,
                    start_time: process.started,
                    uid: process.owner.unwrap_or(0),
                    subject: format!("pid {}", process.pid),
                    knobs: set.knobs.clone(),
                    bound: if process.owner == Some(peer.uid) {
                        Knobs::default()
                    } else {
                        set.knobs.clone()
                    },
                    best_effort: set.choice.best_effort,
                    scheduler: self.choose(peer, &set.knobs, set.choice)?,
                    folder: Default::default(),
                    members: Vec::new(),
                };
                self.begin(&name, command, set.choice.dry_run)
            }
            Found::Command(name) => self.set_command(peer, name, set),
            Found::Rule(key) | Found::Cgroup(key) => self.set_override(peer, &found, key, set),
        }
    }

    fn set_command(&mut self, peer: &Peer, name: &str, set: &Set) -> Result<Answer, Refused> {
        let before = self.remembered.commands.get(name).cloned();
        let before = before.ok_or(format!("{name}: no such group"))?;
        let mut command = before.clone();
        command.knobs = command.knobs.overlaid(&set.knobs);
        if peer.uid != command.uid {
            command.bound = command.bound.overlaid(&set.knobs);
        }
        command.best_effort |= set.choice.best_effort;
        command.scheduler = self.choose_again(name, command.scheduler, set.choice)?;
        if set.choice.dry_run {
            return self.planned(name, &self.wish_of_command(name, &command));
        }
        self.begin_command(name, command);
        self.settle();
        if let Some(problem) = self.book.failure(name) {
            self.begin_command(name, before);
            self.settle();
            return Err(problem);
        }
        self.remember();
        let names = [name.to_owned()];
        self.end_respect(&names);
        Ok(self.groups_now(&names))
    }

    fn set_override(
        &mut self,
        peer: &Peer,
        found: &Found,
        key: &str,
        set: &Set,
    ) -> Result<Answer, Refused> {
        let before = self.remembered.overrides.get(key).cloned();
        let mut asked = before.clone().unwrap_or_default();
        asked.knobs = asked.knobs.overlaid(&set.knobs);
        asked.best_effort |= set.choice.best_effort;
        asked.scheduler = match &before {
            Some(before) => self.choose_again(key, before.scheduler, set.choice)?,
            None => self.choose(peer, &asked.knobs, set.choice)?,
        };
        self.remembered.overrides.insert(key.to_owned(), asked);
        if set.choice.dry_run {
            let wish = self.wish_of(found);
            self.put_override(key, before);
            let wish = wish.ok_or(format!("{key}: cannot be in a group"))?;
            return self.planned(key, &wish);
        }
        self.ask_found(found);
        self.settle();
        let names = self.names_of(found);
        // One of many that goes meanwhile is in nobody's way.
        let is_meant = |name: &&String| *name == key || self.is_there(name);
        let mut failures = names.iter().filter(is_meant);
        let problem = failures.find_map(|name| self.book.failure(name));
        if let Some(problem) = problem {
            self.put_override(key, before);
            self.ask_found(found);
            self.settle();
            return Err(problem);
        }
        self.remember();
        self.end_respect(&names);
        Ok(self.groups_now(&names))
    }

    /// Whether a group is there: one of Plimsoll's own is.
    fn is_there(&self, name: &str) -> bool {
        !name.starts_with('/') || self.folder_exists(name)
    }

    fn put_override(&mut self, key: &str, asked: Option<Override>) {
        match asked {
            Some(asked) => self.remembered.overrides.insert(key.to_owned(), asked),
            None => self.remembered.overrides.remove(key),
        };
    }

    /// What would be asked of a group of the file, or of a cgroup.
    fn wish_of(&self, found: &Found) -> Option<Wish> {
        match found {
            Found::Cgroup(path) => self.wish_of_cgroup(path),
            Found::Rule(name) => {
                let rule = self.config.rules.iter().find(|rule| rule.name == *name)?;
                Some(self.wish_of_rule(rule))
            }
            _ => None,
        }
    }

    /// Asks again for all that an override has to do with: attributes, too,
    /// may be possible beside it or not.
    fn ask_found(&mut self, found: &Found) {
        match found {
            Found::Cgroup(path) => {
                self.look_at_cgroup(path);
            }
            Found::Rule(_) => {
                self.ask_rules();
                for name in self.names_of(found) {
                    if name.starts_with('/') {
                        self.look_at_cgroup(&name);
                    }
                }
            }
            _ => (),
        }
    }

    fn reset(&mut self, peer: &Peer, request: &Request, target: &str) -> Result<Answer, Refused> {
        let found = self.find(target).or_else(|refused| {
            // What was set for a cgroup that has gone would hold for the next
            // one of its name.
            let was_set = self.remembered.overrides.contains_key(target);
            was_set
                .then(|| Found::Cgroup(target.to_owned()))
                .ok_or(refused)
        })?;
        authority::check(peer, request, &self.facts(peer, &found)).map_err(one_line)?;
        let key = match &found {
            Found::Rule(key) | Found::Cgroup(key) => key.clone(),
            // What was set for a process is all that its group is for.
            Found::Command(name) if *name == group_of(self.first_process(name)) => {
                self.end_command(name);
                self.settle();
                return Ok(self.groups_now(&[]));
            }
            _ => return Err(format!("{target}: nothing was `set` for it")),
        };
        if self.remembered.overrides.remove(&key).is_none() {
            return Err(format!("{target}: nothing was `set` for it"));
        }
        let mut names = self.names_of(&found);
        if names.iter().any(|name| self.book.get(name).is_some()) {
            self.ask_found(&found);
            self.settle();
        }
        names.retain(|name| self.book.get(name).is_some());
        self.remember();
        self.end_respect(&names);
        Ok(self.groups_now(&names))
    }

    fn first_process(&self, name: &str) -> i32 {
        let command = self.remembered.commands.get(name);
        command.map_or(0, |command| command.pid)
    }

    fn begin_run(&mut self, peer: &Peer, request: &Request, run: &Run) -> Result<Answer, Refused> {
        check_name(&run.name).map_err(one_line)?;
        if run.name.starts_with(PROCESS_GROUP) {
            return Err(format!(
                "name: `{}` is not allowed; names that begin with `{PROCESS_GROUP}` are those of \
                 groups of `plimsoll set PID`",
                run.name
            ));
        }
        let process = Process::read(run.pid).ok_or(format!("{}: no such process", run.pid))?;
        let (owner, start_time) = (process.owner, process.started);
        let found = Found::Process(process);
        authority::check(peer, request, &self.facts(peer, &found)).map_err(one_line)?;
        let is_rule = self.config.rules.iter().any(|rule| rule.name == run.name);
        if is_rule || self.book.get(&run.name).is_some() {
            let name = run.name.clone();
            return Err(plimsoll_engine::EngineError::NameTaken { name }.to_string());
        }
        let command = Command {
            pid: run.pid,
            start_time,
            uid: owner.unwrap_or(0),
            subject: run.subject.chars().take(SUBJECT_CHARS_MAX).collect(),
            knobs: run.knobs.clone(),
            bound: Knobs::default(),
            best_effort: run.choice.best_effort,
            scheduler: self.choose(peer, &run.knobs, run.choice)?,
            folder: Default::default(),
            members: Vec::new(),
        };
        self.begin(&run.name, command, run.choice.dry_run)
    }

    /// Makes a group for a process, or says what it would be.
    fn begin(&mut self, name: &str, command: Command, dry_run: bool) -> Result<Answer, Refused> {
        if dry_run {
            return self.planned(name, &self.wish_of_command(name, &command));
        }
        self.make_way(name)?;
        let lives = command.clone();
        self.begin_command(name, command);
        self.settle();
        let recycled = (!lives.lives()).then(|| format!("{}: no such process", lives.pid));
        if let Some(problem) = self.book.failure(name).or(recycled) {
            self.end_command(name);
            self.settle();
            return Err(problem);
        }
        self.note_folders();
        Ok(self.groups_now(&[name.to_owned()]))
    }

    /// Ends a group of the same name in which nothing runs any more. One in
    /// which something does keeps what it was given: a process whose number
    /// is another's by now may have left others in it.
    fn make_way(&mut self, name: &str) -> Result<(), Refused> {
        if !self.remembered.commands.contains_key(name) {
            return Ok(());
        }
        if self.shared().enforcer().is_populated(name).unwrap_or(false) {
            return Err(format!(
                "{name}: is the group of an earlier process with that number, and others run in \
                 it; `plimsoll set {name}` changes theirs, and when they have ended there is \
                 room for another"
            ));
        }
        self.end_command(name);
        self.settle();
        Ok(())
    }

    fn end_run(
        &mut self,
        peer: &Peer,
        request: &Request,
        name: &str,
        release: bool,
    ) -> Result<Answer, Refused> {
        if !self.remembered.commands.contains_key(name) {
            return Err(format!("{name}: no such group"));
        }
        let found = Found::Command(name.to_owned());
        authority::check(peer, request, &self.facts(peer, &found)).map_err(one_line)?;
        let last = self.groups_now(&[name.to_owned()]);
        let populated = self.shared().enforcer().is_populated(name).unwrap_or(false);
        if release || !populated {
            self.end_command(name);
            self.settle();
        }
        Ok(last)
    }

    fn groups_now(&self, names: &[String]) -> Answer {
        let groups = self.groups(names, true);
        let problems = groups.iter().filter_map(|group| group.problem.clone());
        let wishes = names.iter().filter_map(|name| self.book.wish(name));
        let planned = wishes.filter_map(|wish| self.planned_for(wish).ok());
        let mut warnings: Vec<String> = planned.flat_map(|planned| planned.plan.warnings).collect();
        warnings.extend(problems);
        warnings.dedup();
        Answer::Groups { groups, warnings }
    }

    fn planned_for(&self, wish: &Wish) -> plimsoll_engine::Result<planner::Planned> {
        let knobs = wish::laid_down(wish, self.demand, self.planner.nr_cpus());
        self.planner.plan(wish, &knobs)
    }

    /// What would be done, and by what.
    fn planned(&self, name: &str, wish: &Wish) -> Result<Answer, Refused> {
        let planned = self.planned_for(wish).map_err(one_line)?;
        let group = Group {
            name: name.to_owned(),
            group: wish.group.clone(),
            origin: Origin::CommandLine,
            subject: wish.subject.clone(),
            knobs: planned.knobs,
            enforcer: wish.enforcer(),
            plan: planner::shown(&planned.plan, name),
            problem: planned.loss.clone(),
            ..Group::default()
        };
        Ok(Answer::Groups {
            groups: vec![group],
            warnings: planned
                .plan
                .warnings
                .into_iter()
                .chain(planned.loss)
                .collect(),
        })
    }
}
