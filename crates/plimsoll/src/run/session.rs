//! A group for as long as this process keeps it: the enforcer, the thread
//! that does what falls due, and the socket on which others ask.

use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::EngineError;
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::Membership;
use plimsoll_engine::enforcer::{Enforcer, Sample};
use plimsoll_engine::huge_pages;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::plan::Plan;
use plimsoll_engine::policy_set::Selector;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;

use super::Planned;
use super::choice::Means;
use crate::control::{self, Answer, GroupState, Request};
use crate::error::Result;
use crate::output;

/// Without anything due, the thread looks this often whether it should end.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);
/// The control thread's own nice level, where that is allowed: it uses
/// little, and late is too late.
const CONTROL_NICE: i32 = -20;

/// What the threads share.
struct Shared {
    enforcer: Mutex<Box<dyn Enforcer>>,
    means: Means,
    plan: Mutex<Plan>,
    name: String,
    subject: String,
    hierarchy: Arc<Hierarchy>,
    stop: AtomicBool,
    /// The thread that does what falls due, once it runs.
    control: OnceLock<Thread>,
}

impl Shared {
    /// A thread that panicked has left the enforcer as it was between two
    /// system calls; undo must go on with it.
    fn enforcer(&self) -> MutexGuard<'_, Box<dyn Enforcer>> {
        self.enforcer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group and what keeps it.
pub struct Session {
    shared: Arc<Shared>,
    listener: Mutex<Option<UnixListener>>,
    control: Option<JoinHandle<()>>,
}

/// Starts what enforces a group.
fn start_enforcer(
    means: Means,
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
) -> Result<(Box<dyn Enforcer>, UndoReport)> {
    #[cfg(feature = "sched-ext")]
    if let Means::SchedExt(scheduler) = means {
        let start = plimsoll_scx::SchedExtEnforcer::start;
        let (enforcer, left_behind) = start(hierarchy, runtime, scheduler.mode)?;
        return Ok((Box::new(enforcer), left_behind));
    }
    debug_assert!(cfg!(feature = "sched-ext") || means == Means::Stock);
    let (enforcer, left_behind) = CgroupEnforcer::start(hierarchy, runtime)?;
    Ok((Box::new(enforcer), left_behind))
}

/// Tells people what an undo met.
pub fn report_problems(report: &UndoReport) {
    for problem in &report.problems {
        output::tell(problem);
    }
}

impl Session {
    /// Makes the group and begins to control it.
    pub fn start(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
        planned: Planned,
        subject: &str,
    ) -> Result<Self> {
        let Planned {
            policy,
            plan,
            means,
        } = planned;
        // An old kernel has no such switch; the group is kept all the same.
        let _ = huge_pages::do_without();
        let (mut enforcer, left_behind) = start_enforcer(means, hierarchy, runtime)?;
        report_problems(&left_behind);
        enforcer.add(&policy, subject)?;
        let listener = control::listen(&control::socket_path(runtime, &policy.name))?;
        let shared = Arc::new(Shared {
            enforcer: Mutex::new(enforcer),
            means,
            plan: Mutex::new(plan),
            name: policy.name,
            subject: subject.into(),
            hierarchy: Arc::clone(hierarchy),
            stop: AtomicBool::new(false),
            control: OnceLock::new(),
        });
        let control = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || keep_control(&shared))
        };
        // Set once: this is the only place.
        let _ = shared.control.set(control.thread().clone());
        Ok(Self {
            shared,
            listener: Mutex::new(Some(listener)),
            control: Some(control),
        })
    }

    /// Begins to answer on the socket. Clients that have come before wait.
    pub fn serve(&self) {
        let listener = self
            .listener
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(listener) = listener else { return };
        let shared = Arc::clone(&self.shared);
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                control::serve(stream, |request| answer(&shared, request));
            }
        });
    }

    /// What is in force.
    pub fn knobs(&self) -> Knobs {
        self.shared
            .enforcer()
            .knobs(&self.shared.name)
            .cloned()
            .unwrap_or_default()
    }

    /// What a process needs to join.
    pub fn membership(&self) -> Result<Membership> {
        Ok(self.shared.enforcer().membership(&self.shared.name)?)
    }

    /// Whether anything still runs in the group. A group that somebody else
    /// removed is empty.
    pub fn is_populated(&self) -> bool {
        self.shared
            .enforcer()
            .is_populated(&self.shared.name)
            .unwrap_or(false)
    }

    /// Whether its cgroup is there, empty or not.
    pub fn exists(&self) -> bool {
        self.shared
            .enforcer()
            .is_populated(&self.shared.name)
            .is_ok()
    }

    /// What the group has used.
    pub fn sample(&self) -> Result<Sample> {
        Ok(self.shared.enforcer().sample(&self.shared.name)?)
    }

    /// Puts everything back and says what could not be.
    pub fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(control) = self.control.take() {
            control.thread().unpark();
            if control.join().is_err() {
                output::tell("the control thread has failed; its limits are lifted now");
            }
            report_problems(&self.shared.enforcer().undo());
        }
    }
}

impl Drop for Session {
    /// Also when this thread panics or returns early.
    fn drop(&mut self) {
        self.stop();
    }
}

/// Does what falls due until told to stop.
fn keep_control(shared: &Shared) {
    // SAFETY: takes integers only; who 0 is the calling thread. Not allowed
    // without privilege, and then not needed enough to complain.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, CONTROL_NICE) };
    let mut last_problem = String::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let (ticked, messages) = {
            let mut enforcer = shared.enforcer();
            (enforcer.tick(now), enforcer.take_messages())
        };
        messages.iter().for_each(|message| output::tell(message));
        let due = match ticked {
            Ok(due) => due,
            Err(error) => {
                tell_once(&mut last_problem, &error);
                None
            }
        };
        let wake = due.unwrap_or(now + IDLE_INTERVAL);
        thread::park_timeout(wake.saturating_duration_since(Instant::now()));
    }
}

/// A loop that fails every time says so once.
fn tell_once(last_problem: &mut String, error: &EngineError) {
    let problem = if error.is_gone() {
        "the group was removed by somebody else; its limits are gone".to_owned()
    } else {
        error.to_string()
    };
    if *last_problem != problem {
        output::tell(&problem);
        *last_problem = problem;
    }
}

fn answer(shared: &Shared, request: Request) -> Answer {
    let result = match request {
        Request::Show => state(shared),
        Request::Set {
            knobs,
            best_effort,
            dry_run,
        } => change(shared, &knobs, best_effort, dry_run),
    };
    match result {
        Ok(state) => Answer::State(Box::new(state)),
        Err(error) => Answer::Refused(error.to_string()),
    }
}

fn state(shared: &Shared) -> Result<GroupState> {
    let enforcer = shared.enforcer();
    Ok(GroupState {
        name: shared.name.clone(),
        subject: shared.subject.clone(),
        cgroup: enforcer.shown_path(&shared.name)?,
        pid: std::process::id(),
        knobs: enforcer.knobs(&shared.name)?.clone(),
        plan: GroupState::plan_value(&shared.plan()),
        enforcer: enforcer.kind(),
        statistics: enforcer.sample(&shared.name).ok(),
    })
}

/// Lays knobs over those in force. Returns the state that follows, or, for a
/// dry run, would follow.
fn change(shared: &Shared, knobs: &Knobs, best_effort: bool, dry_run: bool) -> Result<GroupState> {
    let mut enforcer = shared.enforcer();
    let wanted = enforcer.knobs(&shared.name)?.overlaid(knobs);
    let planned = super::plan_with(
        &shared.hierarchy,
        shared.name.clone(),
        Selector::Command,
        &wanted,
        best_effort,
        shared.means,
    )?;
    if dry_run {
        drop(enforcer);
        return Ok(GroupState {
            knobs: planned.policy.knobs,
            plan: GroupState::plan_value(&planned.plan),
            ..state(shared)?
        });
    }
    enforcer.change(&shared.name, &planned.policy.knobs)?;
    *shared.plan() = planned.plan;
    drop(enforcer);
    // It may be asleep until something old falls due.
    if let Some(control) = shared.control.get() {
        control.unpark();
    }
    state(shared)
}
