//! The scheduler's pins, which keep it in the kernel with all its groups when its owner ends without
//! undoing it: until the next owner adopts or removes it, `restore` does, or the machine reboots.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use libbpf_rs::Link;
use plimsoll_engine::journal;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;

use crate::SchedExtError;

/// Folder of the pins.
pub(crate) const PIN_FOLDER: &str = "/sys/fs/bpf/plimsoll";
/// Pin of the link of the scheduler itself, which schedules while the link is pinned.
pub(crate) const LINK: &str = "link";
/// Pins of the links of the scheduler's probes.
pub(crate) const PROBE_LINKS: [&str; 5] = [
    "link_of_wait_ends",
    "link_of_wait_begins",
    "link_of_futex_wakes",
    "link_of_futex_ends",
    "link_of_futex_begins",
];
/// Symbolic link whose target is the id of the owner's runtime folder. It comes before all pins, and
/// goes after them.
const OWNER: &str = "owner";
/// Symbolic link whose target is the build of the pinned scheduler.
const BUILD: &str = "build";
/// Build of this scheduler: the hash of its program.
const THIS_BUILD: &str = env!("PLIMSOLL_BPF_HASH");

/// The folder of the pins in the BPF file system, as the owners with one runtime folder use it: they
/// remove nothing of others.
#[derive(Debug, Clone)]
pub(crate) struct Pins {
    folder: PathBuf,
    runtime: RuntimeFolder,
    /// Identifies the runtime folder, also once that has been removed; `None`: there was none.
    id: Option<String>,
}

impl Pins {
    pub fn of(runtime: &RuntimeFolder) -> Self {
        Self::at(PIN_FOLDER, runtime)
    }

    pub fn at(folder: impl Into<PathBuf>, runtime: &RuntimeFolder) -> Self {
        Self {
            folder: folder.into(),
            runtime: runtime.clone(),
            id: id_of(runtime).ok(),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether an owner with the runtime folder has made them, be it alive or not.
    pub fn are_own(&self) -> bool {
        let owner = fs::read_link(self.folder.join(OWNER)).ok();
        let id = self.id.as_ref().map(PathBuf::from);
        id.is_some() && owner == id
    }

    /// Returns whether that owner is gone: the next owner or `restore` removes them.
    pub fn are_left(&self) -> bool {
        self.are_own() && !journal::has_owner(self.runtime.path())
    }

    /// Returns whether they are of a scheduler of this build, which may have been thrown out.
    pub fn are_of_this_build(&self) -> bool {
        let build = fs::read_link(self.folder.join(BUILD));
        build.is_ok_and(|build| build == Path::new(THIS_BUILD)) && self.folder.join(LINK).exists()
    }

    /// Makes the folder that of an owner, which is to load a scheduler. No other has one.
    ///
    /// # Errors
    /// When the BPF file system does not allow it.
    pub fn claim(&self) -> Result<(), SchedExtError> {
        if self.are_own() {
            return Ok(());
        }
        let owner = self.folder.join(OWNER);
        let claimed = fs::create_dir_all(&self.folder).and_then(|()| {
            // The owner before, if there is one, has no scheduler any more.
            let _ = fs::remove_file(&owner);
            let id = self.id.as_ref().ok_or(ErrorKind::NotFound)?;
            symlink(id, &owner)
        });
        claimed.map_err(|source| self.failed(source))
    }

    /// Removes the pins of an earlier scheduler, and notes that the next ones are of this build.
    ///
    /// # Errors
    /// When another owner has claimed them, or the BPF file system does not allow it.
    pub fn renew(&self) -> Result<(), SchedExtError> {
        if !self.are_own() {
            return Err(SchedExtError::OtherOwner);
        }
        let renewed = self.remove_pins().and_then(|()| {
            let build = self.folder.join(BUILD);
            symlink(THIS_BUILD, build)
        });
        renewed.map_err(|source| self.failed(source))
    }

    fn remove_pins(&self) -> io::Result<()> {
        let entries = fs::read_dir(&self.folder)?;
        let mut others = entries.flatten().filter(|entry| entry.file_name() != OWNER);
        others.try_for_each(|entry| fs::remove_file(entry.path()))
    }

    /// Removes the scheduler, if there is one, from the kernel: when this returns it has ended. Its
    /// maps stay pinned, and can be read.
    pub fn remove_link(&self) {
        if !self.are_own() {
            return;
        }
        let pin = self.folder.join(LINK);
        if pin.exists()
            && let Ok(link) = Link::open(&pin)
        {
            // If this fails, the kernel removes it once the pin is gone.
            let _ = link.detach();
        }
        for name in [LINK].into_iter().chain(PROBE_LINKS) {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }

    /// Removes the scheduler from the kernel, and all pins.
    pub fn remove(&self) -> UndoReport {
        let mut report = UndoReport::default();
        if !self.are_own() {
            return report;
        }
        // Removing the pins alone would end it some time later.
        self.remove_link();
        let removed = self.remove_pins();
        match removed.and_then(|()| fs::remove_dir_all(&self.folder)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                report.problems.push(self.failed(error).to_string());
            }
            _ => report.undone.push("the sched_ext scheduler".into()),
        }
        report
    }

    fn failed(&self, source: io::Error) -> SchedExtError {
        SchedExtError::Pin {
            path: self.folder.clone(),
            source: source.into(),
        }
    }
}

/// Identifies a runtime folder: a container may have another one at the same path.
fn id_of(runtime: &RuntimeFolder) -> io::Result<String> {
    let found = fs::metadata(runtime.path())?;
    Ok(format!("{}:{}", found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use plimsoll_engine::journal::{Header, Journal};

    use super::*;

    #[test]
    fn the_pins_of_a_killed_owner_are_left_to_the_next_one_of_its_runtime_folder() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let pins = Pins::at(folder.path().join("pins"), &runtime);
        assert!(!pins.are_own() && !pins.are_left());
        let journal = Journal::create(runtime.path(), &Header::new("groups", "")).unwrap();
        pins.claim().unwrap();
        assert!(pins.are_own() && !pins.are_left());
        drop(journal);
        assert!(pins.are_left());
        let elsewhere = tempfile::tempdir().unwrap();
        let others = Pins::at(pins.folder(), &RuntimeFolder::at(elsewhere.path()));
        assert!(!others.are_left());
        // Its scheduler is gone.
        others.claim().unwrap();
        assert!(!pins.are_own() && others.are_left());
        assert_eq!(pins.remove(), UndoReport::default());
        assert!(pins.renew().is_err() && others.renew().is_ok());
        assert_eq!(others.remove().undone, ["the sched_ext scheduler"]);
        assert!(!pins.folder().exists());
    }

    #[test]
    fn pins_are_of_this_build_once_its_scheduler_is_pinned() {
        let folder = tempfile::tempdir().unwrap();
        let pins = Pins::at(folder.path(), &RuntimeFolder::at(folder.path()));
        pins.claim().unwrap();
        let [link, build] = [LINK, BUILD].map(|name| folder.path().join(name));
        symlink("another", &build).unwrap();
        fs::write(&link, "").unwrap();
        assert!(!pins.are_of_this_build());
        pins.renew().unwrap();
        assert!(!pins.are_of_this_build() && pins.are_own());
        fs::write(&link, "").unwrap();
        assert!(pins.are_of_this_build());
    }
}
