//! The workloads of one group: started at a word, so that all groups start
//! together, and ended with whoever holds the other end.
//!
//! A hidden command. Its standard input is a pipe from the benchmark: a line
//! starts the workloads, the end of the pipe ends them. It stays until that
//! end, so that its group can be read when the work is done.

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

/// Its name on the command line.
pub const COMMAND: &str = "launch";
/// Stands between the arguments of two workloads.
pub const AND: &str = "+";
/// How often it looks after its workloads and for signals, in ms.
const LOOK_EVERY_MS: u16 = 20;
/// The same while the workloads run. It is seldom, because whoever wakes up in
/// a group changes the share that the kernel gives to it.
const LOOK_SELDOM_MS: u16 = 1_000;
/// Workloads that began a moment late end a moment late, and a service waits a
/// second for answers that are due.
const GRACE: Duration = Duration::from_millis(1_500);

/// Arguments of `launch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What follows `load`, for each workload, with + between them
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Args {
    /// The arguments of each workload.
    pub fn loads(&self) -> Vec<&[OsString]> {
        self.words.split(|word| word == AND).collect()
    }
}

/// What the pipe brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Nothing,
    Start,
    End,
}

/// Runs workloads and prints the report of each, a line of JSON.
pub fn run(args: &Args) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let stdin = std::io::stdin();
    loop {
        match listen(&stdin, LOOK_EVERY_MS)? {
            Word::Start => break,
            Word::End => return Ok(ExitCode::SUCCESS),
            Word::Nothing if stop.is_set() => return Ok(exit_code(&stop)),
            Word::Nothing => (),
        }
    }
    let program =
        std::env::current_exe().map_err(CommandError::io("launch: cannot find plimsoll itself"))?;
    let loads = args.loads();
    let start = |load: &&[OsString]| start(&program, load);
    let mut running = loads.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut told = false;
    // A workload that ends early does not end the others, and the group stays.
    while !stop.is_set() && listen(&stdin, LOOK_SELDOM_MS)? != Word::End {
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

/// What is about to end by itself may do so.
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

/// Prints what a workload printed: one line of JSON, or an empty one and why.
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

/// Waits a moment for the other end of the pipe.
fn listen(stdin: &Stdin, at_most_ms: u16) -> Result<Word> {
    let failed = |error: std::io::Error| CommandError::io("launch: cannot read its input")(error);
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(at_most_ms)) {
        Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(Word::Nothing),
        Ok(_) => (),
        Err(error) => return Err(failed(error.into())),
    }
    let mut byte = [0];
    match stdin.lock().read(&mut byte) {
        Ok(0) => Ok(Word::End),
        Ok(_) => Ok(Word::Start),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Word::Nothing),
        Err(error) => Err(failed(error)),
    }
}

fn exit_code(stop: &Stop) -> ExitCode {
    stop.signal()
        .map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal))
}
