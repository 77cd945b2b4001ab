//! Requests and answers.
//!
//! A connection carries any number of requests, one after the other, each a
//! line of JSON of limited length, each answered by one line. A client may be
//! left between two requests when others wait; it connects again.
//!
//! A request about a process comes with a pidfd of it, one about a cgroup may come with its folder,
//! opened with `O_PATH`: files as of `SCM_RIGHTS` (unix(7)), sent with the first byte.

use std::path::PathBuf;

use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::undo::UndoReport;
use serde::{Deserialize, Serialize};

use crate::config::EnforcerWanted;
use crate::state::{GroupState, State};

pub const VERSION: u32 = 5;
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of the description of a command; the rest is cut off.
pub const SUBJECT_CHARS_MAX: usize = 1024;
/// The socket's name in the runtime folder.
pub const SOCKET: &str = "control.sock";
/// Group whose members may connect to root's owner: the group of its socket.
pub const OPERATORS: &str = "plimsoll";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// `VERSION`.
    pub version: u32,
    pub request: Request,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Read the state.
    Show {
        /// The only target to show: the name of a group, the path of a cgroup with a `/` in front,
        /// or the number of a process whose pidfd comes with the request.
        #[serde(default)]
        target: Option<String>,
        /// With the plan of each group, and the counts of each CPU.
        #[serde(default)]
        details: bool,
    },
    /// Read the state of one group with details, and with the usage rates of its tasks if it
    /// has a cap.
    Tasks {
        /// A target as of [`Request::Show`].
        target: String,
    },
    /// Lay knobs over those of the file.
    Set(Box<SetRequest>),
    /// Remove knobs that were `set`: the file applies again.
    Reset {
        /// A target as of [`Request::Show`].
        target: String,
    },
    /// Make a group for a process that is about to start a command, and move the process there. Its
    /// pidfd comes with the request. The group ends with its processes.
    Run(Box<RunRequest>),
    /// End a group of `run`, and read its usage.
    End {
        name: String,
        /// Put its processes back although some still run.
        release: bool,
    },
    /// Switch bursts off for all groups, or have the file decide again.
    Burst {
        /// False: off. True: the file decides.
        enabled: bool,
    },
    Reload,
    /// Read the owner's own state, as text for people.
    Debug,
    /// Remove all knobs that were `set`, and the groups of a daemon that was killed. A daemon with a
    /// configuration file keeps them.
    Restore,
}

impl Request {
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        matches!(self, Self::Show { .. } | Self::Tasks { .. } | Self::Debug)
    }

    /// Returns whether an owner that is started for it can answer it. One without a configuration
    /// file, and without a past, has nothing to reload, to restore or to tell.
    #[must_use]
    pub fn suits_a_new_owner(&self) -> bool {
        !matches!(self, Self::Reload | Self::Restore | Self::Debug)
    }

    /// Returns whether carrying it out twice is the same as once, with the same answer: it only
    /// reads, or it says what is to be, not what is to change.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.changes_nothing() || matches!(self, Self::Set(_) | Self::Burst { .. } | Self::Reload)
    }
}

/// A client's choice of enforcer for a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    #[serde(default)]
    pub enforcer: EnforcerWanted,
    /// Continue without knobs that cannot be enforced.
    #[serde(default)]
    pub best_effort: bool,
    /// Answer with the plan, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRequest {
    /// A target as of [`Request::Show`]; a cgroup or a process that is in no group gets one.
    pub target: String,
    pub knobs: Knobs,
    #[serde(default)]
    pub choice: Choice,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    pub name: String,
    /// Whether `-` and the pid of the process, as the owner sees it, are appended to the name.
    #[serde(default)]
    pub is_numbered: bool,
    /// The command, for people: up to [`SUBJECT_CHARS_MAX`] characters of it.
    pub subject: String,
    pub knobs: Knobs,
    #[serde(default)]
    pub choice: Choice,
}

/// The file that an owner has read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    pub config: PathBuf,
    /// Groups of the file.
    pub rules: usize,
    /// Groups that are there now.
    pub groups: usize,
    /// Warnings for people, a line each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To `show` and `tasks`.
    State(Box<State>),
    /// To `set`, `reset`, `run` and `end`: the groups as they are now, or as they would be. To
    /// `burst`: no groups.
    Groups {
        groups: Vec<GroupState>,
        /// Warnings for people, a line each.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To `reload`.
    Reloaded(ReloadReport),
    /// To `debug`.
    Text(String),
    /// To `restore`.
    Restored(UndoReport),
    /// The request is refused: the reason in one line.
    Refused(String),
    /// The owner is ending and has done nothing: send the request to the next one.
    Ending,
}
