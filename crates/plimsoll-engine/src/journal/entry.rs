//! The lines of a journal.

use std::path::PathBuf;

use plimsoll_cgroupfs::name::{path_text, path_texts};
use serde::{Deserialize, Serialize};

use crate::knobs::Knobs;

/// The version of the lines. Those of another one are refused, not guessed at.
pub const VERSION: u32 = 3;

/// First line of a journal: its writer and its purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`] of the plimsoll that wrote it.
    pub version: u32,
    /// The group's name.
    pub name: String,
    /// Pid of the writer. For information only: the lock decides which process owns the journal.
    pub pid: u32,
    /// The command of a `run`, or the target of a `set`.
    pub subject: String,
    /// Knobs that were requested.
    pub knobs: Knobs,
    /// Boot in which it was written (`/proc/sys/kernel/random/boot_id`). Cgroups, processes and
    /// kernel state of another boot are gone. `None`: the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

/// One change, with the data needed to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A cgroup is created, one folder a hierarchy. Undone by moving the processes
    /// that still run in it to `evacuate_to` and removing it.
    Create {
        /// The folders.
        #[serde(with = "path_texts")]
        folders: Vec<PathBuf>,
        /// Where its processes go.
        #[serde(with = "path_texts")]
        evacuate_to: Vec<PathBuf>,
    },
    /// A kernel file that existed before is written.
    Write {
        /// The file.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// Value before the write.
        old: String,
        /// Value written.
        new: String,
    },
    /// A choice of a kernel file that lists all, the present one in brackets, is made.
    Choose {
        /// The file.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// The one before.
        old: String,
        /// The one that is made instead.
        new: String,
    },
    /// A process that existed before is moved.
    Move {
        /// The process.
        pid: i32,
        /// Its start time, which tells it from a later one of the same pid.
        start_time: u64,
        /// Where it was.
        #[serde(with = "path_texts")]
        from: Vec<PathBuf>,
    },
    /// The nice level of a task that existed before is changed.
    Renice {
        /// The task.
        tid: i32,
        /// Its start time.
        start_time: u64,
        /// Its nice level before.
        old: i32,
        /// Nice level that is set. A different level found at undo is kept.
        new: i32,
    },
    /// The tasks of a cgroup are given a nice level, which their children inherit.
    /// Undone for tasks that came later and have this level: they get the level of
    /// their nearest ancestor with a recorded one, else `old`. Limits: a task that
    /// left the cgroup before the undo is not found, and a task that set this same
    /// level itself cannot be distinguished from one that inherited it.
    ReniceGroup {
        /// The cgroup's `cgroup.procs`.
        #[serde(with = "path_text")]
        processes: PathBuf,
        /// Nice level that most of its tasks had before.
        old: i32,
        /// Nice level that is set.
        new: i32,
    },
    /// A control loop continuously writes a kernel file that existed before.
    /// Undone by writing `old` unconditionally, because an external value cannot be
    /// distinguished from one of the loop. The weight of a cgroup that is idle at
    /// the end is skipped, because an idle cgroup has no weight.
    Control {
        /// The file.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// Value before the loop started.
        old: String,
    },
    /// Earlier entries about these files, tasks and processes are undone or obsolete;
    /// undo skips them.
    Released {
        /// Files, or cgroups with all files in them.
        #[serde(with = "path_texts")]
        paths: Vec<PathBuf>,
        /// Tasks whose nice level was changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tasks: Vec<i32>,
        /// Processes that were moved.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        processes: Vec<i32>,
    },
    /// Plimsoll writes a file for other programs to read. Undone by removing it.
    Publish {
        /// The file.
        #[serde(with = "path_text")]
        path: PathBuf,
    },
    /// A foreign cgroup is taken. Entries about its files refer to the cgroup with this inode, not
    /// to a cgroup recreated at the same path.
    Hold {
        /// Its folder.
        #[serde(with = "path_text")]
        folder: PathBuf,
        /// The folder's inode.
        inode: u64,
    },
    /// A group has these knobs from now on, instead of those of the header.
    Change {
        /// All of its knobs.
        knobs: Knobs,
        /// Which of the cgroups that are built one after the other for the group has them.
        #[serde(default)]
        generation: u32,
    },
    /// BPF maps and programs are pinned. Undone by removing the folder.
    Pin {
        /// A folder of ours in a BPF file system.
        #[serde(with = "path_text")]
        folder: PathBuf,
    },
}
