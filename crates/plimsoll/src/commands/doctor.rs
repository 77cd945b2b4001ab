//! `plimsoll doctor`: what this host can enforce, by what, with what loss.

use std::process::ExitCode;
use std::sync::Arc;

use plimsoll_engine::cgroup::Hierarchy;
use plimsoll_engine::host::Capabilities;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::plan::{Plan, PlanItem};
use plimsoll_engine::policy_set::{GroupPolicy, PolicySet, Selector};
use serde::Serialize;

use crate::cli::OutputArgs;
use crate::error::{CommandError, Result};
use crate::output;

/// Every knob once, with values that every kernel would take.
const EVERY_KNOB: &str = r#"{
    "class": "batch", "nice": "5", "weight": "50", "quota": "1cpus", "burst": "50ms",
    "cap": "25%", "soft-cap": "10%", "headroom": "30%", "tolerance": "1ms/100ms",
    "cpu-limit": "80%"
}"#;
/// The knobs that stand for others than the first set does.
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
    knobs: Vec<PlanItem>,
    advice: Vec<String>,
}

/// Plans every knob on this host.
fn plan_everything(host: &Capabilities) -> Result<Vec<PlanItem>> {
    let plan_of = |json: &str| -> Result<Vec<PlanItem>> {
        let unreadable = |e: serde_json::Error| CommandError::Other(format!("doctor: {e}"));
        let knobs: Knobs = serde_json::from_str(json).map_err(unreadable)?;
        let group = GroupPolicy {
            name: "any".into(),
            selector: Selector::Command,
            knobs,
        };
        Ok(Plan::new(&PolicySet::new(vec![group])?, host).items)
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

/// What would make more possible.
fn advice(host: &Capabilities) -> Vec<String> {
    let mut advice = Vec::new();
    if host.has_sched_ext {
        advice.push("this kernel has sched_ext; this build has no enforcer for it".into());
    } else {
        advice.push(
            "cpu-limit, bursts above the quota and exact headroom take a kernel with sched_ext \
             (Linux 6.18 or later with CONFIG_SCHED_CLASS_EXT)"
                .into(),
        );
    }
    if !host.has_idle {
        advice.push("a true batch class takes cpu.idle (Linux 5.15 or later)".into());
    }
    if !host.has_burst {
        advice.push("burst takes Linux 5.14 or later".into());
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

/// Looks at this host and changes nothing.
pub fn run(args: OutputArgs) -> Result<ExitCode> {
    let hierarchy = Arc::new(Hierarchy::find()?);
    let host = Capabilities::of_this_host(&hierarchy);
    let permission = match hierarchy.check_permission() {
        Ok(()) => "yes".to_owned(),
        Err(error) => format!("no: {error}"),
    };
    let base = format!("/{}", hierarchy.base().display());
    let report = Report {
        knobs: plan_everything(&host)?,
        advice: advice(&host),
        host,
        permission,
        base,
    };
    if args.json {
        output::print_json("plimsoll.doctor/1", &report)?;
    } else {
        print(&report)?;
    }
    Ok(ExitCode::SUCCESS)
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
        ("burst", yes_no(host.has_burst).into()),
        ("sched_ext", yes_no(host.has_sched_ext).into()),
    ];
    for (name, value) in facts {
        output::print_line(&format!("{name:<12}{value}"))?;
    }
    let mut table = output::borderless(["KNOB", "FOR EXAMPLE", "ENFORCED BY", "LOSS"]);
    for item in &report.knobs {
        table.add_row([
            item.knob,
            &item.value,
            &item.mechanism,
            &output::loss(&item.fidelity),
        ]);
    }
    output::print_line("")?;
    output::print_line(&table.to_string())?;
    output::print_line("")?;
    for line in &report.advice {
        output::print_line(&format!("note: {line}"))?;
    }
    Ok(())
}
