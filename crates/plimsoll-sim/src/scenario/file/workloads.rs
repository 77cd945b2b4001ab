//! Workloads of a group, with the names, parameters and defaults of `plimsoll
//! load`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_engine::toml_file::{FileError, Table, nearest};
use plimsoll_load::limits::THREADS_MAX;
use plimsoll_load::steady::Step;
use plimsoll_load::{
    ArrivalOptions, BurnConfig, LoadError, NeedConfig, ServiceConfig, SteadyConfig, StormConfig,
    Trace, WakeConfig,
};

use crate::scenario::Workload;

/// Kinds of workloads, with their keys.
pub(super) const KINDS: [(&str, &[&str]); 6] = [
    (
        "service",
        &[
            "kind",
            "rate",
            "arrivals",
            "burst-size",
            "burst-every",
            "burst-spread",
            "service",
            "trace",
            "workers",
            "deadline",
        ],
    ),
    ("burn", &["kind", "threads", "processes"]),
    (
        "storm",
        &["kind", "processes", "cpu-total", "cpu-each", "parallel"],
    ),
    ("need", &["kind", "cpu", "tasks"]),
    (
        "steady",
        &["kind", "percent", "step-to", "step-at", "grain", "no-pin"],
    ),
    ("wake", &["kind", "every"]),
];

/// Kinds of `plimsoll load` that a scenario cannot have, with the reason.
const NOT_HERE: [(&str, &str); 4] = [
    (
        "serve",
        "listens on a real socket; service has requests and workers in one",
    ),
    (
        "request",
        "talks to a real socket; service has requests and workers in one",
    ),
    (
        "hold",
        "takes a lock of the real kernel, which the simulator does not model",
    ),
    (
        "wait",
        "asks for a lock of the real kernel, which the simulator does not model",
    ),
];

/// Parameters of `plimsoll load` that belong to the whole scenario or do not
/// apply to it.
const OF_THE_SCENARIO: [(&str, &str); 4] = [
    ("duration", "is the scenario's"),
    ("warmup", "is the scenario's"),
    ("seed", "is the scenario's"),
    (
        "grace",
        "does not apply to a scenario: requests without an answer at its end count as not answered",
    ),
];

/// Context for the readers of workloads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    /// CPUs of the machine: default number of workers or burners.
    pub(super) cpus: u32,
    /// Measured time.
    pub(super) duration: Duration,
    /// Time before that.
    pub(super) warmup: Duration,
    /// Folder that names of other files are relative to.
    pub(super) folder: &'a Path,
}

impl Surroundings<'_> {
    /// Run time of a workload without a warm-up of its own.
    fn whole(&self) -> Duration {
        self.warmup + self.duration
    }

    fn one_per_cpu(&self) -> usize {
        (self.cpus as usize).min(THREADS_MAX)
    }
}

/// Reads and checks a workload.
pub(super) fn read(table: &Table, around: &Surroundings) -> Result<Workload, FileError> {
    let kind = kind(table)?;
    let keys = KINDS.iter().find(|(name, _)| *name == kind);
    let keys = keys.map_or(&["kind"] as &[&str], |(_, keys)| *keys);
    check_keys(table, kind, keys)?;
    let (workload, checked) = match kind {
        "service" => service(table, around)?,
        "burn" => burn(table, around)?,
        "storm" => storm(table)?,
        "need" => need(table)?,
        "steady" => steady(table, around)?,
        _ => wake(table, around)?,
    };
    match checked {
        Ok(()) => Ok(workload),
        Err(error) => Err(located(table, &error)),
    }
}

type Checked = (Workload, Result<(), LoadError>);

fn kind<'a>(table: &Table<'a>) -> Result<&'a str, FileError> {
    let names = KINDS.map(|(name, _)| name);
    let allowed = names.join(", ");
    let Some(kind) = table.text("kind", &allowed)? else {
        let problem = format!("kind: `` is missing; allowed: {allowed}");
        return Err(table.error("kind", problem));
    };
    if names.contains(&kind) {
        return Ok(kind);
    }
    let why = NOT_HERE.iter().find(|(name, _)| *name == kind);
    let problem = match (why, nearest(kind, names.into_iter())) {
        (Some((_, why)), _) => (*why).to_owned(),
        (None, Some(near)) => format!("is not a kind of workload (perhaps `{near}`?)"),
        (None, None) => "is not a kind of workload".to_owned(),
    };
    let problem = format!("kind: `{kind}` {problem}; allowed: {allowed}");
    Err(table.error("kind", problem))
}

fn check_keys(table: &Table, kind: &str, keys: &[&str]) -> Result<(), FileError> {
    for entry in table.entries() {
        if keys.contains(&entry.key.as_str()) {
            continue;
        }
        let why = OF_THE_SCENARIO.iter().find(|(key, _)| *key == entry.key);
        let Some((key, why)) = why else {
            return Err(table.unknown(entry, keys));
        };
        let allowed = keys.join(", ");
        let problem = format!("`{key}` of a {kind} {why}; allowed: {allowed}");
        return Err(table.error_at(&entry.key_span, problem));
    }
    Ok(())
}

/// Converts an error of a workload's own check to one at the position of the
/// value.
fn located(table: &Table, error: &LoadError) -> FileError {
    let LoadError::Invalid { field, .. } = error else {
        return table.error("", error.to_string());
    };
    // Some errors concern several fields, or name a field as the command line
    // does.
    let words = field.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let given = |word: &&str| table.find(word).is_some();
    let key = match *field {
        "need" => "cpu",
        _ => words.into_iter().find(given).unwrap_or(""),
    };
    let key = match (key, table.find("cpu-total")) {
        ("", Some(_)) if *field == "cpu-each" => "cpu-total",
        _ => key,
    };
    let text = error.to_string();
    match text.strip_prefix("need: ") {
        // On the command line this parameter is positional and has no name.
        Some(rest) => table.error(key, format!("cpu: {rest}")),
        None => table.error(key, text),
    }
}

fn service(table: &Table, around: &Surroundings) -> Result<Checked, FileError> {
    let defaults = ServiceConfig::default();
    let trace = trace(table, around)?;
    let arrivals = asked(table)?.arrivals();
    let arrivals = arrivals.map_err(|error| located(table, &error))?;
    let config = ServiceConfig {
        arrivals,
        demand: table.parsed("service")?.unwrap_or(defaults.demand),
        trace,
        workers: table.whole("workers")?.unwrap_or(around.one_per_cpu()),
        deadline: table.time("deadline")?.unwrap_or(defaults.deadline),
        duration: around.duration,
        warmup: around.warmup,
        ..defaults
    };
    let checked = config.validate();
    Ok((Workload::Service(config), checked))
}

fn asked(table: &Table) -> Result<ArrivalOptions, FileError> {
    Ok(ArrivalOptions {
        kind: table.parsed("arrivals")?,
        rate: table.number("rate")?,
        burst_size: table.whole("burst-size")?,
        burst_every: table.time("burst-every")?,
        burst_spread: table.time("burst-spread")?,
    })
}

fn trace(table: &Table, around: &Surroundings) -> Result<Option<Arc<Trace>>, FileError> {
    let Some(name) = table.text("trace", "the name of a CSV file")? else {
        return Ok(None);
    };
    let end_ns = u64::try_from(around.whole().as_nanos()).unwrap_or(u64::MAX);
    const INSTEAD: [&str; 6] = [
        "rate",
        "arrivals",
        "burst-size",
        "burst-every",
        "burst-spread",
        "service",
    ];
    if let Some(entry) = INSTEAD.iter().find_map(|key| table.find(key)) {
        let allowed = "either a trace or draws";
        return Err(table.refused(
            entry,
            "cannot be combined with a trace, which determines it",
            allowed,
        ));
    }
    match Trace::read(&around.folder.join(name)) {
        Ok(trace) if trace.count_within(0, end_ns) == 0 => {
            let problem = format!(
                "trace: `{name}` has no request before the end; allowed: one that arrives \
                 within warm-up and duration"
            );
            Err(table.error("trace", problem))
        }
        Ok(trace) => Ok(Some(Arc::new(trace))),
        // An error inside the trace has a position of its own, which follows
        // the file name.
        Err(error) => Err(table.error("trace", format!("trace: {error}"))),
    }
}

fn burn(table: &Table, around: &Surroundings) -> Result<Checked, FileError> {
    let config = BurnConfig {
        burners: table.whole("threads")?.unwrap_or(around.one_per_cpu()),
        processes: table.flag("processes")?,
        duration: around.whole(),
    };
    let checked = config.validate();
    Ok((Workload::Burn(config), checked))
}

fn storm(table: &Table) -> Result<Checked, FileError> {
    let processes = table.whole("processes")?.unwrap_or(2_000);
    let (each, total) = (table.time("cpu-each")?, table.time("cpu-total")?);
    let cpu_each = match (each, total) {
        (Some(each), None) => each,
        (None, Some(total)) => total / processes.max(1),
        (Some(_), Some(_)) => {
            let problem = "cpu-each: cannot be combined with cpu-total; allowed: one of the two";
            return Err(table.error("cpu-each", problem));
        }
        (None, None) => {
            let problem = "storm: `` has neither cpu-total nor cpu-each; allowed: one of the two";
            return Err(table.error("cpu-each", problem));
        }
    };
    let config = StormConfig {
        processes,
        cpu_each,
        parallel: table.whole("parallel")?.unwrap_or(1),
    };
    let checked = config.validate();
    Ok((Workload::Storm(config), checked))
}

fn need(table: &Table) -> Result<Checked, FileError> {
    let Some(cpu) = table.time("cpu")? else {
        let problem =
            "cpu: `` is missing; allowed: the CPU time that each task needs, such as \"500ms\"";
        return Err(table.error("cpu", problem));
    };
    let config = NeedConfig {
        cpu,
        tasks: table.whole("tasks")?.unwrap_or(1),
    };
    let checked = config.validate();
    Ok((Workload::Need(config), checked))
}

fn steady(table: &Table, around: &Surroundings) -> Result<Checked, FileError> {
    let Some(percent) = table.number("percent")? else {
        let problem = "percent: `` is missing; allowed: a share of the machine, 0 to 100";
        return Err(table.error("percent", problem));
    };
    let (to, at) = (table.numbers("step-to")?, table.times("step-at")?);
    if to.len() != at.len() {
        let problem = format!(
            "step-at: `{} times` does not go with step-to; allowed: as many as there, {}",
            at.len(),
            to.len()
        );
        return Err(table.error("step-at", problem));
    }
    let steps = at.into_iter().zip(to);
    let defaults = SteadyConfig::default();
    let config = SteadyConfig {
        percent,
        steps: steps.map(|(at, percent)| Step { at, percent }).collect(),
        grain: table.time("grain")?.unwrap_or(defaults.grain),
        duration: around.whole(),
        pin: !table.flag("no-pin")?,
    };
    let checked = config.validate();
    Ok((Workload::Steady(config), checked))
}

fn wake(table: &Table, around: &Surroundings) -> Result<Checked, FileError> {
    let config = WakeConfig {
        every: table.time("every")?.unwrap_or(Duration::from_millis(2)),
        duration: around.whole(),
    };
    let checked = config.validate();
    Ok((Workload::Wake(config), checked))
}
