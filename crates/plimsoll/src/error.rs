//! Errors of commands, with their exit codes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_cgroupfs::CgroupError;
use plimsoll_daemon::control::client::ClientError;
use plimsoll_daemon::control::server::ServerError;
use plimsoll_daemon::service::NotEnforceable;
use plimsoll_engine::EngineError;
use plimsoll_engine::text_file::FileError;
use plimsoll_sim::interference::{ExperimentError, SamplesError};
use thiserror::Error;

/// A change is made, but cannot be printed: as of other tools, and not as of bad input.
pub const EXIT_UNPRINTED: u8 = 1;
/// Plimsoll itself failed, or was given bad input.
pub const EXIT_FAILED: u8 = 125;
/// The command was found but could not be run.
pub const EXIT_CANNOT_RUN: u8 = 126;
/// The command was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// The error of a command: one readable line.
#[derive(Debug, Error)]
pub enum CommandError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A process that the user names is not there, or cannot be opened.
    #[error(transparent)]
    Handle(#[from] plimsoll_daemon::control::handles::HandleError),
    /// The owner refused a request, or there is none.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error(transparent)]
    Load(#[from] plimsoll_load::LoadError),
    /// A text file, such as the configuration, is invalid.
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Samples(#[from] SamplesError),
    #[error("debug: {0}")]
    Scheduler(#[from] plimsoll_scx::SchedExtError),
    // Arguments that do not fit together, or not here.
    #[error("set: --all takes no knobs; allowed: --burst-enabled yes or no")]
    BurstWithKnobs,
    #[error("set: --reset forgets all knobs; allowed: --reset alone, or knobs")]
    ResetWithKnobs,
    #[error("set: no knob is given; see `plimsoll set --help` for the knobs")]
    NoKnob,
    #[error("set --reset: has no --dry-run; `plimsoll show` says what is in force")]
    ResetDryRun,
    #[error("{target}: is in no group but the root cgroup, which has no limits")]
    RootCgroup { target: String },
    #[error("{target}: has no usage rates of tasks; allowed: groups with a cap or soft-cap")]
    NoTaskRates { target: String },
    #[error("top needs a terminal as standard input and output; `top --once` does not")]
    NoTerminal,
    #[error(
        "top needs a terminal with cursor control, and TERM is `{}`; `top --once` does not",
        .term.display()
    )]
    DumbTerminal { term: OsString },
    #[error(
        "samples: a file and the distribution `empirical` need each other; \
         allowed: --samples FILE alone"
    )]
    SamplesAlone,
    // The daemon.
    #[error(
        "a daemon runs already (pid {pid}); end it first, or change its file and use \
         `plimsoll reload`"
    )]
    RunsAlready { pid: u32 },
    #[error("{}: {source}", .file.display())]
    NotEnforceable {
        file: PathBuf,
        source: Box<NotEnforceable>,
    },
    #[error(transparent)]
    Service(Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Control(#[from] ServerError),
    // Workloads and drawings.
    /// A workload of `demo` failed.
    #[error("{what} failed: {reason}")]
    Workload {
        /// Role of the process.
        what: String,
        /// Last message of the process, or its exit status.
        reason: String,
    },
    #[error("demo: phase {phase}: the service did not end in time")]
    ServiceTooLong {
        /// Key of the phase.
        phase: &'static str,
    },
    #[error("plot: `{}` has an unknown format; allowed: a name that ends in .svg", .0.display())]
    PictureFormat(PathBuf),
    #[error("plot: cannot draw: {0}")]
    Draw(String),
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
    #[error("cannot print JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// The knobs that `doctor` plans are invalid.
    #[error("doctor: {0}")]
    Doctor(#[source] serde_json::Error),
    /// The process that was to run the command has died.
    #[error("the command could not be started")]
    NotStarted,
    /// The command of `run` is nowhere on the PATH.
    #[error("{}: not found", if .command.is_empty() { "''" } else { .command.as_str() })]
    NotFound { command: String },
    #[error("{command}: cannot be run: {source}")]
    CannotRun { command: String, source: io::Error },
    #[error("{what}: {source}")]
    Io {
        /// The operation, or the file.
        what: String,
        source: io::Error,
    },
}

/// The owner cannot be had, or does not do what was asked.
#[derive(Debug, Error)]
pub enum OwnerError {
    #[error("no daemon runs; `systemctl start plimsoll`, or `plimsoll daemon`, starts one")]
    None,
    #[error("set --reset: {}", Self::None)]
    NoneToReset,
    /// The text is the owner's.
    #[error("{0}")]
    Refused(String),
    #[error("the daemon is ending")]
    Ending,
    #[error("the owner answers {0} to another request")]
    OtherAnswer(&'static str),
    /// Another process owns the tree by now, or is about to end.
    #[error("another process owns the cgroups here and does not answer")]
    Taken,
    /// The text is the new owner's.
    #[error("{0}")]
    Itself(String),
    #[error("cannot start the owner: {0}")]
    Start(#[from] io::Error),
    #[error(
        "another process owns the cgroups below {}, and nobody answers in {}: it has \
         another PLIMSOLL_RUNTIME_DIR, or is in a container; end it first",
        .cgroups.display(),
        .runtime.display()
    )]
    OtherRuntime {
        /// Root of the tree.
        cgroups: PathBuf,
        /// Runtime folder of this process.
        runtime: PathBuf,
    },
    #[error("another process owns the cgroups here, and nobody answers; end it first")]
    Silent,
    #[error("the owner that a command has started (pid {pid}) does not end; end it first")]
    Remains { pid: u32 },
}

impl From<CgroupError> for CommandError {
    fn from(error: CgroupError) -> Self {
        EngineError::from(error).into()
    }
}

impl CommandError {
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Returns whether an owner has ended without carrying out a request.
    pub fn is_end_of_owner(&self) -> bool {
        matches!(
            self,
            Self::Owner(OwnerError::Ending)
                | Self::Client(ClientError::Ended {
                    is_unread: true,
                    ..
                })
        )
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NotFound { .. } => EXIT_NOT_FOUND,
            Self::CannotRun { .. } => EXIT_CANNOT_RUN,
            _ => EXIT_FAILED,
        })
    }
}

pub type Result<T> = std::result::Result<T, CommandError>;
