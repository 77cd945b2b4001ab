//! `plimsoll run`: a command in a group of its own. The owner makes the group and keeps it; this
//! process starts the command in it, passes signals on, and waits.

mod child;
mod held;
mod signals;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_cgroupfs::{CgroupError, Hierarchy};
use plimsoll_daemon::control::protocol::{Request, Run};
use plimsoll_daemon::log::{Log, Priority};
use plimsoll_daemon::service::Starter as _;
use plimsoll_daemon::state::Group;
use plimsoll_engine::EngineError;
use plimsoll_engine::enforcer::Sample;
use plimsoll_engine::host::Capabilities;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::plan::{Fidelity, Plan};
use plimsoll_engine::policy_set::{GroupPolicy, PolicySet, Selector};
use plimsoll_engine::runtime::RuntimeFolder;

use crate::cli::RunArgs;
use crate::daemon::HostStarter;
use crate::error::{CommandError, Result};
use crate::output;
use crate::owner::{self, Owner};
use held::Held;
use signals::{Arrived, Signals};

/// How often a group is looked at whose command has ended.
const LINGER_INTERVAL: Duration = Duration::from_millis(100);
/// No more of a command is shown.
const SUBJECT_CHARS_MAX: usize = 1000;

/// A group's name from its command: characters that a name may not have become `_`.
fn default_name(command: &OsStr) -> String {
    let file = Path::new(command)
        .file_name()
        .unwrap_or(command)
        .to_string_lossy();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let clean: String = file
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .take(48)
        .collect();
    let clean = clean.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let stem = if clean.is_empty() { "run" } else { clean };
    format!("{stem}-{}", std::process::id())
}

/// The command as people recognise it. A request has a limited length, an argument list has not.
fn subject_of(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let mut subject = output::one_line(&words.join(" "));
    if let Some((end, _)) = subject.char_indices().nth(SUBJECT_CHARS_MAX) {
        subject.truncate(end);
        subject.push('…');
    }
    subject
}

/// Runs a command under knobs, and ends its group when nothing runs in it any more.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let knobs = args.knobs.knobs(None).map_err(EngineError::from)?;
    let hierarchy = Hierarchy::find()?;
    let name = args.name.clone();
    let name = name.unwrap_or_else(|| default_name(&args.command[0]));
    let mut owner = match Owner::for_new_group(&hierarchy) {
        Err(CommandError::Engine(EngineError::Cgroup(CgroupError::NoPermission { .. })))
            if args.plan.dry_run =>
        {
            return plan_here(hierarchy, name, knobs, args);
        }
        owner => owner?,
    };
    let request = |pid| {
        Request::Run(Box::new(Run {
            name: name.clone(),
            pid,
            subject: subject_of(&args.command),
            knobs: knobs.clone(),
            choice: owner::choice(&args.plan),
        }))
    };
    if args.plan.dry_run {
        let own = std::process::id().cast_signed();
        let groups = owner.change(&request(own))?;
        let plan = groups.into_iter().next().map(|group| group.plan);
        output::print_plan(&plan.unwrap_or_default(), args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    // From here on a signal waits until it can be handled.
    let mut signals = Signals::register()?;
    let held = Held::start(&args.command)?;
    let groups = owner.change(&request(held.pid()))?;
    groups.iter().for_each(warn_of_losses);
    let mut client = RunClient { owner, name };
    if let Some(signal) = signals.ending_now() {
        // Sent before there was a command that it could have reached.
        drop(held);
        client.end(true);
        return Ok(child::killed_by(signal));
    }
    let mut child = match held.let_go() {
        Ok(child) => child,
        Err(error) => {
            client.end(true);
            return Err(error);
        }
    };
    let status = signals.until_child_ends(&mut child)?;
    let release = client.linger(&mut signals);
    let sample = client.end(release);
    if args.stats {
        match sample {
            // A closed standard error must not hide the command's exit code.
            Some(sample) => drop(output::run_statistics(&sample, args.json)),
            None => output::tell("no statistics: the group has ended before it was asked"),
        }
    }
    Ok(child::exit_code(status))
}

/// Prints the plan of a user who may start no owner: to look takes no permission.
fn plan_here(hierarchy: Hierarchy, name: String, knobs: Knobs, args: &RunArgs) -> Result<ExitCode> {
    let hierarchy = Arc::new(hierarchy);
    let log = Arc::new(Log::new(Priority::Warning));
    let starter = HostStarter::new(&hierarchy, &RuntimeFolder::of_this_user(), &log);
    let choice = owner::choice(&args.plan);
    let scheduler = starter.choose(&knobs, choice.enforcer, choice.mode)?;
    let wanted = PolicySet::new(vec![GroupPolicy {
        name,
        selector: Selector::Command,
        knobs,
        scheduler: scheduler.map(|scheduler| scheduler.mode),
    }])?;
    let host = Capabilities::of_this_host(&hierarchy);
    let plan = match scheduler {
        Some(scheduler) => Plan::with_sched_ext(&wanted, &host, scheduler),
        None => Plan::new(&wanted, &host),
    };
    plan.check(args.plan.best_effort)?;
    let plan = serde_json::to_value(plan.items).unwrap_or_default();
    output::print_plan(&plan, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Says on standard error which knobs `--best-effort` gave up, and which are enforced in another
/// sense than their words.
pub fn warn_of_losses(group: &Group) {
    let items = group.plan.as_array();
    for item in items.into_iter().flatten() {
        let told = match serde_json::from_value(item.clone()) {
            Ok(Fidelity::Impossible { reason }) => format!("not enforced: {reason}"),
            Ok(Fidelity::Approximate { loss })
                if item["knob"] == "headroom" && loss.contains("average") =>
            {
                loss
            }
            _ => continue,
        };
        let word = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        output::tell(&format!("{} {}: {told}", word("knob"), word("value")));
    }
}

/// The group of this command, at its owner.
struct RunClient {
    owner: Owner,
    name: String,
}

impl RunClient {
    /// Ends the group, and returns what it has used. `None`: it has ended already, which is as
    /// good; an owner that cannot be asked ends the group by itself once it is empty.
    fn end(&mut self, release: bool) -> Option<Sample> {
        let name = self.name.clone();
        let groups = self.owner.change(&Request::End { name, release }).ok()?;
        groups.into_iter().next()?.statistics
    }

    fn is_populated(&mut self) -> bool {
        let group = self.owner.group(&self.name).or_else(|_| {
            self.owner.find_next()?;
            self.owner.group(&self.name)
        });
        // An owner that cannot be asked ends the group by itself.
        let sample = group.ok().flatten().and_then(|group| group.statistics);
        sample.is_some_and(|sample| sample.processes > 0)
    }

    /// The command has ended but processes that it started run on: their limits stay until they
    /// end too, or until a signal asks for release. Returns whether one did.
    fn linger(&mut self, signals: &mut Signals) -> bool {
        if !self.is_populated() {
            return false;
        }
        // The last of the dying take a moment to leave.
        if signals.wait(LINGER_INTERVAL) == Arrived::Nothing && self.is_populated() {
            output::tell(
                "the command has ended, but processes that it started run on; \
                 their limits stay until they end (SIGINT or SIGTERM releases them)",
            );
            while self.is_populated() {
                if signals.wait(LINGER_INTERVAL) == Arrived::Ending {
                    return true;
                }
            }
        }
        false
    }
}
