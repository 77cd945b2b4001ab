//! The phases, and their commands.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use plimsoll_engine::host::Capabilities;
use plimsoll_engine::knobs::units::show_duration;

use crate::expected::Mechanism;
use crate::owner::GUARD_SWITCH;

/// CPU time of every request of the steady service. Constant, so that all
/// latency above it is waiting time.
const REQUEST: Duration = Duration::from_micros(300);
/// Requests per second and CPU: with [`REQUEST`], 12 % of the machine. At twice
/// that rate, on two CPUs, requests queue behind each other often enough to
/// dominate p99, independent of the neighbours.
const RATE_PER_CPU: usize = 400;
/// The load of the steady service, in percent of the machine.
pub const LOAD_PERCENT: u32 = RATE_PER_CPU as u32 * REQUEST.as_micros() as u32 / 10_000;
/// Deadline of the steady service; slower requests count as failures.
const DEADLINE: Duration = Duration::from_millis(5);
/// Warm-up before each measurement.
pub const WARMUP: Duration = Duration::from_millis(500);
/// Time to wait for answers at the end of a phase.
pub const GRACE: Duration = Duration::from_secs(1);
/// Extra duration of the burners, which normally end with the service. If this
/// process is killed, they end by themselves.
const BURN_ON: Duration = Duration::from_secs(10);
/// Number of points of a time series, unless they would be closer than
/// [`SERIES_INTERVAL_MIN`].
const SERIES_POINTS: u32 = 32;
const SERIES_INTERVAL_MIN: Duration = Duration::from_millis(250);

/// CPU time of every request of the bursty service.
const BURST_REQUEST: Duration = Duration::from_millis(1);
/// Requests that arrive at once, per CPU. Each CPU acquires runtime from the
/// pool in slices of 5 ms, so that these requests take at most 15 ms: within
/// quota + burst, and 1.5 times the quota.
const BURST_SIZE_PER_CPU: usize = 12;
/// Time between two bursts; not a multiple of the period, so that bursts start at every phase of
/// it.
pub const BURST_EVERY: Duration = Duration::from_millis(310);
/// Quota per period and CPU, and also the burst, because the stock kernel
/// allows no larger burst.
const QUOTA_PER_CPU: Duration = Duration::from_millis(8);
/// The period, the kernel's default.
const PERIOD: Duration = Duration::from_millis(100);
const BURST_DEADLINE: Duration = Duration::from_millis(50);

/// Has the BPF scheduler run the burners.
const SCHED_EXT: &str = "--enforcer sched-ext";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Answers requests.
    Service,
    /// Use all the CPU time they get.
    Burners,
}

impl Role {
    /// Name in the group's name and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Burners => "burners",
        }
    }
}

/// One `plimsoll run … -- plimsoll load …`.
#[derive(Debug, Clone)]
pub struct Job {
    pub role: Role,
    /// The knobs, as typed.
    pub knobs: Vec<String>,
    /// Whether the owner has no guard.
    pub is_unguarded: bool,
    /// Arguments after `load`.
    load: Vec<String>,
}

impl Job {
    fn new(role: Role, knobs: &str, load: &str) -> Self {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Self {
            role,
            knobs: words(knobs),
            is_unguarded: false,
            load: words(load),
        }
    }

    /// Name of the group; contains the demo's pid to keep concurrent demos
    /// apart.
    fn group(&self) -> String {
        format!("demo-{}-{}", self.role.name(), std::process::id())
    }

    /// Arguments for the program at `program`, which is also the program that
    /// it runs.
    pub fn arguments(&self, program: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["run".into(), "--name".into(), self.group().into()];
        words.extend(self.knobs.iter().map(OsString::from));
        words.extend(["--stats", "--json", "--"].map(OsString::from));
        words.push(program.into());
        words.push("load".into());
        words.extend(self.load.iter().map(OsString::from));
        words
    }

    /// Variable of the command's environment that switches the guard off; `None`: the job has the
    /// guard.
    pub fn variable(&self) -> Option<(&'static str, &'static str)> {
        self.is_unguarded.then_some((GUARD_SWITCH, "off"))
    }

    /// The command as a user would type it.
    pub fn command(&self) -> String {
        let words = self.arguments(Path::new("plimsoll"));
        let words = words.iter().map(|word| word.to_string_lossy());
        let words: Vec<_> = std::iter::once("plimsoll".into()).chain(words).collect();
        let variable = self
            .variable()
            .map(|(name, value)| format!("{name}={value} "));
        format!("{}{}", variable.unwrap_or_default(), words.join(" "))
    }
}

/// Part of the results that a phase belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The service and its neighbours.
    Neighbours,
    /// The bursty service and its quota.
    Bursts,
}

/// Mechanisms of this host that not every host has.
#[derive(Debug, Clone, Default)]
pub struct Support {
    /// Reason why there is no guard to switch on and off. `None`: there is one.
    pub no_guard: Option<String>,
    /// Whether the BPF scheduler can be loaded.
    pub has_scheduler: bool,
    /// Mechanism of the batch class here without further options.
    pub batch: Mechanism,
}

/// One phase: a service and, in most phases, burners beside it.
#[derive(Debug, Clone)]
pub struct Phase {
    /// Stable name.
    pub key: &'static str,
    pub title: &'static str,
    pub part: Part,
    pub service: Job,
    pub burners: Option<Job>,
}

impl Phase {
    /// Label in tables: the neighbours, and the knobs as typed.
    pub fn label(&self) -> String {
        match (self.part, &self.burners, self.knobs().as_str()) {
            (Part::Bursts, _, "") => "no quota".into(),
            (Part::Bursts, _, knobs) => knobs.into(),
            (Part::Neighbours, None, _) => "alone".into(),
            (Part::Neighbours, Some(_), "") => "burners, equal group".into(),
            (Part::Neighbours, Some(job), knobs) if job.is_unguarded => {
                format!("burners {knobs}, no guard")
            }
            (Part::Neighbours, Some(_), knobs) => format!("burners {knobs}"),
        }
    }

    /// Whether the owner of this phase has no guard.
    pub fn is_unguarded(&self) -> bool {
        self.burners.as_ref().is_some_and(|job| job.is_unguarded)
    }

    /// Whether the burners run in the BPF scheduler.
    pub fn is_scheduled(&self) -> bool {
        self.knobs().contains(SCHED_EXT)
    }

    /// Knobs of this phase, as typed.
    pub fn knobs(&self) -> String {
        let job = self.burners.as_ref().unwrap_or(&self.service);
        job.knobs.join(" ")
    }
}

/// All phases, and their descriptions.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Measured time of each phase.
    pub phase: Duration,
    /// The phases, in order of execution.
    pub phases: Vec<Phase>,
    /// Description of the steady service.
    pub service: String,
    /// Description of the bursty service.
    pub bursts: String,
    /// Features that this host cannot show.
    pub notes: Vec<String>,
}

impl Scenario {
    /// Phases for a machine with `cpus` CPUs.
    pub fn new(phase: Duration, cpus: usize, host: &Capabilities, support: &Support) -> Self {
        // Whole milliseconds, which the commands can express.
        let phase = phase - Duration::from_nanos(u64::from(phase.subsec_nanos() % 1_000_000));
        let mut phases = neighbours(phase, cpus, support);
        let mut notes = Vec::new();
        if let Some(reason) = &support.no_guard {
            notes.push(format!("the guard is not compared with none: {reason}"));
        }
        if host.has_burst {
            phases.extend(bursts(phase, cpus));
        } else {
            notes.push("the burst phases were left out: this kernel has no burst".into());
        }
        if !host.has_idle {
            notes.push("this kernel has no cpu.idle: the batch class is the lowest weight".into());
        }
        let (rate, size) = (RATE_PER_CPU * cpus, BURST_SIZE_PER_CPU * cpus);
        let service = format!(
            "{rate} requests a second (Poisson) of {} CPU each; an answer after {} is a failure",
            words(REQUEST),
            words(DEADLINE)
        );
        let bursts = format!(
            "{size} requests of {} CPU each, all at once, every {}; an answer after {} is a failure",
            words(BURST_REQUEST),
            words(BURST_EVERY),
            words(BURST_DEADLINE)
        );
        Self {
            phase,
            phases,
            service,
            bursts,
            notes,
        }
    }
}

/// A duration in a sentence.
fn words(duration: Duration) -> String {
    format!("{} ms", duration.as_secs_f64() * 1e3)
}

/// A duration as a command line argument.
fn time(duration: Duration) -> String {
    show_duration(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

fn neighbours(phase: Duration, cpus: usize, support: &Support) -> Vec<Phase> {
    let interval = (phase / SERIES_POINTS).max(SERIES_INTERVAL_MIN);
    let service = format!(
        "service --rate {} --service const:{} --deadline {} --warmup {} --grace {} \
         --duration {} --seed 1 --series-interval {} --json",
        RATE_PER_CPU * cpus,
        time(REQUEST),
        time(DEADLINE),
        time(WARMUP),
        time(GRACE),
        time(phase),
        time(interval)
    );
    let burn = format!(
        "burn --threads {} --duration {} --json",
        2 * cpus,
        time(phase + BURN_ON)
    );
    let phase = |key, title, burners: Option<&str>| Phase {
        key,
        title,
        part: Part::Neighbours,
        service: Job::new(Role::Service, "", &service),
        burners: burners.map(|knobs| Job::new(Role::Burners, knobs, &burn)),
    };
    let batch = "--class batch";
    let headroom = "--class batch --headroom 30%";
    let mut phases = vec![
        phase("alone", "alone", None),
        phase("equal", "equal group", Some("")),
        phase("weight", "lowest weight", Some("--weight 1")),
        phase("batch", "batch class", Some(batch)),
        phase("headroom", "headroom", Some(headroom)),
    ];
    if support.no_guard.is_none() {
        let unguarded = [
            phase("batch-no-guard", "batch, no guard", Some(batch)),
            phase("headroom-no-guard", "headroom, no guard", Some(headroom)),
        ];
        phases.extend(unguarded.map(|mut phase| {
            for job in [Some(&mut phase.service), phase.burners.as_mut()] {
                job.into_iter().for_each(|job| job.is_unguarded = true);
            }
            phase
        }));
    }
    if support.has_scheduler {
        let [batch, headroom] = [batch, headroom].map(|knobs| format!("{SCHED_EXT} {knobs}"));
        phases.extend([
            phase("batch-sched-ext", "batch, sched_ext", Some(&batch)),
            phase("headroom-sched-ext", "headroom, sched_ext", Some(&headroom)),
        ]);
    }
    phases
}

fn bursts(phase: Duration, cpus: usize) -> Vec<Phase> {
    let factor = u32::try_from(cpus).unwrap_or(u32::MAX);
    let (quota, period) = (time(QUOTA_PER_CPU.saturating_mul(factor)), time(PERIOD));
    let service = format!(
        "service --burst-size {} --burst-every {} --service const:{} --deadline {} \
         --warmup {} --grace {} --duration {} --seed 1 --series-interval {} --json",
        BURST_SIZE_PER_CPU * cpus,
        time(BURST_EVERY),
        time(BURST_REQUEST),
        time(BURST_DEADLINE),
        time(WARMUP),
        time(GRACE),
        time(phase),
        time(BURST_EVERY)
    );
    let phase = |key, title, knobs: &str| Phase {
        key,
        title,
        part: Part::Bursts,
        service: Job::new(Role::Service, knobs, &service),
        burners: None,
    };
    vec![
        phase("no-quota", "no quota", ""),
        phase("quota", "quota", &format!("--quota {quota}/{period}")),
        phase(
            "quota-burst",
            "quota + burst",
            &format!("--quota {quota}/{period} --burst {quota}"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::fixture;
    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn every_command_parses() {
        let support = Support {
            no_guard: None,
            has_scheduler: true,
            ..Support::default()
        };
        for cpus in [1, 2, 7, 64, 512] {
            let (phase, host) = (Duration::from_micros(2_500_400), fixture::host());
            let scenario = Scenario::new(phase, cpus, &host, &support);
            assert_eq!(scenario.phases.len(), 12);
            for phase in &scenario.phases {
                for job in [Some(&phase.service), phase.burners.as_ref()]
                    .into_iter()
                    .flatten()
                {
                    let command = job.command();
                    let words = command.split(' ').skip(usize::from(job.is_unguarded));
                    let cli = Cli::try_parse_from(words).unwrap();
                    let Command::Run(run) = cli.command else {
                        panic!("{command}")
                    };
                    run.knobs.knobs(None).unwrap();
                    Cli::try_parse_from(&run.command).unwrap();
                }
            }
        }
    }

    #[test]
    fn kernel_without_burst_gets_a_note() {
        let host = Capabilities {
            has_burst: false,
            ..fixture::host()
        };
        let support = Support {
            no_guard: Some("no BPF".into()),
            ..Support::default()
        };
        let scenario = Scenario::new(Duration::from_secs(8), 2, &host, &support);
        assert_eq!(scenario.phases.len(), 5);
        let [guard, burst] = &*scenario.notes else {
            panic!("{:?}", scenario.notes)
        };
        assert!(guard.contains("no BPF") && burst.contains("burst"));
    }
}
