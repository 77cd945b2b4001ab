//! The kernel files of a held cgroup that are ours to put back, and what they
//! held at first.

use std::path::Path;

use crate::cgroup::files;
use crate::cgroup::group::{CpuGroup, WEIGHT_DEFAULT};
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
            None => group.read_weight(),
        }
    }

    /// What others have written since we did, as far as it was not told yet.
    pub fn audit(&mut self, group: &CpuGroup) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for file in &mut self.files {
            if file.keeping != Keeping::Written {
                continue;
            }
            let now = files::read_text(&group.cpu_file(&file.name))?;
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
        Ok(found)
    }
}

/// That a file is put back.
pub(super) fn released(path: &Path) -> Entry {
    Entry::Released {
        paths: vec![path.to_owned()],
        tasks: Vec::new(),
        processes: Vec::new(),
    }
}
