//! Turns of the owner, and a comparison of what it shows with what is wanted.

use super::World;
use super::promise::Promise;
use super::wanted::{Wanted, without_headroom};
use crate::stock::{self, RUNTIME};
use plimsoll_cgroupfs::simulated::{self};
use plimsoll_daemon::control::protocol::{Answer, Request};
use plimsoll_daemon::state::{GroupState, State};
use plimsoll_engine::knobs::Knobs;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

impl World {
    /// Lets the owner do a turn, in which it answers a request, if any. `next` is wanted if the
    /// request is granted. Returns `None` if there is no owner, or it dies.
    pub(super) fn turn(
        &mut self,
        request: Option<Request>,
        pid: Option<i32>,
        next: &Wanted,
    ) -> Option<Option<Answer>> {
        self.owner.as_ref()?;
        self.movable.extend(pid);
        let answer = self.guarded(next, |owner| {
            let service = owner.as_mut().expect("there is one");
            let receiver = request.and_then(|request| {
                let handle = pid.map(stock::handle_of);
                service.handle().ask(request, handle)
            });
            service.turn();
            receiver.map(|receiver| receiver.try_recv().expect("a turn answers all"))
        });
        if answer.is_none() {
            self.read_requests(next);
        }
        answer
    }

    /// Returns a process and its descendants.
    pub(super) fn tree_of(&self, pid: i32) -> Vec<i32> {
        let mut tree = vec![pid];
        let mut next = 0;
        while let Some(pid) = tree.get(next).copied() {
            tree.extend(simulated::with(|kernel| kernel.tasks().children(pid)));
            next += 1;
        }
        tree
    }

    pub(super) fn requests_on_disk(&self) -> Option<String> {
        let path = Path::new(RUNTIME).join("requested.json");
        simulated::with(|kernel| kernel.disk().text(&path))
    }

    /// Reads the requests that a dead owner has left. Those are what the next one knows.
    pub(super) fn read_requests(&mut self, next: &Wanted) {
        let text = self.requests_on_disk();
        let read = Wanted::read(self.wanted.config, text.as_deref());
        let is_known = |read: &Wanted| {
            let of = |wanted: &Wanted| (wanted.sets.clone(), wanted.commands.clone());
            of(read) == of(&self.wanted) || of(read) == of(next)
        };
        // A command may have ended meanwhile.
        let is_told = is_known(&read)
            || read.commands.keys().all(|name| {
                next.commands.contains_key(name) || self.wanted.commands.contains_key(name)
            });
        assert!(
            is_told || self.is_stale,
            "{read:?} is not {:?}",
            self.wanted
        );
        self.wanted = read;
        let groups = self.wanted.groups();
        for (name, kept) in &mut self.kept {
            // The next owner applies the knobs of the file.
            let wanted = groups
                .get(name)
                .map(|knobs| Promise::of(knobs, self.had_demand));
            let both = kept.promise.zip(wanted);
            kept.promise = both.map(|(promise, wanted)| promise.weaker(wanted));
        }
    }

    /// Has the owner follow all events and show its groups, and compares them with the wanted ones.
    pub(super) fn observe(&mut self) {
        let wanted = self.wanted.clone();
        if self.is_blind() {
            // Until a second has passed, the owner may know a cgroup that is gone.
            simulated::with(|kernel| kernel.pass(Duration::from_secs(1)));
        }
        // `show` shows the state before the changes that other events of its turn lead to.
        self.turn(None, None, &wanted);
        let request = Request::Show {
            target: None,
            details: false,
        };
        let Some(Some(Answer::State(state))) = self.turn(Some(request), None, &wanted) else {
            assert!(self.owner.is_none(), "the owner does not answer");
            return;
        };
        if self.is_calm {
            assert_eq!(state.daemon.counters.foreign_changes, 0, "the owner's own");
        }
        if state.daemon.counters.events_lost > 0 {
            self.counts.note("events lost");
        }
        self.compare(&state);
    }

    /// Whether the kernel has too few watches.
    pub(super) fn is_blind(&self) -> bool {
        simulated::with(|kernel| kernel.events().watches_max < usize::MAX)
    }

    fn compare(&mut self, state: &State) {
        let is_blind = self.is_blind();
        let wanted = self.wanted.groups();
        let shown: BTreeMap<&String, &GroupState> = state
            .groups
            .iter()
            .map(|group| (&group.name, group))
            .collect();
        for name in wanted.keys() {
            let is_shown = shown.contains_key(name);
            if name.starts_with('/') {
                assert!(is_shown || is_blind, "{name} is not shown");
            } else if !is_shown {
                let member = self.members.iter().find(|(_, group)| *group == name);
                assert!(
                    member.is_none() || self.is_stale,
                    "{name} is gone: {member:?} lives"
                );
                self.wanted.commands.remove(name);
                self.members.retain(|_, group| group != name);
            }
        }
        for (name, group) in &shown {
            let Some(knobs) = wanted.get(*name) else {
                assert!(is_blind && name.starts_with('/'), "{name} is not wanted");
                continue;
            };
            self.compare_group(group, knobs);
        }
        self.had_demand = self.wanted.demands_headroom();
        self.kept.retain(|name, _| shown.contains_key(name));
        self.members.retain(|_, group| shown.contains_key(group));
        self.check_now();
    }

    fn compare_group(&mut self, group: &GroupState, knobs: &Knobs) {
        let name = &group.name;
        let kept = self.kept.entry(name.clone()).or_default();
        kept.problem = group.problem.clone();
        if group.problem.is_some() || group.statistics.is_none() {
            self.counts.note("failing");
            let wanted = Promise::of(knobs, false);
            kept.promise = kept.promise.map(|promise| promise.weaker(wanted));
            return;
        }
        self.counts.note("in force");
        let shown = without_headroom(&group.knobs);
        assert_eq!(shown, without_headroom(knobs), "{name}");
        kept.promise =
            (!kept.is_respected).then(|| Promise::of(knobs, group.knobs.headroom.is_some()));
        if !name.starts_with('/') {
            let place = Path::new(group.cgroup.trim_start_matches('/'));
            simulated::with(|kernel| {
                for (pid, task) in kernel.tasks().iter() {
                    if task.cgroup.starts_with(place) {
                        self.members.insert(pid, name.clone());
                    }
                }
            });
        }
    }
}
