//! The interface of enforcers.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::action::{self, Action};
use crate::cgroup::CgroupEnforcer;
use crate::error::Result;
use crate::sample::{MachineSample, Sample};
use crate::undo::UndoReport;

/// Kernel interface of an enforcer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnforcerKind {
    /// Control groups of the stock kernel.
    #[default]
    Cgroup,
    /// BPF scheduler, with control groups for the functions that it leaves to them.
    SchedExt,
}

/// Result of [`Enforcer::tick`].
#[derive(Debug)]
pub struct Tick {
    /// Time of the next call; `None`: no work is pending. The error names a group that can no longer
    /// be controlled; it stays limited.
    pub next: Result<Option<Instant>>,
    /// Messages for users since the last call, one line each.
    pub messages: Vec<String>,
}

/// Backend that enforces knobs through one kernel interface.
pub trait Enforcer: Send {
    /// The enforcer of the groups' cgroups, which each group has whatever the interface.
    fn stock(&mut self) -> &mut CgroupEnforcer;

    /// Makes changes in this order. Each succeeds or fails by itself. Returns what each has undone.
    fn apply(&mut self, actions: &[Action]) -> Vec<Result<UndoReport>>;

    /// Does the work due by `now`.
    fn tick(&mut self, now: Instant) -> Tick;

    /// Measures a group, and, `with_tasks`, the usage rates of its tasks, if it has a cap. These cost
    /// some milliseconds for a group with many tasks.
    ///
    /// # Errors
    /// When there is no such group, or its cgroup is gone.
    fn sample(&mut self, name: &str, with_tasks: bool) -> Result<Sample>;

    /// Measures the whole machine, as far as all groups share it.
    fn sample_machine(&self) -> MachineSample;
}

impl Enforcer for CgroupEnforcer {
    fn stock(&mut self) -> &mut CgroupEnforcer {
        self
    }

    fn apply(&mut self, actions: &[Action]) -> Vec<Result<UndoReport>> {
        action::in_order(self, actions, Self::put_all, Self::make)
    }

    fn tick(&mut self, now: Instant) -> Tick {
        Tick {
            next: Self::tick(self, now),
            messages: Vec::new(),
        }
    }

    fn sample(&mut self, name: &str, with_tasks: bool) -> Result<Sample> {
        Self::sample(self, name, with_tasks)
    }

    fn sample_machine(&self) -> MachineSample {
        MachineSample {
            headroom: self.headroom(),
            scheduler: None,
        }
    }
}
