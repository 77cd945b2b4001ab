//! The daemon of this host, as commands ask it.

use plimsoll_daemon::control::client::{Client, ClientError};
use plimsoll_daemon::control::protocol::{Answer, Request, SOCKET};
use plimsoll_daemon::state::{Daemon as DaemonState, Group, State};
use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::host::Mode;
use plimsoll_engine::runtime::RuntimeFolder;

use crate::cli::{EnforcerChoice, PlanArgs};
use crate::error::{CommandError, Result};
use crate::output;

/// What to do where a daemon is needed and none runs.
pub const NO_DAEMON: &str =
    "no daemon runs; `systemctl start plimsoll`, or `plimsoll daemon`, starts one";

/// A connection to the daemon.
pub struct Daemon {
    client: Client,
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        Self::Other(error.to_string())
    }
}

impl Daemon {
    /// The daemon of this host. `None`: none runs.
    pub fn find() -> Result<Option<Self>> {
        let path = RuntimeFolder::of_this_host().path().join(SOCKET);
        let client = Client::connect(&path)?;
        Ok(client.map(|client| Self { client }))
    }

    /// The daemon, which is needed.
    pub fn needed() -> Result<Self> {
        Self::find()?.ok_or_else(|| CommandError::Other(NO_DAEMON.into()))
    }

    /// Asks. What is refused is an error, with the daemon's own words.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        match self.client.ask(request)? {
            Answer::Refused(why) => Err(CommandError::Other(why)),
            answer => Ok(answer),
        }
    }

    /// What it knows: of everything, or of one target with all details.
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

    /// Changes something, tells people what they should be told, and returns
    /// the groups as they are now.
    pub fn change(&mut self, request: &Request) -> Result<Vec<Group>> {
        match self.ask(request)? {
            Answer::Groups { groups, warnings } => {
                warnings.iter().for_each(|warning| output::tell(warning));
                Ok(groups)
            }
            other => Err(not_meant(&other)),
        }
    }

    /// Refuses what the daemon does not leave to its users: by what it
    /// enforces.
    pub fn check_choice(&mut self, plan: &PlanArgs) -> Result<()> {
        if plan.enforcer == EnforcerChoice::Auto && plan.mode.is_none() {
            return Ok(());
        }
        check_choice(&self.show(None)?.daemon, plan)
    }
}

/// An answer to something else.
pub fn not_meant(answer: &Answer) -> CommandError {
    let kind = match answer {
        Answer::State(_) => "its state",
        Answer::Groups { .. } => "groups",
        Answer::Reloaded { .. } => "that it has reloaded",
        Answer::Text(_) => "text",
        Answer::Refused(_) => "a refusal",
        Answer::Busy => "that it is busy",
    };
    CommandError::Other(format!("the daemon answers {kind}, which was not asked"))
}

fn check_choice(daemon: &DaemonState, plan: &PlanArgs) -> Result<()> {
    let (is, other, asked) = match daemon.enforcer {
        EnforcerKind::Cgroup => ("cgroup", EnforcerChoice::SchedExt, "sched-ext"),
        EnforcerKind::SchedExt => ("sched-ext", EnforcerChoice::Cgroup, "cgroup"),
    };
    if plan.enforcer == other {
        return Err(CommandError::Other(format!(
            "enforcer: `{asked}` is not what the daemon enforces with; allowed: auto, {is} \
             (or another `enforcer` in {})",
            daemon.config.display()
        )));
    }
    match plan.mode.map(Mode::from) {
        Some(wanted) if wanted != daemon.mode => Err(CommandError::Other(format!(
            "mode: `{wanted}` is not the daemon's; allowed: {} (or another `mode` in {})",
            daemon.mode,
            daemon.config.display()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn plan(words: &str) -> PlanArgs {
        let all = format!("plimsoll run --enforcer auto {words} true");
        match Cli::try_parse_from(all.split_whitespace()).unwrap().command {
            Command::Run(args) => args.plan,
            _ => panic!("not run"),
        }
    }

    #[test]
    fn what_the_daemon_enforces_with_is_not_for_a_command_to_say() {
        let daemon = DaemonState {
            config: "/etc/plimsoll/plimsoll.toml".into(),
            ..DaemonState::default()
        };
        let scheduler = DaemonState {
            enforcer: EnforcerKind::SchedExt,
            mode: Mode::All,
            ..daemon.clone()
        };
        let with = |choice| PlanArgs {
            enforcer: choice,
            ..plan("")
        };
        for (daemon, plan, expected) in [
            (&daemon, with(EnforcerChoice::SchedExt), "auto, cgroup"),
            (&scheduler, with(EnforcerChoice::Cgroup), "auto, sched-ext"),
            (&daemon, plan("--mode all"), "allowed: partial"),
            (&scheduler, plan("--mode partial"), "allowed: all"),
        ] {
            let refused = check_choice(daemon, &plan).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
            assert!(refused.contains("plimsoll.toml"), "{refused}");
        }
        for (daemon, plan) in [
            (&daemon, plan("--mode partial")),
            (&daemon, with(EnforcerChoice::Cgroup)),
            (&scheduler, with(EnforcerChoice::SchedExt)),
            (&scheduler, plan("")),
        ] {
            check_choice(daemon, &plan).unwrap();
        }
    }
}
