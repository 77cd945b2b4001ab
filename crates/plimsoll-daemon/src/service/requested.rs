//! File of the requests of clients: they hold until they are reset, also across restarts.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use plimsoll_cgroupfs::os;
use plimsoll_engine::runtime::{RuntimeFolder, remove_written, write_atomically};
use serde::{Deserialize, Serialize};

use super::command::{Asked, CommandGroup};

/// In the runtime folder.
const FILE: &str = "requested.json";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Requested {
    /// Keyed by the name of a group of the file, or the path of a foreign cgroup.
    #[serde(default)]
    pub overrides: BTreeMap<String, Asked>,
    /// Keyed by the group's name.
    #[serde(default)]
    pub commands: BTreeMap<String, CommandGroup>,
    /// Bursts are off for all groups; this overrides the configuration file.
    #[serde(default)]
    pub burst_off: bool,
    /// The configuration file of the daemon, until it ends: if it is killed, the next owner has
    /// this file, too.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

fn path(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join(FILE)
}

impl Requested {
    /// Reads the file. Returns a problem for the log; a damaged file is renamed.
    pub fn read(runtime: &RuntimeFolder) -> (Self, Option<String>) {
        let path = path(runtime);
        let bytes = match os::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return (Self::default(), None);
            }
            Err(error) => {
                return (
                    Self::default(),
                    Some(format!("{}: {error}", path.display())),
                );
            }
            Ok(bytes) => bytes,
        };
        match serde_json::from_slice(&bytes) {
            Ok(read) => (read, None),
            Err(error) => {
                let aside = path.with_extension("json.damaged");
                // A file that cannot be renamed is overwritten by the next write.
                let _ = os::rename(&path, &aside);
                let problem = format!(
                    "{}: is damaged ({error}) and was renamed to {}; earlier `set` commands are \
                     lost and have to be repeated",
                    path.display(),
                    aside.display()
                );
                (Self::default(), Some(problem))
            }
        }
    }

    /// Writes the file, or removes it where nothing is requested.
    ///
    /// # Errors
    /// When the disk is full; the file keeps its previous content.
    pub fn write(&self, runtime: &RuntimeFolder) -> io::Result<()> {
        let path = path(runtime);
        if *self == Self::default() {
            return remove_written(&path);
        }
        let written = write_atomically(&path, self);
        written
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_damaged_file_is_renamed_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        fs::write(path(&runtime), "{\"overrides\": 7").unwrap();
        let (read, problem) = Requested::read(&runtime);
        assert_eq!(read, Requested::default());
        assert!(problem.unwrap().contains("requested.json.damaged"));
        assert_eq!(Requested::read(&runtime), (Requested::default(), None));
    }
}
