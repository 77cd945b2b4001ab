//! The commands that measure waits: for a CPU, and for a lock.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::duration;
use super::output::{Progress, print};
use crate::contend::{self, HoldConfig, LockKind, WaitConfig};
use crate::error::LoadError;
use crate::stop::Stop;
use crate::wake::{self, WakeConfig};

pub(super) const WAKE_EXAMPLES: &str = "Examples:
  plimsoll load wake --every 2ms --duration 10s
  taskset -c 1 plimsoll load wake --json";

pub(super) const LOCK_EXAMPLES: &str = "Examples:
  plimsoll run --class batch -- plimsoll load hold /dev/shm/lock --duration 30s
  plimsoll load wait /dev/shm/lock --duration 20s
  plimsoll run --class batch -- plimsoll load hold /dev/shm/lock --write-mib 4
  plimsoll load wait /dev/shm/lock --write

FILE is made if it is not there. The lock is in its memory; with --write-mib and --write it
is the kernel's own lock of the file, which is held during a write to it.";

#[derive(Debug, clap::Args)]
pub(super) struct WakeArgs {
    /// Time between two wake-ups, 100us to 1m
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = duration, allow_hyphen_values = true)]
    every: Duration,
    /// Duration of the run, up to 24h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    duration: Duration,
}

#[derive(Debug, clap::Args)]
pub(super) struct HoldArgs {
    /// Lock file, the same for `hold` and `wait`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// CPU time for which the lock is held, 1us to 10s
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = duration, allow_hyphen_values = true)]
    section: Duration,
    /// Hold the kernel's lock of the file instead, by writes of this size, 1 to
    /// 1024 MiB
    #[arg(
        long,
        value_name = "MIB",
        conflicts_with = "section",
        allow_hyphen_values = true
    )]
    write_mib: Option<u64>,
    /// CPU time between two sections, 1us to 10s
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = duration, allow_hyphen_values = true)]
    pause: Duration,
    /// Duration of the run, up to 24h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    duration: Duration,
}

#[derive(Debug, clap::Args)]
pub(super) struct WaitArgs {
    /// Lock file, the same for `hold` and `wait`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Acquire the kernel's lock of the file instead, by writing a byte
    #[arg(long)]
    write: bool,
    /// Time between the end of a round and the next, 100us to 1m
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration, allow_hyphen_values = true)]
    every: Duration,
    /// Duration of the run, up to 24h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    duration: Duration,
}

/// Shows the progress of `run`, and prints its report.
fn run_and_print<R: Serialize + Display>(
    json: bool,
    name: &'static str,
    run: impl FnOnce(&mut dyn FnMut(Duration)) -> Result<R, LoadError>,
) -> Result<bool, LoadError> {
    let mut progress = Progress::new();
    let report = run(&mut |elapsed| progress.show(|| format!("{} s", elapsed.as_secs())))?;
    progress.clear();
    print(json, name, report)?;
    Ok(true)
}

pub(super) fn wake(args: &WakeArgs, json: bool, stop: &Stop) -> Result<bool, LoadError> {
    let config = WakeConfig {
        every: args.every,
        duration: args.duration,
    };
    run_and_print(json, "wake", |progress| wake::run(&config, stop, progress))
}

pub(super) fn hold(args: &HoldArgs, json: bool, stop: &Stop) -> Result<bool, LoadError> {
    let config = HoldConfig {
        file: args.file.clone(),
        write_mib: args.write_mib,
        section: args.section,
        pause: args.pause,
        duration: args.duration,
    };
    run_and_print(json, "hold", |progress| {
        contend::hold(&config, stop, progress)
    })
}

pub(super) fn wait(args: &WaitArgs, json: bool, stop: &Stop) -> Result<bool, LoadError> {
    let config = WaitConfig {
        file: args.file.clone(),
        lock: if args.write {
            LockKind::File
        } else {
            LockKind::Memory
        },
        every: args.every,
        duration: args.duration,
    };
    run_and_print(json, "wait", |progress| {
        contend::wait(&config, stop, progress)
    })
}
