//! Changes that belong to no single group: the parents that groups have, and controllers that were
//! switched on.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{name, os, read_text, write_text};
use serde::{Deserialize, Serialize};

use super::{RuntimeFolder, set_aside, temporary, write_atomically};
use crate::error::{EngineError, Result};
use crate::journal;
use crate::undo::UndoReport;

/// Files of the cpu controller that other programs write, each with its text in a new cgroup.
const DEFAULTS: [(&str, &str); 6] = [
    ("cpu.max", "max 100000"),
    ("cpu.max.burst", "0"),
    // Before the weight, which is another one while a cgroup is idle.
    ("cpu.idle", "0"),
    ("cpu.weight", "100"),
    ("cpu.uclamp.min", "0.00"),
    ("cpu.uclamp.max", "max"),
];

/// Record of changes that belong to no single group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Folders of parent groups that were created. Removed once empty.
    #[serde(default)]
    pub created: Vec<PathBuf>,
    /// Files `cgroup.subtree_control` to which `+cpu` was written, where it was not before. Taken
    /// back when the last group has gone, the last first: a limit below would go with the
    /// controller.
    #[serde(default)]
    pub enabled: Vec<PathBuf>,
    /// Inodes of the cgroups of these files: later cgroups of the same paths belong to others.
    #[serde(default)]
    pub inodes: BTreeMap<PathBuf, u64>,
    /// Boot in which the record was written. `None`: the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

impl Shared {
    fn is_empty(&self) -> bool {
        self.created.is_empty() && self.enabled.is_empty()
    }

    fn is_of_another_boot(&self) -> bool {
        self.boot.is_some() && self.boot != journal::boot_id()
    }

    /// Adds a controller that is about to be switched on, with the inode of its cgroup.
    fn enable(&mut self, path: &Path) {
        if self.enabled.iter().any(|known| known == path) && self.is_the_same(path) {
            return;
        }
        // A cgroup that was made again is another.
        self.enabled.retain(|known| known != path);
        let inode = path.parent().and_then(|folder| os::look(folder).ok());
        if let Some(found) = inode {
            self.inodes.insert(path.to_owned(), found.inode);
        }
        self.enabled.push(path.to_owned());
    }

    /// Returns whether a file still belongs to the recorded cgroup.
    fn is_the_same(&self, path: &Path) -> bool {
        let found = path.parent().and_then(|folder| os::look(folder).ok());
        let known = self.inodes.get(path);
        found.is_some_and(|found| known.is_none_or(|inode| *inode == found.inode))
    }
}

impl RuntimeFolder {
    pub(super) fn shared_file(&self) -> PathBuf {
        self.path.join("shared.json")
    }

    fn read_shared(&self) -> Result<Shared> {
        match os::read(&self.shared_file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Shared::default()),
            other => {
                let bytes = other.map_err(|e| self.failed(e))?;
                serde_json::from_slice(&bytes).map_err(|e| self.failed(e.into()))
            }
        }
    }

    /// Reads the record shared by all journals; empty if it is of another boot.
    ///
    /// # Errors
    /// When the record exists but cannot be read.
    pub fn shared(&self) -> Result<Shared> {
        let shared = self.read_shared()?;
        Ok(if shared.is_of_another_boot() {
            Shared::default()
        } else {
            shared
        })
    }

    /// Removes the temporary file of an owner that died while writing. A failure is retried at the
    /// end.
    fn remove_temporary(&self) {
        let _ = os::remove_file(&temporary(&self.shared_file()));
    }

    /// Sets a damaged shared record aside, because it cannot be undone, and removes a record of
    /// another boot. Returns a message for the user.
    ///
    /// # Errors
    /// When the record cannot be read, renamed or removed.
    pub fn mend_shared(&self) -> Result<Option<String>> {
        self.remove_temporary();
        match self.read_shared() {
            Err(EngineError::Journal { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                ) =>
            {
                let path = self.shared_file();
                let aside = set_aside(&path).map_err(|e| self.failed(e))?;
                Ok(Some(format!(
                    "{}: is damaged ({source}), so that empty groups may be left; it is kept as {}",
                    path.display(),
                    aside.display()
                )))
            }
            Ok(shared) if shared.is_of_another_boot() => {
                self.set_shared(Shared::default()).map(|()| None)
            }
            other => other.map(|_| None),
        }
    }

    /// Writes the record shared by all journals, and syncs it to disk.
    ///
    /// # Errors
    /// When the record cannot be written: then nothing may be changed.
    pub fn set_shared(&self, mut shared: Shared) -> Result<()> {
        let path = self.shared_file();
        if shared.is_empty() {
            return match os::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(error)),
                _ => Ok(()),
            };
        }
        let enabled = &shared.enabled;
        shared.inodes.retain(|path, _| enabled.contains(path));
        shared.boot = journal::boot_id();
        write_atomically(&path, &shared, true).map_err(|e| self.failed(e))
    }

    /// Records controllers that are about to be switched on, and parents that are about to be
    /// created.
    ///
    /// # Errors
    /// When the record cannot be written: then nothing may be changed.
    pub fn share(&self, enabled: &[PathBuf], created: &[PathBuf]) -> Result<()> {
        if enabled.is_empty() && created.is_empty() {
            return Ok(());
        }
        let mut shared = self.shared()?;
        enabled.iter().for_each(|path| shared.enable(path));
        let is_new = |folder: &&PathBuf| !shared.created.contains(folder);
        let new: Vec<PathBuf> = created.iter().filter(is_new).cloned().collect();
        shared.created.extend(new);
        self.set_shared(shared)
    }

    /// Removes parents that hold no group any more.
    ///
    /// # Errors
    /// When the shared file cannot be read or written.
    pub fn release_parents(&self) -> Result<()> {
        let mut shared = self.shared()?;
        let before = shared.created.len();
        shared
            .created
            .retain(|folder| match os::remove_folder(folder) {
                Ok(()) => false,
                // The group of another owner is still in it.
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            });
        if shared.created.len() == before {
            return Ok(());
        }
        self.set_shared(shared)
    }

    /// Undoes all shared changes once no group is left. Adds the failures to the report, and the
    /// controllers that stay on because another program uses them.
    ///
    /// # Errors
    /// When the shared file cannot be read or written.
    pub fn release_shared(&self, report: &mut UndoReport) -> Result<()> {
        self.remove_temporary();
        self.release_parents()?;
        let mut shared = self.shared()?;
        if !shared.created.is_empty() || shared.enabled.is_empty() {
            return Ok(());
        }
        let mut refused = Vec::new();
        let mut kept: Vec<PathBuf> = Vec::new();
        for path in std::mem::take(&mut shared.enabled).into_iter().rev() {
            let is_enabled = read_text(&path)
                .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"));
            let folder = path.parent().unwrap_or(&path);
            // A controller that stays on needs those above it.
            let is_needed = kept.iter().any(|it| it.starts_with(folder));
            if !is_enabled || is_needed || !shared.is_the_same(&path) {
                continue;
            }
            if let Some(value) = value_of_others(folder) {
                report.notes.push(format!(
                    "{}: leaves the cpu controller on, because another program has set {value}",
                    name::text_of(&path)
                ));
                kept.push(path);
            } else if let Err(error) = write_text(&path, "-cpu") {
                report.problems.push(error.to_string());
                refused.insert(0, path);
            }
        }
        shared.enabled = refused;
        self.set_shared(shared)
    }
}

/// Finds a value of a child cgroup that would be lost with the cpu controller. No group is left, so
/// that another program has set it. Returns its file and text.
fn value_of_others(folder: &Path) -> Option<String> {
    let children = os::list(folder).unwrap_or_default().into_iter();
    let mut children = children.filter(|found| found.is_folder);
    children.find_map(|child| {
        DEFAULTS.iter().find_map(|(file, default)| {
            let path = child.path.join(file);
            let text = read_text(&path).ok().filter(|text| text != default)?;
            Some(format!("{} to `{text}`", name::text_of(&path)))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn release(runtime: &RuntimeFolder) {
        let mut report = UndoReport::default();
        runtime.release_shared(&mut report).unwrap();
        assert_eq!(report, UndoReport::default());
    }

    #[test]
    fn what_is_shared_but_damaged_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        assert_eq!(runtime.mend_shared().unwrap(), None);
        for text in ["{\"created\": [", "", "nonsense"] {
            fs::write(runtime.shared_file(), text).unwrap();
            let problem = runtime.mend_shared().unwrap().unwrap();
            assert!(problem.contains("shared.json.damaged"), "{problem}");
            assert_eq!(runtime.shared().unwrap(), Shared::default());
        }
    }

    #[test]
    fn what_is_shared_goes_with_its_last_user() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path().join("run"));
        runtime.create().unwrap();
        let parent = folder.path().join("parent");
        let control = folder.path().join("control");
        fs::create_dir_all(parent.join("group")).unwrap();
        fs::write(&control, "cpu io").unwrap();

        let once = std::slice::from_ref(&control);
        runtime.share(once, std::slice::from_ref(&parent)).unwrap();
        runtime.share(once, &[]).unwrap();
        let shared = runtime.shared().unwrap();
        assert_eq!((&*shared.enabled, shared.created.len()), (once, 1));
        release(&runtime);
        assert_eq!(runtime.shared().unwrap(), shared, "a group is still there");

        fs::remove_dir(parent.join("group")).unwrap();
        release(&runtime);
        assert_eq!(runtime.shared().unwrap(), Shared::default());
        assert!(!parent.exists());
        assert!(fs::read_to_string(control).unwrap().starts_with("-cpu"));
    }

    #[test]
    fn a_controller_of_another_boot_or_of_another_cgroup_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path().join("run"));
        runtime.create().unwrap();
        let control = folder.path().join("cgroup.subtree_control");
        fs::write(&control, "cpu io").unwrap();
        let share = || runtime.share(std::slice::from_ref(&control), &[]).unwrap();
        let spoil = |spoil: &dyn Fn(&mut Shared)| {
            share();
            let mut shared = runtime.shared().unwrap();
            spoil(&mut shared);
            write_atomically(&runtime.shared_file(), &shared, false).unwrap();
            assert_eq!(runtime.mend_shared().unwrap(), None);
            release(&runtime);
            assert!(!runtime.shared_file().exists());
            assert_eq!(fs::read_to_string(&control).unwrap(), "cpu io");
        };
        spoil(&|shared| shared.boot = Some("another".into()));
        spoil(&|shared| {
            shared.inodes.insert(control.clone(), 1);
        });
        share();
        release(&runtime);
        assert!(fs::read_to_string(&control).unwrap().starts_with("-cpu"));
    }
}
