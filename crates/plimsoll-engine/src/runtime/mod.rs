//! The runtime folder: the owner's socket, its journals, and what they share.

mod ownership;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{read_text, write_text};
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};
use crate::own_groups::has_group_of_its_own;
pub use ownership::Ownership;

/// Names another runtime folder; for tests.
pub const RUNTIME_VARIABLE: &str = "PLIMSOLL_RUNTIME_DIR";

/// Files in the runtime folder are for its user alone.
pub(crate) const PRIVATE: u32 = 0o600;

/// The folder in which a user's owner keeps its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeFolder {
    path: PathBuf,
}

/// Changes that belong to no single group: whoever leaves last undoes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Folders of parent groups that were created. Removed once empty.
    #[serde(default)]
    pub created: Vec<PathBuf>,
    /// `cgroup.subtree_control` files to which `+cpu` was written, where it
    /// was not before. Taken back once no group below needs it.
    #[serde(default)]
    pub enabled: Vec<PathBuf>,
}

impl RuntimeFolder {
    /// The runtime folder of this user: `/run/plimsoll` for root, else below
    /// `XDG_RUNTIME_DIR`. Nothing is created yet.
    pub fn of_this_user() -> Self {
        let named = std::env::var_os(RUNTIME_VARIABLE).map(PathBuf::from);
        let path = named.unwrap_or_else(|| {
            let uid = nix::unistd::geteuid();
            if uid.is_root() {
                return "/run/plimsoll".into();
            }
            match std::env::var_os("XDG_RUNTIME_DIR") {
                Some(folder) => Path::new(&folder).join("plimsoll"),
                None => format!("/tmp/plimsoll-{uid}").into(),
            }
        });
        Self::at(path)
    }

    /// The runtime folder of root, where any user finds the daemon's socket:
    /// `/run/plimsoll`.
    pub fn of_this_host() -> Self {
        let named = std::env::var_os(RUNTIME_VARIABLE).map(PathBuf::from);
        Self::at(named.unwrap_or_else(|| "/run/plimsoll".into()))
    }

    /// A runtime folder at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, source: io::Error) -> EngineError {
        EngineError::Journal {
            path: self.path.clone(),
            source,
        }
    }

    /// Creates it, for this user alone.
    ///
    /// # Errors
    /// When it cannot be created, or is somebody else's.
    pub fn create(&self) -> Result<()> {
        let created = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path);
        created.map_err(|e| self.failed(e))?;
        let owner = fs::symlink_metadata(&self.path).map_err(|e| self.failed(e))?;
        if !owner.is_dir() || owner.uid() != nix::unistd::geteuid().as_raw() {
            let problem = "it is not a folder of this user; set XDG_RUNTIME_DIR";
            return Err(self.failed(io::Error::new(io::ErrorKind::PermissionDenied, problem)));
        }
        Ok(())
    }

    /// Lets everybody reach what is in it by name, as the socket of a daemon
    /// has to be. Nobody else can list it, and all other files in it are for
    /// its user alone.
    ///
    /// # Errors
    /// When it is not there or somebody else's.
    pub fn open_to_clients(&self) -> Result<()> {
        let permissions = fs::Permissions::from_mode(0o711);
        fs::set_permissions(&self.path, permissions).map_err(|e| self.failed(e))
    }

    /// The file that says what all journals share.
    fn shared_file(&self) -> PathBuf {
        self.path.join("shared.json")
    }

    /// What all journals share.
    ///
    /// # Errors
    /// When it is there but cannot be read.
    pub fn shared(&self) -> Result<Shared> {
        match fs::read(self.shared_file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Shared::default()),
            other => {
                let bytes = other.map_err(|e| self.failed(e))?;
                serde_json::from_slice(&bytes).map_err(|e| self.failed(e.into()))
            }
        }
    }

    /// Puts what is shared aside if it is damaged: nothing of it is undone
    /// then. Returns what to say about it.
    ///
    /// # Errors
    /// When it cannot be read or renamed.
    pub fn mend_shared(&self) -> Result<Option<String>> {
        match self.shared() {
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
            other => other.map(|_| None),
        }
    }

    /// Writes down what all journals share, on disk before it returns.
    ///
    /// # Errors
    /// When it cannot be written: then nothing may be changed.
    pub fn set_shared(&self, shared: &Shared) -> Result<()> {
        let path = self.shared_file();
        if *shared == Shared::default() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(error)),
                _ => Ok(()),
            };
        }
        write_atomically(&path, shared, true).map_err(|e| self.failed(e))
    }

    /// Undoes what is shared as far as nobody uses it any more. Returns what
    /// could not be undone.
    ///
    /// # Errors
    /// When the shared file cannot be read or written.
    pub fn release_shared(&self) -> Result<Vec<String>> {
        let mut shared = self.shared()?;
        let before = shared.clone();
        let mut problems = Vec::new();
        shared
            .created
            .retain(|folder| match fs::remove_dir(folder) {
                Ok(()) => false,
                // Somebody's group is still in it.
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            });
        if shared.created.is_empty() {
            for path in std::mem::take(&mut shared.enabled) {
                if path.parent().is_some_and(has_group_of_its_own) {
                    shared.enabled.push(path);
                    continue;
                }
                let enabled = read_text(&path)
                    .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"));
                if enabled && let Err(error) = write_text(&path, "-cpu") {
                    problems.push(error.to_string());
                    shared.enabled.push(path);
                }
            }
        }
        if shared != before {
            self.set_shared(&shared)?;
        }
        Ok(problems)
    }
}

/// What a file is called until it is whole: its own name and more, so that
/// no two files share it.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Renames a damaged file, so that nothing finds it but people. Returns where it
/// is.
pub(crate) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(".damaged");
    let aside = PathBuf::from(name);
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Replaces a file by the JSON of `value` in one step.
///
/// # Errors
/// When the folder is not writable.
pub fn write_atomically(path: &Path, value: &impl Serialize, sync: bool) -> io::Result<()> {
    let temporary = temporary(path);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(PRIVATE)
        .open(&temporary)?;
    // Whole: the writer of serde_json calls the kernel for each quote and comma.
    file.write_all(&serde_json::to_vec(value)?)?;
    if sync {
        file.sync_data()?;
    }
    fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_a_folder_that_is_open_to_clients_can_be_entered_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path().join("run"));
        runtime.create().unwrap();
        assert_eq!(mode(runtime.path()), 0o700);
        let shared = Shared {
            created: vec!["/x".into()],
            ..Shared::default()
        };
        runtime.set_shared(&shared).unwrap();
        runtime.open_to_clients().unwrap();
        runtime.create().unwrap();
        assert_eq!(mode(runtime.path()), 0o711);
        assert_eq!(mode(&runtime.shared_file()), 0o600);
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

        let shared = Shared {
            created: vec![parent.clone()],
            enabled: vec![control.clone()],
        };
        runtime.set_shared(&shared).unwrap();
        assert!(runtime.release_shared().unwrap().is_empty());
        assert_eq!(runtime.shared().unwrap(), shared, "a group is still there");

        fs::remove_dir(parent.join("group")).unwrap();
        assert!(runtime.release_shared().unwrap().is_empty());
        assert_eq!(runtime.shared().unwrap(), Shared::default());
        assert!(!parent.exists());
        assert!(fs::read_to_string(control).unwrap().starts_with("-cpu"));
    }
}
