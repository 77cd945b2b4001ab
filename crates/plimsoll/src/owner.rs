//! The owner of the cgroup tree, as commands ask it: the one process that decides and writes.
//!
//! Where none runs, [`Owner::find_or_start`] starts one: the same program, which ends by itself
//! soon after the last group.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::config::EnforcerWanted;
use plimsoll_daemon::control::client::Client;
use plimsoll_daemon::control::protocol::{Answer, Choice, Request, SOCKET};
use plimsoll_daemon::state::{Group, State};
use plimsoll_engine::host::Mode;
use plimsoll_engine::runtime::{Ownership, RuntimeFolder};

use crate::cli::{EnforcerChoice, PlanArgs};
use crate::daemon::READY;
use crate::error::{CommandError, Result};
use crate::output;

/// What to do where a daemon is needed and none runs.
pub const NO_DAEMON: &str =
    "no daemon runs; `systemctl start plimsoll`, or `plimsoll daemon`, starts one";
/// Two commands may start an owner at the same time, and one may end just when it is asked: the
/// command looks again for so long.
const START_MAX: Duration = Duration::from_secs(10);
/// An owner that ends does so within this time.
const END_MAX: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A connection to an owner.
pub struct Owner {
    runtime: RuntimeFolder,
    client: Client,
}

impl Owner {
    /// The owner that keeps its socket in a runtime folder. `None`: none runs, or it is another
    /// user's, who may have made the folder to be asked.
    pub fn at(runtime: &RuntimeFolder) -> Result<Option<Self>> {
        let client = Client::connect(&runtime.path().join(SOCKET))?;
        let is_trusted = |client: &Client| {
            let uid = client.uid();
            uid == Some(0) || uid == Some(geteuid().as_raw())
        };
        Ok(client.filter(is_trusted).map(|client| Self {
            runtime: runtime.clone(),
            client,
        }))
    }

    /// The owner of this host's tree, which anybody may ask.
    pub fn of_host() -> Result<Option<Self>> {
        Self::at(&RuntimeFolder::of_this_host())
    }

    /// Every owner that this user may ask: their own, and the host's.
    pub fn all() -> Result<Vec<Self>> {
        let (own, host) = (RuntimeFolder::of_this_user(), RuntimeFolder::of_this_host());
        let mut found: Vec<Self> = Vec::new();
        if own != host {
            // A folder that cannot be used is nothing to ask.
            found.extend(Self::at(&own).ok().flatten());
        }
        found.extend(Self::at(&host)?);
        Ok(found)
    }

    /// The host's owner, which is needed.
    pub fn needed() -> Result<Self> {
        Self::of_host()?.ok_or_else(|| CommandError::Other(NO_DAEMON.into()))
    }

    /// The owner for a new group of this user: their own, which is started if need be, and the
    /// host's for users who may not create cgroups.
    pub fn for_new_group(hierarchy: &Hierarchy) -> Result<Self> {
        match hierarchy.check_permission() {
            Ok(()) => Self::find_or_start(),
            Err(error) => Self::of_host()?.ok_or_else(|| error.into()),
        }
    }

    /// This user's own owner.
    pub fn find_or_start() -> Result<Self> {
        let runtime = RuntimeFolder::of_this_user();
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Some(found) = Self::at(&runtime)? {
                return Ok(found);
            }
            let started = start(&runtime);
            match (started, Instant::now() < deadline) {
                (Ok(()), _) => (),
                (Err(Failed::Taken), true) => std::thread::sleep(LOOK_EVERY),
                (Err(error), _) => return Err(error.into()),
            }
        }
    }

    /// Its process. `None`: it is not visible from here.
    pub fn pid(&self) -> Option<i32> {
        self.client.pid()
    }

    /// Asks. What is refused is an error, with the owner's own words. An owner that was just
    /// about to end has done nothing: the next one is asked.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        let deadline = Instant::now() + START_MAX;
        loop {
            match self.client.ask(request)? {
                Answer::Refused(why) => return Err(CommandError::Other(why)),
                Answer::Ending
                    if self.runtime == RuntimeFolder::of_this_user()
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(LOOK_EVERY);
                    self.find_next()?;
                }
                Answer::Ending => return Err(CommandError::Other("the daemon is ending".into())),
                answer => return Ok(answer),
            }
        }
    }

    /// Its state: of everything, or of one target with all details.
    pub fn show(&mut self, target: Option<&str>) -> Result<State> {
        let request = Request::Show {
            target: target.map(str::to_owned),
            details: target.is_some(),
        };
        match self.ask(&request)? {
            Answer::State(state) => Ok(*state),
            other => Err(not_meant(&other)),
        }
    }

    /// One group with the usage rates of its tasks.
    pub fn show_tasks(&mut self, target: &str) -> Result<State> {
        let target = target.to_owned();
        match self.ask(&Request::Tasks { target })? {
            Answer::State(state) => Ok(*state),
            other => Err(not_meant(&other)),
        }
    }

    /// A group by its name. `None`: there is none.
    pub fn group(&mut self, name: &str) -> Result<Option<Group>> {
        let state = match self.show(Some(name)) {
            Ok(state) => state,
            Err(error @ CommandError::Owner(_)) => return Err(error),
            // It knows no such group.
            Err(_) => return Ok(None),
        };
        Ok(state.groups.into_iter().find(|group| group.name == name))
    }

    /// After its end: goes on with the next owner, which has taken its groups over. A user's own
    /// is started if need be.
    pub fn find_next(&mut self) -> Result<()> {
        *self = if self.runtime == RuntimeFolder::of_this_user() {
            Self::find_or_start()?
        } else {
            Self::at(&self.runtime)?.ok_or_else(|| CommandError::Other(NO_DAEMON.into()))?
        };
        Ok(())
    }

    /// Changes something, prints the warnings, and returns the groups as they are now.
    pub fn change(&mut self, request: &Request) -> Result<Vec<Group>> {
        match self.ask(request)? {
            Answer::Groups { groups, warnings } => {
                warnings.iter().for_each(|warning| output::tell(warning));
                Ok(groups)
            }
            other => Err(not_meant(&other)),
        }
    }
}

/// Waits until an owner that is ending has ended; `problem` says that it has not.
pub fn wait_for_ownership(
    hierarchy: &Hierarchy,
    problem: impl FnOnce() -> String,
) -> Result<Ownership> {
    let deadline = Instant::now() + END_MAX;
    loop {
        if let Some(ownership) = Ownership::take(hierarchy)? {
            return Ok(ownership);
        }
        if Instant::now() >= deadline {
            return Err(CommandError::Other(problem()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// An answer to another request.
pub fn not_meant(answer: &Answer) -> CommandError {
    let kind = match answer {
        Answer::State(_) => "its state",
        Answer::Groups { .. } => "groups",
        Answer::Reloaded { .. } => "that it has reloaded",
        Answer::Restored { .. } => "that it has restored",
        Answer::Text(_) => "text",
        Answer::Refused(_) => "a refusal",
        Answer::Ending => "that it is ending",
        Answer::Busy => "that it is busy",
    };
    CommandError::Other(format!("the owner answers {kind}, which was not asked"))
}

/// What the command line leaves to the owner.
pub fn choice(plan: &PlanArgs) -> Choice {
    Choice {
        enforcer: match plan.enforcer {
            EnforcerChoice::Auto => EnforcerWanted::Auto,
            EnforcerChoice::SchedExt => EnforcerWanted::SchedExt,
            EnforcerChoice::Cgroup => EnforcerWanted::Cgroup,
        },
        mode: plan.mode.map(Mode::from),
        best_effort: plan.best_effort,
        dry_run: plan.dry_run,
    }
}

/// Why an owner was not started.
#[derive(Debug, thiserror::Error)]
enum Failed {
    /// Another process owns the tree by now, or is about to end.
    #[error("another process owns the cgroups here and does not answer")]
    Taken,
    /// The owner's own words.
    #[error("{0}")]
    Itself(String),
    /// There is no process.
    #[error("cannot start the owner: {0}")]
    Start(#[from] std::io::Error),
}

impl From<Failed> for CommandError {
    fn from(failed: Failed) -> Self {
        Self::Other(failed.to_string())
    }
}

/// Starts an owner, and waits until it answers.
fn start(runtime: &RuntimeFolder) -> std::result::Result<(), Failed> {
    let program = std::env::current_exe()?;
    let mut child = Command::new(program)
        .args(["daemon", "--on-demand"])
        .env(plimsoll_engine::runtime::RUNTIME_VARIABLE, runtime.path())
        .current_dir(Path::new("/"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut word = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut word)?;
    }
    let mut problem = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut problem)?;
    }
    if word.trim_end() == READY {
        for line in problem.lines() {
            output::tell(line.strip_prefix("plimsoll: ").unwrap_or(line));
        }
        return Ok(());
    }
    let status = child.wait()?;
    if status.code() == Some(crate::daemon::EXIT_TAKEN.into()) {
        return Err(Failed::Taken);
    }
    let problem = problem.trim_end();
    let problem = problem.strip_prefix("plimsoll: ").unwrap_or(problem);
    Err(Failed::Itself(if problem.is_empty() {
        format!("the owner has ended before it answered ({status})")
    } else {
        output::one_line(problem)
    }))
}
