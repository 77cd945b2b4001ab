//! `plimsoll show`: groups, the mechanisms of their knobs, and their usage.

mod served;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use plimsoll_cgroupfs::name::{path_of, shown, text_of};
use plimsoll_cgroupfs::{CpuGroup, CpuStat, Hierarchy};
use plimsoll_daemon::control::client::ClientError;
use plimsoll_daemon::state::{Daemon as DaemonState, GroupState, GuardState, State};
use plimsoll_engine::journal;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::sample::Sample;
use plimsoll_engine::{EngineError, knobs};
use serde::Serialize;

use crate::cli::ShowArgs;
use crate::error::{CommandError, Result};
use crate::output;
use crate::owner::Owner;
use crate::target::Target;
pub use served::print;

/// Time between the two samples of the tasks' usage.
const TASKS_MEASURED_FOR: Duration = Duration::from_millis(500);

/// A group as `show` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
enum Shown {
    /// Group with an owner.
    #[serde(rename = "group")]
    Served {
        #[serde(flatten)]
        group: Box<GroupState>,
        /// Pid of the owner.
        pid: u32,
    },
    /// Group whose owner was killed; the next owner or `restore` undoes it.
    LeftBehind {
        name: String,
        /// Command that ran in the group.
        subject: String,
    },
}

/// Shows all groups, or one target.
pub fn run(args: &ShowArgs) -> Result<ExitCode> {
    match &args.target {
        Some(target) if args.tasks => show_tasks(target, args.json)?,
        Some(target) => show_target(target, args.json)?,
        None => show_all(args.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows one group with the usage rates of its tasks. Requests them twice, because stock kernels
/// keep no rates, so the first answer covers each task's whole life.
fn show_tasks(target: &str, as_json: bool) -> Result<()> {
    let meant = Target::find(&Hierarchy::find()?, target)?;
    let ask = || ask_all(target, |owner| owner.show_tasks(&meant));
    ask()?;
    thread::sleep(TASKS_MEASURED_FOR);
    let state = ask()?;
    if state
        .groups
        .iter()
        .all(|it| output::task_rates(it).is_none())
    {
        let target = target.to_owned();
        return Err(CommandError::NoTaskRates { target });
    }
    served::print(&state.groups, Some(state.daemon.pid), as_json)
}

/// Asks each owner about a target. Returns the state of the one that has groups of it, or else the
/// last refusal.
fn ask_all(target: &str, question: impl Fn(&mut Owner) -> Result<State>) -> Result<State> {
    let mut refused = no_target(target).into();
    for mut owner in Owner::all()? {
        match question(&mut owner) {
            Ok(state) if state.groups.is_empty() => (),
            Ok(state) => return Ok(state),
            // One that did not answer may be the target's.
            Err(_) if matches!(refused, CommandError::Client(_)) => (),
            Err(error) => refused = error,
        }
    }
    // The host's owner may know it, and not answer this user.
    Owner::of_host()?;
    Err(refused)
}

fn no_target(target: &str) -> EngineError {
    EngineError::NoTarget {
        target: target.to_owned(),
        what: "group, cgroup or process",
    }
}

fn show_target(target: &str, as_json: bool) -> Result<()> {
    let hierarchy = Arc::new(Hierarchy::find()?);
    let meant = Target::find(&hierarchy, target)?;
    let refused = match ask_all(target, |owner| owner.show(Some(&meant))) {
        Ok(state) => return served::print(&state.groups, Some(state.daemon.pid), as_json),
        // The kernel's files are there for everybody.
        Err(error @ CommandError::Client(ClientError::Denied { .. })) => error,
        Err(error @ CommandError::Client(_)) => return Err(error),
        // No owner has such a group; the kernel may have such a cgroup.
        Err(error) => error,
    };
    let folder = match target.parse::<i32>() {
        Ok(pid) => hierarchy.cpu_folder(&hierarchy.cgroup_of(pid)?),
        Err(_) => path_of(target),
    };
    if folder == hierarchy.cpu_folder(Path::new("")) {
        let target = target.to_owned();
        return Err(CommandError::RootCgroup { target });
    }
    let Ok(path) = hierarchy.resolve(&text_of(folder)) else {
        let mut left = left_behind(&RuntimeFolder::of_this_user())?;
        left.retain(|shown| shown.row()[0] == target);
        return match left.is_empty() {
            true => Err(refused),
            false => print_all(&left, None, as_json),
        };
    };
    print_cgroup(&CpuGroup::at(&hierarchy, path), as_json)
}

fn show_all(as_json: bool) -> Result<()> {
    let mut all = Vec::new();
    let mut daemon = None;
    let mut unanswered = None;
    for mut owner in Owner::all()? {
        // Other owners are shown even if one does not answer.
        match owner.show(None) {
            Ok(state) => {
                let pid = state.daemon.pid;
                let groups = state.groups.into_iter().map(Box::new);
                all.extend(groups.map(|group| Shown::Served { group, pid }));
                daemon = Some(state.daemon);
            }
            Err(error) => unanswered = Some(error),
        }
    }
    if daemon.is_none() {
        all.extend(left_behind(&RuntimeFolder::of_this_user())?);
    }
    match unanswered {
        // The owner may have groups.
        Some(error) if all.is_empty() => Err(error),
        Some(error) => {
            print_all(&all, daemon.as_ref(), as_json)?;
            Err(error)
        }
        None => print_all(&all, daemon.as_ref(), as_json),
    }
}

fn left_behind(runtime: &RuntimeFolder) -> Result<Vec<Shown>> {
    let mut all = Vec::new();
    let hierarchy = Hierarchy::find().ok();
    for left in journal::left_behind(runtime.path())? {
        match left {
            Ok((name, subject)) => {
                let cgroup = hierarchy.as_ref().filter(|_| name.starts_with('/'));
                let cgroup = cgroup.and_then(|hierarchy| hierarchy.resolve(&name).ok());
                let name = cgroup.map_or(name, |path| shown(&path));
                all.push(Shown::LeftBehind { name, subject });
            }
            Err(error) => output::tell(&error.to_string()),
        }
    }
    if plimsoll_scx::SchedExtHost::is_left(runtime) {
        all.push(Shown::LeftBehind {
            name: ".sched-ext".into(),
            subject: "the sched_ext scheduler".into(),
        });
    }
    Ok(all)
}

/// Prints groups as JSON, with the daemon if one runs.
fn print_all(all: &[Shown], daemon: Option<&DaemonState>, as_json: bool) -> Result<()> {
    if as_json {
        #[derive(Serialize)]
        struct Document<'a> {
            groups: &'a [Shown],
            #[serde(skip_serializing_if = "Option::is_none")]
            daemon: Option<&'a DaemonState>,
        }
        let groups = all;
        return output::print_json("plimsoll.show/2", &Document { groups, daemon });
    }
    match all {
        [] => output::print_line("no groups")?,
        all => output::print_line(&table_of(all))?,
    }
    if daemon.is_some_and(|daemon| daemon.burst_off) {
        output::print_line("bursts of all groups are off")?;
    }
    for group in daemon.iter().flat_map(|daemon| &daemon.unmatched) {
        output::print_line(&format!("{group}: no cgroup matches it now"))?;
    }
    for shown in all {
        if let Shown::Served { group, .. } = shown
            && let Some(note) = &group.note
        {
            output::print_line(&format!("{}: {note}", output::one_line(&group.name)))?;
        }
    }
    for problem in daemon.iter().flat_map(|daemon| &daemon.problems) {
        output::print_line(&format!("PROBLEM: {}", output::one_line(problem)))?;
    }
    if let Some(guard) = daemon.and_then(|daemon| daemon.guard.as_ref()) {
        output::print_line(&guard_line(guard))?;
    }
    if let Some(is_changed) = daemon.and_then(|daemon| daemon.host_tuning) {
        output::print_line(match is_changed {
            true => "host tuning: lazy preemption was made full",
            false => "host tuning: preemption is left as it was",
        })?;
    }
    Ok(())
}

fn guard_line(guard: &GuardState) -> String {
    match &guard.problem {
        Some(problem) => format!("guard: none, {}", output::one_line(problem)),
        None => format!(
            "guard: attached; it had a CPU pick again {} times, and moved {} tasks that waited, {} of batch work",
            guard.counts.nr_woken, guard.counts.nr_pulled, guard.counts.nr_pushed
        ),
    }
}

/// Builds a table of all groups.
fn table_of(all: &[Shown]) -> String {
    let columns = ["GROUP", "ORIGIN", "PROCESSES", "CPU TIME", "KNOBS", "RUNS"];
    let mut table = output::borderless(columns);
    for shown in all {
        // Before the table is laid out, because it makes a cell wider.
        table.add_row(shown.row().map(|cell| output::one_line(&cell)));
    }
    table.to_string()
}

impl Shown {
    /// Row of the table: name, origin, processes, CPU time, knobs, command.
    fn row(&self) -> [String; 6] {
        let dash = || "-".to_owned();
        match self {
            Self::Served { group, .. } => served::row(group),
            Self::LeftBehind { name, subject } => {
                let how = format!("LEFT BEHIND by `{subject}`; `plimsoll restore` undoes it");
                [name.clone(), dash(), dash(), dash(), dash(), how]
            }
        }
    }
}

/// A cgroup, read from the kernel's files.
#[derive(Debug, Serialize)]
struct CgroupState {
    cgroup: String,
    /// `None`: the cgroup has no cpu controller (v2).
    #[serde(flatten)]
    cpu: Option<CpuState>,
    usage_usec: u64,
    processes: usize,
    statistics: CpuStat,
}

/// Settings of the cpu controller.
#[derive(Debug, Serialize)]
struct CpuState {
    idle: bool,
    weight: u32,
    quota: knobs::Quota,
    burst: knobs::Burst,
}

impl CpuState {
    fn read(group: &CpuGroup) -> Result<Self> {
        let bandwidth = knobs::Bandwidth::from(group.read_cpu_max()?);
        Ok(Self {
            idle: group.read_idle()?,
            weight: group.read_weight()?,
            quota: bandwidth.quota,
            burst: knobs::Burst {
                burst_ns: bandwidth.burst_ns,
            },
        })
    }

    fn rows(&self) -> [(&'static str, String); 3] {
        let class = if self.idle {
            "batch (idle mark)"
        } else {
            "normal"
        };
        [
            ("class", class.to_owned()),
            ("weight", self.weight.to_string()),
            ("bandwidth", format!("{} burst {}", self.quota, self.burst)),
        ]
    }
}

/// Prints a cgroup without a group, from the kernel's files.
pub fn print_cgroup(group: &CpuGroup, as_json: bool) -> Result<()> {
    let cpu = group.has_weight().then(|| CpuState::read(group));
    let state = CgroupState {
        cgroup: shown(group.path()),
        cpu: cpu.transpose()?,
        usage_usec: group.usage_usec()?,
        processes: group.all_processes()?.len(),
        statistics: group.stat()?,
    };
    if as_json {
        return output::print_json("plimsoll.show/2", &BTreeMap::from([("cgroup", state)]));
    }
    let sample = Sample {
        usage_usec: state.usage_usec,
        processes: state.processes as u64,
        quota: state.cpu.is_some().then_some(state.statistics),
        ..Default::default()
    };
    let mut rows = vec![("cgroup", state.cgroup.clone())];
    match &state.cpu {
        Some(cpu) => rows.extend(cpu.rows()),
        None => rows.push(("limits", "none: it has no cpu controller".into())),
    }
    rows.extend(output::statistics_rows(&sample));
    output::print_line(&output::facts(rows).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_beside_an_escaped_name() {
        let left_behind = |name: &str| Shown::LeftBehind {
            name: name.into(),
            subject: "true".into(),
        };
        let table = table_of(&[left_behind("a\x1b[31m"), left_behind("b")]);
        let column = |line: &str| line.find("ORIGIN").or_else(|| line.find('-'));
        // Behind nine characters of `a\x1b[31m` and two spaces.
        let columns: Vec<_> = table.lines().map(column).collect();
        assert_eq!(columns, [Some(11); 3], "{table}");
    }
}
