//! Arguments that do not fit together, or not here.

use thiserror::Error;

/// Arguments that are valid one by one, but not together or not here.
#[derive(Debug, Error)]
pub enum UsageError {
    /// `set --burst-enabled` was given knobs.
    #[error("set: --all takes no knobs; allowed: --burst-enabled yes or no")]
    BurstWithKnobs,
    /// `set --reset` was given knobs.
    #[error("set: --reset forgets all knobs; allowed: --reset alone, or knobs")]
    ResetWithKnobs,
    /// `set` was given no knob.
    #[error("set: no knob is given; see `plimsoll set --help` for the knobs")]
    NoKnob,
    /// `set --reset` was given `--dry-run`.
    #[error("set --reset: has no --dry-run; `plimsoll show` says what is in force")]
    ResetDryRun,
    /// `show` was asked for the root cgroup.
    #[error("{target}: is in no group but the root cgroup, which has no limits")]
    RootCgroup {
        /// Target, as given.
        target: String,
    },
    /// `show` was asked for the tasks of a group whose tasks are not measured.
    #[error("{target}: has no usage rates of tasks; allowed: groups with a cap or soft-cap")]
    NoTaskRates {
        /// Target, as given.
        target: String,
    },
    /// `top` does not run in a terminal.
    #[error("top needs a terminal as standard input and output; `top --once` does not")]
    NoTerminal,
    /// The number of threads is out of range.
    #[error("threads: `{given}` is out of range; allowed: 1 to {max}")]
    Threads {
        /// Number, as given.
        given: usize,
        /// Largest number allowed.
        max: usize,
    },
    /// Samples without the distribution that uses them, or the reverse.
    #[error(
        "samples: a file and the distribution `empirical` need each other; \
         allowed: --samples FILE alone"
    )]
    SamplesAlone,
}
