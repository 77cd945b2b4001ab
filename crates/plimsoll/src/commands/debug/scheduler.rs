//! Dump of the scheduler's state.

use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::sample::SchedulerSample;
pub use plimsoll_scx::debug::Snapshot;

use crate::error::Result;
use crate::output;

/// Reads the scheduler's state, and changes nothing.
pub fn take() -> Result<Option<Snapshot>> {
    Ok(Some(Snapshot::take(&RuntimeFolder::of_this_user())?))
}

/// Prints the state, with the `status` that the owner knows.
pub fn print(snapshot: &Snapshot, status: Option<&SchedulerSample>) -> Result<()> {
    output::print_line(&overview(snapshot, status))?;
    output::print_line(&format!("\n{}", groups(snapshot)))?;
    output::print_line(&format!("\n{}", cpus(snapshot)))?;
    output::print_line(&format!("\n{}", decisions(snapshot)))
}

fn overview(snapshot: &Snapshot, status: Option<&SchedulerSample>) -> String {
    let mut rows = Vec::new();
    let mut add = |name, value| rows.push((name, value));
    let loaded = snapshot.host.loaded.as_deref().unwrap_or("none");
    add("scheduler", format!("{loaded}, {}", snapshot.host.state));
    if let Some(status) = status {
        add(
            "owner",
            format!("pid {}; {} reloads", status.owner_pid, status.nr_reloads),
        );
        if let Some(reason) = &status.last_exit {
            add("last exit", reason.clone());
        }
    }
    if !snapshot.host.missing_ops.is_empty() {
        add("without", snapshot.host.missing_ops.join(" "));
    }
    let machine = &snapshot.machine;
    let headroom = machine.headroom.as_deref().unwrap_or("off");
    add(
        "headroom",
        format!(
            "{headroom}; credit {} us, allowance {} us, short by {} us; {} updates, \
             {} evictions, {} takeovers, {} shortages of {} us in all",
            machine.credit_usec,
            machine.allowance_usec,
            machine.shortfall_usec,
            machine.nr_updates,
            machine.nr_evictions,
            machine.nr_takeovers,
            machine.nr_shortages.iter().sum::<u64>(),
            machine.shortage_usec
        ),
    );
    add(
        "tolerance",
        format!(
            "{} us in {} us",
            machine.tolerance_runtime_usec, machine.tolerance_period_usec
        ),
    );
    for (name, count) in snapshot.events.iter().filter(|(_, count)| **count != 0) {
        add("event", format!("{name} {count}"));
    }
    output::facts(rows).to_string()
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

fn groups(snapshot: &Snapshot) -> String {
    let mut table = output::borderless([
        "SLOT",
        "CGROUP",
        "FLAGS",
        "PARENT",
        "WEIGHT",
        "RUNNABLE",
        "RUNNING",
        "POOL us",
        "THROTTLED",
        "RATE",
        "BLOCKED us",
    ]);
    for group in &snapshot.groups {
        let mut flags = group.flags.join(",");
        if group.background {
            flags.push_str(",background");
        }
        table.add_row([
            group.slot.to_string(),
            group.cgroup_id.to_string(),
            flags,
            optional(group.parent),
            optional(group.weight),
            group.nr_runnable.to_string(),
            group.nr_running.to_string(),
            optional(group.pool_usec),
            group.nr_throttled_cpus.to_string(),
            output::percent(group.rate_ppm),
            group.blocked_usec.to_string(),
        ]);
    }
    table.to_string()
}

fn cpus(snapshot: &Snapshot) -> String {
    let mut table = output::borderless([
        "CPU",
        "STATE",
        "SINCE us",
        "SLOT",
        "BATCH",
        "LLC",
        "ROOM",
        "DISPATCHES",
    ]);
    for cpu in &snapshot.cpus {
        table.add_row([
            cpu.cpu.to_string(),
            cpu.state.to_owned(),
            cpu.since_usec.to_string(),
            optional(cpu.slot),
            if cpu.token { "yes" } else { "no" }.into(),
            cpu.llc.to_string(),
            output::percent(cpu.room_ppm.into()),
            cpu.nr_dispatches.to_string(),
        ]);
    }
    table.to_string()
}

fn decisions(snapshot: &Snapshot) -> String {
    let mut table = output::borderless(["AGO us", "CPU", "DECISION", "SLOT", "PID", "us"]);
    for decision in &snapshot.decisions {
        table.add_row([
            decision.ago_usec.to_string(),
            decision.cpu.to_string(),
            decision.kind.to_owned(),
            decision.slot.to_string(),
            decision.pid.to_string(),
            decision.detail_usec.to_string(),
        ]);
    }
    table.to_string()
}
