//! The thread of the control loop: headroom every 10 ms, soft caps, per-task caps. No other work
//! may delay it.
//!
//! The loop never waits for the enforcer, in which the service may be busy for seconds: the service
//! moves processes, writes the journal and builds groups anew. The headroom controller has a lock
//! of its own, which is never held meanwhile; other work waits until the enforcer is free.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::os;
use plimsoll_engine::EngineError;
use plimsoll_engine::cgroup::HeadroomControl;
use plimsoll_engine::enforcer::{Enforcer, Tick};

use super::super::handle::Handle;
use super::super::options::Heartbeat;
use crate::state::Histogram;

/// Interval of the loop without due work: signs of life for a watchdog. The service wakes the loop
/// for new work.
const IDLE_INTERVAL: Duration = Duration::from_secs(2);
/// Time without an error after which a problem has ended: a loop that fails may have succeeded only
/// because it was not due.
const PROBLEM_MIN: Duration = Duration::from_secs(1);
/// Interval of the loop after an error, for the groups that can be controlled.
const INTERVAL_AFTER_ERROR: Duration = Duration::from_millis(10);
/// Interval of attempts to lock the enforcer while the service is busy in it.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);
/// Upper bounds of the histogram of delays.
const BOUNDS_USEC: [u64; 10] = [
    100, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 100_000, 1_000_000, 10_000_000,
];
/// The thread's own nice level, where that is allowed: it uses little CPU time, and a late
/// decision breaks the headroom.
const CONTROL_NICE: i32 = -20;
/// A service without a sign of life for this long counts as hung.
const SERVICE_SILENCE_MAX: Duration = Duration::from_secs(20);

/// The enforcer, and state that its two users share.
pub(in crate::service) struct Shared {
    enforcer: Mutex<Box<dyn Enforcer>>,
    headroom: Mutex<HeadroomControl>,
    /// The control thread found the enforcer busy, and has precedence.
    control_waits: Mutex<bool>,
    /// Wakes the service when the control thread has had the enforcer.
    control_had_it: Condvar,
    stop: AtomicBool,
    delays: Mutex<Histogram>,
    /// The problem that the service knows; `None`: there is none.
    problem: Mutex<Option<Problem>>,
    started: Instant,
    /// The service's last sign of life, in milliseconds since `started`.
    service_alive_ms: AtomicU64,
    thread: OnceLock<Thread>,
}

/// Problem of the loop.
struct Problem {
    text: String,
    told: Instant,
    /// Time of the last error, of whatever text.
    last: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left the enforcer as it was between two
    // system calls; undo must go on with it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(mut enforcer: Box<dyn Enforcer>) -> Self {
        Self {
            headroom: Mutex::new(enforcer.stock().headroom_control()),
            enforcer: Mutex::new(enforcer),
            control_waits: Mutex::default(),
            control_had_it: Condvar::new(),
            stop: AtomicBool::new(false),
            delays: Mutex::new(Histogram {
                bounds_usec: BOUNDS_USEC.to_vec(),
                counts: vec![0; BOUNDS_USEC.len() + 1],
                sum_usec: 0,
            }),
            problem: Mutex::default(),
            started: os::now(),
            service_alive_ms: AtomicU64::new(0),
            thread: OnceLock::new(),
        }
    }

    /// Starts the thread of the loop. `heartbeat` is called at least every `IDLE_INTERVAL` as long
    /// as both the loop and the service are alive. Reports of the enforcer go to `service` at once,
    /// which logs them: writing a line may block.
    pub(super) fn spawn(self: &Arc<Self>, heartbeat: Heartbeat, service: Handle) -> JoinHandle<()> {
        let shared = Arc::clone(self);
        let thread = thread::spawn(move || run_loop(&shared, &heartbeat, &service));
        // Set once: this is the only place.
        let _ = self.thread.set(thread.thread().clone());
        thread
    }

    /// Has the loop end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.look_now();
    }

    /// Does the work that is due where there is no thread for it.
    pub(super) fn tick_without_a_thread(&self, service: &Handle) {
        let (next, _) = self.tick(service);
        self.note_result(next.err(), true, service);
    }

    /// Replaces the enforcer.
    pub(super) fn replace(&self, mut enforcer: Box<dyn Enforcer>) {
        let mut present = self.enforcer();
        *lock(&self.headroom) = enforcer.stock().headroom_control();
        let old = mem::replace(&mut *present, enforcer);
        // It may wait for its threads, and the loop is not to wait for it.
        drop(present);
        self.look_now();
        drop(old);
    }

    /// Locks the enforcer for the service. A mutex is not fair: without this wait a service
    /// that locks it again and again would keep the loop out.
    pub fn enforcer(&self) -> MutexGuard<'_, Box<dyn Enforcer>> {
        let waits = lock(&self.control_waits);
        if *waits {
            self.look_now();
        }
        drop(self.control_had_it.wait_while(waits, |waits| *waits));
        lock(&self.enforcer)
    }

    /// Locks the enforcer for the loop; `None`: the service is busy in it.
    fn enforcer_for_control(&self) -> Option<MutexGuard<'_, Box<dyn Enforcer>>> {
        let guard = match self.enforcer.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        self.set_control_waits(guard.is_none());
        guard
    }

    fn set_control_waits(&self, waits: bool) {
        *lock(&self.control_waits) = waits;
        self.control_had_it.notify_all();
    }

    /// Does the work that is due, and returns when to call again; never waits for the service. The
    /// second value is false if only the headroom was controlled, because the service is busy.
    fn tick(&self, service: &Handle) -> (Result<Option<Instant>, EngineError>, bool) {
        let headroom = lock(&self.headroom).clone();
        let due = headroom.tick(os::now());
        let Some(mut enforcer) = self.enforcer_for_control() else {
            return (due, false);
        };
        let Tick { next, messages } = enforcer.tick(os::now());
        drop(enforcer);
        if !messages.is_empty() {
            service.report(messages);
        }
        let both = due.and_then(|due| Ok([due, next?].into_iter().flatten().min()));
        (both, true)
    }

    /// Tells the service the problem of a tick if it is another than before. `is_all`: the tick did
    /// all work, and its success ends the problem of an earlier one.
    fn note_result(&self, error: Option<EngineError>, is_all: bool, service: &Handle) {
        let (now, mut known) = (os::now(), lock(&self.problem));
        let Some(error) = error else {
            let is_over = |known: &Problem| now.duration_since(known.last) >= PROBLEM_MIN;
            if is_all && known.as_ref().is_some_and(is_over) {
                *known = None;
                service.note_problem("control", None);
            }
            return;
        };
        let text = error.to_string();
        if let Some(known) = known.as_mut() {
            known.last = now;
            // Several groups may fail by turns.
            if known.text == text || now.duration_since(known.told) < PROBLEM_MIN {
                return;
            }
        }
        service.note_problem("control", Some(text.clone()));
        let (told, last) = (now, now);
        *known = Some(Problem { text, told, last });
    }

    /// How late the loop was so far.
    pub fn delays(&self) -> Histogram {
        lock(&self.delays).clone()
    }

    pub fn service_is_alive(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.service_alive_ms.store(now_ms, Ordering::Relaxed);
    }

    fn service_is_silent(&self) -> bool {
        let alive = Duration::from_millis(self.service_alive_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(alive) > SERVICE_SILENCE_MAX
    }

    /// Wakes the loop: work may be due earlier than it knows.
    pub fn look_now(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn note_delay(&self, delay: Duration) {
        let delay_usec = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        let mut delays = lock(&self.delays);
        let bucket = BOUNDS_USEC.partition_point(|bound| *bound < delay_usec);
        delays.counts[bucket] += 1;
        delays.sum_usec = delays.sum_usec.saturating_add(delay_usec);
    }
}

fn run_loop(shared: &Shared, heartbeat: &Heartbeat, service: &Handle) {
    // Without permission the level stays. 0: this thread.
    let _ = plimsoll_engine::tasks::set_nice(0, CONTROL_NICE);
    let mut due = None;
    while !shared.stop.load(Ordering::Relaxed) {
        let now = os::now();
        if let Some(due) = due {
            shared.note_delay(now.saturating_duration_since(due));
        }
        let (next, is_all) = shared.tick(service);
        let idle = now + if is_all { IDLE_INTERVAL } else { BUSY_INTERVAL };
        due = match next {
            Ok(next) => {
                shared.note_result(None, is_all, service);
                next
            }
            Err(error) => {
                shared.note_result(Some(error), is_all, service);
                // The other groups are still controlled in time.
                Some(now + INTERVAL_AFTER_ERROR)
            }
        };
        if !shared.service_is_silent() {
            heartbeat();
        }
        let until = due.map_or(idle, |due| due.min(idle));
        if due.is_some_and(|due| due > until) {
            due = None;
        }
        thread::park_timeout(until.saturating_duration_since(os::now()));
        // A wake-up before the due time is not a delay.
        due = due.filter(|due| os::now() >= *due);
    }
    shared.set_control_waits(false);
}
