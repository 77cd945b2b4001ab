//! Knobs of a cgroup that somebody else made, set once and for all.
//!
//! Only what the kernel keeps by itself can be set there: nothing of ours
//! runs on afterwards. Every old value is in a journal that outlives this
//! process; `restore` puts them back.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy};

use super::held::{check_foreign, set_once};
use crate::error::{EngineError, Result};
use crate::journal::{self, Header, Journal};
use crate::knobs::Knobs;
use crate::runtime::RuntimeFolder;

/// The journal's name for a target.
fn journal_name(path: &std::path::Path) -> String {
    let name: String = path
        .to_string_lossy()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '+'
            }
        })
        .collect();
    format!("set+{name}")
}

/// Sets knobs of the cgroup at `path`, below the mount point. With `old`
/// journals of the same target the values that were there at first are kept.
///
/// # Errors
/// When a knob needs a controller that keeps running, or the kernel refuses;
/// then nothing is changed.
pub fn set_foreign(
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
    path: PathBuf,
    knobs: &Knobs,
) -> Result<()> {
    check_foreign(knobs)?;
    let group = CpuGroup::at(hierarchy, path);
    if !group.cpu_file("cpu.stat").exists() || group.read_weight().is_err() {
        let target = group.path().display().to_string();
        return Err(EngineError::NoTarget {
            target,
            what: "cgroup with a cpu controller",
        });
    }
    hierarchy.check_writable(group.path())?;
    runtime.create()?;
    let _lock = runtime.lock()?;
    let mut journal = open_journal(runtime, &group, knobs)?;
    let (_, earlier) = journal.read()?;
    let result = set_once(group, knobs, &mut journal);
    if result.is_err() && earlier.is_empty() {
        journal.finish()?;
    }
    result
}

/// The journal of earlier `set`s of this target, continued, or a new one.
fn open_journal(runtime: &RuntimeFolder, group: &CpuGroup, knobs: &Knobs) -> Result<Journal> {
    let name = journal_name(group.path());
    let existing = Journal::path_of(runtime.path(), &name);
    if let Some(journal) = Journal::take_over(&existing)? {
        return Ok(journal);
    }
    let header = Header {
        version: journal::VERSION,
        name,
        pid: std::process::id(),
        persistent: true,
        subject: format!("/{}", group.path().display()),
        knobs: knobs.clone(),
    };
    Journal::create(runtime.path(), &header)
}
