//! Knobs of a cgroup that somebody else made.
//!
//! Only what the kernel keeps by itself can be set there: nothing of ours
//! runs on afterwards. Every old value is in a journal that outlives this
//! process; `restore` puts them back.

use std::path::PathBuf;
use std::sync::Arc;

use super::group::{CpuGroup, WEIGHT_BACKGROUND, WEIGHT_DEFAULT};
use super::hierarchy::Hierarchy;
use super::layout::cap_bandwidth;
use super::{files, write_text};
use crate::error::{EngineError, Result};
use crate::journal::{self, Entry, Header, Journal};
use crate::knobs::{Bandwidth, Class, Knobs};
use crate::runtime::RuntimeFolder;
use crate::tasks;
use crate::undo::{self, UndoReport};

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
    let mut done = Vec::new();
    let result = write_all(&group, knobs, &mut journal, &mut done);
    if result.is_err() {
        undo::undo_entries(&done, &mut UndoReport::default());
        if earlier.is_empty() {
            journal.finish()?;
        }
    }
    result
}

/// A cgroup of somebody else's whose knobs are changed for as long as this
/// process lives.
#[derive(Debug)]
pub struct HeldCgroup {
    group: CpuGroup,
    /// `None` once it is undone.
    journal: Option<Journal>,
}

impl HeldCgroup {
    /// Sets knobs of the cgroup at `path`, below the mount point.
    ///
    /// # Errors
    /// As [`set_foreign`]; when one of that name is held already.
    pub fn hold(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
        name: &str,
        path: PathBuf,
        knobs: &Knobs,
    ) -> Result<Self> {
        check_foreign(knobs)?;
        hierarchy.check_writable(&path)?;
        let group = CpuGroup::at(hierarchy, path);
        let _lock = runtime.lock()?;
        let header = Header {
            version: journal::VERSION,
            name: name.into(),
            pid: std::process::id(),
            persistent: false,
            subject: format!("/{}", group.path().display()),
            knobs: knobs.clone(),
        };
        let mut held = Self {
            group,
            journal: Some(Journal::create(runtime.path(), &header)?),
        };
        let result = held.set(knobs);
        if result.is_err() {
            held.undo(&mut UndoReport::default());
        }
        result.map(|()| held)
    }

    /// Sets other knobs; what they were at first is what they will be.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set(&mut self, knobs: &Knobs) -> Result<()> {
        match &mut self.journal {
            Some(journal) => write_all(&self.group, knobs, journal, &mut Vec::new()),
            None => Ok(()),
        }
    }

    /// Writes down what is about to be done to it.
    ///
    /// # Errors
    /// When the journal cannot be kept.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
        match &mut self.journal {
            Some(journal) => journal.record(entries),
            None => Ok(()),
        }
    }

    /// The cgroup.
    pub fn cgroup(&self) -> &CpuGroup {
        &self.group
    }

    /// Puts everything back.
    pub fn undo(&mut self, report: &mut UndoReport) {
        if let Some(journal) = self.journal.take()
            && let Err(error) = undo::undo_journal(journal, report)
        {
            report.problems.push(error.to_string());
        }
    }
}

impl Drop for HeldCgroup {
    /// Also on a panic.
    fn drop(&mut self) {
        self.undo(&mut UndoReport::default());
    }
}

/// The journal of earlier `set`s of this target, continued, or a new one.
fn open_journal(runtime: &RuntimeFolder, group: &CpuGroup, knobs: &Knobs) -> Result<Journal> {
    let name = journal_name(group.path());
    let existing = runtime.path().join(format!("{name}.journal"));
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

/// Whether the kernel by itself can keep these knobs of one cgroup.
///
/// # Errors
/// Names the first that it cannot.
pub fn check_foreign(knobs: &Knobs) -> Result<()> {
    let needs = [
        ("headroom", knobs.headroom.map(|v| v.to_string())),
        ("soft-cap", knobs.soft_cap.map(|v| v.to_string())),
        ("per-task", knobs.per_task.then(|| "true".to_owned())),
    ];
    for (knob, value) in needs {
        if let Some(value) = value {
            let reason = "it takes a controller that keeps running; on a cgroup of somebody \
                          else's only class, nice, weight, quota, burst and cap can be set \
                          (or start the work with `plimsoll run`)";
            return Err(EngineError::NotEnforceable {
                knob,
                value,
                reason: reason.into(),
            });
        }
    }
    if let (Some(quota), Some(cap)) = (knobs.quota, knobs.cap) {
        return Err(EngineError::NotEnforceable {
            knob: "cap",
            value: cap.to_string(),
            reason: format!("a cgroup has one quota, and that is {quota}"),
        });
    }
    Ok(())
}

/// One write to a file that was there before, journalled first.
fn write_journalled(
    path: PathBuf,
    new: String,
    journal: &mut Journal,
    done: &mut Vec<Entry>,
) -> Result<()> {
    let old = files::read_text(&path)?;
    if old == new {
        return Ok(());
    }
    let entry = Entry::Write {
        path: path.clone(),
        old,
        new: new.clone(),
    };
    journal.record(std::slice::from_ref(&entry))?;
    done.push(entry);
    write_text(&path, &new)
}

/// The kernel forgets the weight of a cgroup that is marked idle, and gives
/// it the default when the mark is cleared: from there it has to be put back.
fn remember_weight(group: &CpuGroup, journal: &mut Journal, done: &mut Vec<Entry>) -> Result<()> {
    let (path, new) = group.weight_setting(WEIGHT_DEFAULT);
    let old = files::read_text(&path)?;
    if old != new {
        let entry = Entry::Write { path, old, new };
        journal.record(std::slice::from_ref(&entry))?;
        done.push(entry);
    }
    Ok(())
}

fn write_all(
    group: &CpuGroup,
    knobs: &Knobs,
    journal: &mut Journal,
    done: &mut Vec<Entry>,
) -> Result<()> {
    let mut writes = Vec::new();
    let background = knobs.class.map(|class| class == Class::Batch);
    match (background, group.has_idle()) {
        (Some(background), true) => {
            if background && !group.read_idle()? {
                remember_weight(group, journal, done)?;
            }
            writes.push((group.cpu_file("cpu.idle"), u8::from(background).to_string()));
        }
        (Some(true), false) => writes.push(group.weight_setting(WEIGHT_BACKGROUND)),
        _ => (),
    }
    if let Some(weight) = knobs.weight {
        if background == Some(true) || (background.is_none() && group.read_idle()?) {
            return Err(EngineError::NotEnforceable {
                knob: "weight",
                value: weight.to_string(),
                reason: "an idle cgroup has no weight".into(),
            });
        }
        writes.push(group.weight_setting(weight.weight));
    }
    let old = group.read_bandwidth()?;
    if let Some(new) = wanted_bandwidth(knobs, &old) {
        writes.extend(group.bandwidth_steps(&old, &new));
    }
    for (path, text) in writes {
        write_journalled(path, text, journal, done)?;
    }
    let Some(nice) = knobs.nice else {
        return Ok(());
    };
    for tid in group.all_processes()?.into_iter().flat_map(tasks::threads) {
        let (Some(start_time), Ok(old)) = (tasks::start_time(tid), tasks::nice(tid)) else {
            continue;
        };
        let entry = Entry::Renice {
            tid,
            start_time,
            old,
            new: Some(nice.nice),
        };
        journal.record(std::slice::from_ref(&entry))?;
        done.push(entry);
        tasks::set_nice(tid, nice.nice)?;
    }
    Ok(())
}

/// What the kernel is to have. A burst that is not spoken of stays, as far as
/// the kernel takes it beside the new quota.
fn wanted_bandwidth(knobs: &Knobs, old: &Bandwidth) -> Option<Bandwidth> {
    match (knobs.quota, knobs.cap) {
        (Some(quota), _) => {
            let kept_ns = old.burst_ns.min(quota.quota_ns.unwrap_or(0));
            Some(Bandwidth {
                quota,
                burst_ns: knobs.burst.map_or(kept_ns, |burst| burst.burst_ns),
            })
        }
        (None, Some(cap)) => Some(cap_bandwidth(cap)),
        (None, None) => None,
    }
}
