//! One machine with an owner, its clients, and others.

mod clients;
mod counts;
mod others;
mod owner;
mod promise;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::simulated::{self, MOUNT, Watch};
use plimsoll_cgroupfs::{Hierarchy, Version};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::group_policy::Selector;
use plimsoll_engine::runtime::RuntimeFolder;

pub use counts::Counts;
pub use owner::machine_policy;
use promise::Desired;

use crate::chance::Chance;
use crate::shadow::Shadow;

const RUNTIME: &str = "/simulated/run/plimsoll";
/// Cgroups that others make; a parent comes before its children.
const FOREIGN: [&str; 6] = ["a", "a/b", "a/b/c", "d", "e", "e/f"];
/// Names of groups of commands and of processes.
const OWN: [&str; 3] = ["one", "two", "three"];
/// Bound of the numbers of processes.
const PIDS: i32 = 40;

pub struct World {
    chance: Chance,
    version: Version,
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    /// The owner; `None`: it was killed.
    owner: Option<CgroupEnforcer>,
    desired_groups: BTreeMap<String, Desired>,
    /// Whether headroom is demanded of all batch groups.
    has_demand: bool,
    /// Group to which a process, or one that it descends from, was moved.
    members: BTreeMap<i32, String>,
    /// Processes that were moved to a foreign cgroup: they may be moved out of any again.
    guests: BTreeSet<i32>,
    shadow: Shadow,
    /// Cgroups that were removed and made again while the owner was at work, and of which it was
    /// not told yet.
    remade: Vec<PathBuf>,
    /// Whether others have done something since the last clean stop that may keep a value from
    /// being put back.
    is_disturbed: bool,
    /// Whether an owner has died half-way, or has left state of groups that no client requests any
    /// more.
    is_half_done: bool,
    /// Whether others leave the files of cgroups alone.
    is_calm: bool,
    is_traced: bool,
    pub counts: Counts,
}

impl World {
    pub fn new(seed: u64, version: Version, is_traced: bool) -> Self {
        let mut world = Self {
            chance: Chance::new(seed),
            version,
            hierarchy: Arc::new(Hierarchy::at_folder(Path::new(MOUNT), version)),
            runtime: RuntimeFolder::at(RUNTIME),
            owner: None,
            desired_groups: BTreeMap::new(),
            has_demand: true,
            members: BTreeMap::new(),
            guests: BTreeSet::new(),
            shadow: Shadow::default(),
            remade: Vec::new(),
            is_disturbed: false,
            is_half_done: false,
            is_calm: seed.is_multiple_of(4),
            is_traced,
            counts: Counts::default(),
        };
        world.furnish();
        world.start();
        world
    }

    /// Makes cgroups and processes, as a service manager does after a boot.
    fn furnish(&mut self) {
        let gives = self.chance.once_in(2);
        simulated::with(|kernel| {
            if gives && self.version == Version::V2 {
                let _ = kernel.others_write(Path::new("cgroup.subtree_control"), "+cpu");
            }
            for path in FOREIGN {
                let _ = kernel.cgroups().create(Path::new(path));
            }
            // The owner itself.
            kernel
                .tasks()
                .start_in(std::process::id().cast_signed(), Path::new(""));
            for pid in 2..8 {
                kernel.tasks().start_in(pid, Path::new(""));
            }
        });
        self.shadow.take();
    }

    fn tell(&self, text: impl FnOnce() -> String) {
        if self.is_traced {
            let writes = simulated::with(|kernel| kernel.trace.as_mut().map(std::mem::take));
            for write in writes.into_iter().flatten() {
                println!("      {write}");
            }
            println!("{}: {}", self.counts.steps, text());
        }
    }

    /// Makes a random step.
    pub fn step(&mut self) {
        self.counts.steps += 1;
        match self.chance.below(100) {
            0..8 => self.others_start(),
            8..16 => self.others_fork(),
            16..22 => self.others_end(),
            22..39 if self.is_calm => self.retry(),
            22..30 => self.others_write(),
            30..33 => self.others_move(),
            33..37 => self.others_make_or_remove(),
            37..39 => self.others_give_cpu(),
            39..53 => self.client_adds(),
            53..63 => self.client_changes(),
            63..65 => self.demand_changes(),
            65..71 => self.client_removes(),
            71..77 => self.add_process(),
            77..81 => self.look_after(),
            81..88 => self.pass_time(),
            88..94 => self.die(),
            94..96 => self.boot_or_stop(),
            _ => self.retry(),
        }
        self.tell_remade();
        let broken = simulated::with(|kernel| std::mem::take(&mut kernel.broken));
        self.tell(|| "done".to_owned());
        assert!(broken.is_empty(), "{broken:?}");
    }

    fn pids(&self) -> Vec<i32> {
        simulated::with(|kernel| {
            let pids = kernel.tasks().iter().map(|(pid, _)| pid);
            pids.filter(|pid| (2..PIDS).contains(pid)).collect()
        })
    }

    fn cgroups(&self) -> Vec<PathBuf> {
        simulated::with(|kernel| kernel.cgroups().paths().map(Path::to_owned).collect())
    }

    /// Registers the promises for a check at every write.
    fn watch(&mut self) {
        let mut watches = Vec::new();
        simulated::with(|kernel| {
            for (name, desired) in &self.desired_groups {
                let Some(promise) = desired.promised else {
                    continue;
                };
                for (pid, task) in kernel.tasks().iter() {
                    let is_member = match &desired.policy.selector {
                        // A process that was moved to a cgroup below goes back to its old place,
                        // and leaves this cgroup, too.
                        Selector::Cgroup(path) => {
                            let may_leave = match self.members.get(&pid) {
                                Some(group) => group != name,
                                None => self.guests.contains(&pid),
                            };
                            task.cgroup.starts_with(path) && !may_leave
                        }
                        Selector::Process(_) => self.members.get(&pid) == Some(name),
                    };
                    if is_member {
                        watches.push(Watch {
                            pid,
                            rate_max_ppm: promise.rate_max_ppm,
                            is_idle: promise.is_idle,
                        });
                    }
                }
            }
            kernel.watches = watches;
        });
    }

    /// Checks that all promises hold now, without any write.
    fn check_now(&mut self) {
        self.watch();
        simulated::with(|kernel| {
            for watch in kernel.watches.clone() {
                let rate_ppm = kernel.rate_ppm(watch.pid);
                let is_over = |most: u64| rate_ppm.is_none_or(|rate_ppm| rate_ppm > most);
                assert!(
                    !watch.rate_max_ppm.is_some_and(is_over),
                    "{watch:?}: {rate_ppm:?}"
                );
                assert!(
                    !watch.is_idle || kernel.is_idle(watch.pid),
                    "{watch:?}: is not idle"
                );
            }
        });
    }
}
