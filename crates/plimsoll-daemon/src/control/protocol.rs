//! Requests and answers.
//!
//! A connection carries any number of requests, one after the other, each a
//! line of JSON of limited length, each answered by one line. A client may be
//! left between two requests when others wait; it connects again.

use std::path::PathBuf;

use plimsoll_engine::host::Mode;
use plimsoll_engine::knobs::Knobs;
use serde::{Deserialize, Serialize};

use crate::config::EnforcerWanted;
use crate::state::{Group, State};

/// The version of requests and answers.
pub const VERSION: u32 = 2;
/// No request is longer.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// What is longer of a command's text for people is cut off.
pub const SUBJECT_CHARS_MAX: usize = 1024;
/// The socket's name in the runtime folder.
pub const SOCKET: &str = "control.sock";

/// A request with its version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// `VERSION`.
    pub version: u32,
    /// What is asked.
    pub request: Request,
}

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The state; anybody may ask.
    Show {
        /// Only this: the name of a group, the path of a cgroup with a `/` in
        /// front, or a pid.
        #[serde(default)]
        target: Option<String>,
        /// With the plan of each group, and the counts of each CPU.
        #[serde(default)]
        details: bool,
    },
    /// The state of one group with details, and with the usage rates of its tasks if
    /// it has a cap; anybody may ask.
    Tasks {
        /// As of `show`.
        target: String,
    },
    /// Lay knobs over those of the file and of attributes.
    Set(Box<Set>),
    /// Forget what was `set`: the file and the attributes hold again.
    Reset {
        /// As of `show`.
        target: String,
    },
    /// Make a group for a process of the asker's that is about to start a
    /// command, and move it there. The group ends with its processes.
    Run(Box<Run>),
    /// What a group of `run` has used, and that it is not needed any more.
    End {
        /// The group's name.
        name: String,
        /// Put its processes back although some still run.
        release: bool,
    },
    /// Switch bursts off for all groups, whatever the file says, or let the file say
    /// again.
    Burst {
        /// As the file says.
        enabled: bool,
    },
    /// Read the configuration file again.
    Reload,
    /// All that the owner knows of itself, as text for people.
    Debug,
    /// Forget everything that was `set`, of an owner without a configuration file.
    Restore,
}

/// A client's choice of enforcer and mode for a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Which interface of the kernel to use.
    #[serde(default)]
    pub enforcer: EnforcerWanted,
    /// Which tasks the scheduler schedules; `None`: as it is loaded, else partial.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// Go on without what cannot be enforced.
    #[serde(default)]
    pub best_effort: bool,
    /// Say what would be done, and do nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Knobs for a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// As of `show`; a cgroup or a process that is in no group gets one.
    pub target: String,
    /// What is asked for.
    pub knobs: Knobs,
    /// By what, and how strictly.
    #[serde(default)]
    pub choice: Choice,
}

/// A group for a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The group's name.
    pub name: String,
    /// The process; it has to be the asker's own.
    pub pid: i32,
    /// The command, for people: up to [`SUBJECT_CHARS_MAX`] characters of it.
    pub subject: String,
    /// What is asked for.
    pub knobs: Knobs,
    /// By what, and how strictly.
    #[serde(default)]
    pub choice: Choice,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To `show`.
    State(Box<State>),
    /// To `set`, `reset`, `run` and `end`: the groups as they are now, or as
    /// they would be.
    Groups {
        /// The groups.
        groups: Vec<Group>,
        /// What people should be told, a line each.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `reload`.
    Reloaded {
        /// The file.
        config: PathBuf,
        /// Groups of the file.
        rules: usize,
        /// Groups that are there now.
        groups: usize,
        /// What people should be told, a line each.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `debug`.
    Text(String),
    /// To `restore`.
    Restored {
        /// The targets that are as they were.
        undone: Vec<String>,
        /// Values that could not be put back, or that others have changed since.
        problems: Vec<String>,
    },
    /// Why not: one line.
    Refused(String),
    /// The owner is ending and has done nothing: ask the next one.
    Ending,
    /// Too many ask at once: ask again on a new connection.
    Busy,
}
