//! Tracked files of a cgroup, and their original contents.

use std::path::Path;

use plimsoll_cgroupfs::{CpuGroup, WEIGHT_DEFAULT, os, read_text};

use crate::error::Result;
use crate::journal::{Entry, FileRestore};
use crate::knobs::Bandwidth;

/// Way in which the text of a tracked file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeping {
    /// Text that we wrote, unless somebody else has written since.
    Written,
    /// Weight of an idle cgroup, which the kernel has forgotten.
    Remembered,
    /// Text that a loop of ours writes all the time.
    Driven,
}

#[derive(Debug, Clone)]
pub(super) struct TrackedFile {
    pub name: Box<str>,
    /// Original text.
    pub old: Box<str>,
    /// Text that we wrote last.
    pub ours: Box<str>,
    pub keeping: Keeping,
    /// External text that was last reported.
    pub reported: Option<Box<str>>,
}

/// Tracked files of a cgroup, which undo puts back.
#[derive(Debug, Clone, Default)]
pub(super) struct Values {
    pub files: Vec<TrackedFile>,
    /// Original bandwidth, if the quota is among the files.
    pub bandwidth: Option<Bandwidth>,
    /// Whether the loss of the files has been reported.
    loss_is_reported: bool,
}

impl Values {
    pub fn get(&self, path: &Path) -> Option<&TrackedFile> {
        let name = path.file_name()?.to_str()?;
        self.files.iter().find(|file| &*file.name == name)
    }

    /// Returns the values of a cgroup of our own: the quota alone, as one that the headroom
    /// controller writes. Nothing of such a cgroup is put back.
    pub fn of_own(group: &CpuGroup) -> Self {
        let (quota, _) = group.quota_setting(&Bandwidth::unlimited().into());
        let name = quota.file_name().unwrap_or_default().to_string_lossy();
        let quota = TrackedFile {
            name: name.into(),
            old: "".into(),
            ours: "".into(),
            keeping: Keeping::Driven,
            reported: None,
        };
        Self {
            files: vec![quota],
            ..Self::default()
        }
    }

    /// Returns the data to put the files back.
    pub fn restores(&self, group: &CpuGroup) -> Vec<FileRestore> {
        let restore = |file: &TrackedFile| FileRestore {
            path: group.cpu_file(&file.name),
            inode: group.inode(),
            old: file.old.clone().into(),
            ours: vec![file.ours.clone().into()],
            driven: file.keeping == Keeping::Driven,
        };
        self.files.iter().map(restore).collect()
    }

    /// Returns the weight that the cgroup had at first.
    pub fn weight_at_first(&self, group: &CpuGroup) -> Result<u32> {
        let (path, _) = group.weight_setting(WEIGHT_DEFAULT);
        match self.get(&path) {
            Some(file) => Ok(group.weight_of(&path, &file.old)?),
            None => Ok(group.read_weight()?),
        }
    }

    /// Returns external changes that were not reported yet.
    pub fn audit(&mut self, group: &CpuGroup) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut has_lost_files = false;
        for file in &mut self.files {
            let path = group.cpu_file(&file.name);
            if file.keeping != Keeping::Written {
                has_lost_files |= file.keeping == Keeping::Driven && !os::exists(&path);
                continue;
            }
            let now = match read_text(&path) {
                Err(error) if error.is_gone() => {
                    has_lost_files = true;
                    continue;
                }
                other => other?,
            };
            if now == *file.ours {
                file.reported = None;
            } else if file.reported.as_deref() != Some(&*now) {
                found.push(changed(group, &path, &now));
                file.reported = Some(now.into());
            }
        }
        if has_lost_files {
            // The cgroup itself may be gone, which is nobody's change.
            group.check_exists()?;
        }
        if has_lost_files && !self.loss_is_reported {
            found.push(lost_files(group));
        }
        self.loss_is_reported = has_lost_files;
        Ok(found)
    }
}

/// Message for an external change of a file.
pub(super) fn changed(group: &CpuGroup, path: &Path, now: &str) -> String {
    let name = path.file_name().unwrap_or_default();
    let group = group.path().display();
    format!("/{group}: {} was changed to `{now}`", name.display())
}

/// Message for a cgroup that has lost the files of the cpu controller.
fn lost_files(group: &CpuGroup) -> String {
    let switch = group.parent().map(|parent| parent.subtree_control());
    let switch = switch.map_or_else(String::new, |switch| format!(" in {}", switch.display()));
    format!(
        "/{}: the cpu controller was switched off{switch}, and with it what was set here",
        group.path().display()
    )
}

/// Journal entry for a file that is put back.
pub(super) fn released(path: &Path) -> Entry {
    Entry::Released {
        paths: vec![path.to_owned()],
        tasks: Vec::new(),
    }
}
