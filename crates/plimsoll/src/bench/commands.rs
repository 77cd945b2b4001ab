//! Builds the command lines of a scenario.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum as _;
use plimsoll_engine::knobs::units::show_duration;
use plimsoll_engine::knobs::{Class, Demand, Knobs};
use plimsoll_load::{Arrivals, ServiceConfig, SteadyConfig};
use plimsoll_sim::scenario::{Group, Scenario, Workload};

use super::launch;
use crate::cli::EnforcerChoice;

/// Maximum number of characters of a group's name in the name of its cgroup.
const NAME_CHARS_MAX: usize = 40;

/// Command that runs one group.
#[derive(Debug, Clone)]
pub struct GroupCommand {
    /// Name of its cgroup.
    pub name: String,
    /// Its knobs as flags.
    knobs: Vec<String>,
    enforcer: EnforcerChoice,
    /// Arguments after `load`, for each workload.
    loads: Vec<Vec<String>>,
}

impl GroupCommand {
    /// Builds the commands of all groups of a scenario.
    pub fn of(scenario: &Scenario, enforcer: EnforcerChoice) -> Vec<Self> {
        let demand: Demand = scenario.groups.iter().map(|group| &group.knobs).collect();
        let (nr_cpus, burst_enabled) = (scenario.machine.cpus, scenario.machine.burst_enabled);
        let command = |group: &Group| Self {
            name: cgroup_name(&group.name),
            knobs: knob_words(&in_force(&group.knobs, &demand, nr_cpus, burst_enabled)),
            enforcer,
            loads: group
                .workloads
                .iter()
                .map(|workload| load_words(workload, scenario))
                .collect(),
        };
        scenario.groups.iter().map(command).collect()
    }

    /// Arguments for the program at `program`, which is also the program that
    /// it runs.
    pub fn arguments(&self, program: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["run".into(), "--name".into(), (&self.name).into()];
        words.extend(self.knobs.iter().map(OsString::from));
        let enforcer = self.enforcer.to_possible_value();
        if let Some(value) = enforcer {
            words.extend(["--enforcer".into(), value.get_name().into()]);
        }
        words.extend(["--stats", "--json", "--"].map(OsString::from));
        words.push(program.into());
        words.push(launch::COMMAND.into());
        for (index, load) in self.loads.iter().enumerate() {
            if index > 0 {
                words.push(launch::AND.into());
            }
            words.extend(load.iter().map(OsString::from));
        }
        words
    }

    /// The commands as a user would type them, one for each workload.
    pub fn shown(&self) -> Vec<String> {
        let knobs = self.knobs.join(" ");
        let one = |load: &Vec<String>| {
            format!("plimsoll run {knobs} -- plimsoll load {}", load.join(" ")).replace("  ", " ")
        };
        self.loads.iter().map(one).collect()
    }
}

/// A name that no concurrent benchmark uses.
fn cgroup_name(group: &str) -> String {
    let short: String = group.chars().take(NAME_CHARS_MAX).collect();
    format!("bench-{short}-{}", std::process::id())
}

fn is_batch(knobs: &Knobs) -> bool {
    knobs.class == Some(Class::Batch)
}

/// In a scenario headroom stands from the start to the end, whichever groups run: it is asked on
/// each batch group, which all make room for it.
fn in_force(knobs: &Knobs, demand: &Demand, nr_cpus: u32, burst_enabled: bool) -> Knobs {
    let mut knobs = knobs.clone();
    knobs.burst = knobs.burst.filter(|_| burst_enabled);
    if is_batch(&knobs) {
        demand.set_on(&mut knobs, nr_cpus);
    } else {
        (knobs.headroom, knobs.tolerance) = (None, None);
    }
    knobs
}

/// Knobs as command line flags.
fn knob_words(knobs: &Knobs) -> Vec<String> {
    let values = [
        ("--class", knobs.class.map(|v| v.to_string())),
        ("--nice", knobs.nice.map(|v| v.to_string())),
        ("--weight", knobs.weight.map(|v| v.to_string())),
        ("--quota", knobs.quota.map(|v| v.to_string())),
        ("--burst", knobs.burst.map(|v| v.to_string())),
        ("--cap", knobs.cap.map(|v| v.to_string())),
        ("--soft-cap", knobs.soft_cap.map(|v| v.to_string())),
        ("--half-life", knobs.half_life.map(|v| v.to_string())),
        ("--headroom", knobs.headroom.map(|v| v.to_string())),
        ("--tolerance", knobs.tolerance.map(|v| v.to_string())),
        ("--cpu-limit", knobs.cpu_limit.map(|v| v.to_string())),
    ];
    let given = values
        .into_iter()
        .filter_map(|(flag, value)| Some((flag, value?)));
    let mut words: Vec<String> = given
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect();
    if knobs.per_task {
        words.push("--per-task".into());
    }
    words
}

/// A duration as a command line argument.
fn time(time: Duration) -> String {
    show_duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Arguments after `load`.
fn load_words(workload: &Workload, scenario: &Scenario) -> Vec<String> {
    let mut words = vec![workload.name().to_owned()];
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    let whole = Duration::from_nanos(scenario.warmup_ns + scenario.duration_ns);
    match workload {
        Workload::Service(config) => service_words(config, &mut add),
        Workload::Burn(config) => {
            add("--threads", config.burners.to_string());
            add("--duration", time(whole));
            if config.processes {
                words.push("--processes".into());
            }
        }
        Workload::Storm(config) => {
            add("--processes", config.processes.to_string());
            add("--cpu-each", time(config.cpu_each));
            add("--parallel", config.parallel.to_string());
        }
        Workload::Need(config) => {
            add("--tasks", config.tasks.to_string());
            words.push(time(config.cpu));
        }
        Workload::Steady(config) => {
            steady_words(config, &mut add);
            add("--duration", time(whole));
            if !config.pin {
                words.push("--no-pin".into());
            }
        }
        Workload::Wake(config) => {
            add("--every", time(config.every));
            add("--duration", time(whole));
        }
    }
    words
}

fn service_words(config: &ServiceConfig, add: &mut impl FnMut(&str, String)) {
    match &config.trace {
        Some(trace) => add("--trace", trace.file().to_owned()),
        None => {
            arrivals_words(&config.arrivals, add);
            add("--service", config.demand.to_string());
            add("--seed", config.seed.to_string());
        }
    }
    add("--workers", config.workers.to_string());
    add("--deadline", time(config.deadline));
    add("--warmup", time(config.warmup));
    add("--duration", time(config.duration));
}

fn arrivals_words(arrivals: &Arrivals, add: &mut impl FnMut(&str, String)) {
    match *arrivals {
        Arrivals::Poisson { rate } => add("--rate", rate.to_string()),
        Arrivals::Uniform { rate } => {
            add("--arrivals", "uniform".into());
            add("--rate", rate.to_string());
        }
        Arrivals::Bursts {
            size,
            every,
            spread,
            base_rate,
        } => {
            add("--burst-size", size.to_string());
            add("--burst-every", time(every));
            add("--burst-spread", time(spread));
            add("--rate", base_rate.to_string());
        }
    }
}

fn steady_words(config: &SteadyConfig, add: &mut impl FnMut(&str, String)) {
    add("--percent", config.percent.to_string());
    add("--grain", time(config.grain));
    for step in &config.steps {
        add("--step-to", step.percent.to_string());
        add("--step-at", time(step.at));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use plimsoll_sim::scenario::{Overrides, ScenarioFile};

    use super::*;
    use crate::cli::{Cli, Command};

    fn scenario(groups: &str) -> Scenario {
        let text = format!("duration = '2s'\nwarmup = '250ms'\n{groups}");
        let file = ScenarioFile::parse("s", &text, Path::new(""), Overrides::default());
        file.unwrap_or_else(|error| panic!("{error}"))
            .runs
            .remove(0)
            .scenario
    }

    const ALL: &str = "
        [[group]]
        name = 'main'
        nice = -5
        weight = 200
        quota = '600ms/100ms'
        burst = '50ms'
        [[group.workload]]
        kind = 'service'
        service = 'bimodal:300us,10ms,0.01'
        rate = 12.5
        [[group.workload]]
        kind = 'service'
        burst-size = 20
        burst-every = '1.5s'
        [[group.workload]]
        kind = 'service'
        arrivals = 'uniform'
        [[group]]
        name = 'side'
        class = 'batch'
        cap = '25%'
        half-life = '5s'
        per-task = true
        headroom = '30%'
        tolerance = '0'
        cpu-limit = '80%'
        [[group.workload]]
        kind = 'burn'
        processes = true
        [[group.workload]]
        kind = 'storm'
        cpu-total = '1.9s'
        [[group.workload]]
        kind = 'need'
        cpu = '500ms'
        [[group.workload]]
        kind = 'steady'
        percent = 40
        step-to = [60.5]
        step-at = ['1s']
        no-pin = true
        [[group.workload]]
        kind = 'wake'
    ";

    /// Parses every command again and compares the knobs.
    #[test]
    fn every_command_parses() {
        let scenario = scenario(ALL);
        let commands = GroupCommand::of(&scenario, EnforcerChoice::Cgroup);
        for (command, group) in commands.iter().zip(&scenario.groups) {
            let mut words: Vec<OsString> = vec!["plimsoll".into()];
            words.extend(command.arguments(Path::new("plimsoll")));
            let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else {
                panic!("{command:?}")
            };
            assert_eq!(run.knobs.knobs(None).unwrap(), group.knobs);
            assert_eq!(run.plan.enforcer, EnforcerChoice::Cgroup);
            let launched = Cli::try_parse_from(&run.command).unwrap();
            let Command::Launch(launch) = launched.command else {
                panic!("{command:?}")
            };
            assert_eq!(launch.loads().len(), group.workloads.len());
            for load in launch.loads() {
                let mut words: Vec<OsString> = vec!["plimsoll".into(), "load".into()];
                words.extend(load.iter().cloned());
                Cli::try_parse_from(words).unwrap();
            }
        }
    }

    #[test]
    fn burst_is_not_requested_without_kernel_support() {
        let text = "[machine]\nburst-enabled = false\n[[group]]\nname = 'a'\n\
                    quota = '50ms/100ms'\nburst = '20ms'\n[[group.workload]]\nkind = 'burn'\n";
        let commands = GroupCommand::of(&scenario(text), EnforcerChoice::Auto);
        assert_eq!(commands[0].knobs, ["--quota", "50ms/100ms"]);
    }

    #[test]
    fn every_batch_group_gets_the_largest_headroom_and_smallest_tolerance() {
        let work = "[[group.workload]]\nkind = 'burn'\n";
        let text = format!(
            "[[group]]\nname = 'a'\nheadroom = '20%'\n{work}\
             [[group]]\nname = 'b'\nheadroom = '30%'\ntolerance = '500us/100ms'\n{work}\
             [[group]]\nname = 'c'\nclass = 'batch'\n{work}\
             [[group]]\nname = 'd'\nclass = 'batch'\nheadroom = '5%'\n{work}"
        );
        let commands = GroupCommand::of(&scenario(&text), EnforcerChoice::Auto);
        let knobs: Vec<String> = commands.iter().map(|c| c.knobs.join(" ")).collect();
        let expected = [
            "",
            "",
            "--class batch --headroom 30% --tolerance 500us/100ms",
            "--class batch --headroom 30% --tolerance 500us/100ms",
        ];
        assert_eq!(knobs, expected);
    }
}
