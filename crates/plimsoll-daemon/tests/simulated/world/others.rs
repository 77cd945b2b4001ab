//! Actions of others: processes, and foreign cgroups.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{Version, simulated};

use super::wanted::shown;
use super::{FOREIGN, Kept, PIDS, World};
use crate::shadow::is_own;

impl World {
    pub(super) fn free_pid(&mut self) -> Option<i32> {
        let taken: BTreeSet<i32> = self.pids().into_iter().collect();
        let free: Vec<i32> = (2..PIDS).filter(|pid| !taken.contains(pid)).collect();
        self.chance.pick(&free)
    }

    /// Lists foreign cgroups that take processes.
    pub(super) fn places(&self) -> Vec<PathBuf> {
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

    pub(super) fn others_start(&mut self) {
        let place = self.chance.pick(&self.places());
        if let (Some(place), Some(pid)) = (place, self.free_pid()) {
            self.tell(|| format!("others start {pid} in /{}", place.display()));
            simulated::with(|kernel| kernel.tasks().start_in(pid, &place));
        }
    }

    pub(super) fn others_fork(&mut self) {
        let parent = self.chance.pick(&self.pids());
        if let (Some(parent), Some(pid)) = (parent, self.free_pid()) {
            self.tell(|| format!("{parent} forks {pid}"));
            simulated::with(|kernel| kernel.tasks().fork(parent, pid));
            let place = simulated::with(|kernel| {
                let task = kernel.tasks().get(pid);
                task.map(|task| task.cgroup.clone())
            });
            // While no owner keeps the group, a child is in none.
            if let Some(group) = self.members.get(&parent).cloned()
                && place.is_some_and(|place| is_own(&place))
            {
                self.members.insert(pid, group);
            }
        }
    }

    pub(super) fn others_end(&mut self) {
        if let Some(pid) = self.chance.pick(&self.pids()) {
            self.tell(|| format!("{pid} ends"));
            if self.movable.contains(&pid) {
                // Its group may have them as members by now, where a full disk kept them out.
                self.movable.extend(self.tree_of(pid));
            }
            simulated::with(|kernel| kernel.end(pid));
            self.members.remove(&pid);
            self.movable.remove(&pid);
        }
    }

    pub(super) fn others_write(&mut self) {
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
        // The headroom controller writes the quotas of batch groups, and overwrites others' after a
        // second at work.
        let is_quota = file.starts_with("cpu.max") || file.starts_with("cpu.cfs");
        let is_batch = |kept: &Kept| kept.promise.is_some_and(|promise| promise.is_idle);
        let has_batch = self.kept.get(&shown(&path)).is_some_and(is_batch);
        if is_quota && (is_own(&path) || has_batch) {
            return;
        }
        let below = path.join(file);
        let written = simulated::with(|kernel| kernel.others_write(&below, text));
        self.tell(|| format!("others write {}: {text}: {written:?}", below.display()));
        if written.is_ok() {
            self.counts.note("changes of others");
            self.is_disturbed = true;
            self.shadow.written(&path);
            self.suspend_around(&path);
        }
    }

    /// Suspends the promises of a cgroup that others have changed, until knobs are applied again.
    fn suspend_around(&mut self, path: &Path) {
        let name = shown(path);
        for (of, kept) in &mut self.kept {
            // An own cgroup may be a parent of own groups.
            let is_meant = *of == name || (is_own(path) && !of.starts_with('/'));
            if is_meant {
                (kept.promise, kept.is_respected) = (None, true);
            }
        }
    }

    pub(super) fn others_move(&mut self) {
        let (pid, place) = (
            self.chance.pick(&self.pids()),
            self.chance.pick(&self.places()),
        );
        let (Some(pid), Some(place)) = (pid, place) else {
            return;
        };
        self.tell(|| format!("others move {pid} to /{}", place.display()));
        // The owner moves the process into its group again.
        self.is_disturbed |= self.members.contains_key(&pid);
        let file = place.join("cgroup.procs");
        simulated::with(|kernel| {
            kernel.watches.retain(|watch| watch.pid != pid);
            let _ = kernel.others_write(&file, &pid.to_string());
        });
        self.members.remove(&pid);
        self.has_strays = true;
    }

    /// v1: renames a cgroup without others in it.
    fn others_rename(&mut self) {
        let names = ["d", "g"].map(Path::new);
        for (from, to) in [(names[0], names[1]), (names[1], names[0])] {
            if simulated::with(|kernel| kernel.others_rename(from, to)).is_ok() {
                self.tell(|| format!("others rename {} to {}", from.display(), to.display()));
                self.counts.note("renamed");
                self.shadow.rename(from, to);
                self.is_disturbed |= self.kept.remove(&shown(from)).is_some();
                return self.observe_sometimes();
            }
        }
    }

    pub(super) fn others_make_or_remove(&mut self) {
        if self.version == Version::V1 && self.chance.once_in(4) {
            return self.others_rename();
        }
        let Some(path) = self.chance.pick(&FOREIGN) else {
            return;
        };
        let path = Path::new(path);
        let is_there = simulated::with(|kernel| kernel.cgroups().inode(path).is_some());
        if !is_there {
            let made = simulated::with(|kernel| kernel.others_create(path));
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
        self.kept.remove(&shown(path));
        if self.chance.once_in(2) {
            let made = simulated::with(|kernel| kernel.others_create(path));
            self.tell(|| format!("and make it again: {made:?}"));
            self.shadow.renew(path);
        }
        self.observe_sometimes();
    }

    /// Lets the owner look, or not yet.
    fn observe_sometimes(&mut self) {
        if self.chance.once_in(2) {
            self.observe();
        }
    }

    /// Notes cgroups that others have removed and made again while the owner was at work. They have
    /// the values of new cgroups, whatever the owner was about to write.
    pub(super) fn note_remade(&mut self) {
        for path in simulated::with(|kernel| std::mem::take(&mut kernel.remade)) {
            self.tell(|| format!("others have made /{} again", path.display()));
            self.counts.note("remade within");
            self.is_half_done = true;
            self.shadow.renew_with_defaults(&path);
            self.kept.remove(&shown(&path));
        }
    }

    pub(super) fn others_give_cpu(&mut self) {
        let Some(path) = self.chance.pick(&["", "a", "e"]) else {
            return;
        };
        if self.version == Version::V1 {
            return;
        }
        let path = Path::new(path);
        let text = self.chance.pick(&["+cpu", "-cpu"]).unwrap_or("+cpu");
        // Others know that values vanish when they switch the controller off, and groups of ours
        // vanish with it.
        let is_used = text == "-cpu";
        if is_used && (!self.kept.is_empty() || !self.wanted.groups().is_empty()) {
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
}
