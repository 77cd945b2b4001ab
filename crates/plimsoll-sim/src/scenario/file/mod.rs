//! Scenarios from TOML files.
//!
//! | file | subject |
//! | --- | --- |
//! | `variants` | variants and how they override the file |
//! | `workloads` | the workloads of a group |
//!
//! Parsing and the positions of errors: [`plimsoll_engine::toml_file`].

mod variants;
mod workloads;

use std::path::Path;
use std::time::Duration;

use plimsoll_engine::group_policy::check_name;
use plimsoll_engine::knobs::BandwidthSlice;
use plimsoll_engine::knobs::{Headroom, Knobs};
use plimsoll_engine::toml_file::{Entries, FileError, KNOB_KEYS, Source, Table, parse, read_knobs};
use plimsoll_policy::CPUS_MAX;

use super::{Group, Machine, Scenario, TASKS_MAX, Workload, workload_seed};
use workloads::Surroundings;

/// Top-level keys of a file.
const KEYS: [&str; 7] = [
    "about", "duration", "warmup", "seed", "machine", "group", "variant",
];
/// Keys of a machine.
const MACHINE_KEYS: [&str; 8] = [
    "cpus",
    "threads-per-core",
    "cpus-per-llc",
    "contention",
    "sibling-speed",
    "switch-cost",
    "burst-enabled",
    "bandwidth-slice",
];
/// Default warm-up.
const WARMUP_DEFAULT: Duration = Duration::from_millis(500);
/// Default seed.
const SEED_DEFAULT: u64 = 1;
/// Shortest measured time.
const DURATION_MIN: Duration = Duration::from_millis(1);
/// Longest run, warm-up included.
pub const RUN_MAX: Duration = Duration::from_secs(4 * 3_600);

/// Values that override those of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Seed of all variants.
    pub seed: Option<u64>,
    /// Measured time of all variants.
    pub duration: Option<Duration>,
}

/// A scenario file: one scenario, or several that are variants of each other.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioFile {
    /// Description in one line.
    pub about: String,
    /// At least one.
    pub runs: Vec<Run>,
}

/// One scenario of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Name of the variant; `None` in a file without variants.
    pub variant: Option<String>,
    /// The scenario to run.
    pub scenario: Scenario,
    /// Line and column of the number of CPUs, or of the start of the file if it
    /// has none.
    pub cpus_at: (usize, usize),
}

impl ScenarioFile {
    /// Reads and checks a file. Names of other files in it are relative to its
    /// folder.
    ///
    /// # Errors
    /// One line with file, line, column, field, value, and the allowed values.
    pub fn read(path: &Path, overrides: Overrides) -> Result<Self, FileError> {
        let source = Source::read(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::of(&source, folder, overrides)
    }

    /// Parses and checks a text. `name` is for messages; names of other files
    /// are relative to `folder`.
    ///
    /// # Errors
    /// As [`ScenarioFile::read`].
    pub fn parse(
        name: &str,
        text: &str,
        folder: &Path,
        overrides: Overrides,
    ) -> Result<Self, FileError> {
        Self::of(&Source::new(name, text), folder, overrides)
    }

    fn of(source: &Source, folder: &Path, overrides: Overrides) -> Result<Self, FileError> {
        let mut entries = parse(source)?;
        Table::new(source, 0, &entries, "a scenario").check_keys(&KEYS)?;
        let variants = variants::take(source, &mut entries)?;
        let reader = Reader {
            source,
            folder,
            overrides,
        };
        // Checked even if only variants run, so that errors in parts that no
        // variant changes are found.
        let base = reader.scenario(&entries)?;
        let about = base.about.clone();
        if variants.is_empty() {
            let runs = vec![reader.run(&entries, None, base)?];
            return Ok(Self { about, runs });
        }
        let run = |variant: &variants::Overlaid| {
            let mut scenario = reader.scenario(&variant.entries)?;
            let stays = |group: &Group| !variant.without.contains(&group.name);
            scenario.groups.retain(stays);
            reader.run(&variant.entries, Some(variant.name.clone()), scenario)
        };
        let runs: Result<_, FileError> = variants.iter().map(run).collect();
        Ok(Self { about, runs: runs? })
    }

    /// Keeps only one variant.
    ///
    /// # Errors
    /// If there is no variant of that name. `file` is for the message.
    pub fn only(mut self, file: &str, variant: &str) -> Result<Self, FileError> {
        let is_it = |run: &Run| run.variant.as_deref() == Some(variant);
        if self.runs.iter().any(is_it) {
            self.runs.retain(is_it);
            return Ok(self);
        }
        let names: Vec<_> = self
            .runs
            .into_iter()
            .filter_map(|run| run.variant)
            .collect();
        let allowed = match names.as_slice() {
            [] => "none, the file has no variants".to_owned(),
            names => names.join(", "),
        };
        Err(FileError::Missing {
            file: file.to_owned(),
            what: "variant",
            name: variant.to_owned(),
            allowed,
        })
    }
}

/// Reader of the tree of one scenario.
struct Reader<'a> {
    source: &'a Source,
    folder: &'a Path,
    overrides: Overrides,
}

impl Reader<'_> {
    fn scenario(&self, entries: &Entries) -> Result<Scenario, FileError> {
        let top = Table::new(self.source, 0, entries, "a scenario");
        let machine = machine(&top)?;
        let (duration, warmup) = self.times(&top)?;
        let around = Surroundings {
            cpus: machine.cpus,
            duration,
            warmup,
            folder: self.folder,
        };
        let seed = top.whole("seed")?.unwrap_or(SEED_DEFAULT);
        let seed = self.overrides.seed.unwrap_or(seed);
        let about = top.text("about", "a sentence in quotes")?;
        let mut scenario = Scenario {
            // Control characters are replaced, because the text goes to
            // terminals and into pictures.
            about: about
                .unwrap_or_default()
                .trim()
                .replace(char::is_control, " "),
            machine,
            groups: groups(&top, &around)?,
            duration_ns: nanos(duration),
            warmup_ns: nanos(warmup),
            seed,
        };
        seed_workloads(&mut scenario);
        Ok(scenario)
    }

    /// Builds one run.
    fn run(
        &self,
        entries: &Entries,
        variant: Option<String>,
        scenario: Scenario,
    ) -> Result<Run, FileError> {
        let top = Table::new(self.source, 0, entries, "a scenario");
        let no_entries = Entries::new();
        let machine = top.table("machine", "a machine")?;
        let machine = machine.unwrap_or(top.empty(&no_entries, "a machine"));
        Ok(Run {
            variant,
            scenario,
            cpus_at: machine.place("cpus"),
        })
    }

    /// Measured time and warm-up.
    fn times(&self, top: &Table) -> Result<(Duration, Duration), FileError> {
        let warmup = top.time("warmup")?.unwrap_or(WARMUP_DEFAULT);
        let given = top.time("duration")?;
        let Some(duration) = self.overrides.duration.or(given) else {
            let problem = "duration: `` is missing; allowed: the measured time, such as \"10s\"";
            return Err(top.error("duration", problem));
        };
        let allowed = "1ms or more, and with the warm-up at most 4h";
        if duration < DURATION_MIN || duration > RUN_MAX {
            let problem = format!("duration: `{duration:?}` is out of range; allowed: {allowed}");
            return Err(top.error("duration", problem));
        }
        if warmup > RUN_MAX || warmup + duration > RUN_MAX {
            let key = top.find("warmup").map_or("duration", |_| "warmup");
            let total = warmup.saturating_add(duration);
            let problem = format!("{key}: `{total:?}` in all is too long; allowed: {allowed}");
            return Err(top.error(key, problem));
        }
        Ok((duration, warmup))
    }
}

fn nanos(time: Duration) -> u64 {
    // Never exceeds RUN_MAX, which fits.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Gives every service the seed of its position in the file.
fn seed_workloads(scenario: &mut Scenario) {
    let workloads = scenario.groups.iter_mut().flat_map(|g| &mut g.workloads);
    for (place, workload) in (0..).zip(workloads) {
        if let Workload::Service(config) = workload {
            config.seed = workload_seed(scenario.seed, place);
        }
    }
}

fn machine(top: &Table) -> Result<Machine, FileError> {
    let no_entries = Entries::new();
    let table = top
        .table("machine", "a machine")?
        .unwrap_or(top.empty(&no_entries, "a machine"));
    table.check_keys(&MACHINE_KEYS)?;
    let here = u32::try_from(plimsoll_load::available_cpus()).unwrap_or(u32::MAX);
    let cpus = table
        .whole("cpus")
        .map_err(|error| match table.find("cpus") {
            Some(entry) => table.refused(entry, "is not allowed", &format!("1 to {CPUS_MAX}")),
            None => error,
        })?;
    let defaults = Machine::of_cpus(cpus.unwrap_or(here));
    let machine = Machine {
        threads_per_core: table
            .whole("threads-per-core")?
            .unwrap_or(defaults.threads_per_core),
        cpus_per_llc: table
            .whole("cpus-per-llc")?
            .unwrap_or(defaults.cpus_per_llc),
        contention_ppm: share(&table, "contention")?.unwrap_or(defaults.contention_ppm),
        sibling_speed_ppm: share(&table, "sibling-speed")?.unwrap_or(defaults.sibling_speed_ppm),
        switch_cost_ns: table
            .time("switch-cost")?
            .map_or(defaults.switch_cost_ns, nanos),
        burst_enabled: match table.find("burst-enabled") {
            Some(_) => table.flag("burst-enabled")?,
            None => defaults.burst_enabled,
        },
        bandwidth_slice_ns: table
            .parsed::<BandwidthSlice>("bandwidth-slice")?
            .map_or(defaults.bandwidth_slice_ns, |slice| slice.slice_ns),
        ..defaults
    };
    match machine.check() {
        Ok(()) => Ok(machine),
        Err(error) => Err(match table.find(error.field) {
            Some(entry) => table.refused(entry, "is not allowed", &error.allowed),
            // A default does not fit to a value that was given.
            None => table.error("cpus", format!("machine: {error}")),
        }),
    }
}

/// A percentage, in ppm.
fn share(table: &Table, key: &str) -> Result<Option<u32>, FileError> {
    const ALLOWED: &str = "a percentage in quotes, such as \"30%\"";
    let Some(text) = table.text(key, ALLOWED)? else {
        return Ok(None);
    };
    let ppm = plimsoll_engine::knobs::units::percent_ppm(text);
    match ppm.map(u32::try_from) {
        Ok(Ok(ppm)) => Ok(Some(ppm)),
        Ok(Err(_)) => Err(table.error(
            key,
            format!("{key}: `{text}` is too large; allowed: {ALLOWED}"),
        )),
        Err(error) => {
            let problem = format!("{key}: `{text}` {}; allowed: {ALLOWED}", error.problem());
            Err(table.error(key, problem))
        }
    }
}

fn groups(top: &Table, around: &Surroundings) -> Result<Vec<Group>, FileError> {
    let tables = top.tables("group", "a group")?;
    if tables.is_empty() {
        let problem = "group: `` is missing; allowed: one [[group]] or more";
        return Err(top.error("group", problem));
    }
    let mut groups: Vec<Group> = Vec::with_capacity(tables.len());
    let mut nr_tasks = 0;
    for table in &tables {
        let group = group(table, around)?;
        if groups.iter().any(|other| other.name == group.name) {
            let problem = format!(
                "name: `{}` is already the name of another group; allowed: a unique name",
                group.name
            );
            return Err(table.error("name", problem));
        }
        nr_tasks += group
            .workloads
            .iter()
            .map(|w| w.tasks(around.cpus))
            .sum::<u64>();
        if nr_tasks > TASKS_MAX {
            let problem = format!(
                "workload: `{nr_tasks}` tasks in all with group {} are too many; \
                 allowed: up to {TASKS_MAX}",
                group.name
            );
            return Err(table.error("name", problem));
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Refuses knobs that have no effect on this machine.
fn check_effects(table: &Table, knobs: &Knobs, cpus: u32) -> Result<(), FileError> {
    let endless = knobs.quota.is_some_and(|quota| quota.quota_ns.is_none());
    if let Some(entry) = table.find("burst").filter(|_| endless) {
        let allowed = "together with a quota that ends";
        return Err(table.refused(entry, "has no effect without a limit", allowed));
    }
    match (knobs.headroom, table.find("headroom")) {
        (Some(Headroom::Cpus(asked)), Some(entry)) if asked > cpus => {
            let allowed = format!("up to the machine's, {cpus}cpus");
            Err(table.refused(entry, "is more than the machine has", &allowed))
        }
        _ => Ok(()),
    }
}

fn group(table: &Table, around: &Surroundings) -> Result<Group, FileError> {
    let mut keys = vec!["name", "workload"];
    keys.extend(KNOB_KEYS);
    table.check_keys(&keys)?;
    const NAME: &str = "the group's name in quotes";
    let Some(name) = table.text("name", NAME)? else {
        return Err(table.error("name", format!("name: `` is missing; allowed: {NAME}")));
    };
    check_name(name).map_err(|error| table.error("name", error.to_string()))?;
    let knobs = read_knobs(table)?;
    check_effects(table, &knobs, around.cpus)?;
    let workloads = table.tables("workload", "a workload")?;
    if workloads.is_empty() {
        let problem = format!(
            "workload: `` is missing in group {name}; allowed: one [[group.workload]] or more"
        );
        return Err(table.error("workload", problem));
    }
    let workloads = workloads.iter().map(|table| workloads::read(table, around));
    Ok(Group {
        name: name.to_owned(),
        knobs,
        workloads: workloads.collect::<Result<_, _>>()?,
    })
}
