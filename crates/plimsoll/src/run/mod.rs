//! `plimsoll run`: a command in a group of its own.

mod by_daemon;
mod child;
pub mod choice;
mod held;
pub mod session;
mod signals;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::plan::{Fidelity, Plan};
use plimsoll_engine::policy_set::{GroupPolicy, PolicySet, Selector};
use plimsoll_engine::runtime::RuntimeFolder;

use crate::cli::{EnforcerChoice, PlanArgs, RunArgs};
use crate::daemon_client::Daemon;
use crate::error::Result;
use crate::output;
use choice::Means;
use session::Session;
use signals::{Arrived, Signals};

/// How often a group is looked at whose command has ended.
const LINGER_INTERVAL: Duration = Duration::from_millis(100);
/// No more of a command is shown.
const SUBJECT_CHARS_MAX: usize = 1000;

/// A wish as far as this host can make it true.
pub struct Planned {
    /// What is wanted, less what cannot be had.
    pub policy: GroupPolicy,
    /// How each knob is enforced.
    pub plan: Plan,
    /// By what.
    pub means: Means,
}

/// Plans one group; what cannot be enforced is an error or, with best
/// effort, dropped.
pub fn plan_group(
    hierarchy: &Arc<Hierarchy>,
    name: String,
    selector: Selector,
    knobs: &Knobs,
    args: &PlanArgs,
) -> Result<Planned> {
    let means = choice::choose(knobs, args)?;
    plan_with(hierarchy, name, selector, knobs, args.best_effort, means)
}

/// The same where it is known what enforces the group.
pub fn plan_with(
    hierarchy: &Arc<Hierarchy>,
    name: String,
    selector: Selector,
    knobs: &Knobs,
    best_effort: bool,
    means: Means,
) -> Result<Planned> {
    let capabilities = plimsoll_engine::host::Capabilities::of_this_host(hierarchy);
    let group = GroupPolicy {
        name,
        selector,
        knobs: knobs.clone(),
    };
    let wanted = PolicySet::new(vec![group.clone()])?;
    let plan = match means {
        Means::Stock => Plan::new(&wanted, &capabilities),
        Means::SchedExt(scheduler) => Plan::with_sched_ext(&wanted, &capabilities, scheduler),
    };
    plan.check(best_effort)?;
    let knobs = plan.enforceable(&group.name, knobs);
    Ok(Planned {
        policy: GroupPolicy { knobs, ..group },
        plan,
        means,
    })
}

/// Says on standard error what `--best-effort` gave up, where a knob is kept
/// in another sense than its words, and what may come of it.
pub fn warn_of_losses(plan: &Plan) {
    for warning in &plan.warnings {
        output::tell(warning);
    }
    for item in &plan.items {
        let told = match &item.fidelity {
            Fidelity::Impossible { reason } => format!("not enforced: {reason}"),
            Fidelity::Approximate { loss }
                if item.knob == "headroom" && loss.contains("average") =>
            {
                loss.clone()
            }
            _ => continue,
        };
        output::tell(&format!("{} {}: {told}", item.knob, item.value));
    }
}

/// A group's name from its command: what is not allowed in a name is `_`.
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

/// The command as people recognise it. Journal and socket have lines of
/// limited length, an argument list has not.
fn subject_of(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let mut subject = output::one_line(&words.join(" "));
    if let Some((end, _)) = subject.char_indices().nth(SUBJECT_CHARS_MAX) {
        subject.truncate(end);
        subject.push('…');
    }
    subject
}

/// Whether root asks for nothing but what a daemon, if one runs, has chosen
/// for the whole host. The daemon goes on when this process is killed, and
/// knows the names of all groups. Whoever has a subtree of cgroups of their
/// own may do there what the daemon would let them do nowhere.
fn leaves_choice_to_daemon(plan: &PlanArgs) -> bool {
    let is_open = plan.enforcer == EnforcerChoice::Auto && plan.mode.is_none();
    is_open && nix::unistd::geteuid().is_root()
}

/// Runs a command under knobs and undoes everything when it ends.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let knobs = args
        .knobs
        .knobs(None)
        .map_err(plimsoll_engine::EngineError::from)?;
    let hierarchy = Arc::new(Hierarchy::find()?);
    let is_for_daemon =
        hierarchy.check_permission().is_err() || leaves_choice_to_daemon(&args.plan);
    if is_for_daemon && let Some(daemon) = Daemon::find()? {
        return by_daemon::run(daemon, args, &knobs);
    }
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| default_name(&args.command[0]));
    let planned = plan_group(&hierarchy, name, Selector::Command, &knobs, &args.plan)?;
    if args.plan.dry_run {
        output::plan(&planned.plan, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    warn_of_losses(&planned.plan);
    // From here on a signal waits until it can be handled.
    let mut signals = Signals::register()?;
    let session = Session::start(
        &hierarchy,
        &RuntimeFolder::of_this_user(),
        planned,
        &subject_of(&args.command),
    )?;
    if let Some(signal) = signals.ending_now() {
        // Sent before there was a command that it could have reached.
        session.end();
        return Ok(child::killed_by(signal));
    }
    let nice = session.knobs().nice.map(|nice| nice.nice);
    let mut child = child::spawn(&args.command, session.membership()?, nice)?;
    session.serve();
    let status = signals.until_child_ends(&mut child)?;
    linger(&session, &mut signals);
    let statistics = session.sample();
    session.end();
    if args.stats
        && let Ok(sample) = &statistics
    {
        // A closed standard error must not hide the command's exit code.
        let _ = output::run_statistics(sample, args.json);
    }
    Ok(child::exit_code(status))
}

/// Keeps a process that runs already in a group until it and all that it
/// started have ended, or until somebody asks for release.
pub fn keep_process(
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
    planned: Planned,
    pid: i32,
) -> Result<ExitCode> {
    let told = "until it ends; SIGINT or SIGTERM releases it";
    let subject = format!("pid {pid}");
    keep(hierarchy, runtime, planned, &subject, told, true)
}

/// Keeps a cgroup of somebody else's in the scheduler until nothing runs in it
/// any more, or until somebody asks for release. One that is empty is kept for
/// what will run in it.
pub fn keep_cgroup(
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
    planned: Planned,
    path: &Path,
) -> Result<ExitCode> {
    let subject = format!("/{}", path.display());
    let told = "until nothing runs in it; SIGINT or SIGTERM releases it";
    keep(hierarchy, runtime, planned, &subject, told, false)
}

/// `has_run`: when nothing runs in it, that is the end, and not the beginning.
fn keep(
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
    planned: Planned,
    subject: &str,
    how_long: &str,
    mut has_run: bool,
) -> Result<ExitCode> {
    let mut signals = Signals::register()?;
    let name = planned.policy.name.clone();
    let session = Session::start(hierarchy, runtime, planned, subject)?;
    session.serve();
    output::tell(&format!("{subject} is in group {name} {how_long}"));
    while session.exists() {
        let runs = session.is_populated();
        has_run |= runs;
        if has_run && !runs || signals.wait(LINGER_INTERVAL) == Arrived::Ending {
            break;
        }
    }
    session.end();
    Ok(ExitCode::SUCCESS)
}

/// The command has ended but processes that it started run on: their limits
/// stay until they end too, or until somebody asks for release.
fn linger(session: &Session, signals: &mut Signals) {
    let populated = || session.is_populated();
    if !populated() {
        return;
    }
    // The last of the dying take a moment to leave.
    if signals.wait(LINGER_INTERVAL) == Arrived::Nothing && populated() {
        output::tell(
            "the command has ended, but processes that it started run on; \
             their limits stay until they end (SIGINT or SIGTERM releases them)",
        );
        while populated() {
            if signals.wait(LINGER_INTERVAL) == Arrived::Ending {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_engine::policy_set::check_name;

    use super::*;

    #[test]
    fn a_subject_is_one_line_of_limited_length() {
        assert_eq!(subject_of(&["sh".into(), "a\nb".into()]), "sh a b");
        let long = subject_of(&["ä".repeat(5000).into()]);
        assert_eq!(long.chars().count(), SUBJECT_CHARS_MAX + 1);
    }

    #[test]
    fn every_command_has_a_name_that_is_allowed() {
        for command in ["/bin/ls", "a b", "...", "-x", "", "ä", &"x".repeat(300)] {
            check_name(&default_name(OsStr::new(command))).unwrap();
        }
    }
}
