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

/// The folder of the pins in the BPF file system.
#[derive(Debug, Clone)]
pub(crate) struct Pins {
    folder: PathBuf,
}

impl Pins {
    pub fn of_this_host() -> Self {
        Self::at(PIN_FOLDER)
    }

    pub fn at(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        Self { folder }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether an owner with this runtime folder has made them, be it alive or not.
    pub fn are_of(&self, runtime: &RuntimeFolder) -> bool {
        let owner = fs::read_link(self.folder.join(OWNER));
        owner.is_ok_and(|owner| id_of(runtime).is_ok_and(|id| owner == Path::new(&id)))
    }

    /// Returns whether that owner is gone: the next owner or `restore` removes them.
    pub fn are_left(&self, runtime: &RuntimeFolder) -> bool {
        self.are_of(runtime) && !journal::has_owner(runtime.path())
    }

    /// Returns whether they are of a scheduler of this build, which may have been thrown out.
    pub fn are_of_this_build(&self) -> bool {
        let build = fs::read_link(self.folder.join(BUILD));
        build.is_ok_and(|build| build == Path::new(THIS_BUILD)) && self.folder.join(LINK).exists()
    }

    /// Makes the folder that of an owner, which is to load a scheduler.
    ///
    /// # Errors
    /// When the BPF file system does not allow it.
    pub fn claim(&self, runtime: &RuntimeFolder) -> Result<(), SchedExtError> {
        if self.are_of(runtime) {
            return Ok(());
        }
        let owner = self.folder.join(OWNER);
        let claimed = fs::create_dir_all(&self.folder).and_then(|()| {
            // The owner before, if there is one, has no scheduler any more.
            let _ = fs::remove_file(&owner);
            symlink(id_of(runtime)?, &owner)
        });
        claimed.map_err(|source| self.failed(source))
    }

    /// Removes the pins of an earlier scheduler, and notes that the next ones are of this build.
    ///
    /// # Errors
    /// When the BPF file system does not allow it.
    pub fn renew(&self) -> Result<(), SchedExtError> {
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
        // Removing the pins alone would end it some time later.
        self.remove_link();
        let mut report = UndoReport::default();
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
        let pins = Pins::at(folder.path().join("pins"));
        assert!(!pins.are_of(&runtime) && !pins.are_left(&runtime));
        let journal = Journal::create(runtime.path(), &Header::new("groups", "")).unwrap();
        pins.claim(&runtime).unwrap();
        assert!(pins.are_of(&runtime) && !pins.are_left(&runtime));
        drop(journal);
        assert!(pins.are_left(&runtime));
        let elsewhere = tempfile::tempdir().unwrap();
        let other = RuntimeFolder::at(elsewhere.path());
        assert!(!pins.are_left(&other));
        // Its scheduler is gone.
        pins.claim(&other).unwrap();
        assert!(!pins.are_of(&runtime) && pins.are_left(&other));
        assert_eq!(pins.remove().undone, ["the sched_ext scheduler"]);
        assert!(!pins.folder().exists());
    }

    #[test]
    fn pins_are_of_this_build_once_its_scheduler_is_pinned() {
        let folder = tempfile::tempdir().unwrap();
        let pins = Pins::at(folder.path());
        let runtime = RuntimeFolder::at(folder.path());
        pins.claim(&runtime).unwrap();
        let [link, build] = [LINK, BUILD].map(|name| folder.path().join(name));
        symlink("another", &build).unwrap();
        fs::write(&link, "").unwrap();
        assert!(!pins.are_of_this_build());
        pins.renew().unwrap();
        assert!(!pins.are_of_this_build() && pins.are_of(&runtime));
        fs::write(&link, "").unwrap();
        assert!(pins.are_of_this_build());
    }
}
