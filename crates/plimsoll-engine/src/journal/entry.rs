//! The lines of a journal.

use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::name::{path_text, path_texts};
use serde::{Deserialize, Serialize};

use super::record::{FileRestore, ForeignRestore, OwnRestore};
use crate::tasks::TaskId;

/// Version of the lines. A journal of another version is refused, not guessed at.
pub const VERSION: u32 = 7;

/// First line of a journal: its writer and its purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`] of the plimsoll that wrote the journal.
    pub version: u32,
    pub name: String,
    /// Pid of the writer. For information only: the lock decides which process owns the journal.
    pub pid: u32,
    /// Purpose, for people.
    pub subject: String,
    /// Boot in which the journal was begun (`/proc/sys/kernel/random/boot_id`). Cgroups, processes
    /// and kernel state of another boot are gone. `None`: the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

/// One line: the whole new record of one key, with the data needed to undo it. It replaces the record
/// before; only nice levels are added up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// Foreign cgroup that is in a group, or whose files the kernel refused to put back: then it has
    /// no nice levels of ours.
    Held {
        #[serde(with = "path_text")]
        folder: PathBuf,
        held: ForeignRestore,
    },
    /// Group of our own; `None`: it has ended, and with it its moves and nice levels. A new layout
    /// begins with the levels of those before.
    Own {
        name: String,
        own: Option<OwnRestore>,
    },
    /// Move of a process that existed before into a group of our own.
    Move {
        group: String,
        #[serde(flatten)]
        process: TaskId,
        /// Folders to which the process goes in the end, one a hierarchy.
        #[serde(with = "path_texts")]
        from: Vec<PathBuf>,
    },
    /// Creation of a parent of groups of our own. Undone by removing it once it is empty.
    Parent {
        #[serde(with = "path_text")]
        folder: PathBuf,
    },
    /// Switch of the cpu controller, which the children of a cgroup did not have. Undone when no
    /// group is left: a limit below would go with the controller.
    Enable {
        /// File `cgroup.subtree_control` of the cgroup.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// Inode of the cgroup: a later one of the same path belongs to others.
        inode: Option<u64>,
    },
    /// Setting of the kernel that holds for the whole machine. The next owner puts it back, and sets
    /// its own.
    Setting(FileRestore),
    /// Change of the nice level of a task that existed before.
    Renice {
        #[serde(flatten)]
        task: TaskId,
        old: i32,
        /// Nice level that is set. A different level found at undo is kept.
        new: i32,
        /// File `cgroup.procs` of the cgroup whose group gives the level.
        #[serde(with = "path_text")]
        processes: PathBuf,
    },
    /// Nice level for the tasks of a cgroup, which their children inherit. Undone for tasks that
    /// came later and have this level: they get the level of their nearest ancestor with a recorded
    /// one, else `old`. Limits: a task that left the cgroup before the undo is not found, and a
    /// task that set this same level itself cannot be distinguished from one that inherited it.
    ReniceGroup {
        /// File `cgroup.procs` of the cgroup.
        #[serde(with = "path_text")]
        processes: PathBuf,
        /// Nice level that most of its tasks had before.
        old: i32,
        new: i32,
    },
    /// End of the records of a foreign cgroup with its nice levels, of a parent, a setting or a
    /// controller, or, by the file `cgroup.procs`, of the levels of a cgroup: all is undone.
    Gone {
        #[serde(with = "path_text")]
        path: PathBuf,
    },
}

impl Entry {
    /// Returns the entry for the end of the records of a path.
    pub(crate) fn gone(path: &Path) -> Self {
        let path = path.to_owned();
        Self::Gone { path }
    }
}
