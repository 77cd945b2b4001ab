//! The enforcer for stock kernels.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::group::{CpuGroup, Membership};
use super::hierarchy::Hierarchy;
use super::managed::ManagedGroup;
use crate::control::headroom::HeadroomDuty;
use crate::enforcer::{Enforcer, HeadroomSample, Sample};
use crate::error::{EngineError, Result};
use crate::host::Capabilities;
use crate::journal::Entry;
use crate::knobs::Knobs;
use crate::policy_set::GroupPolicy;
use crate::runtime::RuntimeFolder;
use crate::undo::{self, UndoReport};

/// Makes knobs come true through control groups, version 1 or 2.
#[derive(Debug)]
pub struct CgroupEnforcer {
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    capabilities: Capabilities,
    /// Before the groups: it must be dropped before they put quotas back.
    duty: HeadroomDuty,
    groups: Vec<ManagedGroup>,
}

fn no_group(name: &str) -> EngineError {
    EngineError::NoTarget {
        target: name.into(),
        what: "group",
    }
}

impl CgroupEnforcer {
    /// Checks that this process may change anything, and undoes what earlier
    /// ones left behind.
    ///
    /// # Errors
    /// When there is no permission; it says what would give it.
    pub fn start(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
    ) -> Result<(Self, UndoReport)> {
        hierarchy.check_permission()?;
        runtime.create()?;
        let left_behind = undo::recover(runtime, &runtime.lock()?, false)?;
        let enforcer = Self {
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            capabilities: Capabilities::of_this_host(hierarchy),
            duty: HeadroomDuty::new(hierarchy, runtime),
            groups: Vec::new(),
        };
        Ok((enforcer, left_behind))
    }

    fn group(&self, name: &str) -> Result<&ManagedGroup> {
        let group = self.groups.iter().find(|group| group.name() == name);
        group.ok_or_else(|| no_group(name))
    }

    fn group_mut(&mut self, name: &str) -> Result<&mut ManagedGroup> {
        let group = self.groups.iter_mut().find(|group| group.name() == name);
        group.ok_or_else(|| no_group(name))
    }

    /// A group's outermost cgroup.
    ///
    /// # Errors
    /// When there is no such group.
    pub fn cgroup(&self, name: &str) -> Result<&CpuGroup> {
        Ok(self.group(name)?.cgroup())
    }

    /// Writes into a group's journal what another enforcer is about to do
    /// with it, so that it is undone before the group is.
    ///
    /// # Errors
    /// When there is no such group, or the journal cannot be kept.
    pub fn record(&mut self, name: &str, entries: &[Entry]) -> Result<()> {
        self.group_mut(name)?.record(entries)
    }
}

impl Enforcer for CgroupEnforcer {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn add(&mut self, group: &GroupPolicy, subject: &str) -> Result<()> {
        let managed = ManagedGroup::create(
            &self.hierarchy,
            &self.runtime,
            group,
            subject,
            &mut self.duty,
        )?;
        self.groups.push(managed);
        Ok(())
    }

    fn add_process(&mut self, name: &str, pid: i32) -> Result<()> {
        self.group_mut(name)?.take_in(pid)
    }

    fn remove(&mut self, name: &str) -> Result<UndoReport> {
        let index = self.groups.iter().position(|group| group.name() == name);
        let mut group = self.groups.remove(index.ok_or_else(|| no_group(name))?);
        let mut report = UndoReport::default();
        group.undo(&mut self.duty, &mut report);
        Ok(report)
    }

    fn membership(&self, name: &str) -> Result<Membership> {
        self.group(name)?.membership()
    }

    fn knobs(&self, name: &str) -> Result<&Knobs> {
        Ok(self.group(name)?.knobs())
    }

    fn shown_path(&self, name: &str) -> Result<PathBuf> {
        Ok(self.group(name)?.shown_path())
    }

    fn change(&mut self, name: &str, knobs: &Knobs) -> Result<()> {
        let group = self.groups.iter_mut().find(|group| group.name() == name);
        let group = group.ok_or_else(|| no_group(name))?;
        group.change(knobs, &mut self.duty)
    }

    fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        let mut next: Option<Instant> = None;
        let mut first_error = None;
        for group in &mut self.groups {
            match group.tick(now) {
                Ok(due) => next = [next, due].into_iter().flatten().min(),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match self.duty.tick(now) {
            Ok(due) => next = [next, due].into_iter().flatten().min(),
            Err(error) => first_error = first_error.or(Some(error)),
        }
        first_error.map_or(Ok(next), Err)
    }

    fn sample(&self, name: &str) -> Result<Sample> {
        self.group(name)?.sample(&self.duty)
    }

    fn usage_usec(&self, name: &str) -> Result<u64> {
        self.group(name)?.usage_usec()
    }

    fn headroom(&self) -> Option<HeadroomSample> {
        self.duty.sample()
    }

    fn is_populated(&self, name: &str) -> Result<bool> {
        self.group(name)?.is_populated()
    }

    fn undo(&mut self) -> UndoReport {
        let mut report = UndoReport::default();
        while let Some(mut group) = self.groups.pop() {
            group.undo(&mut self.duty, &mut report);
        }
        report
    }
}
