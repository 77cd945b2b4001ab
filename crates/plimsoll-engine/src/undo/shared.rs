//! Undo of changes that belong to no single group: the parents that groups have, and controllers
//! that were switched on.

use std::io::ErrorKind;
use std::path::Path;

use plimsoll_cgroupfs::{find_folder, name, os, read_text, write_text_of};

use super::UndoReport;
use crate::journal::{Entry, Restores};

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

/// Removes parents that hold no group any more. Returns an entry for each that is gone.
pub(crate) fn remove_parents(restores: &Restores) -> Vec<Entry> {
    // The last first: one may be in another.
    let parents = restores.parents.iter().rev();
    let gone = parents.filter(|folder| match os::remove_folder(folder) {
        Ok(()) => true,
        // The group of another owner may still be in it.
        Err(error) => error.kind() == ErrorKind::NotFound,
    });
    gone.map(|folder| Entry::gone(folder)).collect()
}

/// Switches controllers off, the last first, once no group is left. Adds those that stay on because
/// another program uses them to the notes of the report. Returns an entry for each but those that
/// the kernel refused.
pub(super) fn switch_off(restores: &Restores, report: &mut UndoReport) -> Vec<Entry> {
    let (mut done, mut kept): (_, Vec<&Path>) = (Vec::new(), Vec::new());
    for (path, inode) in restores.enabled.iter().rev() {
        let folder = path.parent().unwrap_or(path);
        let is_enabled = find_folder(folder, *inode).is_ok()
            && read_text(path).is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"));
        // A controller that stays on needs those above it.
        let is_needed = kept.iter().any(|it| it.starts_with(folder));
        if is_enabled && !is_needed {
            if let Some(value) = value_of_others(folder) {
                report.notes.push(format!(
                    "{}: leaves the cpu controller on, because another program has set {value}",
                    name::text_of(path)
                ));
                kept.push(folder);
            } else if let Err(error) = write_text_of(path, *inode, "-cpu") {
                report.problems.push(error.to_string());
                continue;
            }
        }
        done.push(Entry::gone(path));
    }
    done
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
    use std::path::PathBuf;

    use super::*;
    use crate::journal::{Header, Journal};
    use crate::runtime::RuntimeFolder;
    use crate::undo;

    struct Rig {
        folder: tempfile::TempDir,
        runtime: RuntimeFolder,
        control: PathBuf,
    }

    impl Rig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let runtime = RuntimeFolder::at(folder.path().join("run"));
            runtime.create().unwrap();
            let control = folder.path().join("cgroup.subtree_control");
            fs::write(&control, "cpu io").unwrap();
            Self {
                folder,
                runtime,
                control,
            }
        }

        fn enable(&self, inode: Option<u64>) -> Entry {
            let path = self.control.clone();
            Entry::Enable { path, inode }
        }

        fn record(&self, header: &Header, entries: &[Entry]) {
            let mut journal = Journal::create(self.runtime.path(), header).unwrap();
            journal.record(entries).unwrap();
        }

        /// Undoes what is left. Returns whether something still is.
        fn is_left(&self) -> bool {
            let report = undo::recover(&self.runtime).unwrap();
            assert_eq!(report.problems, [""; 0]);
            fs::read_dir(self.runtime.path()).unwrap().count() > 0
        }

        fn is_on(&self) -> bool {
            fs::read_to_string(&self.control).unwrap() == "cpu io"
        }
    }

    #[test]
    fn what_is_shared_goes_with_its_last_user() {
        let rig = Rig::new();
        let parent = rig.folder.path().join("parent");
        let group = parent.join("group");
        fs::create_dir_all(&group).unwrap();
        let folder = parent.clone();
        let entries = [rig.enable(None), Entry::Parent { folder }];
        rig.record(&Header::new("a", ""), &entries);
        assert!(rig.is_left() && rig.is_on());
        fs::remove_dir(group).unwrap();
        assert!(!rig.is_left() && !rig.is_on());
        assert!(!parent.exists());
    }

    #[test]
    fn a_parent_that_a_later_journal_empties_goes_too() {
        let rig = Rig::new();
        let parent = rig.folder.path().join("parent");
        fs::create_dir_all(parent.join("inside")).unwrap();
        let made = |folder: PathBuf| [Entry::Parent { folder }];
        rig.record(&Header::new("a", ""), &made(parent.clone()));
        rig.record(&Header::new("b", ""), &made(parent.join("inside")));
        assert!(!rig.is_left());
        assert!(!parent.exists());
    }

    #[test]
    fn a_controller_of_another_boot_or_of_another_cgroup_is_left_alone() {
        let rig = Rig::new();
        let inode = os::look(rig.folder.path()).unwrap().inode;
        let header = Header::new("a", "");
        let mut of_another_boot = header.clone();
        of_another_boot.boot = Some("another".into());
        rig.record(&of_another_boot, &[rig.enable(Some(inode))]);
        assert!(!rig.is_left() && rig.is_on());
        // Made again: it is another that is enabled.
        rig.record(&header, &[rig.enable(Some(inode)), rig.enable(Some(1))]);
        assert!(!rig.is_left() && rig.is_on());
        rig.record(&header, &[rig.enable(Some(inode))]);
        assert!(!rig.is_left() && !rig.is_on());
    }
}
