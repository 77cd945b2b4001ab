//! Batch work under a policy.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::group::GuestGroup;
use super::programs::{FOLDER, PLIMSOLL};
use super::text::text;
use crate::cpus::Cpus;
use crate::error::{LabError, Result};
use crate::policy::Policy;

const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";
const STATE: &str = "/sys/kernel/sched_ext/state";
const PROGRESS: &str = "/tmp/batch.out";
const ERRORS: &str = "/tmp/batch.err";
const SCHEDULER_LOG: &str = "/tmp/scheduler.log";
/// Time that batch work runs before a measurement.
pub(super) const WARM_UP: Duration = Duration::from_secs(3);
/// Time limit for loading a scheduler and for the start of batch work.
const START_MAX: Duration = Duration::from_secs(60);
/// Burners for each CPU.
const BURNERS: u32 = 2;
/// Burners report their progress at this interval; figures are exact to one interval.
const REPORT_EVERY: &str = "100ms";

/// Running batch work, and the processes that limit it.
#[derive(Debug)]
pub struct GuestBatch {
    /// The command, or the `plimsoll run` around it.
    child: Option<Child>,
    /// Whether `child` is `plimsoll run`.
    is_kept: bool,
    scheduler: Option<Child>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct BatchProgress {
    pub at_seconds: f64,
    pub units: f64,
    pub cpu_seconds: f64,
}

impl GuestBatch {
    /// Starts burners and waits until they run.
    pub fn start(policy: Policy, cpus: Cpus) -> Result<Self> {
        let mut batch = Self::scheduler_alone(policy)?;
        if policy == Policy::Alone {
            return Ok(batch);
        }
        let mut words = prefix(policy, cpus)?;
        words.extend(burn(cpus));
        batch.is_kept = matches!(
            policy,
            Policy::Stock(_) | Policy::Tuned | Policy::SchedExt(_)
        );
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.stdout(create(PROGRESS)?).stderr(create(ERRORS)?);
        let child = batch.child.insert(spawn(&mut command)?);
        let has_begun = || Self::read().is_some();
        wait_for(child, has_begun, "the batch work does not start", ERRORS)?;
        wait_for_tuning(policy)?;
        Ok(batch)
    }

    /// Loads the scheduler of another project, if the policy has one, without batch work.
    pub fn scheduler_alone(policy: Policy) -> Result<Self> {
        let mut batch = Self {
            child: None,
            is_kept: false,
            scheduler: None,
        };
        batch.load(policy)?;
        Ok(batch)
    }

    /// Loads a scheduler for all tasks, if the policy has one without batch work in it.
    fn load(&mut self, policy: Policy) -> Result<()> {
        if policy == Policy::EqualSchedExt {
            self.scheduler = Some(load_ours()?);
            return Ok(());
        }
        let Some(peer) = policy.peer() else {
            return Ok(());
        };
        let mut command = Command::new(Path::new(FOLDER).join(peer));
        if policy == Policy::LavdBandwidth {
            command.arg("--enable-cpu-bw");
        }
        let log = create(SCHEDULER_LOG)?;
        let log_too = log.try_clone().map_err(LabError::file(SCHEDULER_LOG))?;
        command.stdout(log).stderr(log_too);
        let mut child = spawn(&mut command)?;
        let problem = format!("{peer} does not load");
        wait_for(&mut child, is_loaded, &problem, SCHEDULER_LOG)?;
        self.scheduler = Some(child);
        Ok(())
    }

    /// Progress of the batch work; zero without any.
    pub fn progress(&self) -> Result<BatchProgress> {
        if self.child.is_none() {
            return Ok(BatchProgress::default());
        }
        Self::read().ok_or_else(|| LabError::Guest("the batch work says nothing".to_owned()))
    }

    fn read() -> Option<BatchProgress> {
        let said = fs::read_to_string(PROGRESS).ok()?;
        let line: Value = said
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok())?;
        let number = |name: &str| line[name].as_f64();
        Some(BatchProgress {
            at_seconds: number("elapsed_seconds")?,
            units: number("units")?,
            cpu_seconds: number("cpu_seconds")?,
        })
    }

    #[must_use]
    pub fn is_there(&self) -> bool {
        self.child.is_some()
    }

    /// Pid of the `plimsoll run` or of the scheduler that controls the batch work; `None`: there is
    /// neither.
    #[must_use]
    pub fn controller(&self) -> Option<u32> {
        let keeper = self.child.as_ref().filter(|_| self.is_kept);
        keeper.or(self.scheduler.as_ref()).map(Child::id)
    }

    pub fn end(&mut self) -> Result<()> {
        for child in [self.child.take(), self.scheduler.take()]
            .into_iter()
            .flatten()
        {
            let pid = Pid::from_raw(child.id().cast_signed());
            kill(pid, Signal::SIGTERM).map_err(|error| LabError::Guest(error.to_string()))?;
        }
        Ok(())
    }
}

/// Loads Plimsoll's scheduler with a sleeping batch group.
pub fn load_ours() -> Result<Child> {
    let words = "run --enforcer sched-ext --class batch --name sleeper -- sleep 1000";
    let mut command = Command::new(PLIMSOLL);
    command.args(words.split_whitespace()).stdout(Stdio::null());
    let child = spawn(&mut command)?;
    match wait(is_loaded, || true) {
        true => Ok(child),
        false => Err(LabError::Guest("no scheduler was loaded".to_owned())),
    }
}

/// Attaches the guard of the fair class, with a sleeping batch group of a policy of stock knobs.
pub fn guard(policy: Policy) -> Result<Child> {
    let words = prefix(policy, Cpus::ONE)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["sleep", "1000"]);
    let child = spawn(command.stdout(Stdio::null()))?;
    let is_attached = || {
        let shown = Command::new(PLIMSOLL).args(["show", "--json"]).output();
        shown.is_ok_and(|shown| {
            let state: Option<Value> = serde_json::from_slice(&shown.stdout).ok();
            state.is_some_and(|state| {
                let guard = &state["daemon"]["guard"];
                guard.is_object() && guard["problem"].is_null()
            })
        })
    };
    if !wait(is_attached, || true) {
        return Err(LabError::Guest("the guard is not attached".to_owned()));
    }
    wait_for_tuning(policy)?;
    // The owner has just started.
    thread::sleep(WARM_UP);
    Ok(child)
}

/// Waits until preemption is full, if the policy has the host tuned.
fn wait_for_tuning(policy: Policy) -> Result<()> {
    let is_full = || text(PREEMPT).is_ok_and(|modes| modes.contains("(full)"));
    match policy != Policy::Tuned || wait(is_full, || true) {
        true => Ok(()),
        false => Err(LabError::Guest("the host is not tuned".to_owned())),
    }
}

/// Command line in front of batch work: entry into a cgroup beside the service's, or `plimsoll
/// run`.
pub fn prefix(policy: Policy, cpus: Cpus) -> Result<Vec<String>> {
    let owned = |words: String| words.split(' ').map(str::to_owned).collect();
    let plimsoll = |enforcer: &str, headroom: u8| {
        let headroom = match headroom {
            0 => String::new(),
            percent => format!("--headroom {percent}% "),
        };
        owned(format!(
            "{PLIMSOLL} run --enforcer {enforcer} --class batch --name batch {headroom}--"
        ))
    };
    match policy {
        Policy::Stock(headroom) => return Ok(plimsoll("cgroup", headroom)),
        Policy::Tuned => return Ok(plimsoll("cgroup --host-tuning", 0)),
        Policy::SchedExt(headroom) => return Ok(plimsoll("sched-ext", headroom)),
        _ => {}
    }
    let group = GuestGroup::make("batch")?;
    let mut words = vec![
        "sh".to_owned(),
        "-c".to_owned(),
        group.entry(),
        "sh".to_owned(),
    ];
    match policy {
        Policy::Weight1 => group.set("cpu.weight", "1")?,
        Policy::CpuIdle => group.set("cpu.idle", "1")?,
        Policy::SchedIdle => words.extend(owned("/usr/bin/chrt -i 0".to_owned())),
        Policy::LavdBandwidth => {
            group.set("cpu.max", &format!("{} 100000", 70_000 * cpus.count))?;
        }
        _ if policy.is_nice() => words.extend(owned("/usr/bin/nice -n 19".to_owned())),
        _ => {}
    }
    Ok(words)
}

fn burn(cpus: Cpus) -> Vec<String> {
    let burners = BURNERS * cpus.count;
    let words = format!(
        "{PLIMSOLL} load burn --threads {burners} --duration 1000s --report-every {REPORT_EVERY} --json"
    );
    words.split(' ').map(str::to_owned).collect()
}

fn create(path: &str) -> Result<File> {
    File::create(path).map_err(LabError::file(path))
}

fn spawn(command: &mut Command) -> Result<Child> {
    let what = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).spawn();
    child.map_err(LabError::command(what))
}

/// Returns whether a scheduler is loaded.
fn is_loaded() -> bool {
    text(STATE).is_ok_and(|state| state == "enabled")
}

/// Waits for a condition while a process lives. If it does not come true, the process ends, and the
/// error is `problem` with the last line of the process's log.
fn wait_for(child: &mut Child, done: impl FnMut() -> bool, problem: &str, log: &str) -> Result<()> {
    let is_alive = || child.try_wait().is_ok_and(|status| status.is_none());
    if wait(done, is_alive) {
        return Ok(());
    }
    let _ = child.kill();
    let log = fs::read_to_string(log).unwrap_or_default();
    let line = log.lines().rfind(|line| !line.trim().is_empty());
    let line = line.unwrap_or("it says nothing");
    Err(LabError::Guest(format!("{problem}: {line}")))
}

/// Waits for a condition while another one holds; returns whether it came true.
fn wait(mut done: impl FnMut() -> bool, mut alive: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > START_MAX || !alive() {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}
