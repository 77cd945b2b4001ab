//! The kernel files of a held cgroup that are ours to put back, and what they
//! held at first.

use std::path::Path;

use plimsoll_cgroupfs::{CpuGroup, WEIGHT_DEFAULT, os, read_text};

use crate::error::Result;
use crate::journal::{Entry, FileRestore};
use crate::knobs::Bandwidth;

/// What is known of a kernel file's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeping {
    /// It is what we wrote, unless somebody else wrote since.
    Written,
    /// The weight of an idle cgroup: the kernel has forgotten it.
    Remembered,
    /// A loop of ours writes it all the time.
    Driven,
}

/// A kernel file of a held cgroup.
#[derive(Debug, Clone)]
pub(super) struct HeldFile {
    pub name: Box<str>,
    /// What it held at first.
    pub old: Box<str>,
    /// What we wrote last.
    pub ours: Box<str>,
    pub keeping: Keeping,
    /// What somebody else wrote, once that has been told.
    pub told: Option<Box<str>>,
}

/// The kernel files of a held cgroup that are ours to put back.
#[derive(Debug, Clone, Default)]
pub(super) struct Values {
    pub files: Vec<HeldFile>,
    /// What its quota was at first, where that is among the files.
    pub bandwidth: Option<Bandwidth>,
    /// That somebody has taken the files away has been told.
    lost_is_told: bool,
}

impl Values {
    pub fn get(&self, path: &Path) -> Option<&HeldFile> {
        let name = path.file_name()?.to_str()?;
        self.files.iter().find(|file| &*file.name == name)
    }

    /// How to put them back.
    pub fn restores(&self, group: &CpuGroup) -> Vec<FileRestore> {
        let restore = |file: &HeldFile| FileRestore {
            path: group.cpu_file(&file.name),
            old: file.old.clone().into(),
            ours: vec![file.ours.clone().into()],
            driven: file.keeping == Keeping::Driven,
        };
        self.files.iter().map(restore).collect()
    }

    /// The weight that it had at first.
    pub fn weight_at_first(&self, group: &CpuGroup) -> Result<u32> {
        let (path, _) = group.weight_setting(WEIGHT_DEFAULT);
        match self.get(&path) {
            Some(file) => Ok(group.weight_of(&path, &file.old)?),
            None => Ok(group.read_weight()?),
        }
    }

    /// What others have written since we did, as far as it was not told yet.
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
                file.told = None;
            } else if file.told.as_deref() != Some(&*now) {
                found.push(format!(
                    "/{}: {} was changed to `{now}`",
                    group.path().display(),
                    file.name
                ));
                file.told = Some(now.into());
            }
        }
        if has_lost_files {
            // Or the cgroup itself has gone, which is nobody's change.
            group.check_exists()?;
        }
        if has_lost_files && !self.lost_is_told {
            found.push(lost_files(group));
        }
        self.lost_is_told = has_lost_files;
        Ok(found)
    }
}

/// What has become of a cgroup without files of the cpu controller.
fn lost_files(group: &CpuGroup) -> String {
    let switch = group.parent().map(|parent| parent.subtree_control());
    let switch = switch.map_or_else(String::new, |switch| format!(" in {}", switch.display()));
    format!(
        "/{}: the cpu controller was switched off{switch}, and with it what was set here",
        group.path().display()
    )
}

/// That a file is put back.
pub(super) fn released(path: &Path) -> Entry {
    Entry::Released {
        paths: vec![path.to_owned()],
        tasks: Vec::new(),
        processes: Vec::new(),
    }
}
