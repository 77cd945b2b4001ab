//! Requests of clients, and the operator's configuration.

use plimsoll_cgroupfs::simulated;
use plimsoll_daemon::control::protocol::{Answer, Choice, Request, RunRequest, SetRequest};
use plimsoll_engine::cgroup::check_one_cgroup;
use plimsoll_engine::knobs::Knobs;

use super::wanted::{CONFIGS, GOOD, Wanted, parsed, without_headroom};
use super::{FOREIGN, OWN, World};
use crate::shadow::is_own;

const KNOBS: [&str; 17] = [
    r#"{"class": "batch"}"#,
    r#"{"class": "batch", "quota": "20ms/100ms"}"#,
    r#"{"class": "batch", "cap": "50%", "weight": "50"}"#,
    r#"{"class": "batch", "nice": "7"}"#,
    r#"{"class": "batch", "soft-cap": "20%"}"#,
    r#"{"class": "batch", "headroom": "30%"}"#,
    r#"{"class": "batch", "headroom": "30%", "quota": "20ms/100ms", "cap": "10%"}"#,
    r#"{"quota": "20ms/100ms"}"#,
    r#"{"quota": "50ms/100ms", "burst": "10ms"}"#,
    r#"{"quota": "100ms/500ms", "burst": "100ms", "weight": "300"}"#,
    r#"{"quota": "1500ms/1s", "cap": "30%"}"#,
    r#"{"quota": "30ms/100ms", "cap": "80%", "nice": "3"}"#,
    r#"{"cap": "10%"}"#,
    r#"{"cap": "90%", "weight": "20"}"#,
    r#"{"weight": "200", "nice": "5"}"#,
    r#"{"soft-cap": "20%"}"#,
    r#"{"headroom": "20%"}"#,
];

impl World {
    fn knobs(&mut self) -> Knobs {
        let text = self.chance.pick(&KNOBS).expect("there are some");
        parsed(text)
    }

    /// Sends a request, and notes that `next` is wanted if it is granted. Returns the answer.
    fn request(&mut self, request: Request, pid: Option<i32>, next: Wanted) -> Option<Answer> {
        self.owner.as_ref()?;
        self.tell(|| format!("{request:?} with {pid:?}"));
        self.risk();
        let answer = self.turn(Some(request), pid, &next)??;
        self.tell(|| format!("answer: {answer:?}"));
        match &answer {
            Answer::Refused(_) => self.counts.note("refused"),
            Answer::Ending => (),
            _ => {
                self.counts.note("granted");
                self.wanted = next;
            }
        }
        Some(answer)
    }

    pub(super) fn client_runs(&mut self) {
        let free: Vec<i32> = self.pids();
        let free: Vec<i32> = free
            .into_iter()
            .filter(|pid| !self.members.contains_key(pid))
            .collect();
        let (Some(pid), Some(name)) = (self.chance.pick(&free), self.chance.pick(&OWN)) else {
            return;
        };
        let knobs = self.knobs();
        let run = RunRequest {
            name: name.to_owned(),
            is_numbered: false,
            subject: String::new(),
            knobs: knobs.clone(),
            choice: Choice::default(),
        };
        let mut next = self.wanted.clone();
        let is_taken = next.commands.contains_key(name);
        if !is_taken {
            next.commands.insert(name.to_owned(), knobs);
        }
        let answer = self.request(Request::Run(Box::new(run)), Some(pid), next);
        if matches!(answer, Some(Answer::Groups { .. })) {
            assert!(
                !is_taken || !self.has_members(name),
                "{name} is there twice"
            );
            self.counts.note("groups begun");
            self.members.insert(pid, name.to_owned());
        }
        self.observe();
        let is_there = simulated::with(|kernel| kernel.tasks().get(pid).is_some());
        if is_there && matches!(answer, Some(Answer::Groups { .. })) && self.owner.is_some() {
            assert!(self.kept.contains_key(name), "{name} is not shown");
        }
    }

    pub(super) fn has_members(&self, name: &str) -> bool {
        self.members.values().any(|group| group == name)
    }

    pub(super) fn client_sets(&mut self) {
        if self.chance.once_in(4) {
            return self.client_sets_process();
        }
        let mut targets: Vec<String> = FOREIGN.iter().map(|path| format!("/{path}")).collect();
        targets.extend(self.wanted.commands.keys().cloned());
        let rules = self.wanted.config().rules.iter();
        targets.extend(rules.map(|(name, ..)| (*name).to_owned()));
        let Some(target) = self.chance.pick(&targets) else {
            return;
        };
        let knobs = self.knobs();
        let mut next = self.wanted.clone();
        match next.commands.get_mut(&target) {
            Some(command) => *command = command.overlaid(&knobs),
            None => {
                let set = next.sets.entry(target.clone()).or_default();
                *set = set.overlaid(&knobs);
            }
        }
        let is_possible = self.wanted.commands.contains_key(&target) || {
            let groups = next.groups();
            let names = next.paths_of(&target);
            let mut knobs = names.iter().filter_map(|name| groups.get(name));
            knobs.all(|knobs| check_one_cgroup(knobs).is_ok())
        };
        let set = SetRequest {
            target: target.clone(),
            knobs,
            choice: Choice::default(),
        };
        let answer = self.request(Request::Set(Box::new(set)), None, next);
        if matches!(answer, Some(Answer::Groups { .. })) {
            assert!(
                is_possible || self.is_blind(),
                "{target}: cannot be in force"
            );
            self.applied_again(&target);
        }
        self.observe();
    }

    /// Notes that the knobs of a target were applied, whatever others had changed.
    fn applied_again(&mut self, target: &str) {
        let names = match self.wanted.commands.contains_key(target) {
            true => vec![target.to_owned()],
            false => self.wanted.paths_of(target),
        };
        // The owner says in its log if it cannot write them.
        if self.is_half_done {
            return;
        }
        for name in names {
            if let Some(kept) = self.kept.get_mut(&name) {
                kept.is_respected = false;
            }
        }
    }

    fn client_sets_process(&mut self) {
        let Some(pid) = self.chance.pick(&self.pids()) else {
            return;
        };
        if self.members.contains_key(&pid) {
            return;
        }
        let name = format!("pid-{pid}");
        let knobs = self.knobs();
        let mut next = self.wanted.clone();
        // A present group of the process changes.
        let present = next.commands.remove(&name).unwrap_or_default();
        next.commands.insert(name.clone(), present.overlaid(&knobs));
        let set = SetRequest {
            target: pid.to_string(),
            knobs: knobs.clone(),
            choice: Choice::default(),
        };
        let answer = self.request(Request::Set(Box::new(set)), Some(pid), next);
        if let Some(Answer::Groups { groups, warnings }) = answer {
            self.counts.note("groups begun");
            // The present group may be that of an earlier process with the pid, which has ended.
            let is_new = groups
                .iter()
                .any(|group| without_headroom(&group.knobs) == without_headroom(&knobs));
            if is_new {
                self.wanted.commands.insert(name.clone(), knobs);
            }
            // A process that others have moved out comes back later where the disk is full.
            let place = simulated::with(|kernel| kernel.tasks().get(pid).cloned());
            let is_inside = place.is_some_and(|task| is_own(&task.cgroup));
            if is_inside || warnings.is_empty() {
                self.members.insert(pid, name);
            }
        }
        self.observe();
    }

    pub(super) fn client_resets(&mut self) {
        let sets = self.wanted.sets.keys();
        let processes = self.wanted.commands.keys();
        let processes = processes.filter(|name| name.starts_with("pid-"));
        let targets: Vec<String> = sets.chain(processes).cloned().collect();
        let Some(target) = self.chance.pick(&targets) else {
            return;
        };
        let mut next = self.wanted.clone();
        next.sets.remove(&target);
        next.commands.remove(&target);
        let request = Request::Reset {
            target: target.clone(),
        };
        if let Some(Answer::Groups { .. }) = self.request(request, None, next) {
            self.members.retain(|_, group| *group != target);
            self.applied_again(&target);
        }
        self.observe();
    }

    pub(super) fn client_ends(&mut self) {
        let names: Vec<String> = self.wanted.commands.keys().cloned().collect();
        let Some(name) = self.chance.pick(&names) else {
            return;
        };
        let release = self.chance.once_in(2);
        let mut next = self.wanted.clone();
        if release {
            next.commands.remove(&name);
        }
        let request = Request::End {
            name: name.clone(),
            release,
        };
        if let Some(Answer::Groups { .. }) = self.request(request, None, next)
            && release
        {
            self.counts.note("groups ended");
            self.members.retain(|_, group| *group != name);
        }
        self.observe();
    }

    pub(super) fn client_switches_burst(&mut self) {
        let enabled = self.chance.once_in(2);
        let next = self.wanted.clone();
        self.request(Request::Burst { enabled }, None, next);
        self.observe();
    }

    /// Writes another configuration, perhaps one with a mistake, and has the owner read it.
    pub(super) fn operator_reloads(&mut self) {
        if self.config.is_none() {
            return;
        }
        let config = self.chance.below(CONFIGS.len() as u64);
        let config = usize::try_from(config).expect("it is small");
        self.config = Some(config);
        self.write_config();
        let mut next = self.wanted.clone();
        if config < GOOD {
            next.config = Some(config);
        }
        if let Some(Answer::Reloaded(_)) = self.request(Request::Reload, None, next) {
            assert!(config < GOOD, "a mistake is not noticed");
            self.counts.note("reloads");
            // An owner that polls cgroups may not know yet of what others have written.
            if !self.is_half_done && !self.is_blind() {
                self.kept
                    .values_mut()
                    .for_each(|kept| kept.is_respected = false);
            }
        }
        self.observe();
    }

    /// Ends all that clients have requested.
    pub(super) fn end_all_requests(&mut self) {
        let next = Wanted {
            config: self.wanted.config,
            ..Wanted::default()
        };
        for name in self.wanted.commands.clone().into_keys() {
            let request = Request::End {
                name,
                release: true,
            };
            self.turn(Some(request), None, &next);
        }
        self.turn(Some(Request::Restore), None, &next);
        self.wanted = next;
        self.members.clear();
        self.observe();
        assert!(self.kept.is_empty(), "{:?} stay", self.kept);
    }
}
