//! Requests of clients to the owner, and the owner's periodic work.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use plimsoll_cgroupfs::{os, simulated};
use plimsoll_engine::cgroup::check_one_cgroup;
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::knobs::Knobs;

use super::promise::{Desired, Promise};
use super::{FOREIGN, OWN, World, machine_policy};
use crate::shadow::texts;

/// Drops the promises to a process that is about to be moved: those of its old place end.
fn leaves(pid: i32) {
    simulated::with(|kernel| kernel.watches.retain(|watch| watch.pid != pid));
}

impl World {
    pub(super) fn knobs(&mut self, is_held: bool) -> Option<Knobs> {
        const TEXTS: [&str; 17] = [
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
            r#"{"soft-cap": "20%", "cap": "60%"}"#,
        ];
        let text = self.chance.pick(&TEXTS)?;
        let knobs: Knobs = serde_json::from_str(text).ok()?;
        let is_possible = !is_held || check_one_cgroup(&knobs).is_ok();
        is_possible.then_some(knobs)
    }

    pub(super) fn client_adds(&mut self) {
        let is_held = self.chance.once_in(2);
        let Some(knobs) = self.knobs(is_held) else {
            return;
        };
        let (name, selector) = if is_held {
            let Some(path) = self.chance.pick(&FOREIGN) else {
                return;
            };
            if simulated::with(|kernel| kernel.cgroups().inode(Path::new(path)).is_none()) {
                return;
            }
            (format!("/{path}"), Selector::Cgroup(path.into()))
        } else {
            let Some(name) = self.chance.pick(&OWN) else {
                return;
            };
            let free: Vec<i32> = self.pids();
            let is_asked_for = |pid: &i32| {
                let selector = Selector::Process(*pid);
                let mut desired_groups = self.desired_groups.values();
                self.members.contains_key(pid)
                    || desired_groups.any(|desired| desired.policy.selector == selector)
            };
            let free: Vec<i32> = free.into_iter().filter(|pid| !is_asked_for(pid)).collect();
            let Some(pid) = self.chance.pick(&free) else {
                return;
            };
            (name.to_owned(), Selector::Process(pid))
        };
        if self.desired_groups.contains_key(&name) {
            return;
        }
        let policy = GroupPolicy {
            name: name.clone(),
            selector,
            knobs,
            is_scheduled: false,
        };
        self.desired_groups.insert(
            name.clone(),
            Desired {
                policy,
                promised: None,
                is_known: false,
                is_doubtful: false,
                is_respected: false,
            },
        );
        self.risk();
        self.add(&name);
    }

    /// Lets the owner add a group, or try again.
    pub(super) fn add(&mut self, name: &str) {
        let Some(desired) = self.desired_groups.get(name).cloned() else {
            return;
        };
        self.watch();
        if let Selector::Process(pid) = desired.policy.selector
            && self.members.get(&pid).is_none_or(|group| group != name)
        {
            leaves(pid);
        }
        let before = self.find(&desired.policy.selector);
        let policy = (desired.policy.clone(), name.to_owned());
        let was_known = desired.is_known;
        self.tell(|| {
            format!(
                "add {name}: {:?} {}",
                desired.policy.selector, desired.policy.knobs
            )
        });
        let has_demand = self.has_demand;
        let added = self.ask_owner(|owner| owner.add_all(&[policy]).remove(0));
        self.tell(|| format!("add {name}: {added:?}"));
        let desired = self
            .desired_groups
            .get_mut(name)
            .expect("it was just there");
        match added {
            None => (),
            Some(Ok(())) => {
                self.counts.added += 1;
                desired.is_known = true;
                desired.is_doubtful = false;
                desired.promised =
                    (!desired.is_respected).then(|| Promise::of(&desired.policy.knobs, has_demand));
                if let Selector::Process(pid) = desired.policy.selector {
                    let is_there = simulated::with(|kernel| kernel.tasks().get(pid).is_some());
                    if is_there {
                        self.members.insert(pid, name.to_owned());
                    }
                }
                self.check_now();
            }
            Some(Err(_)) => {
                self.counts.refused += 1;
                // A refused group leaves nothing behind if it is new.
                let is_new = desired.promised.is_none() && !was_known && !before.is_empty();
                if is_new && !self.is_disturbed && self.remade.is_empty() {
                    assert_eq!(
                        before,
                        self.find(&self.desired_groups[name].policy.selector),
                        "{name}"
                    );
                }
            }
        }
    }

    pub(super) fn find(&self, selector: &Selector) -> BTreeMap<&'static str, String> {
        match selector {
            Selector::Cgroup(path) => simulated::with(|kernel| texts(kernel, path)),
            Selector::Process(_) => BTreeMap::new(),
        }
    }

    pub(super) fn pick_known(&mut self) -> Option<String> {
        let known = self
            .desired_groups
            .iter()
            .filter(|(_, desired)| desired.is_known);
        let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
        self.chance.pick(&known)
    }

    pub(super) fn client_changes(&mut self) {
        let Some(name) = self.pick_known() else {
            return;
        };
        let is_held = name.starts_with('/');
        let Some(knobs) = self.knobs(is_held) else {
            return;
        };
        self.change_to(&name, knobs);
    }

    /// Begins or ends the machine's demand of headroom, which batch groups follow.
    pub(super) fn demand_changes(&mut self) {
        if self.owner.is_none() {
            return;
        }
        self.has_demand = !self.has_demand;
        self.tell(|| "the demand changes".to_owned());
        self.counts.changes_of_demand += 1;
        let has_demand = self.has_demand;
        for desired in self.desired_groups.values_mut() {
            // Also where a change has failed, and other knobs are in force.
            desired.promised = desired.promised.map(Promise::without_headroom);
            desired.is_doubtful = true;
        }
        self.watch();
        let policy = machine_policy(has_demand);
        let _ = self.ask_owner(|owner| owner.set_machine(&policy));
        let groups = self.desired_groups.iter();
        let doubtful = groups.filter(|(_, desired)| desired.is_known && desired.is_doubtful);
        let doubtful: Vec<_> = doubtful
            .map(|(name, desired)| (name.clone(), desired.policy.knobs.clone()))
            .collect();
        for (name, knobs) in doubtful {
            self.change_to(&name, knobs);
        }
    }

    fn change_to(&mut self, name: &str, knobs: Knobs) {
        if self.owner.is_none() {
            return;
        }
        let has_demand = self.has_demand;
        let promise = Promise::of(&knobs, has_demand);
        let desired = self.desired_groups.get_mut(name).expect("it was picked");
        desired.promised = desired.promised.map(|old| old.weaker(promise));
        desired.policy.knobs = knobs.clone();
        self.watch();
        self.risk();
        self.tell(|| format!("change {name} to {knobs}"));
        let changed = self.ask_owner(|owner| owner.change(name, &knobs));
        self.tell(|| format!("change {name}: {changed:?}"));
        if let Some(Ok(())) = changed {
            self.counts.changed += 1;
            let desired = self.desired_groups.get_mut(name).expect("it was picked");
            (desired.is_respected, desired.is_doubtful) = (false, false);
            desired.promised = Some(promise);
            self.check_now();
        } else {
            self.is_half_done = true;
        }
    }

    pub(super) fn client_removes(&mut self) {
        let names: Vec<String> = self.desired_groups.keys().cloned().collect();
        let Some(name) = self.chance.pick(&names) else {
            return;
        };
        let desired = self.desired_groups.remove(&name).expect("it was picked");
        let had_owner = self.owner.is_some();
        self.is_half_done |= !had_owner;
        self.watch();
        self.risk();
        self.tell(|| format!("remove {name}, known: {}", desired.is_known));
        if let Some(removed) = self.ask_owner(|owner| owner.remove(&name)) {
            self.counts.removed += 1;
            // A refused removal is tried again when an owner starts or stops.
            self.is_half_done |= removed
                .as_ref()
                .is_ok_and(|report| !report.problems.is_empty());
            self.tell(|| format!("removed {name}: {removed:?}"));
        }
        if had_owner {
            self.members.retain(|_, group| *group != name);
        }
    }

    pub(super) fn add_process(&mut self) {
        let (name, pid) = (self.pick_known(), self.chance.pick(&self.pids()));
        let (Some(name), Some(pid)) = (name, pid) else {
            return;
        };
        if self.members.contains_key(&pid) {
            return;
        }
        self.watch();
        leaves(pid);
        self.risk();
        self.tell(|| format!("add process {pid} to {name}"));
        let added = self.ask_owner(|owner| owner.add_process(&name, pid));
        self.tell(|| format!("add process {pid} to {name}: {added:?}"));
        let is_there = match &self.desired_groups[&name].policy.selector {
            // The owner may have died after the move.
            Selector::Cgroup(path) => simulated::with(|kernel| {
                kernel
                    .tasks()
                    .get(pid)
                    .is_some_and(|task| task.cgroup == *path)
            }),
            Selector::Process(_) => matches!(added, Some(Ok(()))),
        };
        if is_there {
            if name.starts_with('/') {
                self.guests.insert(pid);
            }
            self.members.insert(pid, name);
            self.check_now();
        }
    }

    /// Lets the owner look for changes of others, or apply the knobs again.
    pub(super) fn look_after(&mut self) {
        let Some(name) = self.pick_known() else {
            return;
        };
        self.watch();
        if self.chance.once_in(2) {
            self.tell(|| format!("audit {name}"));
            let _ = self.ask_owner(|owner| owner.audit(&name));
            return;
        }
        self.risk();
        self.tell(|| format!("reapply {name}"));
        let reapplied = self.ask_owner(|owner| {
            owner.reapply(&name)?;
            // A change may have failed before.
            owner.knobs(&name).cloned()
        });
        if let Some(Ok(knobs)) = reapplied {
            let has_demand = self.has_demand;
            let desired = self.desired_groups.get_mut(&name).expect("it was picked");
            let promise = Promise::of(&knobs, has_demand && !desired.is_doubtful);
            (desired.promised, desired.is_respected) = (Some(promise), false);
            self.check_now();
        }
    }

    pub(super) fn pass_time(&mut self) {
        let time = Duration::from_millis(self.chance.below(200));
        let busy = self.chance.pick(&self.cgroups());
        simulated::with(|kernel| {
            kernel.pass(time);
            if let Some(path) = busy {
                kernel.cgroups().use_cpu(&path, 80_000);
            }
        });
        self.watch();
        self.tell(|| "tick".to_owned());
        let _ = self.ask_owner(|owner| owner.tick(os::now()).map(drop));
    }

    pub(super) fn retry(&mut self) {
        if self.owner.is_none() {
            return self.start();
        }
        let waiting = self
            .desired_groups
            .iter()
            .filter(|(_, desired)| !desired.is_known);
        let waiting: Vec<String> = waiting.map(|(name, _)| name.clone()).collect();
        if let Some(name) = self.chance.pick(&waiting) {
            self.add(&name);
        }
    }
}
