//! Arguments that do not fit together, or not here.

use thiserror::Error;

#[derive(Debug, Error)]
pub enum UsageError {
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
    #[error("threads: `{given}` is out of range; allowed: 1 to {max}")]
    Threads { given: usize, max: usize },
    #[error(
        "samples: a file and the distribution `empirical` need each other; \
         allowed: --samples FILE alone"
    )]
    SamplesAlone,
}
