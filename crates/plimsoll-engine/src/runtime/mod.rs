//! Runtime folder: the owner's socket and its journals.

mod ownership;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::os::{self, Access, File, FileInfo};
use serde::Serialize;

use crate::error::{EngineError, Result};
pub use ownership::Ownership;

/// Environment variable with the path of another runtime folder; for tests.
pub const RUNTIME_VARIABLE: &str = "PLIMSOLL_RUNTIME_DIR";

/// Folder in which a user's owner keeps its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeFolder {
    path: PathBuf,
}

impl RuntimeFolder {
    /// Returns the runtime folder of this user: `/run/plimsoll` for root, else below
    /// `XDG_RUNTIME_DIR`. Nothing is created yet.
    pub fn of_this_user() -> Self {
        let path = named().unwrap_or_else(|| {
            let uid = nix::unistd::geteuid();
            if uid.is_root() {
                return "/run/plimsoll".into();
            }
            let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
            // The specification of the variable says to ignore a relative path.
            match folder.filter(|folder| folder.is_absolute()) {
                Some(folder) => folder.join("plimsoll"),
                None => format!("/tmp/plimsoll-{uid}").into(),
            }
        });
        Self::at(path)
    }

    /// Returns the runtime folder of root, where any user finds the daemon's socket:
    /// `/run/plimsoll`.
    pub fn of_this_host() -> Self {
        Self::at(named().unwrap_or_else(|| "/run/plimsoll".into()))
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, source: io::Error) -> EngineError {
        self.unusable(source.to_string())
    }

    fn unusable(&self, problem: String) -> EngineError {
        EngineError::RuntimeFolder {
            path: self.path.clone(),
            problem,
        }
    }

    /// Creates the folder, for this user alone.
    ///
    /// # Errors
    /// When the folder cannot be created, belongs to another user, or can be written to by others,
    /// who could replace its files.
    pub fn create(&self) -> Result<()> {
        os::create_private_folders(&self.path).map_err(|e| self.failed(e))?;
        let found = self.look()?;
        let problem = if !found.is_folder || found.uid != nix::unistd::geteuid().as_raw() {
            "it is not a folder of this user"
        } else if found.mode & 0o022 != 0 {
            "other users may write to it"
        } else {
            return Ok(());
        };
        Err(self.unusable(problem.into()))
    }

    /// Allows all users to open files in a private folder by name, as clients of a daemon's socket
    /// must. They cannot list it, and all other files in it are private to its user. A folder that
    /// others may read or enter already keeps its mode.
    ///
    /// # Errors
    /// When the folder does not exist or belongs to another user.
    pub fn open_to_clients(&self) -> Result<()> {
        let mode = self.look()?.mode;
        if mode & 0o077 != 0 {
            return Ok(());
        }
        let permissions = fs::Permissions::from_mode(mode | 0o011);
        fs::set_permissions(&self.path, permissions).map_err(|e| self.failed(e))
    }

    /// Tries what an owner needs of the folder, and leaves nothing behind. A missing folder is tried
    /// where it would be made, because an owner may make it at the same time.
    ///
    /// # Errors
    /// When an owner could not use the folder.
    pub fn try_out(&self) -> Result<()> {
        let own = std::process::id();
        if os::look_at_link(&self.path).is_ok() {
            self.create()?;
            return self.try_file(&self.path.join(format!("probe-{own}")));
        }
        let mut above = self.path.ancestors().skip(1);
        let above = above.find(|above| os::exists(above));
        let folder = above.unwrap_or(&self.path);
        let folder = folder.join(format!("plimsoll-probe-{own}"));
        os::create_private_folders(&folder).map_err(|e| self.failed(e))?;
        let tried = self.try_file(&folder.join("probe"));
        let removed = os::remove_folder(&folder);
        tried.and(removed.map_err(|e| self.failed(e)))
    }

    fn try_file(&self, file: &Path) -> Result<()> {
        let written = write_atomically(file, &"probe");
        let removed = remove_written(file);
        written.and(removed).map_err(|e| self.failed(e))
    }

    fn look(&self) -> Result<FileInfo> {
        os::look_at_link(&self.path).map_err(|e| self.failed(e))
    }
}

/// Returns the folder that [`RUNTIME_VARIABLE`] names. A relative path is made absolute here,
/// because the owner that this process starts works in another folder.
fn named() -> Option<PathBuf> {
    let named = std::env::var_os(RUNTIME_VARIABLE).filter(|named| !named.is_empty())?;
    Some(std::path::absolute(&named).unwrap_or_else(|_| named.into()))
}

/// Temporary name of a file until it is complete: its own name with a suffix, so that no two files
/// share it.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Renames a damaged file, so that Plimsoll does not read it again. Returns the new path.
pub(crate) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(".damaged");
    let aside = PathBuf::from(name);
    os::rename(path, &aside)?;
    Ok(aside)
}

/// Replaces a file by the JSON of `value` in one step, once that is on the disk.
pub fn write_atomically(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let temporary = temporary(path);
    // Formatted as a whole: the writer of serde_json calls the kernel for each quote and comma.
    let text = serde_json::to_string(value)?;
    let replaced = replace(path, &temporary, &text);
    if replaced.is_err() {
        let _ = os::remove_file(&temporary);
    }
    replaced
}

/// Removes a file that [`write_atomically`] has written, and the temporary one that a killed writer
/// has left. Either may be missing.
pub fn remove_written(path: &Path) -> io::Result<()> {
    for path in [&temporary(path), path] {
        match os::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
    }
    Ok(())
}

fn replace(path: &Path, temporary: &Path, text: &str) -> io::Result<()> {
    let mut file = File::open(temporary, Access::AppendAny)?;
    file.cut(0)?;
    file.append(text)?;
    file.sync()?;
    os::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_a_folder_that_is_open_to_clients_can_be_entered_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path().join("run"));
        runtime.create().unwrap();
        assert_eq!(mode(runtime.path()), 0o700);
        let file = runtime.path().join("file");
        write_atomically(&file, &"text").unwrap();
        runtime.open_to_clients().unwrap();
        runtime.create().unwrap();
        assert_eq!(mode(runtime.path()), 0o711);
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        for of_others in [0o777, 0o770, 0o702] {
            set_mode(folder.path(), of_others);
            let refusal = runtime.create().unwrap_err().to_string();
            let expected = format!(
                "{}: cannot be the runtime folder: other users may write to it; allowed: a folder \
                 of this user that no other user may write to",
                folder.path().display()
            );
            assert_eq!(refusal, expected);
            assert_eq!(mode(folder.path()), of_others);
        }
    }

    #[test]
    fn a_trial_of_the_folder_leaves_nothing_and_fails_where_an_owner_would() {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o700);
        let file = folder.path().join("file");
        for name in ["", "run", "above/run"] {
            let runtime = RuntimeFolder::at(folder.path().join(name));
            runtime.try_out().unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
        }
        fs::write(&file, "").unwrap();
        for path in [&file, &file.join("run"), Path::new("/proc/plimsoll")] {
            let refusal = RuntimeFolder::at(path).try_out().unwrap_err().to_string();
            let told = format!("{}: cannot be the runtime folder: ", path.display());
            assert!(refusal.starts_with(&told), "{refusal}");
        }
        set_mode(folder.path(), 0o777);
        assert!(RuntimeFolder::at(folder.path()).try_out().is_err());
    }

    #[test]
    fn a_folder_that_others_may_read_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        for found in [0o711, 0o755, 0o750] {
            set_mode(folder.path(), found);
            runtime.create().unwrap();
            runtime.open_to_clients().unwrap();
            assert_eq!(mode(folder.path()), found);
        }
    }
}
