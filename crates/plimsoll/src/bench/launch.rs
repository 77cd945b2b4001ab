//! Launcher of the workloads of one group. It starts them on a command, so that
//! all groups start together, and ends them when the benchmark closes the pipe.
//!
//! A hidden command. Its standard input is a pipe from the benchmark: a line
//! starts the workloads, the end of the pipe ends them. It stays until then, so
//! that the benchmark can read the counters of its group after the work is
//! done.

use std::ffi::OsString;
use std::io::{ErrorKind, Read as _, Stdin, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use plimsoll_load::Stop;

use crate::error::{CommandError, Result};
use crate::nested::{Leash, Running};
use crate::output;

/// Name of the command.
pub const COMMAND: &str = "launch";
/// Separator between the arguments of two workloads.
pub const AND: &str = "+";
/// Interval in ms at which it checks its workloads and signals.
const LOOK_EVERY_MS: u16 = 20;
/// The same interval while the workloads run. Long, because a task that wakes
/// up in a group changes the share that the kernel gives to the group.
const LOOK_SELDOM_MS: u16 = 1_000;
/// Time for workloads to end by themselves: they may have started a moment
/// late, and a service waits a second for pending answers.
const GRACE: Duration = Duration::from_millis(1_500);

/// Arguments of `launch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Arguments after `load`, for each workload, separated by +
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Args {
    /// Arguments of each workload.
    pub fn loads(&self) -> Vec<&[OsString]> {
        self.words.split(|word| word == AND).collect()
    }
}

/// Input from the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Nothing,
    Start,
    End,
}

/// Runs workloads and prints the report of each as a line of JSON.
pub fn run(args: &Args) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let stdin = std::io::stdin();
    loop {
        match listen(&stdin, LOOK_EVERY_MS)? {
            Input::Start => break,
            Input::End => return Ok(ExitCode::SUCCESS),
            Input::Nothing if stop.is_set() => return Ok(exit_code(&stop)),
            Input::Nothing => (),
        }
    }
    let program =
        std::env::current_exe().map_err(CommandError::io("launch: cannot find plimsoll itself"))?;
    let loads = args.loads();
    let start = |load: &&[OsString]| start(&program, load);
    let mut running = loads.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut told = false;
    // A workload that ends early does not end the others, and the group stays.
    while !stop.is_set() && listen(&stdin, LOOK_SELDOM_MS)? != Input::End {
        let mut all_ended = true;
        for load in &mut running {
            all_ended &= load.has_ended()?;
        }
        if all_ended && !told {
            told = true;
            running.drain(..).try_for_each(finish)?;
        }
    }
    wait_for_the_last(&mut running, &stop)?;
    for load in &mut running {
        load.ask_to_end()?;
    }
    running.drain(..).try_for_each(finish)?;
    Ok(exit_code(&stop))
}

/// Waits for workloads that are about to end by themselves.
fn wait_for_the_last(running: &mut [Running], stop: &Stop) -> Result<()> {
    let end = Instant::now() + GRACE;
    while Instant::now() < end && !stop.is_set() {
        let mut all_ended = true;
        for load in running.iter_mut() {
            all_ended &= load.has_ended()?;
        }
        if all_ended {
            break;
        }
        std::thread::sleep(Duration::from_millis(LOOK_EVERY_MS.into()));
    }
    Ok(())
}

fn start(program: &Path, load: &[OsString]) -> Result<Running> {
    let kind = load
        .first()
        .map_or_else(String::new, |word| word.to_string_lossy().into_owned());
    let mut words = vec![OsString::from("load")];
    words.extend(load.iter().cloned());
    words.push("--json".into());
    Running::start(program, words, format!("load {kind}"), Leash::None)
}

/// Prints the report of a workload: one line of JSON, or an empty line with the
/// reason on standard error.
fn finish(load: Running) -> Result<()> {
    let ended = load.finish()?;
    let report = ended.output().trim();
    if report.is_empty() {
        output::tell(&ended.failure().to_string());
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{report}")
        .and_then(|()| out.flush())
        .map_err(CommandError::io("standard output"))
}

/// Waits up to `at_most_ms` for input from the pipe.
fn listen(stdin: &Stdin, at_most_ms: u16) -> Result<Input> {
    let failed = |error: std::io::Error| CommandError::io("launch: cannot read its input")(error);
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(at_most_ms)) {
        Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(Input::Nothing),
        Ok(_) => (),
        Err(error) => return Err(failed(error.into())),
    }
    let mut byte = [0];
    match stdin.lock().read(&mut byte) {
        Ok(0) => Ok(Input::End),
        Ok(_) => Ok(Input::Start),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Input::Nothing),
        Err(error) => Err(failed(error)),
    }
}

fn exit_code(stop: &Stop) -> ExitCode {
    stop.signal()
        .map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal))
}
