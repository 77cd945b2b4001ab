//! Client of the owner of the cgroup tree, the one process that decides and writes.
//!
//! If none runs, [`Owner::find_or_start`] starts one: the same program, which ends by itself soon
//! after the last group.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use plimsoll_cgroupfs::{BASE_VARIABLE, Hierarchy};
use plimsoll_daemon::config::EnforcerWanted;
use plimsoll_daemon::control::client::{ANSWER_WITHIN, Client, ClientError};
use plimsoll_daemon::control::protocol::{Answer, Choice, Request, SOCKET};
use plimsoll_daemon::state::{GroupState, State};
use plimsoll_engine::runtime::{Ownership, RUNTIME_VARIABLE, RuntimeFolder};

use crate::cli::{EnforcerChoice, PlanArgs};
use crate::error::{CommandError, OwnerError, Result};
use crate::output;
use crate::target::Target;

/// Word on standard output that tells the starting client that the owner is ready.
pub const READY: &str = "ready";
/// Word on standard output that tells the starting client that another owner exists.
pub const TAKEN: &str = "taken";
/// With the value `off`, an owner attaches no guard.
pub const GUARD_SWITCH: &str = "PLIMSOLL_GUARD";
/// Time for which a command tries again, because two commands may start an owner at the same time,
/// and an owner may end just when a request arrives.
const START_MAX: Duration = Duration::from_secs(10);
/// Time within which an ending owner ends.
const END_MAX: Duration = Duration::from_secs(2);
/// Interval of polling.
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub struct Owner {
    runtime: RuntimeFolder,
    client: Client,
    /// Whether requests may go to the next owner if this one ends.
    has_successor: bool,
}

impl Owner {
    /// Connects to the owner in a runtime folder. `None`: none runs, or it belongs to another
    /// user, who may have created the folder to deceive clients.
    pub fn at(runtime: &RuntimeFolder) -> Result<Option<Self>> {
        Self::at_within(runtime, ANSWER_WITHIN)
    }

    /// Connects as [`Owner::at`] does, with another time to wait for the connection and for each
    /// answer.
    pub fn at_within(runtime: &RuntimeFolder, within: Duration) -> Result<Option<Self>> {
        let client = Client::connect_within(&runtime.path().join(SOCKET), within)?;
        let is_trusted = |client: &Client| {
            let uid = client.uid();
            uid == Some(0) || uid == Some(geteuid().as_raw())
        };
        Ok(client.filter(is_trusted).map(|client| Self {
            runtime: runtime.clone(),
            client,
            has_successor: true,
        }))
    }

    /// Has requests fail if this owner ends. For a caller that only watches: a new owner, started
    /// for it, would have nothing to tell.
    pub fn without_successor(mut self) -> Self {
        self.has_successor = false;
        self
    }

    /// Connects to the owner of this host's tree, which answers root and the operators.
    pub fn of_host() -> Result<Option<Self>> {
        Self::at(&RuntimeFolder::of_this_host())
    }

    /// Connects to this user's own owner and to the host's, if that one answers this user.
    pub fn all() -> Result<Vec<Self>> {
        Self::all_within(ANSWER_WITHIN)
    }

    /// Connects as [`Owner::all`] does, with another time to wait for each connection and answer.
    pub fn all_within(within: Duration) -> Result<Vec<Self>> {
        let (own, host) = (RuntimeFolder::of_this_user(), RuntimeFolder::of_this_host());
        let mut found: Vec<Self> = Vec::new();
        if own != host {
            // A folder that cannot be used has no owner.
            found.extend(Self::at_within(&own, within).ok().flatten());
        }
        match Self::at_within(&host, within) {
            Err(CommandError::Client(ClientError::Denied { .. })) if !found.is_empty() => (),
            other => found.extend(other?),
        }
        Ok(found)
    }

    /// Connects to the host's owner; fails if none runs.
    pub fn needed() -> Result<Self> {
        Self::of_host()?.ok_or_else(|| OwnerError::None.into())
    }

    /// Connects to the owner for a new group: this user's own, which is started if necessary, or
    /// the host's if the user may not create cgroups.
    pub fn for_new_group(hierarchy: &Hierarchy) -> Result<Self> {
        match hierarchy.check_permission() {
            Ok(()) => Self::find_or_start(),
            Err(error) => Self::of_host()?.ok_or_else(|| error.into()),
        }
    }

    /// Connects to this user's own owner; starts it if necessary.
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
                (Err(OwnerError::Taken), true) => std::thread::sleep(LOOK_EVERY),
                (Err(error), _) => return Err(error.into()),
            }
        }
    }

    /// Pid of the owner. `None`: the process is not visible from here.
    pub fn pid(&self) -> Option<i32> {
        self.client.pid()
    }

    /// Sends a request without a handle; see [`Owner::ask_about`].
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        self.ask_about(request, None)
    }

    /// Sends a request with the handle of its process or cgroup. A refusal is an error with the
    /// owner's text.
    ///
    /// If the owner ends, the request goes to the next one, provided that this does not carry it
    /// out twice: the owner says that it has done nothing, or it has not read the request, or
    /// twice is the same as once. The effect of other requests is unknown, such as of `run` to an
    /// owner that was killed meanwhile; they fail.
    fn ask_about(&mut self, request: &Request, handle: Option<BorrowedFd<'_>>) -> Result<Answer> {
        let deadline = Instant::now() + START_MAX;
        loop {
            let ended: CommandError = match self.client.ask_about(request, handle) {
                Ok(Answer::Refused(reason)) => return Err(OwnerError::Refused(reason).into()),
                Ok(Answer::Ending) => OwnerError::Ending.into(),
                Err(error @ ClientError::Ended { is_unread, .. })
                    if is_unread || request.is_idempotent() =>
                {
                    error.into()
                }
                other => return Ok(other?),
            };
            let is_own = self.runtime == RuntimeFolder::of_this_user();
            if !self.has_successor || !is_own || Instant::now() >= deadline {
                return Err(ended);
            }
            std::thread::sleep(LOOK_EVERY);
            *self = match request.suits_a_new_owner() {
                true => Self::find_or_start()?,
                false => Self::at(&self.runtime)?.ok_or(ended)?,
            };
        }
    }

    /// Reads the state: of all groups, or of one target with all details.
    pub fn show(&mut self, target: Option<&Target>) -> Result<State> {
        let request = Request::Show {
            target: target.map(Target::name),
            details: target.is_some(),
        };
        match self.ask_about(&request, target.and_then(Target::handle))? {
            Answer::State(state) => Ok(*state),
            other => Err(not_meant(&other)),
        }
    }

    /// Reads the state of one group with the usage rates of its tasks.
    pub fn show_tasks(&mut self, target: &Target) -> Result<State> {
        let request = Request::Tasks {
            target: target.name(),
        };
        match self.ask_about(&request, target.handle())? {
            Answer::State(state) => Ok(*state),
            other => Err(not_meant(&other)),
        }
    }

    /// Reads a group by its name. `None`: there is none.
    pub fn group(&mut self, name: &str) -> Result<Option<GroupState>> {
        let state = match self.show(Some(&Target::group(name))) {
            // The owner has no such group.
            Err(CommandError::Owner(OwnerError::Refused(_))) => return Ok(None),
            state => state?,
        };
        Ok(state.groups.into_iter().find(|group| group.name == name))
    }

    /// Connects to the present owner in a runtime folder. A user's own is started if necessary.
    pub fn find_again(runtime: &RuntimeFolder) -> Result<Self> {
        if *runtime == RuntimeFolder::of_this_user() {
            return Self::find_or_start();
        }
        Ok(Self::at(runtime)?.ok_or(OwnerError::None)?)
    }

    /// Disconnects, so that the owner keeps no file open for this process. Returns where the owner
    /// is found again.
    pub fn disconnect(self) -> RuntimeFolder {
        self.runtime
    }

    /// Sends a request for a change with the handle of its process or cgroup, prints the warnings,
    /// and returns the changed groups.
    pub fn change(
        &mut self,
        request: &Request,
        handle: Option<BorrowedFd<'_>>,
    ) -> Result<Vec<GroupState>> {
        match self.ask_about(request, handle)? {
            Answer::Groups { groups, warnings } => {
                warnings.iter().for_each(|warning| output::tell(warning));
                Ok(groups)
            }
            other => Err(not_meant(&other)),
        }
    }
}

/// Waits until an ending owner has ended; fails with `problem` if it does not end.
pub fn wait_for_ownership(
    hierarchy: &Hierarchy,
    problem: impl FnOnce() -> OwnerError,
) -> Result<Ownership> {
    let deadline = Instant::now() + END_MAX;
    loop {
        if let Some(ownership) = Ownership::take(hierarchy)? {
            return Ok(ownership);
        }
        if Instant::now() >= deadline {
            return Err(problem().into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Error for an answer to another request.
pub fn not_meant(answer: &Answer) -> CommandError {
    let kind = match answer {
        Answer::State(_) => "its state",
        Answer::Groups { .. } => "groups",
        Answer::Reloaded(_) => "that it has reloaded",
        Answer::Restored(_) => "that it has restored",
        Answer::Text(_) => "text",
        Answer::Refused(_) => "a refusal",
        Answer::Ending => "that it is ending",
    };
    OwnerError::OtherAnswer(kind).into()
}

/// Choices of the command line that the owner carries out.
pub fn choice(plan: &PlanArgs) -> Choice {
    Choice {
        enforcer: match plan.enforcer {
            EnforcerChoice::Auto => EnforcerWanted::Auto,
            EnforcerChoice::SchedExt => EnforcerWanted::SchedExt,
            EnforcerChoice::Cgroup => EnforcerWanted::Cgroup,
        },
        best_effort: plan.best_effort,
        dry_run: plan.dry_run,
    }
}

/// Starts an owner, and waits until it is ready. It gets no variables but those that say what it
/// owns, and whether it has a guard: others, such as those of systemd, are the caller's.
fn start(runtime: &RuntimeFolder) -> std::result::Result<(), OwnerError> {
    let program = std::env::current_exe()?;
    // It is deleted, and perhaps another is in its place, after an upgrade.
    let program = match program.exists() {
        true => program,
        false => "/proc/self/exe".into(),
    };
    let passed = [BASE_VARIABLE, GUARD_SWITCH];
    let passed = passed.map(|name| Some((name, std::env::var_os(name)?)));
    let mut child = Command::new(program)
        .args(["daemon", "--on-demand"])
        .env_clear()
        .envs(passed.into_iter().flatten())
        .env(RUNTIME_VARIABLE, runtime.path())
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
    // The owner is a child of this child, which has ended.
    let status = child.wait()?;
    match word.trim_end() {
        READY => {
            for line in problem.lines() {
                output::tell(line.strip_prefix("plimsoll: ").unwrap_or(line));
            }
            return Ok(());
        }
        TAKEN => return Err(OwnerError::Taken),
        _ => (),
    }
    let problem = problem.trim_end();
    let problem = problem.strip_prefix("plimsoll: ").unwrap_or(problem);
    Err(OwnerError::Itself(
        match (problem.is_empty(), status.success()) {
            (false, _) => output::one_line(problem),
            (true, true) => "the owner was killed before it was ready".into(),
            (true, false) => format!("the owner ended before it was ready ({status})"),
        },
    ))
}
