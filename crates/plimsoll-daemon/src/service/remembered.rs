//! What was asked on the command line, for the next start: it holds until it
//! is taken back, not until the daemon is restarted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use plimsoll_engine::host::SchedExt;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::runtime::{RuntimeFolder, write_atomically};
use serde::{Deserialize, Serialize};

/// What another name keeps of the one that was too much.
const NAME_STEM_CHARS: usize = 40;
/// The file in the runtime folder.
const FILE: &str = "remembered.json";

/// A group of a command or of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Command {
    /// The first process, and when it started.
    pub pid: i32,
    pub start_time: u64,
    /// Whose it is.
    pub uid: u32,
    /// For people.
    pub subject: String,
    pub knobs: Knobs,
    /// Of these, what others than its owner have asked for.
    #[serde(default)]
    pub bound: Knobs,
    #[serde(default)]
    pub best_effort: bool,
    /// What the asker chose of an owner that leaves the choice.
    #[serde(default)]
    pub scheduler: Option<SchedExt>,
    /// Where its processes were when it was written last.
    pub folder: PathBuf,
    /// Those that were in it when the daemon was stopped, with their start
    /// times; after a kill they are found in the folder.
    #[serde(default)]
    pub members: Vec<(i32, u64)>,
}

/// Knobs of `set`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Override {
    pub knobs: Knobs,
    #[serde(default)]
    pub best_effort: bool,
    /// As of a command.
    #[serde(default)]
    pub scheduler: Option<SchedExt>,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// By the name of a group of the file, or the path of a cgroup.
    #[serde(default)]
    pub overrides: BTreeMap<String, Override>,
    /// By the group's name.
    #[serde(default)]
    pub commands: BTreeMap<String, Command>,
    /// Bursts are off for all groups, whatever the file says.
    #[serde(default)]
    pub burst_off: bool,
}

fn path(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join(FILE)
}

impl Remembered {
    /// What was written last. A damaged file is put aside and told.
    pub fn read(runtime: &RuntimeFolder) -> (Self, Option<String>) {
        let path = path(runtime);
        let bytes = match fs::read(&path) {
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
                // What cannot be moved is overwritten by the next write.
                let _ = fs::rename(&path, &aside);
                let problem = format!(
                    "{}: is damaged ({error}) and was put aside as {}; what was `set` before \
                     does not hold any more",
                    path.display(),
                    aside.display()
                );
                (Self::default(), Some(problem))
            }
        }
    }

    /// Gives the groups of commands other names where the file has come to have
    /// theirs: what an operator means by a name is what the file does. Returns
    /// what people should be told.
    pub fn make_way(&mut self, is_in_file: impl Fn(&str) -> bool) -> Vec<String> {
        let names = self.commands.keys().filter(|name| is_in_file(name));
        let names: Vec<String> = names.cloned().collect();
        let mut told = Vec::new();
        for name in names {
            let stem: String = name.chars().take(NAME_STEM_CHARS).collect();
            let is_free = |new: &String| !is_in_file(new) && !self.commands.contains_key(new);
            let others = (2u64..).map(|number| format!("{stem}-{number}"));
            let Some(other) = others.into_iter().find(is_free) else {
                continue;
            };
            if let Some(command) = self.commands.remove(&name) {
                told.push(format!(
                    "{name}: is a group of the file now; the command's of that name is `{other}`"
                ));
                self.commands.insert(other, command);
            }
        }
        told
    }

    /// Writes it down.
    ///
    /// # Errors
    /// When the disk is full; what was written before is still there.
    pub fn write(&self, runtime: &RuntimeFolder) -> io::Result<()> {
        let path = path(runtime);
        if *self == Self::default() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let written = write_atomically(&path, self, true);
        written
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Remembered {
        let mut all = Remembered::default();
        let knobs = serde_json::from_str(r#"{"class": "batch"}"#).unwrap();
        let asked = Override {
            knobs,
            best_effort: true,
            scheduler: None,
        };
        all.overrides.insert("/a".into(), asked);
        all
    }

    #[test]
    fn what_is_written_is_read_and_nothing_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        assert_eq!(Remembered::read(&runtime), (Remembered::default(), None));
        one().write(&runtime).unwrap();
        assert_eq!(Remembered::read(&runtime), (one(), None));
        let without_burst = Remembered {
            burst_off: true,
            ..Remembered::default()
        };
        without_burst.write(&runtime).unwrap();
        assert_eq!(Remembered::read(&runtime), (without_burst, None));
        Remembered::default().write(&runtime).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_command_makes_way_for_a_group_of_the_file() {
        let command = |pid| Command {
            pid,
            start_time: 1,
            uid: 1000,
            subject: "sleep".into(),
            knobs: Knobs::default(),
            bound: Knobs::default(),
            best_effort: false,
            scheduler: None,
            folder: PathBuf::new(),
            members: Vec::new(),
        };
        let mut all = one();
        for (name, pid) in [("web", 1), ("web-2", 2), ("job", 3)] {
            all.commands.insert(name.into(), command(pid));
        }
        let told = all.make_way(|name| ["web", "web-3"].contains(&name));
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("`web-4`"), "{told:?}");
        let pids = all
            .commands
            .iter()
            .map(|(name, of)| (name.as_str(), of.pid));
        assert!(pids.eq([("job", 3), ("web-2", 2), ("web-4", 1)]));
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        fs::write(path(&runtime), "{\"overrides\": 7").unwrap();
        let (read, problem) = Remembered::read(&runtime);
        assert_eq!(read, Remembered::default());
        assert!(problem.unwrap().contains("remembered.json.damaged"));
        assert_eq!(Remembered::read(&runtime), (Remembered::default(), None));
    }
}
