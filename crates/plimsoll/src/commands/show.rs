//! `plimsoll show`: groups, what enforces their knobs, and what they used.

use std::process::ExitCode;
use std::sync::Arc;

use plimsoll_engine::cgroup::{CpuGroup, CpuStat, Hierarchy};
use plimsoll_engine::journal::{self, Journal};
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::{EngineError, knobs};
use serde::Serialize;

use crate::cli::ShowArgs;
use crate::control::{self, GroupState, Request};
use crate::error::Result;
use crate::output;

/// What `show` knows of one journal.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
enum Shown {
    /// A living process keeps it.
    Group(Box<GroupState>),
    /// `set` changed a cgroup of somebody else's.
    Set {
        /// The cgroup.
        target: String,
        /// What was asked for first.
        knobs: Knobs,
    },
    /// Its process is gone; the next start or `restore` undoes it.
    LeftBehind {
        /// Its name.
        name: String,
        /// What ran in it.
        subject: String,
    },
}

/// The knobs as words on one line.
fn knob_words(knobs: &Knobs) -> String {
    let mut words = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name}={value}")));
    };
    add("class", knobs.class.map(|v| v.to_string()));
    add("nice", knobs.nice.map(|v| v.to_string()));
    add("weight", knobs.weight.map(|v| v.to_string()));
    add("quota", knobs.quota.map(|v| v.to_string()));
    add("burst", knobs.burst.map(|v| v.to_string()));
    add("cap", knobs.cap.map(|v| v.to_string()));
    add("soft-cap", knobs.soft_cap.map(|v| v.to_string()));
    add("per-task", knobs.per_task.then(|| "true".into()));
    add("headroom", knobs.headroom.map(|v| v.to_string()));
    add("tolerance", knobs.tolerance.map(|v| v.to_string()));
    add("cpu-limit", knobs.cpu_limit.map(|v| v.to_string()));
    if words.is_empty() {
        "none".into()
    } else {
        words.join(" ")
    }
}

/// Shows all groups, or one target.
pub fn run(args: &ShowArgs) -> Result<ExitCode> {
    let runtime = RuntimeFolder::of_this_user();
    let Some(target) = &args.target else {
        let all = all_groups(&runtime)?;
        print_all(&all, args.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(state) = control::ask(&runtime, target, Request::Show)? {
        print_group(&state, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let hierarchy = Arc::new(Hierarchy::find()?);
    let folder = match target.parse::<i32>() {
        Ok(pid) => hierarchy
            .folders_of(pid)?
            .first()
            .map(|path| path.display().to_string()),
        Err(_) => Some(target.clone()),
    };
    let no_target = || EngineError::NoTarget {
        target: target.clone(),
        what: "group, cgroup or process",
    };
    let folder = folder.ok_or_else(no_target)?;
    let path = hierarchy.resolve(&folder).map_err(|_| no_target())?;
    print_cgroup(&CpuGroup::at(&hierarchy, path), args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn all_groups(runtime: &RuntimeFolder) -> Result<Vec<Shown>> {
    let mut all = Vec::new();
    for path in journal::list(runtime.path())? {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match control::ask(runtime, &name, Request::Show) {
            Ok(Some(state)) => all.push(Shown::Group(Box::new(state))),
            // It ended while we asked, or never got as far as to listen.
            Ok(None) | Err(_) => {
                // Nobody else looks for journals to take over meanwhile.
                let _lock = runtime.lock()?;
                let Some(mut journal) = Journal::take_over(&path)? else {
                    continue;
                };
                let Ok((Some(header), _)) = journal.read() else {
                    continue;
                };
                all.push(if header.persistent {
                    Shown::Set {
                        target: header.subject,
                        knobs: header.knobs,
                    }
                } else {
                    Shown::LeftBehind {
                        name: header.name,
                        subject: header.subject,
                    }
                });
            }
        }
    }
    Ok(all)
}

fn print_all(all: &[Shown], as_json: bool) -> Result<()> {
    if as_json {
        #[derive(Serialize)]
        struct Document<'a> {
            groups: &'a [Shown],
        }
        return output::print_json("plimsoll.show/1", &Document { groups: all });
    }
    if all.is_empty() {
        return output::print_line("no groups");
    }
    let mut table = output::borderless(["GROUP", "PROCESSES", "CPU TIME", "KNOBS", "RUNS"]);
    for shown in all {
        match shown {
            Shown::Group(state) => {
                let sample = state.statistics.clone().unwrap_or_default();
                let rows = output::statistics_rows(&sample);
                let cpu_time = rows
                    .first()
                    .map(|(_, value)| value.clone())
                    .unwrap_or_default();
                table.add_row([
                    state.name.clone(),
                    sample.processes.to_string(),
                    cpu_time,
                    knob_words(&state.knobs),
                    state.subject.clone(),
                ]);
            }
            Shown::Set { target, knobs } => {
                let how = "set; `plimsoll restore` undoes it".into();
                table.add_row([
                    target.clone(),
                    "-".into(),
                    "-".into(),
                    knob_words(knobs),
                    how,
                ]);
            }
            Shown::LeftBehind { name, subject } => {
                let how = format!("LEFT BEHIND by `{subject}`; `plimsoll restore` undoes it");
                table.add_row([name.clone(), "-".into(), "-".into(), "-".into(), how]);
            }
        }
    }
    output::print_line(&table.to_string())
}

/// Prints one group of ours.
pub fn print_group(state: &GroupState, as_json: bool) -> Result<()> {
    if as_json {
        #[derive(Serialize)]
        struct Document<'a> {
            group: &'a GroupState,
        }
        return output::print_json("plimsoll.show/1", &Document { group: state });
    }
    let mut lines = vec![
        format!("{:<12}{}", "group", state.name),
        format!(
            "{:<12}{} (kept by pid {})",
            "runs", state.subject, state.pid
        ),
        format!("{:<12}{}", "cgroup", state.cgroup.display()),
    ];
    if let Some(sample) = &state.statistics {
        let rows = output::statistics_rows(sample);
        lines.extend(
            rows.iter()
                .map(|(name, value)| format!("{name:<12}{value}")),
        );
    }
    output::print_line(&lines.join("\n"))?;
    let text = |item: &serde_json::Value, key: &str| {
        item.get(key)
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let Some(items) = state.plan.as_array().filter(|items| !items.is_empty()) else {
        return Ok(());
    };
    let mut table = output::borderless(["KNOB", "VALUE", "ENFORCED BY", "LOSS"]);
    for item in items {
        let loss = match text(item, "fidelity").as_str() {
            "exact" => "none".to_owned(),
            "approximate" => text(item, "loss"),
            _ => format!("NOT ENFORCED: {}", text(item, "reason")),
        };
        table.add_row([
            text(item, "knob"),
            text(item, "value"),
            text(item, "mechanism"),
            loss,
        ]);
    }
    output::print_line("")?;
    output::print_line(&table.to_string())
}

/// A cgroup as the kernel has it.
#[derive(Debug, Serialize)]
struct CgroupState {
    cgroup: String,
    idle: bool,
    weight: u32,
    quota: knobs::Quota,
    burst: knobs::Burst,
    usage_usec: u64,
    processes: usize,
    statistics: CpuStat,
}

/// Prints a cgroup that is not ours, from the kernel's files.
pub fn print_cgroup(group: &CpuGroup, as_json: bool) -> Result<()> {
    let bandwidth = group.read_bandwidth()?;
    let state = CgroupState {
        cgroup: format!("/{}", group.path().display()),
        idle: group.read_idle()?,
        weight: group.read_weight()?,
        quota: bandwidth.quota,
        burst: knobs::Burst {
            burst_ns: bandwidth.burst_ns,
        },
        usage_usec: group.usage_ns()? / 1000,
        processes: group.all_processes()?.len(),
        statistics: group.stat()?,
    };
    if as_json {
        #[derive(Serialize)]
        struct Document<'a> {
            cgroup: &'a CgroupState,
        }
        return output::print_json("plimsoll.show/1", &Document { cgroup: &state });
    }
    let sample = plimsoll_engine::enforcer::Sample {
        usage_usec: state.usage_usec,
        processes: state.processes as u64,
        quota: Some(state.statistics),
        ..Default::default()
    };
    let mut lines = vec![
        format!("{:<12}{}", "cgroup", state.cgroup),
        format!(
            "{:<12}{}",
            "class",
            if state.idle {
                "batch (idle mark)"
            } else {
                "normal"
            }
        ),
        format!("{:<12}{}", "weight", state.weight),
        format!("{:<12}{} burst {}", "bandwidth", state.quota, state.burst),
    ];
    let rows = output::statistics_rows(&sample);
    lines.extend(
        rows.iter()
            .map(|(name, value)| format!("{name:<12}{value}")),
    );
    output::print_line(&lines.join("\n"))
}
