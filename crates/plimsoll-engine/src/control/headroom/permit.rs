//! Who may write a quota.

use std::path::PathBuf;

use super::announce::{Others, SidesLock};
use crate::runtime::RuntimeFolder;

/// Whose side it is, and so who puts its quota back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Keeper {
    /// This process, which tells the controller before it does.
    Here,
    /// The process that announces it in this file, which withdraws it before
    /// it does.
    Elsewhere(PathBuf),
}

/// What may be written, for as long as it lives: all sides of this process,
/// and those of others that are still announced.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    others: &'a Others,
    lock: Option<SidesLock>,
}

impl<'a> Permit<'a> {
    /// For sides of these keepers.
    pub fn take<'b>(
        others: &'a Others,
        runtime: &RuntimeFolder,
        mut keepers: impl Iterator<Item = &'b Keeper>,
    ) -> Self {
        let is_needed = keepers.any(|keeper| *keeper != Keeper::Here);
        // Where somebody has it, others' sides wait for the next time.
        let lock = is_needed.then(|| SidesLock::try_take(runtime).ok().flatten());
        let lock = lock.flatten();
        Self { others, lock }
    }

    /// Whether a side of that keeper may be written.
    pub fn allows(&self, keeper: &Keeper) -> bool {
        match keeper {
            Keeper::Here => true,
            Keeper::Elsewhere(path) => self.lock.is_some() && self.others.is_current(path),
        }
    }
}
