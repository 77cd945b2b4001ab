//! The lines of a journal.

use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::name::{path_text, path_texts};
use serde::{Deserialize, Serialize};

use crate::knobs::Knobs;

/// Version of the lines. A journal of another version is refused, not guessed at.
pub const VERSION: u32 = 5;

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

/// One change, with the data needed to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
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
    /// Begin of a group of our own.
    Group {
        name: String,
        /// Command of a `run`, or target of a `set`.
        subject: String,
        knobs: Knobs,
        /// Folders to which its processes go in the end, one a hierarchy.
        #[serde(with = "path_texts")]
        evacuate_to: Vec<PathBuf>,
        /// Nice level of its first process before.
        nice: i32,
    },
    /// Creation of a cgroup of such a group, one folder a hierarchy. Undone by moving the processes
    /// that still run in it to the group's `evacuate_to` and removing it.
    Create {
        group: String,
        /// Number of the layout whose outermost cgroup it is; 0: the first one.
        generation: u32,
        #[serde(with = "path_texts")]
        folders: Vec<PathBuf>,
    },
    /// Change of the knobs of such a group.
    Change {
        group: String,
        /// All of the group's knobs, not only the changed ones.
        knobs: Knobs,
        /// Number of the layout that has these knobs.
        generation: u32,
    },
    /// End of a layout of such a group: its processes are in a later one, and its cgroups removed.
    Replaced { group: String, generation: u32 },
    /// Move of a process that existed before into such a group.
    Move {
        group: String,
        pid: i32,
        /// Start time of the process, which distinguishes it from a later one of the same pid.
        start_time: u64,
        /// Folders to which the process goes in the end, one a hierarchy.
        #[serde(with = "path_texts")]
        from: Vec<PathBuf>,
    },
    /// End of such a group: earlier entries about it are undone.
    Ended { group: String },
    /// Write to a kernel file that existed before.
    Write {
        #[serde(with = "path_text")]
        path: PathBuf,
        old: String,
        new: String,
    },
    /// Write to a setting of the kernel that holds for the whole machine. The next owner puts it
    /// back, and sets its own.
    Setting {
        #[serde(with = "path_text")]
        path: PathBuf,
        old: String,
        new: String,
    },
    /// Change of the nice level of a task that existed before.
    Renice {
        tid: i32,
        start_time: u64,
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
    /// Control loop that continuously writes a kernel file that existed before. Undone by writing
    /// `old` unconditionally, because an external value cannot be distinguished from one of the
    /// loop. The weight of a cgroup that is idle at the end is skipped, because an idle cgroup has
    /// no weight.
    Control {
        #[serde(with = "path_text")]
        path: PathBuf,
        /// Value before the loop started.
        old: String,
    },
    /// Release of files: earlier entries about them, and about tasks of their cgroups, are undone or
    /// obsolete, and undo skips them.
    Released {
        /// Files, or cgroups with all files in them.
        #[serde(with = "path_texts")]
        paths: Vec<PathBuf>,
    },
    /// File that Plimsoll writes for other programs to read. Undone by removing it.
    Publish {
        #[serde(with = "path_text")]
        path: PathBuf,
    },
    /// Hold of a foreign cgroup. Entries about its files refer to the cgroup with this inode, not
    /// to a cgroup recreated at the same path.
    Hold {
        #[serde(with = "path_text")]
        folder: PathBuf,
        inode: u64,
    },
    /// End of a hold: the cgroup is in no group any more, and the kernel refused to put its files
    /// back. They are tried again.
    Refused {
        #[serde(with = "path_text")]
        folder: PathBuf,
    },
    /// Pins of BPF maps and programs. Undone by removing the folder.
    Pin {
        /// Folder of ours in a BPF file system.
        #[serde(with = "path_text")]
        folder: PathBuf,
    },
}

impl Entry {
    /// Returns the entry for a file or a cgroup that is put back.
    pub(crate) fn released(path: &Path) -> Self {
        Self::Released {
            paths: vec![path.to_owned()],
        }
    }
}
