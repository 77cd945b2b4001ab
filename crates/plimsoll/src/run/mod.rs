//! `plimsoll run`: runs a command in a group of its own. The owner creates and keeps the group;
//! this process starts the command in it, forwards signals, and waits.

mod child;
mod held;
mod signals;

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::name::{path_of, text_of};
use plimsoll_cgroupfs::{CgroupError, CpuGroup, Hierarchy};
use plimsoll_daemon::control::handles;
use plimsoll_daemon::control::protocol::{Request, RunRequest};
use plimsoll_daemon::service::Starter as _;
use plimsoll_daemon::state::GroupState;
use plimsoll_engine::EngineError;
use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::group_policy::check_name;
use plimsoll_engine::host::Capabilities;
use plimsoll_engine::knobs::{Class, Headroom, Knob, Knobs};
use plimsoll_engine::plan::{Fidelity, Plan};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::sample::Sample;

use crate::cli::RunArgs;
use crate::daemon::HostStarter;
use crate::error::{CommandError, Result};
use crate::expected::{self, Expected};
use crate::output;
use crate::owner::{self, Owner};
use held::HeldCommand;
use signals::{Arrived, Signals};

/// Time within which dying processes leave their cgroup. Also the interval of looks while no process
/// of the group can be seen from here, or no owner answers.
const DYING_MAX: Duration = Duration::from_millis(100);
/// Interval of looks at a group of which a process is seen: it may be moved out of the group.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Time without an owner after which there is none: a service manager takes some to start the next.
const NO_OWNER_MAX: Duration = Duration::from_secs(10);
/// Maximum length of a command in output.
const SUBJECT_CHARS_MAX: usize = 1000;

/// Derives a group's name, to which the owner appends a pid, from its command; replaces invalid
/// characters by `_`.
fn stem(command: &OsStr) -> String {
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
    let is_no_start = |c: char| !c.is_ascii_alphanumeric();
    let clean = clean.trim_start_matches(is_no_start);
    // Groups of processes have names that begin with `pid-`.
    let clean = clean.trim_start_matches("pid-");
    match clean.trim_start_matches(is_no_start) {
        "" | "pid" => "run".to_owned(),
        stem => stem.to_owned(),
    }
}

/// Text of the command, shortened because the length of a request is limited.
fn subject_of(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(text_of).collect();
    let words = words.join(" ").replace(char::is_whitespace, " ");
    let mut subject = output::one_line(&words);
    if let Some((end, _)) = subject.char_indices().nth(SUBJECT_CHARS_MAX) {
        subject.truncate(end);
        subject.push('…');
    }
    subject
}

/// Runs a command under knobs, and ends its group when the group is empty.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let knobs = args.knobs.knobs(None).map_err(EngineError::from)?;
    let hierarchy = Arc::new(Hierarchy::find()?);
    let mut owner = match Owner::for_new_group(&hierarchy) {
        Err(CommandError::Engine(EngineError::Cgroup(CgroupError::NoPermission { .. })))
            if args.plan.dry_run =>
        {
            return plan_here(&hierarchy, knobs, args);
        }
        owner => owner?,
    };
    let given = args.name.clone();
    let is_limited = knobs.quota.is_some() || knobs.has_cap();
    let is_held = is_limited || knobs.class.is_some() || knobs.weight.is_some();
    let request = Request::Run(Box::new(RunRequest {
        is_numbered: given.is_none(),
        name: given.unwrap_or_else(|| stem(&args.command[0])),
        subject: subject_of(&args.command),
        knobs,
        choice: owner::choice(&args.plan),
    }));
    if args.plan.dry_run {
        let own = handles::of_process(std::process::id().cast_signed())?;
        let groups = owner.change(&request, Some(own.as_fd()))?;
        let plan = groups.into_iter().next().and_then(|group| group.plan);
        output::print_plan(&plan.unwrap_or_default(), args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Signals are queued from here on.
    let mut signals = Signals::register()?;
    let held = HeldCommand::start(&args.command)?;
    let handle = handles::of_process(held.pid())?;
    let groups = owner.change(&request, Some(handle.as_fd()))?;
    drop(handle);
    warn_of_losses(&hierarchy, &groups);
    let group = groups.into_iter().next().ok_or(CommandError::NotStarted)?;
    let mut client = RunClient {
        runtime: owner.disconnect(),
        hierarchy,
        name: group.name,
        cgroup: group.cgroup,
    };
    if let Some(signal) = signals.ending_now() {
        // Signals that arrived before the command was started.
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
    if is_held && child.ended_real_time() {
        output::tell(
            "the command was a real-time task, which no quota, cap, class or weight holds",
        );
    }
    let release = client.linger(&mut signals);
    let sample = client.end(release);
    if args.stats {
        match sample {
            // A closed standard error must not hide the command's exit code.
            Some(sample) => drop(output::run_statistics(&sample, args.json)),
            None => output::tell("no statistics: the group has already ended"),
        }
    }
    Ok(child::exit_code(status))
}

/// Prints the plan for a user who may not start an owner; a dry run needs no permission.
fn plan_here(hierarchy: &Arc<Hierarchy>, knobs: Knobs, args: &RunArgs) -> Result<ExitCode> {
    let starter = HostStarter::new(hierarchy, &RuntimeFolder::of_this_user());
    let choice = owner::choice(&args.plan);
    let is_scheduled = starter.choose(choice.enforcer)?;
    let host = Capabilities::of_this_host(hierarchy);
    let name = args.name.clone();
    let name = name.unwrap_or_else(|| stem(&args.command[0]));
    check_name(&name)?;
    let plan = Plan::new(&name, &knobs, &host, is_scheduled)?;
    let checked = plan.check(args.plan.best_effort);
    checked.map_err(EngineError::with_flag)?;
    output::print_plan(&plan.items, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints on standard error the knobs that are not enforced (`--best-effort`) or only
/// approximately, and how much a service will feel batch work.
pub fn warn_of_losses(hierarchy: &Arc<Hierarchy>, groups: &[GroupState]) {
    groups.iter().for_each(warn_of_knobs);
    let is_of_fair_class = |group: &&GroupState| {
        group.knobs.class == Some(Class::Batch) && group.enforcer == EnforcerKind::Cgroup
    };
    let batch = groups.iter().find(is_of_fair_class);
    if let Some(caution) = batch.and_then(|group| caution(hierarchy, group)) {
        output::tell(&caution);
    }
}

/// Warning of the delay of a service beside batch work of the fair class, with what helps.
fn caution(hierarchy: &Arc<Hierarchy>, batch: &GroupState) -> Option<String> {
    let mut host = Capabilities::of_this_host(hierarchy);
    let has_guard = !batch.lacks_guard;
    if has_guard && host.may_tune_host && batch.knobs.host_tuning {
        // The owner changes it once the command has its answer.
        host.is_lazy = Some(false);
    }
    let expected = Expected::of(&host.kernel, host.nr_cpus, host.is_lazy)?;
    let caution = expected.caution(has_guard)?;
    let step = has_guard.then(|| {
        let scheduler = plimsoll_scx::SchedExtHost::readiness(&RuntimeFolder::of_this_user());
        expected.step(expected::HostMechanisms::of(&host, has_guard, &scheduler))
    });
    let more = step.flatten();
    let more = more.unwrap_or_else(|| "`plimsoll doctor` says more".into());
    Some(format!("{caution}; {more}"))
}

fn warn_of_knobs(group: &GroupState) {
    let has_cpus = matches!(group.knobs.headroom, Some(Headroom::Cpus(_)));
    for item in group.plan.iter().flatten() {
        let told = match &item.fidelity {
            Fidelity::Impossible { reason } => format!("not enforced: {reason}"),
            // Kept on average only, which is not what was asked for.
            Fidelity::Approximate { loss } if item.knob == Knob::Headroom && has_cpus => {
                loss.clone()
            }
            _ => continue,
        };
        output::tell(&format!("{} {}: {told}", item.knob.name(), item.value));
    }
}

/// Group of this command. Has no connection to the owner while the command runs, because the owner
/// would keep a file open for it.
struct RunClient {
    runtime: RuntimeFolder,
    hierarchy: Arc<Hierarchy>,
    name: String,
    /// Last known path of its cgroup, with a `/` in front.
    cgroup: String,
}

/// Group that has processes.
struct Seen {
    /// A process of it, and the owner: the end of either is to be waited for.
    processes: Vec<OwnedFd>,
    /// Time to wait at most.
    time: Duration,
}

impl RunClient {
    /// Ends the group, and returns its statistics. `None`: the group has ended already, or the
    /// owner does not answer; the owner ends an empty group by itself.
    fn end(&self, release: bool) -> Option<Sample> {
        let name = self.name.clone();
        let mut owner = Owner::find_again(&self.runtime).ok()?;
        let groups = owner.change(&Request::End { name, release }, None).ok()?;
        groups.into_iter().next()?.statistics
    }

    /// Opens a process of the group, and the owner, as far as they can be seen from here. `None`: the
    /// group has no processes.
    fn populated(&mut self) -> Result<Option<Seen>> {
        // The next owner takes over the groups of one that has ended meanwhile.
        let mut owner = Owner::find_again(&self.runtime)?;
        // The owner ends an empty group by itself.
        let group = owner.group(&self.name)?.filter(|group| {
            let sample = group.statistics.as_ref();
            sample.is_none_or(|sample| sample.processes > 0)
        });
        let Some(group) = group else { return Ok(None) };
        self.cgroup = group.cgroup;
        let open = |pid: i32| handles::of_process(pid).ok();
        let member = self.members().into_iter().find_map(open);
        let time = member.as_ref().map_or(DYING_MAX, |_| LOOK_INTERVAL);
        let owner = owner.pid().and_then(open);
        let processes = member.into_iter().chain(owner).collect();
        Ok(Some(Seen { processes, time }))
    }

    /// Lists the processes of the group's cgroup that can be seen from here.
    fn members(&self) -> Vec<i32> {
        let path = path_of(self.cgroup.trim_start_matches('/'));
        let members = CpuGroup::at(&self.hierarchy, path).all_processes();
        members.unwrap_or_default()
    }

    /// Waits for processes that the ended command has started: their limits stay until they end,
    /// or until a signal releases them. Returns whether a signal did.
    fn linger(&mut self, signals: &mut Signals) -> bool {
        if matches!(self.populated(), Ok(None)) {
            return false;
        }
        let (mut has_told, mut last_seen) = (false, Instant::now());
        loop {
            if signals.wait(&[], DYING_MAX) == Arrived::Ending {
                return true;
            }
            let seen = match self.populated() {
                Ok(Some(seen)) => seen,
                Err(_) if last_seen.elapsed() < NO_OWNER_MAX && !self.members().is_empty() => {
                    continue;
                }
                _ => return false,
            };
            if !std::mem::replace(&mut has_told, true) {
                output::tell(
                    "the command has ended, but processes that it started run on; \
                     their limits stay until they end (SIGINT or SIGTERM releases them)",
                );
            }
            if signals.wait(&seen.processes, seen.time) == Arrived::Ending {
                return true;
            }
            last_seen = Instant::now();
        }
    }
}
