//! `plimsoll doctor`: lists the knobs that this host can enforce, with mechanism and loss.

use std::process::ExitCode;
use std::sync::Arc;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::cgroup::try_group;
use plimsoll_engine::host::Capabilities;
use plimsoll_engine::knobs::{Class, Knobs};
use plimsoll_engine::plan::{Plan, PlanItem};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_scx::{Readiness, SchedExtHost};
use serde::Serialize;

use crate::cli::OutputArgs;
use crate::daemon::guard;
use crate::error::{CommandError, Result};
use crate::expected::{self, Expected};
use crate::output;
use crate::owner::Owner;

/// Every knob once, with values that every kernel accepts.
const EVERY_KNOB: &str = r#"{
    "class": "batch", "nice": "5", "weight": "50", "quota": "1cpus", "burst": "50ms",
    "cap": "25%", "soft-cap": "10%", "half-life": "1s", "headroom": "30%",
    "tolerance": "1ms/100ms", "cpu-limit": "80%", "host-tuning": true
}"#;
/// Values whose mechanism differs from that of the first set.
const FURTHER_KNOBS: [&str; 3] = [
    r#"{"quota": "1cpus", "burst": "200ms"}"#,
    r#"{"cap": "25%", "per-task": true}"#,
    r#"{"headroom": "1cpus"}"#,
];

#[derive(Debug, Serialize)]
struct Report {
    host: Capabilities,
    permission: String,
    base: String,
    /// `yes`, or why the guard of the fair class cannot be attached.
    guard: String,
    /// The p99 that a service beside batch work has to expect.
    expected: Option<Expected>,
    knobs: Vec<PlanItem>,
    sched_ext: SchedExtReport,
    advice: Vec<String>,
}

/// State of sched_ext, and the plan of each knob with it.
#[derive(Debug, Serialize)]
struct SchedExtReport {
    #[serde(flatten)]
    ready: Readiness,
    knobs: Vec<PlanItem>,
}

impl SchedExtReport {
    fn new(host: &Capabilities) -> Result<Self> {
        let ready = SchedExtHost::readiness(&RuntimeFolder::of_this_user());
        let knobs = if ready.is_supported {
            plan_everything(host, true)?
        } else {
            Vec::new()
        };
        Ok(Self { ready, knobs })
    }
}

/// Plans every knob on this host.
fn plan_everything(host: &Capabilities, is_scheduled: bool) -> Result<Vec<PlanItem>> {
    let plan_of = |json: &str| -> Result<Vec<PlanItem>> {
        let mut knobs: Knobs = serde_json::from_str(json).map_err(CommandError::Doctor)?;
        if is_scheduled {
            knobs.class = Some(Class::Batch);
        }
        Ok(Plan::new("any", &knobs, host, is_scheduled)?.items)
    };
    let mut items = plan_of(EVERY_KNOB)?;
    for json in FURTHER_KNOBS {
        let further = plan_of(json)?;
        let is_new = |item: &PlanItem| {
            !items
                .iter()
                .any(|known| known.knob == item.knob && known.fidelity == item.fidelity)
        };
        let new: Vec<PlanItem> = further.into_iter().filter(is_new).collect();
        items.extend(new);
    }
    Ok(items)
}

/// Advice on missing features.
fn advice(host: &Capabilities, scheduler: &Readiness) -> Vec<String> {
    let mut advice = Vec::new();
    if scheduler.is_supported {
        advice.push(
            "--enforcer sched-ext, or the variable PLIMSOLL_ENFORCER, selects the scheduler, \
             which takes all tasks of the machine; otherwise it is used only while it is loaded"
                .into(),
        );
    } else {
        advice.push(
            "cpu-limit, bursts above the quota and exact headroom need a kernel with sched_ext \
             (Linux 6.18 or later with CONFIG_SCHED_CLASS_EXT)"
                .into(),
        );
    }
    if !host.has_idle {
        advice.push("a true batch class needs cpu.idle (Linux 5.15 or later)".into());
    }
    if !host.has_burst {
        advice.push("burst needs Linux 5.14 or later".into());
    }
    if !host.is_top {
        advice.push(
            "as root, batch work would stay below everything on the machine, not only below \
             this subtree"
                .into(),
        );
    }
    advice
}

/// Tries what `run` needs for a group: by this user's own owner, or else by the host's.
fn try_permission(hierarchy: &Arc<Hierarchy>) -> Result<()> {
    match hierarchy.check_permission() {
        Ok(()) => {
            let runtime = RuntimeFolder::of_this_user();
            // The path of a socket must not be too long.
            Owner::at(&runtime)?;
            runtime.try_out()?;
            Ok(try_group(hierarchy)?)
        }
        Err(error) => match Owner::of_host() {
            Ok(Some(_)) => Ok(()),
            _ => Err(error.into()),
        },
    }
}

/// Examines this host, and leaves nothing behind.
pub fn run(args: OutputArgs) -> Result<ExitCode> {
    let hierarchy = Arc::new(Hierarchy::find()?);
    let host = Capabilities::of_this_host(&hierarchy);
    let permission = match try_permission(&hierarchy) {
        Ok(()) => "yes".to_owned(),
        Err(error) => format!("no: {error}"),
    };
    let base = format!("/{}", hierarchy.base().display());
    let checked = guard::check();
    let has_guard = checked.is_ok();
    let guard = checked.map_or_else(|error| format!("no: {error}"), |()| "yes".to_owned());
    let sched_ext = SchedExtReport::new(&host)?;
    let steps = expected::HostMechanisms::of(&host, has_guard, &sched_ext.ready);
    let expected = Expected::of(&host.kernel, host.nr_cpus, host.is_lazy);
    let step = expected.as_ref().and_then(|expected| expected.step(steps));
    let report = Report {
        knobs: plan_everything(&host, false)?,
        advice: advice(&host, &sched_ext.ready)
            .into_iter()
            .chain(step)
            .collect(),
        sched_ext,
        expected,
        host,
        permission,
        base,
        guard,
    };
    if args.json {
        output::print_json("plimsoll.doctor/1", &report)?;
    } else {
        print(&report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn preemption(is_lazy: Option<bool>) -> &'static str {
    match is_lazy {
        Some(true) => "lazy",
        Some(false) => "not lazy",
        None => "unknown",
    }
}

fn print(report: &Report) -> Result<()> {
    let yes_no = |yes: bool| if yes { "yes" } else { "no" };
    let host = &report.host;
    let facts = [
        ("kernel", host.kernel.clone()),
        ("cpus", host.nr_cpus.to_string()),
        ("interface", host.cgroup.to_string()),
        ("groups go", format!("below {}", report.base)),
        ("may do so", report.permission.clone()),
        ("cpu.idle", yes_no(host.has_idle).into()),
        ("guard", report.guard.clone()),
        ("preemption", preemption(host.is_lazy).into()),
        ("burst", yes_no(host.has_burst).into()),
        ("sched_ext", yes_no(host.has_sched_ext).into()),
    ];
    output::print_line(&output::facts(facts).to_string())?;
    print_knobs(&report.knobs)?;
    print_sched_ext(&report.sched_ext)?;
    output::print_line("")?;
    if let Some(expected) = &report.expected {
        output::print_line(&format!("{}\n", expected.text()))?;
    }
    for line in &report.advice {
        output::print_line(&format!("note: {line}"))?;
    }
    Ok(())
}

fn print_knobs(knobs: &[PlanItem]) -> Result<()> {
    output::print_line("")?;
    output::print_line(&output::plan_table(knobs, "FOR EXAMPLE").to_string())
}

fn print_sched_ext(report: &SchedExtReport) -> Result<()> {
    let ready = &report.ready;
    let loaded = match &ready.loaded {
        Some(name) if ready.is_left_behind => {
            format!("{name}, left behind; `plimsoll restore` unloads it")
        }
        Some(name) => name.clone(),
        None => "nothing".into(),
    };
    let missing = match ready.missing_ops.as_slice() {
        [] => "none that is needed".into(),
        ops => format!("{}; the scheduler does without", ops.join(" ")),
    };
    let facts = [
        (
            "sched_ext",
            ready.problem.clone().unwrap_or_else(|| "usable".into()),
        ),
        ("state", format!("{}; loaded: {loaded}", ready.state)),
        ("kernel", format!("missing: {missing}")),
        ("takes", "all ordinary tasks of the machine".into()),
    ];
    // The rest is of a scheduler that can be loaded.
    let nr_facts = if ready.is_supported { facts.len() } else { 2 };
    let facts = facts.into_iter().take(nr_facts);
    output::print_line("")?;
    output::print_line(&output::facts(facts).to_string())?;
    if report.knobs.is_empty() {
        return Ok(());
    }
    print_knobs(&report.knobs)
}
