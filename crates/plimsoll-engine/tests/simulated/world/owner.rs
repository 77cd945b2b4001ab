//! Start, stop and death of owners.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::os;
use plimsoll_cgroupfs::simulated::{self, Killed, MOUNT, Write};
use plimsoll_engine::Result;
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::group_policy::Selector;
use plimsoll_engine::knobs::{Demand, Headroom};
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::undo::UndoReport;

use super::promise::Promise;
use super::{FOREIGN, World};
use crate::shadow::is_own;

/// Policy of the machine, with headroom that some groups ask for, or without.
pub fn machine_policy(has_demand: bool) -> MachinePolicy {
    let mut demand = Demand::default();
    if has_demand {
        demand.add(Some(Headroom::Share(300_000)), None);
    }
    MachinePolicy {
        demand,
        bandwidth_slice: None,
    }
}

impl World {
    /// Injects a fault into the owner's next actions.
    pub(super) fn risk(&mut self) {
        let after = self.chance.below(30);
        let write = if self.chance.once_in(2) {
            Write::Kernel
        } else {
            Write::Disk
        };
        let number = self
            .chance
            .pick(&[libc::EINVAL, libc::EBUSY, libc::ENOMEM, libc::EIO]);
        let kind = self.chance.below(12);
        simulated::with(|kernel| match kind {
            0 | 1 => kernel.faults.death_in = Some(after),
            2 => kernel.faults.refusal_in = number.map(|number| (write, after, number)),
            3 => kernel.faults.disk_is_full = true,
            _ => (),
        });
        // An entry may be missing from the journal, or a value not put back.
        self.is_half_done |= kind < 4;
        if !self.is_calm && self.chance.once_in(4) {
            let path = self.chance.pick(&FOREIGN);
            let after = self.chance.below(60);
            simulated::with(|kernel| kernel.faults.remade_in = path.map(|path| (after, path)));
        }
    }

    /// Asks the owner. `None`: there is none, or the request kills it.
    pub(super) fn ask_owner<R>(
        &mut self,
        act: impl FnOnce(&mut CgroupEnforcer) -> Result<R>,
    ) -> Option<Result<R>> {
        let owner = self.owner.as_mut()?;
        let done = catch_unwind(AssertUnwindSafe(|| act(owner)));
        let answer = match done {
            Ok(answer) => Some(answer),
            Err(payload) if payload.is::<Killed>() => {
                self.counts.deaths_within += 1;
                self.tell(|| "the owner dies".to_owned());
                // A dead owner does nothing at its end.
                self.is_half_done = true;
                self.owner = None;
                simulated::with(|kernel| kernel.revive());
                None
            }
            Err(payload) => resume_unwind(payload),
        };
        simulated::with(|kernel| kernel.faults = Default::default());
        self.note_remade();
        answer
    }

    /// Kills the owner, or starts the next one.
    pub(super) fn die(&mut self) {
        if self.owner.is_none() {
            return self.start();
        }
        self.tell(|| "the owner is killed".to_owned());
        self.counts.deaths += 1;
        simulated::with(|kernel| kernel.faults.death_in = Some(0));
        // The first write of a killed owner is its last.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _ = os::create_folder(&Path::new(MOUNT).join("never"));
        }));
        assert!(ended.is_err_and(|payload| payload.is::<Killed>()));
        self.owner = None;
        simulated::with(|kernel| kernel.revive());
        self.check_now();
    }

    /// Starts an owner, which takes over the groups that an earlier one has left.
    pub(super) fn start(&mut self) {
        // The daemon does not ask for a group again whose processes have all ended.
        let members = self.members.clone();
        let nr_desired = self.desired_groups.len();
        self.desired_groups
            .retain(|name, desired| match &mut desired.policy.selector {
                Selector::Process(pid) => {
                    let first = members.iter().find(|(_, group)| *group == name);
                    let is_member = members.get(pid) == Some(name);
                    if let (Some((member, _)), false) = (first, is_member) {
                        *pid = *member;
                    }
                    if desired.is_known && first.is_none() {
                        return false;
                    }
                    let pid = *pid;
                    simulated::with(|kernel| kernel.tasks().get(pid).is_some())
                }
                Selector::Cgroup(path) => {
                    simulated::with(|kernel| kernel.cgroups().inode(path).is_some())
                }
            });
        self.is_half_done |= self.desired_groups.len() < nr_desired;
        self.watch();
        let before = simulated::with(|kernel| kernel.nr_kernel_writes());
        let has_demand = self.has_demand;
        let all_promised = self.desired_groups.values().all(|desired| {
            desired.is_known && desired.promised == Some(Promise::of(&desired.policy.knobs, has_demand))
                && desired.policy.knobs.soft_cap.is_none()
                // The level is given to tasks that have come meanwhile.
                && desired.policy.knobs.nice.is_none()
        });
        for desired in self.desired_groups.values_mut() {
            desired.is_known = false;
            // A change may have failed before: now it is made.
            let wanted = Promise::of(&desired.policy.knobs, has_demand);
            desired.promised = desired.promised.map(|promised| promised.weaker(wanted));
        }
        self.watch();
        self.risk();
        self.tell(|| "an owner starts".to_owned());
        if self.try_start().is_none() {
            self.tell(|| "it does not".to_owned());
            return;
        }
        let names: Vec<String> = self.desired_groups.keys().cloned().collect();
        for name in &names {
            self.add(name);
        }
        let report = self.ask_owner(|owner| Ok(owner.finish_adoption()));
        self.tell(|| format!("adopted: {report:?}"));
        if self.owner.is_some() {
            let desired_groups = &self.desired_groups;
            self.members
                .retain(|_, group| desired_groups.contains_key(group));
        }
        let writes = simulated::with(|kernel| kernel.nr_kernel_writes()) - before;
        let is_half_done = self.is_half_done;
        self.is_half_done = self.owner.is_none()
            || self
                .desired_groups
                .values()
                .any(|desired| !desired.is_known);
        let is_quiet = all_promised && !self.is_disturbed && !is_half_done && !names.is_empty();
        if is_quiet
            && self.owner.is_some()
            && self.desired_groups.values().all(|desired| desired.is_known)
        {
            assert_eq!(writes, 0, "the same values are written again");
            self.counts.adopted_without_a_write += 1;
        }
    }

    pub(super) fn try_start(&mut self) -> Option<()> {
        let (hierarchy, runtime) = (Arc::clone(&self.hierarchy), self.runtime.clone());
        let policy = machine_policy(self.has_demand);
        let started = catch_unwind(AssertUnwindSafe(|| {
            let (mut owner, report) = CgroupEnforcer::adopting(&hierarchy, &runtime)?;
            owner.set_machine(&policy)?;
            Ok::<_, plimsoll_engine::EngineError>((owner, report))
        }));
        let started = match started {
            Ok(Ok((owner, report))) => {
                self.tell(|| format!("undone at the start: {report:?}"));
                self.owner = Some(owner);
                Some(())
            }
            Ok(Err(error)) => {
                self.tell(|| format!("cannot start: {error}"));
                None
            }
            Err(payload) if payload.is::<Killed>() => {
                self.counts.deaths_within += 1;
                self.is_half_done = true;
                None
            }
            Err(payload) => resume_unwind(payload),
        };
        simulated::with(|kernel| kernel.revive());
        self.note_remade();
        started
    }

    pub(super) fn boot_or_stop(&mut self) {
        if self.chance.once_in(2) {
            return self.stop();
        }
        self.tell(|| "boot".to_owned());
        self.counts.boots += 1;
        if self.owner.is_some() {
            self.die();
        }
        self.owner = None;
        simulated::with(|kernel| kernel.boot());
        self.desired_groups.clear();
        self.members.clear();
        self.furnish();
        self.is_disturbed = false;
        self.start();
        // Nothing in a journal of the boot before belongs to anybody now.
        let differences = self.shadow.differences();
        assert!(differences.is_empty(), "after a boot: {differences:?}");
    }

    /// Stops the owner cleanly, and checks that all is as others have left it.
    pub fn stop(&mut self) {
        let mut tries = 0;
        while self.owner.is_none() {
            tries += 1;
            assert!(tries < 100, "no owner can be started any more");
            self.start();
        }
        self.tell(|| "stop".to_owned());
        self.desired_groups.clear();
        self.members.clear();
        self.watch();
        let mut report = UndoReport::default();
        let _ = self.ask_owner(|owner| {
            report = owner.undo();
            Ok(())
        });
        self.owner = None;
        self.counts.stops += 1;
        self.tell(|| format!("stopped: {report:?}"));
        let own: Vec<PathBuf> = self
            .cgroups()
            .into_iter()
            .filter(|path| is_own(path))
            .collect();
        let differences = self.shadow.differences();
        let files = simulated::with(|kernel| {
            kernel.disk().tidy();
            kernel
                .disk()
                .paths()
                .map(Path::to_owned)
                .collect::<Vec<_>>()
        });
        // An action of others may be in the way: then the report tells.
        let is_told = self.is_disturbed && !report.problems.is_empty();
        if !is_told {
            assert!(own.is_empty(), "left: {own:?} {report:?}");
            assert!(differences.is_empty(), "{differences:?} {report:?}");
            assert!(files.is_empty(), "left: {files:?} {report:?}");
        }
        simulated::with(|kernel| kernel.disk().clear());
        let leftovers = own.into_iter().rev();
        simulated::with(|kernel| {
            for path in leftovers {
                let _ = kernel.others_remove(&path);
            }
        });
        self.shadow.take();
        self.is_disturbed = false;
        self.start();
    }
}
