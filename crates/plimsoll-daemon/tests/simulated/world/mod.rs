//! One machine with an owner, its clients, and others.

mod clients;
mod counts;
mod observe;
mod others;
mod owner;
mod promise;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::Version;
use plimsoll_cgroupfs::simulated::{self, PromiseWatch};
use plimsoll_daemon::service::Service;

pub use counts::Counts;
use promise::Promise;
use wanted::Wanted;

use crate::chance::Chance;
use crate::shadow::Shadow;

/// Cgroups that others make; a parent comes before its children.
const FOREIGN: [&str; 6] = ["a", "a/b", "a/b/c", "d", "e", "e/f"];
/// Names of groups of commands.
const OWN: [&str; 3] = ["one", "two", "three"];
/// Bound of the numbers of processes.
const PIDS: i32 = 40;

/// Promise of a group that `show` has shown.
#[derive(Debug, Default)]
struct Kept {
    /// `None`: nothing is in force yet, or others have interfered, or a change has failed half-way.
    promise: Option<Promise>,
    /// Whether others have changed a file of the group, which stays until knobs are applied again.
    is_respected: bool,
    /// Failure or loss, as `show` shows it.
    problem: Option<String>,
}

/// Reasons for which the kernel, or its rules, cannot have what is wanted.
const REFUSALS: [&str; 7] = [
    // Until the group of a process that has ended does.
    "no such process",
    "a group of Plimsoll's own can have both",
    // v1: a cgroup inside has more than the headroom leaves.
    ": Invalid argument",
    "would make it threaded",
    "is not kept from it",
    "a cgroup may have no more than the one around it",
    // A request has the burst, and the file the quota.
    "refuses a burst above the quota",
];

impl Kept {
    fn is_refused(&self) -> bool {
        let problem = self.problem.as_deref().unwrap_or_default();
        REFUSALS.iter().any(|refusal| problem.contains(refusal))
    }
}

pub struct World {
    chance: Chance,
    version: Version,
    /// The owner; `None`: it was killed.
    owner: Option<Service>,
    /// Index of the configuration on the disk; `None`: the owner has no file.
    config: Option<usize>,
    /// Whether a command has started the owner: it has the file of a daemon that was killed.
    is_on_demand: bool,
    wanted: Wanted,
    kept: BTreeMap<String, Kept>,
    /// Whether headroom was demanded when the owner was last observed.
    had_demand: bool,
    /// Group of commands to which a process, or one that it descends from, belongs.
    members: BTreeMap<i32, String>,
    /// Processes that were in a group of commands once, or are requested to be: the owner may move
    /// them out of foreign cgroups.
    movable: BTreeSet<i32>,
    /// Whether others have moved a process since the last clean stop: it may keep a nice level that
    /// it has inherited in a group, and others in a group to which it comes back.
    has_strays: bool,
    shadow: Shadow,
    /// Whether others have done something since the last clean stop that may keep a value from
    /// being put back.
    is_disturbed: bool,
    /// Whether a fault was injected since the last time that all groups were in force.
    is_half_done: bool,
    /// Whether the file of the requests may lack some.
    is_stale: bool,
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
            owner: None,
            config: (!seed.is_multiple_of(5)).then_some(1),
            is_on_demand: false,
            wanted: Wanted::default(),
            kept: BTreeMap::new(),
            had_demand: false,
            members: BTreeMap::new(),
            movable: BTreeSet::new(),
            has_strays: false,
            shadow: Shadow::default(),
            is_disturbed: false,
            is_half_done: false,
            is_stale: false,
            is_calm: seed.is_multiple_of(4),
            is_traced,
            counts: Counts::default(),
        };
        simulated::with(|kernel| match seed % 7 {
            0 => kernel.events().room = 2,
            1 => kernel.events().watches_max = 7,
            _ => (),
        });
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
                let _ = kernel.others_create(Path::new(path));
            }
            // The owner itself.
            let own = std::process::id().cast_signed();
            kernel.tasks().start_in(own, Path::new(""));
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
            22..39 if self.is_calm => self.client_runs(),
            22..30 => self.others_write(),
            30..33 => self.others_move(),
            33..37 => self.others_make_or_remove(),
            37..39 => self.others_give_cpu(),
            39..49 => self.client_runs(),
            49..63 => self.client_sets(),
            63..67 => self.client_resets(),
            67..71 => self.client_ends(),
            71..73 => self.client_switches_burst(),
            73..78 => self.operator_reloads(),
            78..88 => self.pass_time(),
            88..94 => self.die(),
            94..96 => self.boot_or_stop(),
            _ => self.be_quiet(),
        }
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

    /// Registers the promises for a check at every write. A process that `leaves` a foreign cgroup
    /// is promised nothing there.
    fn watch(&mut self, promises: &BTreeMap<String, Promise>, leaves: &BTreeSet<i32>) {
        let mut watches = Vec::new();
        simulated::with(|kernel| {
            for (name, promise) in promises {
                for (pid, task) in kernel.tasks().iter() {
                    let is_member = match name.strip_prefix('/') {
                        Some(path) => task.cgroup.starts_with(path) && !leaves.contains(&pid),
                        None => self.members.get(&pid) == Some(name),
                    };
                    if is_member {
                        watches.push(PromiseWatch {
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

    /// Returns the promises that hold while nothing changes.
    fn promises(&self) -> BTreeMap<String, Promise> {
        let kept = self.kept.iter();
        kept.filter_map(|(name, kept)| Some((name.clone(), kept.promise?)))
            .collect()
    }

    /// Checks that all promises hold now, without any write.
    fn check_now(&mut self) {
        let promises = self.promises();
        self.watch(&promises, &BTreeSet::new());
        self.tell(|| format!("promises: {promises:?}; members: {:?}", self.members));
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
