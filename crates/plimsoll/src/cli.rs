//! Definition of the command line, from which help, completions and man pages are generated.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{
    OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser as _,
};
use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll_cgroupfs::name::text_of;
use plimsoll_engine::knobs::Bandwidth;
use plimsoll_engine::knobs::{
    BandwidthLine, Burst, Cap, Class, CpuLimit, HalfLife, Headroom, KnobError, Knobs, Nice, Quota,
    SoftCap, Tolerance, Weight,
};

const RUN_EXAMPLES: &str = "Examples:
  plimsoll run --class batch -- make -j8
  plimsoll run --class batch --headroom 30% -- ffmpeg -i in.mkv out.mp4
  plimsoll run --cap 25% -- ./crawler
  plimsoll run --soft-cap 10% --half-life 5s -- ./indexer
  plimsoll run --quota 600ms/100ms --burst 400ms -- ./server
  plimsoll run --cpu-max \"50000 100000\" --stats -- ./job

Exit code: the command's own; 125 Plimsoll failed before it started the command;
126 found but could not be run; 127 not found; 128+N killed by signal N.";

const SET_EXAMPLES: &str =
    "TARGET is the name of a group, the path of a cgroup (as in /proc/PID/cgroup) or a pid.

Examples:
  plimsoll set encode --cap 50%
  plimsoll set /system.slice/backup.service --class batch
  plimsoll set 4711 --class batch --headroom 30%
  plimsoll set /system.slice/backup.service --reset
  plimsoll set --all --burst-enabled no

A change of a group of `run` ends with that group. A change of a cgroup or a group of the file
lasts until --reset. A pid gets a group of its own, which lasts until it and all its
descendants have ended. `plimsoll restore` undoes every `set` unless a daemon with a file runs.";

const SHOW_EXAMPLES: &str = "Examples:
  plimsoll show
  plimsoll show encode
  plimsoll show crawler --tasks
  plimsoll show /system.slice/backup.service --json";

const RELOAD_EXAMPLES: &str = "Examples:
  plimsoll daemon --check && plimsoll reload

If the file has a mistake, the previous configuration stays in force; the exit code is 125.";

const DEBUG_EXAMPLES: &str = "Examples:
  plimsoll debug
  plimsoll debug --trace encode --duration 5s > trace.jsonl";
const DAEMON_EXAMPLES: &str = "Examples:
  plimsoll daemon
  plimsoll daemon --check --config new.toml
  plimsoll daemon --config /etc/plimsoll/plimsoll.toml -v

SIGHUP, or `plimsoll reload`, reads the file again; a file with a mistake is refused as a whole.
SIGTERM ends the daemon, which restores all settings. Knobs of `plimsoll set` override those of
the file.";

/// Fills a Linux server with batch work up to a safe line and never past it.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command under knobs; undo everything when it ends
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Change a running group, a cgroup or a process
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArgs),
    /// Show groups: knobs, their mechanisms, statistics
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Watch machine and groups live in a terminal
    #[command(after_help = crate::top::EXAMPLES)]
    Top(crate::top::TopArgs),
    /// Run the service that applies a configuration file
    #[command(after_help = DAEMON_EXAMPLES)]
    Daemon(DaemonArgs),
    /// List the knobs that this host can enforce, by which mechanism, with which loss
    Doctor(OutputArgs),
    /// Make the daemon read its configuration file again
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(OutputArgs),
    /// Dump the state of daemon and scheduler: groups, CPUs, last decisions
    #[command(after_help = DEBUG_EXAMPLES)]
    Debug(DebugArgs),
    /// Undo every `set`, and all changes of killed processes
    Restore(OutputArgs),
    /// Measure a service beside batch work on this machine, in about 80 seconds
    Demo(DemoArgs),
    /// Simulate the cost of bursts of some groups to the others
    Sim(crate::sim::SimArgs),
    /// Run a measurable workload
    Load(plimsoll_load::cli::LoadArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Output format.
#[derive(Debug, Clone, Copy, Args)]
pub struct OutputArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `debug`.
#[derive(Debug, Args)]
pub struct DebugArgs {
    /// Print a line of JSON for each change of this group's quota as it happens, instead of the
    /// state
    #[arg(long, value_name = "GROUP")]
    pub trace: Option<String>,
    /// Duration of the trace, such as 500ms or 10s
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = plimsoll_load::duration,
        requires = "trace",
        allow_hyphen_values = true
    )]
    pub duration: Duration,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `daemon`.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = plimsoll_daemon::config::PATH_DEFAULT)]
    pub config: PathBuf,
    /// Only check the file, and whether this host can enforce it
    #[arg(long)]
    pub check: bool,
    /// Log changes of each group
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Serve clients without a file, and end soon after the last group
    #[arg(long, hide = true)]
    pub on_demand: bool,
}

/// Interface of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EnforcerChoice {
    /// The stock kernel's control groups, or the scheduler while it is loaded
    // A variable that is empty is commonly one that is not set.
    #[value(alias = "")]
    Auto,
    /// A BPF scheduler in the kernel, for all ordinary tasks of the machine
    SchedExt,
    /// The stock kernel's control groups
    Cgroup,
}

/// Knobs of a group.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Knobs")]
pub struct KnobArgs {
    /// normal, or batch: runs only in CPU time that no other work wants
    #[arg(long, value_name = "CLASS")]
    pub class: Option<Class>,
    /// Nice level of the group's tasks, -20 to 19
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub nice: Option<Nice>,
    /// Weight against sibling groups, 1 to 10000 (default of cgroups: 100)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub weight: Option<Weight>,
    /// Runtime per period, such as 600ms/100ms or 6cpus
    #[arg(long, value_name = "QUOTA", allow_hyphen_values = true)]
    pub quota: Option<Quota>,
    /// Unused quota that may be saved for later periods, such as 400ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub burst: Option<Burst>,
    /// Quota, period and burst as the kernel writes them, in microseconds
    #[arg(
        long,
        value_name = "\"QUOTA PERIOD BURST\"",
        conflicts_with_all = ["quota", "burst"],
        allow_hyphen_values = true
    )]
    pub cpu_max: Option<BandwidthLine>,
    /// Hard limit as a share of one CPU, such as 25% or 150%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub cap: Option<Cap>,
    /// Share of one CPU beyond which only left-over time is used, such as 10%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub soft_cap: Option<SoftCap>,
    /// Half-life of the average usage rate that is compared with --soft-cap, 50ms to 60s [default:
    /// 1s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub half_life: Option<HalfLife>,
    /// Apply caps to each task separately, not to all together
    #[arg(long)]
    pub per_task: bool,
    /// CPU that all batch groups leave idle while the group exists, such as 30% or 2cpus
    #[arg(long, value_name = "HEADROOM", allow_hyphen_values = true)]
    pub headroom: Option<Headroom>,
    /// Time that all batch work together may run despite headroom, such as 1ms/100ms, or 0
    #[arg(long, value_name = "TIME/PERIOD", allow_hyphen_values = true)]
    pub tolerance: Option<Tolerance>,
    /// Limit on each single CPU, for batch work, such as 80%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub cpu_limit: Option<CpuLimit>,
    /// Have the whole machine preempt at once and not lazily while the group exists, so that batch
    /// work delays other work less; for root
    #[arg(long)]
    pub host_tuning: bool,
}

impl KnobArgs {
    /// Returns the requested knobs. A partial --cpu-max line is completed from `present`.
    pub fn knobs(&self, present: Option<Bandwidth>) -> Result<Knobs, KnobError> {
        let (quota, burst) = match self.cpu_max {
            Some(line) => {
                let (quota, burst) = line.complete(present)?;
                (Some(quota), burst)
            }
            None => (self.quota, self.burst),
        };
        Ok(Knobs {
            class: self.class,
            nice: self.nice,
            weight: self.weight,
            quota,
            burst,
            cap: self.cap,
            soft_cap: self.soft_cap,
            half_life: self.half_life,
            per_task: self.per_task,
            headroom: self.headroom,
            tolerance: self.tolerance,
            cpu_limit: self.cpu_limit,
            host_tuning: self.host_tuning,
        })
    }
}

/// Environment variable with the default of `--enforcer`.
pub const ENFORCER_VARIABLE: &str = "PLIMSOLL_ENFORCER";

/// Options of plans.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// Interface of the kernel
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        env = ENFORCER_VARIABLE,
        hide_env_values = true
    )]
    pub enforcer: EnforcerChoice,
    /// Continue without knobs that this host cannot enforce
    #[arg(long)]
    pub best_effort: bool,
    /// Print the plan, with the mechanism of each knob, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub knobs: KnobArgs,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Name of the group [default: the command's name and the pid]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print statistics on standard error at the end
    #[arg(long)]
    pub stats: bool,
    /// Print plan and statistics as JSON
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// A target as a text, in which the owner and its JSON name it, or as the bytes of a path.
fn target_text(target: OsString) -> String {
    target.into_string().unwrap_or_else(text_of)
}

/// Arguments of `set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Name of a group, path of a cgroup, or pid
    #[arg(
        required_unless_present = "all",
        default_value = "",
        hide_default_value = true,
        value_parser = OsStringValueParser::new().map(target_text)
    )]
    pub target: String,
    /// All groups of the daemon, for --burst-enabled
    #[arg(long, requires = "burst_enabled")]
    pub all: bool,
    /// no: disable bursts of all groups, whose settings stay; yes: apply the file's setting again
    #[arg(
        long,
        requires = "all",
        conflicts_with_all = ["target", "reset", "dry_run"],
        value_name = "yes|no",
        value_parser = PossibleValuesParser::new([
            PossibleValue::new("yes").alias("true"),
            PossibleValue::new("no").alias("false"),
        ])
        .map(|value| value == "yes" || value == "true")
    )]
    pub burst_enabled: Option<bool>,
    #[command(flatten)]
    pub knobs: KnobArgs,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Undo each `set` instead: restores the former values, or those of the daemon's file
    #[arg(long)]
    pub reset: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Name of a group, path of a cgroup, or pid [default: all groups]
    #[arg(value_parser = OsStringValueParser::new().map(target_text))]
    pub target: Option<String>,
    /// Also show the usage rate of each task of a group with a cap, in percent of one CPU
    #[arg(long, requires = "target")]
    pub tasks: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Shortest and longest phase. In shorter ones, percentiles are not
/// significant.
const PHASE_MIN: Duration = Duration::from_secs(2);
const PHASE_MAX: Duration = Duration::from_secs(60);

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Measured time of each phase, 2s to 60s
    #[arg(
        long,
        value_name = "TIME",
        default_value = "7s",
        value_parser = plimsoll_load::time_between(PHASE_MIN, PHASE_MAX),
        allow_hyphen_values = true
    )]
    pub phase: Duration,
    /// File of the HTML report
    #[arg(long, value_name = "FILE", default_value = "plimsoll-demo.html")]
    pub report: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_have_a_range() {
        for (option, good, range) in [
            ("top --interval", ["200ms", "60s"], "from 200ms to 1m"),
            ("demo --phase", ["2s", "2500ms"], "from 2s to 1m"),
        ] {
            let parse = |text: &str| {
                let words = ["plimsoll"].into_iter().chain(option.split(' '));
                Cli::try_parse_from(words.chain([text]))
            };
            for text in good {
                assert!(parse(text).is_ok(), "{option} {text}");
            }
            for text in ["199ms", "61s", "0s"] {
                let error = parse(text).unwrap_err().to_string();
                assert!(error.contains(range), "{error}");
            }
            for text in ["-1s", "1", "", "NaN", "8 parsecs"] {
                let error = parse(text).unwrap_err().to_string();
                assert!(error.contains("a number with a unit"), "{error}");
            }
        }
    }

    #[test]
    fn arguments_after_the_command_belong_to_it() {
        let words = "plimsoll run --enforcer= --cap 5% ls --cap 9%";
        let cli = Cli::try_parse_from(words.split(' '));
        let Command::Run(run) = cli.unwrap().command else {
            panic!("not run")
        };
        assert_eq!(run.plan.enforcer, EnforcerChoice::Auto);
        assert_eq!(run.command, ["ls", "--cap", "9%"]);
    }
}
