//! One machine with an owner, its clients, and others.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_cgroupfs::simulated::{self, Killed, MOUNT, Watch, Write};
use plimsoll_cgroupfs::{Hierarchy, Version, os};
use plimsoll_engine::Result;
use plimsoll_engine::cgroup::{CgroupEnforcer, check_held};
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::knobs::{Class, Knobs};
use plimsoll_engine::policy_set::{GroupPolicy, Selector};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;

use crate::chance::Chance;
use crate::shadow::{Shadow, is_own, texts};

const RUNTIME: &str = "/simulated/run/plimsoll";
/// The name of the journal that foreign cgroups share.
const JOURNAL: &str = "daemon";
/// Cgroups that others make; a parent comes before its children.
const FOREIGN: [&str; 6] = ["a", "a/b", "a/b/c", "d", "e", "e/f"];
/// Names of groups of commands and of processes.
const OWN: [&str; 3] = ["one", "two", "three"];
/// Processes have numbers up to this.
const PIDS: i32 = 40;

/// What is asked of a group.
#[derive(Debug, Clone)]
struct Wish {
    policy: GroupPolicy,
    /// What its members are promised; `None`: it is not in force yet, or others have interfered,
    /// or a change has failed half-way.
    promised: Option<Promise>,
    /// The owner was told of it.
    is_known: bool,
    /// Others have changed something of it, which is respected until it is applied again.
    is_respected: bool,
}

/// The weakest of the limits that may be in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Promise {
    rate_max_ppm: Option<u64>,
    is_idle: bool,
}

impl Promise {
    fn of(knobs: &Knobs) -> Self {
        let quota = knobs.quota.and_then(|quota| quota.rate_ppm());
        let cap = knobs.cap.map(|cap| u64::from(cap.permille) * 1_000);
        Self {
            rate_max_ppm: [quota, cap].into_iter().flatten().min(),
            is_idle: knobs.class == Some(Class::Batch),
        }
    }

    /// What holds while one becomes the other.
    fn weaker(self, other: Self) -> Self {
        let rates = self.rate_max_ppm.zip(other.rate_max_ppm);
        Self {
            rate_max_ppm: rates.map(|(one, other)| one.max(other)),
            is_idle: self.is_idle && other.is_idle,
        }
    }
}

/// How often things have happened: a test in which they do not shows nothing.
#[derive(Debug, Default)]
pub struct Counts {
    pub steps: u64,
    added: u64,
    refused: u64,
    changed: u64,
    removed: u64,
    deaths: u64,
    deaths_within: u64,
    adopted_without_a_write: u64,
    stops: u64,
    boots: u64,
    changes_of_others: u64,
}

impl Counts {
    pub fn add(&mut self, more: &Self) {
        self.steps += more.steps;
        self.added += more.added;
        self.refused += more.refused;
        self.changed += more.changed;
        self.removed += more.removed;
        self.deaths += more.deaths;
        self.deaths_within += more.deaths_within;
        self.adopted_without_a_write += more.adopted_without_a_write;
        self.stops += more.stops;
        self.boots += more.boots;
        self.changes_of_others += more.changes_of_others;
    }

    /// Whether as much has happened as is needed to show anything.
    pub fn check(&self) {
        let all = [
            self.added,
            self.refused,
            self.changed,
            self.removed,
            self.deaths,
            self.deaths_within,
            self.adopted_without_a_write,
            self.stops,
            self.boots,
            self.changes_of_others,
        ];
        assert!(
            all.iter().all(|count| *count > self.steps / 2_000),
            "{self:?}"
        );
    }
}

/// A process is about to be moved from where it is: of its old place nothing is promised to it.
fn leaves(pid: i32) {
    simulated::with(|kernel| kernel.watches.retain(|watch| watch.pid != pid));
}

/// One machine.
pub struct World {
    chance: Chance,
    version: Version,
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    /// `None`: it was killed.
    owner: Option<CgroupEnforcer>,
    wishes: BTreeMap<String, Wish>,
    /// To which group a process, or one that it descends from, was moved.
    members: BTreeMap<i32, String>,
    /// Processes that were moved to a foreign cgroup: they may be moved out of any again.
    guests: BTreeSet<i32>,
    shadow: Shadow,
    /// Others have done something since the last clean stop that may keep a value from being put
    /// back.
    is_disturbed: bool,
    /// An owner has died half-way, or has left what nobody asks for any more.
    is_half_done: bool,
    /// Others leave the files of cgroups alone.
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
            wishes: BTreeMap::new(),
            members: BTreeMap::new(),
            guests: BTreeSet::new(),
            shadow: Shadow::default(),
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

    /// As a service manager does it after a boot.
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

    /// Whatever happens next.
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
            53..65 => self.client_changes(),
            65..71 => self.client_removes(),
            71..77 => self.add_process(),
            77..81 => self.look_after(),
            81..88 => self.pass_time(),
            88..94 => self.die(),
            94..96 => self.boot_or_stop(),
            _ => self.retry(),
        }
        let broken = simulated::with(|kernel| std::mem::take(&mut kernel.broken));
        self.tell(|| "done".to_owned());
        assert!(broken.is_empty(), "{broken:?}");
    }

    // What others do.

    fn pids(&self) -> Vec<i32> {
        simulated::with(|kernel| {
            let pids = kernel.tasks().iter().map(|(pid, _)| pid);
            pids.filter(|pid| (2..PIDS).contains(pid)).collect()
        })
    }

    fn free_pid(&mut self) -> Option<i32> {
        let taken: BTreeSet<i32> = self.pids().into_iter().collect();
        let free: Vec<i32> = (2..PIDS).filter(|pid| !taken.contains(pid)).collect();
        self.chance.pick(&free)
    }

    /// Foreign cgroups that take processes.
    fn places(&self) -> Vec<PathBuf> {
        simulated::with(|kernel| {
            let cgroups = kernel.cgroups();
            let paths = cgroups.paths().filter(|path| !is_own(path));
            let mut places: Vec<PathBuf> = paths
                .filter(|path| !cgroups.gives_cpu(path))
                .map(Path::to_owned)
                .collect();
            places.push(PathBuf::new());
            places
        })
    }

    fn others_start(&mut self) {
        let place = self.chance.pick(&self.places());
        if let (Some(place), Some(pid)) = (place, self.free_pid()) {
            self.tell(|| format!("others start {pid} in /{}", place.display()));
            simulated::with(|kernel| kernel.tasks().start_in(pid, &place));
        }
    }

    fn others_fork(&mut self) {
        let parent = self.chance.pick(&self.pids());
        if let (Some(parent), Some(pid)) = (parent, self.free_pid()) {
            self.tell(|| format!("{parent} forks {pid}"));
            simulated::with(|kernel| kernel.tasks().fork(parent, pid));
            if let Some(group) = self.members.get(&parent).cloned() {
                self.members.insert(pid, group);
            }
        }
    }

    fn others_end(&mut self) {
        if let Some(pid) = self.chance.pick(&self.pids()) {
            self.tell(|| format!("{pid} ends"));
            simulated::with(|kernel| kernel.end(pid));
            self.members.remove(&pid);
            self.guests.remove(&pid);
        }
    }

    fn cgroups(&self) -> Vec<PathBuf> {
        simulated::with(|kernel| kernel.cgroups().paths().map(Path::to_owned).collect())
    }

    fn others_write(&mut self) {
        let Some(path) = self.chance.pick(&self.cgroups()) else {
            return;
        };
        let texts: &[(&str, &str)] = match self.version {
            Version::V1 => &[
                ("cpu.shares", "512"),
                ("cpu.shares", "4096"),
                ("cpu.idle", "1"),
                ("cpu.idle", "0"),
                ("cpu.cfs_quota_us", "70000"),
                ("cpu.cfs_quota_us", "-1"),
            ],
            Version::V2 => &[
                ("cpu.weight", "50"),
                ("cpu.weight", "400"),
                ("cpu.idle", "1"),
                ("cpu.idle", "0"),
                ("cpu.max", "70000 100000"),
                ("cpu.max", "max 100000"),
                ("cpu.max", "30000 50000"),
                ("cpu.max.burst", "5000"),
            ],
        };
        let Some((file, text)) = self.chance.pick(texts) else {
            return;
        };
        let below = path.join(file);
        let written = simulated::with(|kernel| kernel.others_write(&below, text));
        self.tell(|| format!("others write {}: {text}: {written:?}", below.display()));
        if written.is_ok() {
            self.counts.changes_of_others += 1;
            self.is_disturbed = true;
            self.shadow.written(&path);
            self.suspend_around(&path);
        }
    }

    /// Others have changed something here: nothing is promised of it until it is applied again.
    fn suspend_around(&mut self, path: &Path) {
        if is_own(path) {
            // Of the parent, whichever it is.
            for wish in self.wishes.values_mut() {
                (wish.promised, wish.is_respected) = (None, true);
            }
        }
        for wish in self.wishes.values_mut() {
            if matches!(&wish.policy.selector, Selector::Cgroup(held) if held == path) {
                (wish.promised, wish.is_respected) = (None, true);
            }
        }
        self.watch();
    }

    fn others_move(&mut self) {
        let (pid, place) = (
            self.chance.pick(&self.pids()),
            self.chance.pick(&self.places()),
        );
        let (Some(pid), Some(place)) = (pid, place) else {
            return;
        };
        self.tell(|| format!("others move {pid} to /{}", place.display()));
        // The owner takes it in again.
        self.is_disturbed |= self.members.contains_key(&pid);
        let file = place.join("cgroup.procs");
        simulated::with(|kernel| {
            kernel.watches.retain(|watch| watch.pid != pid);
            let _ = kernel.others_write(&file, &pid.to_string());
        });
        // One that was moved to a foreign cgroup may come back there.
        if self
            .members
            .get(&pid)
            .is_some_and(|group| !group.starts_with('/'))
        {
            self.members.remove(&pid);
        }
        self.watch();
    }

    fn others_make_or_remove(&mut self) {
        let Some(path) = self.chance.pick(&FOREIGN) else {
            return;
        };
        let path = Path::new(path);
        let is_there = simulated::with(|kernel| kernel.cgroups().inode(path).is_some());
        if !is_there {
            let made = simulated::with(|kernel| kernel.cgroups().create(path));
            self.tell(|| format!("others make /{}: {made:?}", path.display()));
            self.shadow.renew(path);
            return;
        }
        let removed = simulated::with(|kernel| kernel.others_remove(path));
        self.tell(|| format!("others remove /{}: {removed:?}", path.display()));
        if removed.is_err() {
            return;
        }
        self.shadow.forget(path);
        // A watch of cgroups tells the owner, which forgets the group; perhaps after there is
        // another of its path.
        if self.chance.once_in(2) {
            let made = simulated::with(|kernel| kernel.cgroups().create(path));
            self.tell(|| format!("and make it again: {made:?}"));
            self.shadow.renew(path);
        }
        let name = format!("/{}", path.display());
        if let Some(wish) = self.wishes.remove(&name)
            && wish.is_known
        {
            let _ = self.ask_owner(|owner| owner.remove(&name));
        }
    }

    fn others_give_cpu(&mut self) {
        let Some(path) = self.chance.pick(&["", "a", "e"]) else {
            return;
        };
        if self.version == Version::V1 {
            return;
        }
        let path = Path::new(path);
        let text = self.chance.pick(&["+cpu", "-cpu"]).unwrap_or("+cpu");
        // What others switch off is not there any more: they know, and groups of ours go with it.
        let is_used = text == "-cpu";
        if is_used && !self.wishes.is_empty() {
            return;
        }
        let below = path.join("cgroup.subtree_control");
        let gave = simulated::with(|kernel| kernel.cgroups().gives_cpu(path));
        let written = simulated::with(|kernel| kernel.others_write(&below, text));
        self.tell(|| format!("others write {}: {text}: {written:?}", below.display()));
        if written.is_ok() {
            self.is_disturbed = true;
            self.shadow.given(path);
            if gave == (text == "+cpu") {
                return;
            }
            for child in self
                .cgroups()
                .iter()
                .filter(|child| child.parent() == Some(path))
            {
                self.shadow.renew_files(child);
            }
        }
    }

    // What clients and the owner do.

    fn knobs(&mut self, is_held: bool) -> Option<Knobs> {
        const TEXTS: [&str; 14] = [
            r#"{"class": "batch"}"#,
            r#"{"class": "batch", "quota": "20ms/100ms"}"#,
            r#"{"class": "batch", "cap": "50%", "weight": "50"}"#,
            r#"{"class": "batch", "nice": "7"}"#,
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
        let is_possible = !is_held || check_held(&knobs).is_ok();
        is_possible.then_some(knobs)
    }

    /// A fault for what the owner does next.
    fn risk(&mut self) {
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
        // Perhaps something is not written down, or not put back.
        self.is_half_done |= kind < 4;
    }

    /// Asks the owner. `None`: there is none, or it dies of it.
    fn ask_owner<R>(
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
                // What it would do at its end does not happen: it is dead.
                self.is_half_done = true;
                self.owner = None;
                simulated::with(|kernel| kernel.revive());
                None
            }
            Err(payload) => resume_unwind(payload),
        };
        simulated::with(|kernel| kernel.faults = Default::default());
        answer
    }

    /// Has every write looked at from now on.
    fn watch(&mut self) {
        let mut watches = Vec::new();
        simulated::with(|kernel| {
            for (name, wish) in &self.wishes {
                let Some(promise) = wish.promised else {
                    continue;
                };
                for (pid, task) in kernel.tasks().iter() {
                    let is_member = match &wish.policy.selector {
                        // One that was moved to a cgroup below goes back to where it was, and
                        // leaves this one, too.
                        Selector::Cgroup(path) => {
                            let may_leave = match self.members.get(&pid) {
                                Some(group) => group != name,
                                None => self.guests.contains(&pid),
                            };
                            task.cgroup.starts_with(path) && !may_leave
                        }
                        _ => self.members.get(&pid) == Some(name),
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

    /// All promises hold now, without any write.
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

    fn client_adds(&mut self) {
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
                let mut wishes = self.wishes.values();
                self.members.contains_key(pid)
                    || wishes.any(|wish| wish.policy.selector == selector)
            };
            let free: Vec<i32> = free.into_iter().filter(|pid| !is_asked_for(pid)).collect();
            let pid = self.chance.pick(&free).filter(|_| !self.chance.once_in(4));
            let selector = pid.map_or(Selector::Processes, Selector::Process);
            (name.to_owned(), selector)
        };
        if self.wishes.contains_key(&name) {
            return;
        }
        let policy = GroupPolicy {
            name: name.clone(),
            selector,
            knobs,
            scheduler: None,
        };
        self.wishes.insert(
            name.clone(),
            Wish {
                policy,
                promised: None,
                is_known: false,
                is_respected: false,
            },
        );
        self.risk();
        self.add(&name);
    }

    /// The owner adds a group, or tries again.
    fn add(&mut self, name: &str) {
        let Some(wish) = self.wishes.get(name).cloned() else {
            return;
        };
        self.watch();
        if let Selector::Process(pid) = wish.policy.selector
            && self.members.get(&pid).is_none_or(|group| group != name)
        {
            leaves(pid);
        }
        let before = self.find(&wish.policy.selector);
        let policy = (wish.policy.clone(), name.to_owned());
        let was_known = wish.is_known;
        self.tell(|| {
            format!(
                "add {name}: {:?} {}",
                wish.policy.selector, wish.policy.knobs
            )
        });
        let added = self.ask_owner(|owner| owner.add_all(&[policy]).remove(0));
        self.tell(|| format!("add {name}: {added:?}"));
        let wish = self.wishes.get_mut(name).expect("it was just there");
        match added {
            None => (),
            Some(Ok(())) => {
                self.counts.added += 1;
                wish.is_known = true;
                wish.promised = (!wish.is_respected).then(|| Promise::of(&wish.policy.knobs));
                if let Selector::Process(pid) = wish.policy.selector {
                    let is_there = simulated::with(|kernel| kernel.tasks().get(pid).is_some());
                    if is_there {
                        self.members.insert(pid, name.to_owned());
                    }
                }
                self.check_now();
            }
            Some(Err(_)) => {
                self.counts.refused += 1;
                // Nothing is left of one that is new.
                let is_new = wish.promised.is_none() && !was_known && !before.is_empty();
                if is_new && !self.is_disturbed {
                    assert_eq!(
                        before,
                        self.find(&self.wishes[name].policy.selector),
                        "{name}"
                    );
                }
            }
        }
    }

    /// What a foreign cgroup holds.
    fn find(&self, selector: &Selector) -> BTreeMap<&'static str, String> {
        match selector {
            Selector::Cgroup(path) => simulated::with(|kernel| texts(kernel, path)),
            _ => BTreeMap::new(),
        }
    }

    fn pick_known(&mut self) -> Option<String> {
        let known = self.wishes.iter().filter(|(_, wish)| wish.is_known);
        let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
        self.chance.pick(&known)
    }

    fn client_changes(&mut self) {
        let Some(name) = self.pick_known() else {
            return;
        };
        let is_held = name.starts_with('/');
        let Some(knobs) = self.knobs(is_held) else {
            return;
        };
        if self.owner.is_none() {
            return;
        }
        let wish = self.wishes.get_mut(&name).expect("it was picked");
        let both = wish.promised.map(|old| old.weaker(Promise::of(&knobs)));
        wish.promised = both;
        wish.policy.knobs = knobs.clone();
        self.watch();
        self.risk();
        self.tell(|| format!("change {name} to {knobs}"));
        let changed = self.ask_owner(|owner| owner.change(&name, &knobs));
        self.tell(|| format!("change {name}: {changed:?}"));
        if let Some(Ok(())) = changed {
            self.counts.changed += 1;
            let wish = self.wishes.get_mut(&name).expect("it was picked");
            wish.is_respected = false;
            wish.promised = Some(Promise::of(&knobs));
            self.check_now();
        } else {
            self.is_half_done = true;
        }
    }

    fn client_removes(&mut self) {
        let names: Vec<String> = self.wishes.keys().cloned().collect();
        let Some(name) = self.chance.pick(&names) else {
            return;
        };
        let wish = self.wishes.remove(&name).expect("it was picked");
        let had_owner = self.owner.is_some();
        self.is_half_done |= !had_owner;
        self.watch();
        self.risk();
        self.tell(|| format!("remove {name}, known: {}", wish.is_known));
        if let Some(removed) = self.ask_owner(|owner| owner.remove(&name)) {
            self.counts.removed += 1;
            // What was refused is tried again when an owner starts or stops.
            self.is_half_done |= removed
                .as_ref()
                .is_ok_and(|report| !report.problems.is_empty());
            self.tell(|| format!("removed {name}: {removed:?}"));
        }
        if had_owner {
            self.members.retain(|_, group| *group != name);
        }
    }

    fn add_process(&mut self) {
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
        let is_there = match &self.wishes[&name].policy.selector {
            // It may have died after the move.
            Selector::Cgroup(path) => simulated::with(|kernel| {
                kernel
                    .tasks()
                    .get(pid)
                    .is_some_and(|task| task.cgroup == *path)
            }),
            _ => matches!(added, Some(Ok(()))),
        };
        if is_there {
            if name.starts_with('/') {
                self.guests.insert(pid);
            }
            self.members.insert(pid, name);
            self.check_now();
        }
    }

    /// Looks at what others wrote, or applies again.
    fn look_after(&mut self) {
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
            owner.knobs(&name).map(Promise::of)
        });
        if let Some(Ok(promise)) = reapplied {
            let wish = self.wishes.get_mut(&name).expect("it was picked");
            (wish.promised, wish.is_respected) = (Some(promise), false);
            self.check_now();
        }
    }

    fn pass_time(&mut self) {
        let time = Duration::from_millis(self.chance.below(200));
        let busy = self.chance.pick(&self.cgroups());
        simulated::with(|kernel| {
            kernel.sleep(time);
            if let Some(path) = busy {
                kernel.cgroups().use_cpu(&path, 80_000);
            }
        });
        self.watch();
        self.tell(|| "tick".to_owned());
        let _ = self.ask_owner(|owner| owner.tick(os::now()).map(drop));
    }

    fn retry(&mut self) {
        if self.owner.is_none() {
            return self.start();
        }
        let waiting = self.wishes.iter().filter(|(_, wish)| !wish.is_known);
        let waiting: Vec<String> = waiting.map(|(name, _)| name.clone()).collect();
        if let Some(name) = self.chance.pick(&waiting) {
            self.add(&name);
        }
    }

    /// The owner is killed, or the next one starts.
    fn die(&mut self) {
        if self.owner.is_none() {
            return self.start();
        }
        self.tell(|| "the owner is killed".to_owned());
        self.counts.deaths += 1;
        simulated::with(|kernel| kernel.faults.death_in = Some(0));
        // Its first write on the way out is its last.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _ = os::create_folder(&Path::new(MOUNT).join("never"));
        }));
        assert!(ended.is_err_and(|payload| payload.is::<Killed>()));
        self.owner = None;
        simulated::with(|kernel| kernel.revive());
        self.check_now();
    }

    /// An owner starts and takes over what an earlier one has left.
    fn start(&mut self) {
        // As the daemon: a group whose processes have all ended is not asked for again.
        let members = self.members.clone();
        let nr_wishes = self.wishes.len();
        self.wishes
            .retain(|name, wish| match &mut wish.policy.selector {
                Selector::Process(pid) => {
                    let first = members.iter().find(|(_, group)| *group == name);
                    let is_member = members.get(pid) == Some(name);
                    if let (Some((member, _)), false) = (first, is_member) {
                        *pid = *member;
                    }
                    if wish.is_known && first.is_none() {
                        return false;
                    }
                    let pid = *pid;
                    simulated::with(|kernel| kernel.tasks().get(pid).is_some())
                }
                Selector::Cgroup(path) => {
                    simulated::with(|kernel| kernel.cgroups().inode(path).is_some())
                }
                _ => true,
            });
        self.is_half_done |= self.wishes.len() < nr_wishes;
        self.watch();
        let before = simulated::with(|kernel| kernel.nr_kernel_writes());
        let all_promised = self.wishes.values().all(|wish| {
            wish.is_known && wish.promised == Some(Promise::of(&wish.policy.knobs))
                && wish.policy.knobs.soft_cap.is_none()
                // It is given to who has come meanwhile.
                && wish.policy.knobs.nice.is_none()
        });
        for wish in self.wishes.values_mut() {
            wish.is_known = false;
            // A change may have failed before: now it is made.
            let wanted = Promise::of(&wish.policy.knobs);
            wish.promised = wish.promised.map(|promised| promised.weaker(wanted));
        }
        self.watch();
        self.risk();
        self.tell(|| "an owner starts".to_owned());
        if self.try_start().is_none() {
            self.tell(|| "it does not".to_owned());
            return;
        }
        let names: Vec<String> = self.wishes.keys().cloned().collect();
        for name in &names {
            self.add(name);
        }
        let report = self.ask_owner(|owner| Ok(owner.finish_adoption()));
        self.tell(|| format!("adopted: {report:?}"));
        if self.owner.is_some() {
            let wishes = &self.wishes;
            self.members.retain(|_, group| wishes.contains_key(group));
        }
        let writes = simulated::with(|kernel| kernel.nr_kernel_writes()) - before;
        let is_half_done = self.is_half_done;
        self.is_half_done = self.owner.is_none() || self.wishes.values().any(|wish| !wish.is_known);
        let is_quiet = all_promised && !self.is_disturbed && !is_half_done && !names.is_empty();
        if is_quiet && self.owner.is_some() && self.wishes.values().all(|wish| wish.is_known) {
            assert_eq!(writes, 0, "the same values are written again");
            self.counts.adopted_without_a_write += 1;
        }
    }

    fn try_start(&mut self) -> Option<()> {
        let (hierarchy, runtime) = (Arc::clone(&self.hierarchy), self.runtime.clone());
        let started = catch_unwind(AssertUnwindSafe(|| {
            let (mut owner, report) = CgroupEnforcer::adopting(&hierarchy, &runtime)?;
            owner.leave_audits_to_caller();
            // One that cannot be had is left as it is.
            if let Err(error) = owner.keep_cgroups_in(JOURNAL) {
                std::mem::forget(owner);
                return Err(error);
            }
            Ok((owner, report))
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
        started
    }

    fn boot_or_stop(&mut self) {
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
        self.wishes.clear();
        self.members.clear();
        self.furnish();
        self.is_disturbed = false;
        self.start();
        // What is written down of the boot before is nobody's now.
        let differences = self.shadow.differences();
        assert!(differences.is_empty(), "after a boot: {differences:?}");
    }

    /// A clean stop: all is as others have left it.
    pub fn stop(&mut self) {
        let mut tries = 0;
        while self.owner.is_none() {
            tries += 1;
            assert!(tries < 100, "no owner can be started any more");
            self.start();
        }
        self.tell(|| "stop".to_owned());
        self.wishes.clear();
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
        // What others did may be in the way: then it is told.
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
