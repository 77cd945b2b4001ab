//! The lines of a journal.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::knobs::Knobs;

/// The version of the lines that are written. Versions 1 and 2, which had fewer
/// kinds of them, are read too; lines of a later one are refused, not guessed
/// at.
pub const VERSION: u32 = 3;

/// Who keeps a journal and why. Its first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`] of the plimsoll that wrote it.
    pub version: u32,
    /// The group's name.
    pub name: String,
    /// Who wrote it; for people, the lock is what counts.
    pub pid: u32,
    /// Outlives the process that wrote it, until `restore`.
    pub persistent: bool,
    /// The command of a `run`, or the target of a `set`.
    pub subject: String,
    /// What was asked for.
    pub knobs: Knobs,
    /// The boot in which it was written (`/proc/sys/kernel/random/boot_id`). Cgroups, processes
    /// and what is in the kernel of another boot are gone. `None`: of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

/// One change, with what it takes to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A cgroup is created, one folder a hierarchy. Undone by moving what
    /// still runs in it to `evacuate_to` and removing it.
    Create {
        /// The folders.
        folders: Vec<PathBuf>,
        /// Where its processes go.
        evacuate_to: Vec<PathBuf>,
    },
    /// A kernel file that was there before us is written.
    Write {
        /// The file.
        path: PathBuf,
        /// What it held.
        old: String,
        /// What it holds now.
        new: String,
    },
    /// A process that was there before us is moved.
    Move {
        /// The process.
        pid: i32,
        /// Its start time, which tells it from a later one of the same pid.
        start_time: u64,
        /// Where it was.
        from: Vec<PathBuf>,
    },
    /// The nice level of a task that was there before us is changed.
    Renice {
        /// The task.
        tid: i32,
        /// Its start time.
        start_time: u64,
        /// Its nice level before.
        old: i32,
        /// What it is set to; when it has another at the end, that stays.
        /// `None`: it gets `old` back whatever it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        new: Option<i32>,
    },
    /// The tasks of a cgroup are given a nice level, which what they start
    /// inherits. Undone for those that came since and have it: they get that of
    /// the nearest task they descend from of which it is known, else `old`.
    /// What cannot be undone: of a task that has left the cgroup before, nobody
    /// knows that it is from there; and one that gave itself that very level
    /// cannot be told from one that inherited it.
    ReniceGroup {
        /// The cgroup's `cgroup.procs`.
        processes: PathBuf,
        /// What most of its tasks had before.
        old: i32,
        /// What they are set to.
        new: i32,
    },
    /// A kernel file that was there before us is written all the time by a
    /// loop of ours. Undone by writing `old`, whatever it holds: a value of
    /// somebody else cannot be told from one of the loop. A weight is left out
    /// where the cgroup is idle in the end, for then it has none.
    Control {
        /// The file.
        path: PathBuf,
        /// What it held before the loop.
        old: String,
    },
    /// `+cpu` is written to a `cgroup.subtree_control` that was there before
    /// us. Undone by `-cpu`, unless groups of ours are directly below.
    Enable {
        /// The file.
        path: PathBuf,
    },
    /// What was written above of these is put back, or removed: nothing of it is
    /// left to undo.
    Released {
        /// Files, or cgroups with all files in them.
        paths: Vec<PathBuf>,
        /// Tasks whose nice level was changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tasks: Vec<i32>,
        /// Processes that were moved.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        processes: Vec<i32>,
    },
    /// The tasks of a cgroup and of all below it are handed to a BPF
    /// scheduler. Undone by handing all of them back to the fair class.
    Schedule {
        /// The cgroup's folder.
        folder: PathBuf,
        /// The policy of tasks of which nothing else is known: `SCHED_OTHER`,
        /// or that of whoever starts them.
        #[serde(default)]
        policy: i32,
    },
    /// The policy of a task that was there before us, or came with one of its
    /// own, is changed. Undone for its children too, which inherit it.
    Repolicy {
        /// The task.
        tid: i32,
        /// Its start time.
        start_time: u64,
        /// Its policy before: `SCHED_OTHER`, `SCHED_BATCH` or `SCHED_IDLE`.
        old: i32,
    },
    /// A file of ours is written that others read. Undone by removing it.
    Publish {
        /// The file.
        path: PathBuf,
    },
    /// A foreign cgroup is taken: entries of files in it mean the cgroup that has this inode, and
    /// no later one of the same path.
    Hold {
        /// Its folder.
        folder: PathBuf,
        /// The folder's inode.
        inode: u64,
    },
    /// A group of ours has these knobs from now on, instead of those of the header.
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
        folder: PathBuf,
    },
}
