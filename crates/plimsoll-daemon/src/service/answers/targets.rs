//! The group, cgroup or process that a client names.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::name;
use plimsoll_engine::tasks::TaskId;
use plimsoll_engine::{EngineError, own_groups};

use super::super::Service;
use super::super::command::CommandGroup;
use super::super::members::cgroup_of;
use super::handles::{cgroup_of_handle, process_of};
use super::{Refused, one_line};
use crate::config::PROCESS_GROUP;

pub(super) enum FoundTarget {
    /// A group of the file.
    Rule(String),
    /// A foreign cgroup, by its path with a `/` in front.
    Cgroup(String),
    /// The group of a command or of a process.
    Command(String),
    /// A process without a group of its own.
    Process(TaskId),
}

pub(super) fn group_of(pid: i32) -> String {
    format!("{PROCESS_GROUP}{pid}")
}

impl Service {
    /// Finds the target that a client names. A process needs a handle; for a cgroup, a handle
    /// counts more than the path.
    pub(super) fn find(
        &self,
        name: &str,
        handle: Option<BorrowedFd<'_>>,
    ) -> Result<FoundTarget, Refused> {
        if name.parse::<i32>().is_ok() {
            let process = process_of(name, handle)?;
            let own = group_of(process.tid);
            // The pid may have been reused while children of the first process still run.
            let is_first = |command: &CommandGroup| command.first == process;
            if self.requests.command(&own).is_some_and(is_first) {
                return Ok(FoundTarget::Command(own));
            }
            return Ok(FoundTarget::Process(process));
        }
        if self.requests.command(name).is_some() {
            return Ok(FoundTarget::Command(name.to_owned()));
        }
        if self.file.rule(name).is_some() {
            return Ok(FoundTarget::Rule(name.to_owned()));
        }
        let no_such = || format!("{name}: no such group, cgroup or process");
        if !name.starts_with('/') {
            return Err(no_such());
        }
        let mount_point = self.hierarchy.cpu_folder(Path::new(""));
        if name.trim_matches('/').is_empty() || Path::new(name) == mount_point {
            return Err(format!("{name}: is the root, which has no limits"));
        }
        let path = self.path_of(name, handle).ok_or_else(no_such)?;
        if own_groups::is_own(&self.hierarchy, &path) {
            let group = self.group_at(&path).map(FoundTarget::Command);
            return group
                .ok_or_else(|| format!("{name}: is Plimsoll's own; allowed: a group in it"));
        }
        let path = name::text_of(path);
        if path == "/" {
            return Err(format!("{name}: is the root, which has no limits"));
        }
        Ok(FoundTarget::Cgroup(path))
    }

    /// The own group whose cgroup is at, or above, a path.
    fn group_at(&self, path: &Path) -> Option<String> {
        let mut enforcer = self.enforcement.enforcer();
        let own = self.table.entries().filter(|(_, entry)| {
            let desired = entry.desired.as_ref();
            desired.is_some_and(|desired| !desired.is_foreign())
        });
        let is_at = |name: &&String| {
            let shown = enforcer.stock().shown_path(name);
            shown.is_ok_and(|shown| path.starts_with(shown))
        };
        own.map(|(name, _)| name).find(is_at).cloned()
    }

    /// The path of a cgroup that a client names, with a `/` in front.
    fn path_of(&self, name: &str, handle: Option<BorrowedFd<'_>>) -> Option<PathBuf> {
        let named = self.hierarchy.resolve(name).ok();
        let path = match handle {
            Some(handle) => cgroup_of_handle(&self.hierarchy, named, handle),
            None => named,
        };
        Some(Path::new("/").join(path?))
    }

    /// Checks that a target is no cgroup that a command has made inside of its group: these have no
    /// limits of their own.
    ///
    /// # Errors
    /// Names the group.
    pub(super) fn check_is_whole(
        &self,
        target: &str,
        handle: Option<BorrowedFd<'_>>,
        found: &FoundTarget,
    ) -> Result<(), Refused> {
        let (FoundTarget::Command(name), true) = (found, target.starts_with('/')) else {
            return Ok(());
        };
        let path = self.path_of(target, handle).unwrap_or_default();
        match self.enforcement.enforcer().stock().is_inside(name, &path) {
            true => Err(format!(
                "{target}: is inside of group `{name}`, and gets no limits of its own; allowed: \
                 plimsoll set {name}"
            )),
            false => Ok(()),
        }
    }

    /// The names of a target in the group table.
    pub(super) fn names_of(&self, found: &FoundTarget) -> Vec<String> {
        match found {
            FoundTarget::Command(name) => vec![name.clone()],
            FoundTarget::Cgroup(path) => vec![path.clone()],
            FoundTarget::Rule(rule) => self.table.names_of_rule(rule),
            FoundTarget::Process(process) => self.names_of_process(process.tid),
        }
    }

    /// The reason why a group of the file has no cgroup. `None`: it has one, or is no such group.
    pub(super) fn without_cgroups(&self, found: &FoundTarget) -> Option<String> {
        let FoundTarget::Rule(name) = found else {
            return None;
        };
        let desired = self.desired_of(found)?;
        self.table.names_of_rule(name).is_empty().then(|| {
            format!(
                "{name}: no cgroup matches it now, or each belongs to a group before it in the \
                 file; its knobs: {}",
                desired.knobs()
            )
        })
    }

    /// Returns the group of a process's cgroup, or of the nearest cgroup above with a group.
    pub(super) fn names_of_process(&self, pid: i32) -> Vec<String> {
        let Some(path) = cgroup_of(&self.hierarchy, pid) else {
            return Vec::new();
        };
        if own_groups::is_own(&self.hierarchy, &path) {
            return self.group_at(&path).into_iter().collect();
        }
        let above = path.ancestors().map(name::text_of);
        let names = above.filter(|path| self.table.get(path).is_some());
        names.take(1).collect()
    }

    /// Checks that a process is in no own group but the one of this name: in another, it would
    /// leave that one's limits.
    ///
    /// # Errors
    /// Names the other group.
    pub(super) fn check_in_no_other(
        &self,
        target: &str,
        pid: i32,
        name: &str,
    ) -> Result<(), Refused> {
        let path = cgroup_of(&self.hierarchy, pid);
        let path = path.filter(|path| own_groups::is_own(&self.hierarchy, path));
        match path.and_then(|path| self.group_at(&path)) {
            Some(other) if other != name => Err(one_line(EngineError::CgroupTaken {
                target: target.into(),
                name: other,
            })),
            _ => Ok(()),
        }
    }
}
