//! Groups of one enforcer, and those that an earlier owner has left.

mod add;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use plimsoll_cgroupfs::{Hierarchy, name, os};

use super::group::common::{Common, Context, OnMade};
use super::group::foreign::{folder_of, put_back};
use super::group::own::{self, Own};
use super::group::{Group, Origin};
use crate::control::headroom::HeadroomControl;
use crate::error::{EngineError, Result};
use crate::group_policy::{GroupPolicy, Selector};
use crate::journal::{self, Entry, Header, Journal, KeptJournal};
use crate::runtime::RuntimeFolder;
use crate::tasks::TaskId;
use crate::undo::{self, UndoReport};

/// Name of the journal of groups, or its beginning.
const JOURNAL: &str = "groups";

/// Groups by name, and the state that they share.
#[derive(Debug)]
pub(super) struct Table {
    pub context: Context,
    groups: BTreeMap<Box<str>, Group>,
    /// Groups that [`Self::tick`] has to visit: few of thousands.
    with_loops: BTreeSet<Box<str>>,
    /// Folders of foreign cgroups of an earlier owner that no group has taken over yet.
    left: BTreeSet<PathBuf>,
    /// Journal of an earlier owner that could neither be taken over nor undone.
    refused: Option<PathBuf>,
}

/// Returns the error for a name without a group.
pub(super) fn no_group(name: &str) -> EngineError {
    EngineError::NoTarget {
        target: name.into(),
        what: "group",
    }
}

impl Table {
    /// Reads the journals of earlier owners. Their groups are taken over when they are added; any
    /// that cannot be taken over is undone.
    ///
    /// # Errors
    /// When a journal cannot be read or begun.
    pub fn new(hierarchy: &Arc<Hierarchy>, runtime: &RuntimeFolder) -> Result<(Self, UndoReport)> {
        runtime.create()?;
        let left = left_journal(runtime)?;
        // The journal that was taken over is locked.
        let mut report = undo::recover(runtime, false)?;
        let path = Journal::path_of(runtime.path(), JOURNAL);
        let is_it = |(journal, _): &(Journal, _)| journal.path() == path;
        let is_taken = left.as_ref().is_some_and(is_it);
        let refused = (!is_taken && os::exists(&path)).then_some(path);
        let (journal, entries) = match left {
            Some(left) => left,
            None => {
                let mut name = JOURNAL.to_owned();
                if refused.is_some() {
                    name = format!("{name}{}", std::process::id());
                }
                let header = Header::new(&name, "groups of the owner");
                (Journal::create(runtime.path(), &header)?, Vec::new())
            }
        };
        if refused.is_some() {
            report.problems.push(format!(
                "a journal `{JOURNAL}` that cannot be undone is left; groups are in `{}` now",
                journal.path().display()
            ));
        }
        let journal = KeptJournal::of(journal, entries);
        let restores = journal.restores();
        let held = restores.held.keys();
        let left = held.filter(|folder| !restores.refused.contains(*folder));
        let left = left.cloned().collect();
        let table = Self {
            context: Context {
                hierarchy: Arc::clone(hierarchy),
                runtime: runtime.clone(),
                headroom: HeadroomControl::new(hierarchy),
                has_demand: false,
                journal,
            },
            groups: BTreeMap::new(),
            with_loops: BTreeSet::new(),
            left,
            refused,
        };
        Ok((table, report))
    }

    /// Returns whether there is such a group, or an earlier owner has left one.
    pub fn knows(&self, name: &str) -> bool {
        let own = &self.context.journal.restores().own;
        let is_there = self.groups.contains_key(name) || own.contains_key(name);
        let path = name::path_of(name.trim_start_matches('/'));
        let folder = self.context.hierarchy.mount_point().join(path);
        is_there || self.left.contains(&folder)
    }

    pub fn get(&self, name: &str) -> Result<&Group> {
        self.groups.get(name).ok_or_else(|| no_group(name))
    }

    /// Calls `act` for a group, whose loops may start or end.
    fn act<T>(
        &mut self,
        name: &str,
        act: impl FnOnce(&mut Group, &mut Context) -> Result<T>,
    ) -> Result<T> {
        let group = self.groups.get_mut(name).ok_or_else(|| no_group(name))?;
        let done = act(group, &mut self.context);
        let (name, has_loop) = (group.common.name.clone(), group.has_loop());
        self.note_loop(name, has_loop);
        done
    }

    fn note_loop(&mut self, name: Box<str>, has_loop: bool) {
        if has_loop {
            self.with_loops.insert(name);
        } else {
            self.with_loops.remove(&name);
        }
    }

    fn insert(&mut self, group: Group) {
        let name = group.common.name.clone();
        self.note_loop(name.clone(), group.has_loop());
        self.groups.insert(name, group);
    }

    /// Puts groups into force; each succeeds or fails by itself.
    pub fn put_all(&mut self, groups: &[&GroupPolicy], on_made: OnMade<'_>) -> Vec<Result<()>> {
        let (mut foreign, mut results, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (index, policy) in groups.iter().copied().enumerate() {
            let is_there = self.groups.contains_key(&*policy.name);
            results.push(match policy.selector {
                _ if is_there => {
                    let done = self.change(policy, &mut *on_made);
                    if matches!(done, Err(EngineError::NotEnforceable { .. })) {
                        refused.push(index);
                    }
                    done
                }
                Selector::Cgroup(_) => {
                    foreign.push((index, policy));
                    Ok(())
                }
                Selector::Process(first) => self.add_own(policy, first, &mut *on_made),
            });
        }
        // Foreign groups are added all at once.
        let policies: Vec<&GroupPolicy> = foreign.iter().map(|(_, policy)| *policy).collect();
        let done = self.add_foreign(&policies);
        for ((index, _), done) in foreign.into_iter().zip(done) {
            results[index] = done;
        }
        // On cgroup v1 the kernel takes some quotas only after those of cgroups above or inside.
        let mut nr_tried = groups.len();
        while refused.len() < std::mem::replace(&mut nr_tried, refused.len()) {
            refused.retain(|index| {
                results[*index] = self.change(groups[*index], &mut *on_made);
                results[*index].is_err()
            });
        }
        results
    }

    fn change(&mut self, policy: &GroupPolicy, on_made: OnMade<'_>) -> Result<()> {
        self.act(&policy.name, |group, context| {
            group.common.is_scheduled = policy.is_scheduled;
            group.change(&policy.knobs, context, on_made)
        })
    }

    fn add_own(&mut self, policy: &GroupPolicy, first: TaskId, on_made: OnMade<'_>) -> Result<()> {
        if self.adopt(policy)? {
            // If that fails, the group stays limited as it was.
            return self.change(policy, on_made);
        }
        self.create(policy, first, on_made)
    }

    fn create(&mut self, policy: &GroupPolicy, first: TaskId, on_made: OnMade<'_>) -> Result<()> {
        let (common, own) = Own::create(policy, first, &mut self.context, on_made)?;
        let mut group = of_own(common, own);
        match group.start_loops(&self.context) {
            Ok(()) => {
                self.insert(group);
                Ok(())
            }
            Err(error) => {
                group.undo(&mut self.context, &mut UndoReport::default());
                Err(error)
            }
        }
    }

    /// Takes over a group of an earlier owner; one that cannot be continued is undone. `false`:
    /// there is no such group, or it was undone.
    fn adopt(&mut self, policy: &GroupPolicy) -> Result<bool> {
        let name = &policy.name;
        let Some(left) = self.context.journal.restores().own.get(name) else {
            return Ok(false);
        };
        let hierarchy = &self.context.hierarchy;
        if let Some((common, own)) = Own::adopt(hierarchy, name, left, policy.is_scheduled) {
            let gone = left.gone(common.layout.generation).into_iter();
            let gone = gone.map(|generation| Entry::Replaced {
                group: name.clone(),
                generation,
            });
            let gone: Vec<Entry> = gone.collect();
            self.context.journal.note(gone);
            self.insert(of_own(common, own));
            return Ok(true);
        }
        let mut report = UndoReport::default();
        own::undo(name, &mut self.context, &mut report);
        match self.is_left_own(name) {
            true => Err(EngineError::Group {
                name: name.clone(),
                problem: format!("is left from before: {}", report.problems.join("; ")),
            }),
            false => Ok(false),
        }
    }

    /// Returns whether a group of our own is in the journal alone: an earlier owner has left it, or
    /// the kernel did not let us undo it.
    fn is_left_own(&self, name: &str) -> bool {
        let own = &self.context.journal.restores().own;
        own.contains_key(name) && !self.groups.contains_key(name)
    }

    /// Returns the folder of the outermost cgroup of an own group that was left and can be
    /// continued.
    pub fn left_folder(&self, name: &str) -> Option<PathBuf> {
        let own = self.context.journal.restores().own.get(name);
        let own = own.filter(|_| !self.groups.contains_key(name))?;
        let layout = own::adopt::whole_layout(&self.context.hierarchy, name, own)?;
        Some(layout.top.cpu_file(""))
    }

    /// Puts back the groups of an earlier owner that were not taken over and that are not wanted. To
    /// be called when all groups have been added. A wanted one stays limited as it was left, until
    /// it is added or removed.
    pub fn finish_adoption(&mut self, wanted: &BTreeSet<String>) -> UndoReport {
        let mut report = UndoReport::default();
        self.put_left_back(|name| !wanted.contains(name), &mut report);
        if let Err(error) = self.leave_groups() {
            report.problems.push(error.to_string());
        }
        let mut unwanted: Vec<String> = Vec::new();
        unwanted.extend(self.context.journal.restores().own.keys().cloned());
        unwanted.retain(|name| self.is_left_own(name) && !wanted.contains(name));
        for name in unwanted {
            own::undo(&name, &mut self.context, &mut report);
        }
        if let Err(error) = self.context.runtime.release_parents() {
            report.problems.push(error.to_string());
        }
        report
    }

    /// Moves this process out of groups that it took over: a command of one of them may have
    /// started it, and no group is to limit the owner.
    fn leave_groups(&self) -> Result<()> {
        let pid = std::process::id().cast_signed();
        // The command of one group may have come from another.
        for _ in 0..self.groups.len() {
            let place = self.context.hierarchy.cgroup_of(pid)?;
            let of_group = |group: &&Group| place.starts_with(group.cgroup().path());
            let mut own = self.groups.values().filter(|group| !group.is_foreign());
            let own_restores = &self.context.journal.restores().own;
            let around = own.find(of_group);
            match around.and_then(|group| own_restores.get(&*group.common.name)) {
                Some(own) => undo::move_back(&own.evacuate_to, pid)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Puts back the foreign cgroups of an earlier owner whose shown path `is_meant`.
    fn put_left_back(&mut self, is_meant: impl Fn(&str) -> bool, report: &mut UndoReport) {
        let left = std::mem::take(&mut self.left).into_iter();
        let (folders, rest): (Vec<_>, Vec<_>) =
            left.partition(|folder| is_meant(&self.shown(folder)));
        self.left = rest.into_iter().collect();
        self.put_back_with_refused(&folders, report);
        let undone = folders.iter().map(|folder| self.shown(folder));
        report.undone.extend(undone);
    }

    /// Puts foreign cgroups back, and those that the kernel has refused so far: it may take some
    /// values only after others. Not while a change is planned, which may rest on a refused value.
    fn put_back_with_refused(&mut self, folders: &[PathBuf], report: &mut UndoReport) {
        let refused = &self.context.journal.restores().refused;
        let all: BTreeSet<PathBuf> = refused.iter().chain(folders).cloned().collect();
        let all: Vec<PathBuf> = all.into_iter().collect();
        put_back(&all, &mut self.context, report);
    }

    /// Returns the path of a cgroup, by its folder, as users see it.
    fn shown(&self, folder: &Path) -> String {
        let path = folder.strip_prefix(self.context.hierarchy.mount_point());
        name::shown(path.unwrap_or(folder))
    }

    /// Returns external changes of a group's files that are new.
    pub fn audit(&mut self, name: &str) -> Result<Vec<String>> {
        self.act(name, |group, context| group.audit(context))
    }

    pub fn take_in(&mut self, name: &str, pid: i32) -> Result<()> {
        self.act(name, |group, context| group.take_in(pid, context))
    }

    /// Runs the loops that are due, and the headroom controller. Returns when to call again.
    pub fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        let mut next: Option<Instant> = None;
        let mut first_error = None;
        for name in &self.with_loops {
            let Some(group) = self.groups.get_mut(name) else {
                continue;
            };
            match group.tick(now) {
                Ok(due) => next = [next, due].into_iter().flatten().min(),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match self.context.headroom.tick(now) {
            Ok(due) => next = [next, due].into_iter().flatten().min(),
            Err(error) => first_error = first_error.or(Some(error)),
        }
        first_error.map_or(Ok(next), Err)
    }

    pub fn remove(&mut self, name: &str) -> Result<UndoReport> {
        let mut report = UndoReport::default();
        if self.is_left_own(name) {
            own::undo(name, &mut self.context, &mut report);
            return Ok(report);
        }
        let is_left = self.left.iter().any(|folder| self.shown(folder) == name);
        if is_left && !self.groups.contains_key(name) {
            self.put_left_back(|left| left == name, &mut report);
            return Ok(report);
        }
        let group = self.groups.remove(name).ok_or_else(|| no_group(name))?;
        self.with_loops.remove(name);
        if group.is_foreign() {
            // First, because the controller must not write a quota that is put back.
            self.context.headroom.remove(name);
            self.put_back_with_refused(&[folder_of(group.cgroup())], &mut report);
            report.undone.push(name.to_owned());
        } else {
            group.undo(&mut self.context, &mut report);
        }
        Ok(report)
    }

    /// Puts everything back, also the changes that earlier owners have left: all that is in the
    /// journal.
    pub fn undo(&mut self) -> UndoReport {
        let mut report = UndoReport::default();
        // First, because the controller must not write a quota that is put back.
        self.context.headroom.clear();
        self.with_loops.clear();
        let foreign = self.groups.values().filter(|group| group.is_foreign());
        let names = foreign.map(|group| String::from(&*group.common.name));
        report.undone.extend(names);
        let left = self.left.iter().map(|folder| self.shown(folder));
        report.undone.extend(left);
        self.groups.clear();
        self.left.clear();
        if let Some(journal) = self.context.journal.end()
            && let Err(error) = undo::undo_groups(journal, &mut report)
        {
            report.problems.push(error.to_string());
        }
        if let Some(path) = self.refused.take() {
            let undone = Journal::take_over(&path).and_then(|journal| match journal {
                Some(journal) => undo::undo_journal(journal, &mut report),
                None => Ok(()),
            });
            report.problems.extend(undone.err().map(|e| e.to_string()));
        }
        if let Err(error) = self.context.runtime.release_parents() {
            report.problems.push(error.to_string());
        }
        report
    }

    /// Forgets all groups, and closes their journal, which is removed if it is not needed.
    pub fn leave(&mut self) {
        let restores = self.context.journal.restores();
        let is_needed = !restores.held.is_empty() || !restores.own.is_empty();
        // First, so that the next owner of the quotas finds them as they are.
        self.context.headroom.clear();
        self.context.has_demand = false;
        self.with_loops.clear();
        self.groups.clear();
        self.left.clear();
        if let (Some(journal), false) = (self.context.journal.end(), is_needed) {
            // A journal that cannot be removed stays for the next owner.
            let _ = undo::undo_groups(journal, &mut UndoReport::default());
        }
    }
}

fn of_own(common: Common, own: Own) -> Group {
    Group {
        common,
        origin: Origin::Own(own),
    }
}

/// Takes over the journal that an earlier owner has left in this boot, with its entries. `None`:
/// there is none, or it is of another version.
fn left_journal(runtime: &RuntimeFolder) -> Result<Option<(Journal, Vec<Entry>)>> {
    for path in journal::list(runtime.path())? {
        let stem = path.file_stem().unwrap_or_default();
        if !stem.to_string_lossy().starts_with(JOURNAL) {
            continue;
        }
        let Some(mut journal) = Journal::take_over(&path)? else {
            continue;
        };
        // A damaged one is taken over as far as it is valid: no limit is lifted because of it.
        let Ok(parsed) = journal.read_valid() else {
            continue;
        };
        let Some(header) = parsed.header else {
            continue;
        };
        if header.boot.is_some() && !header.is_of_another_boot() {
            return Ok(Some((journal, parsed.entries)));
        }
    }
    Ok(None)
}
