//! The thread that does what falls due: headroom every 10 ms, soft caps,
//! audits. Nothing else may hold it up.
//!
//! It never waits for the enforcer, in which the service may be busy for seconds: it moves
//! processes, writes the journal and builds groups anew. The headroom controller has a lock of
//! its own, which is never held meanwhile; what else falls due waits until the enforcer is free.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use plimsoll_engine::EngineError;
use plimsoll_engine::enforcer::{Enforcer, HeadroomDuty};

use super::handle::Handle;
use crate::state::Histogram;

/// Without anything due, the thread looks this often.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);
/// When one group cannot be controlled, the others are no later than this.
const PACE_AFTER_ERROR: Duration = Duration::from_millis(10);
/// While the service is busy in the enforcer, the thread looks this often whether it still is.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);
/// Upper bounds of the histogram of delays.
const BOUNDS_USEC: [u64; 10] = [
    100, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 100_000, 1_000_000, 10_000_000,
];
/// The thread's own nice level, where that is allowed: it uses little, and
/// late is too late.
const CONTROL_NICE: i32 = -20;
/// A service that has not shown a sign of life for this long hangs, too.
const SERVICE_SILENCE_MAX: Duration = Duration::from_secs(20);

/// Told that the loop is alive, and at the end.
pub type Heartbeat = Box<dyn Fn() + Send>;

/// The enforcer, and what its two users share.
pub(super) struct Shared {
    enforcer: Mutex<Box<dyn Enforcer>>,
    /// That of the enforcer.
    headroom: Mutex<HeadroomDuty>,
    /// The control thread found the enforcer busy: it goes first.
    control_waits: AtomicBool,
    stop: AtomicBool,
    delays: Mutex<Histogram>,
    problem: Mutex<Option<String>>,
    started: Instant,
    /// Of the service, in milliseconds since `started`.
    service_alive_ms: AtomicU64,
    thread: OnceLock<Thread>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left the enforcer as it was between two
    // system calls; undo must go on with it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The enforcer, for somebody who has time. A mutex is not fair: without
    /// looking aside, who takes it again and again keeps the loop out.
    pub fn enforcer(&self) -> MutexGuard<'_, Box<dyn Enforcer>> {
        if self.control_waits.load(Ordering::Acquire) {
            self.look_now();
        }
        while self.control_waits.load(Ordering::Acquire) {
            thread::yield_now();
        }
        lock(&self.enforcer)
    }

    /// `None`: the service is busy in it.
    fn enforcer_for_control(&self) -> Option<MutexGuard<'_, Box<dyn Enforcer>>> {
        let guard = match self.enforcer.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        self.control_waits.store(guard.is_none(), Ordering::Release);
        guard
    }

    /// Does what falls due, and says when to call again. Nothing here waits for the service. The
    /// second is whether all was done, and not headroom alone because the service is busy.
    fn tick(&self, service: &Handle) -> (Result<Option<Instant>, EngineError>, bool) {
        let headroom = lock(&self.headroom).clone();
        let due = headroom.tick(Instant::now());
        let Some(mut enforcer) = self.enforcer_for_control() else {
            return (due, false);
        };
        let rest = enforcer.tick(Instant::now());
        let messages = enforcer.take_messages();
        drop(enforcer);
        if !messages.is_empty() {
            service.report(messages);
        }
        let both = due.and_then(|due| Ok([due, rest?].into_iter().flatten().min()));
        (both, true)
    }

    /// How late the loop was so far.
    pub fn delays(&self) -> Histogram {
        lock(&self.delays).clone()
    }

    /// What the loop cannot do at present.
    pub fn problem(&self) -> Option<String> {
        lock(&self.problem).clone()
    }

    /// The service is alive.
    pub fn service_is_alive(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.service_alive_ms.store(now_ms, Ordering::Relaxed);
    }

    fn service_is_silent(&self) -> bool {
        let alive = Duration::from_millis(self.service_alive_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(alive) > SERVICE_SILENCE_MAX
    }

    /// Something may fall due earlier than the loop knows.
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

/// The thread.
pub(super) struct ControlLoop {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ControlLoop {
    /// Starts it. `heartbeat` is called at least every `IDLE_INTERVAL` as long
    /// as both the loop and the service are alive. What the enforcer reports goes to `service`
    /// at once, which logs it: writing a line may block.
    pub fn start(enforcer: Box<dyn Enforcer>, heartbeat: Heartbeat, service: Handle) -> Self {
        let shared = Arc::new(Shared {
            headroom: Mutex::new(enforcer.headroom_duty()),
            enforcer: Mutex::new(enforcer),
            control_waits: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            delays: Mutex::new(Histogram {
                bounds_usec: BOUNDS_USEC.to_vec(),
                counts: vec![0; BOUNDS_USEC.len() + 1],
                sum_usec: 0,
            }),
            problem: Mutex::default(),
            started: Instant::now(),
            service_alive_ms: AtomicU64::new(0),
            thread: OnceLock::new(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || keep_control(&shared, &heartbeat, &service))
        };
        // Set once: this is the only place.
        let _ = shared.thread.set(thread.thread().clone());
        Self {
            shared,
            thread: Some(thread),
        }
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether the thread is still there.
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Replaces the enforcer by another; the old one is handed back.
    pub fn replace(&self, enforcer: Box<dyn Enforcer>) -> Box<dyn Enforcer> {
        let mut present = self.shared.enforcer();
        *lock(&self.shared.headroom) = enforcer.headroom_duty();
        std::mem::replace(&mut *present, enforcer)
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // What it panicked with has been printed.
            let _ = thread.join();
        }
    }
}

impl Drop for ControlLoop {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A thread that has ended waits for nothing, also if it panicked.
struct NobodyWaits<'a>(&'a AtomicBool);

impl Drop for NobodyWaits<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn keep_control(shared: &Shared, heartbeat: &Heartbeat, service: &Handle) {
    // Not allowed to everybody; then it runs as it is. 0: this thread.
    let _ = plimsoll_engine::tasks::set_nice(0, CONTROL_NICE);
    let _gone = NobodyWaits(&shared.control_waits);
    let mut due = None;
    while !shared.stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if let Some(due) = due {
            shared.note_delay(now.saturating_duration_since(due));
        }
        let (next, is_all) = shared.tick(service);
        let idle = now + if is_all { IDLE_INTERVAL } else { BUSY_INTERVAL };
        due = match next {
            Ok(next) => {
                if is_all {
                    lock(&shared.problem).take();
                }
                next
            }
            Err(error) => {
                *lock(&shared.problem) = Some(error.to_string());
                // The other groups go on at their own pace.
                Some(now + PACE_AFTER_ERROR)
            }
        };
        if !shared.service_is_silent() {
            heartbeat();
        }
        let until = due.map_or(idle, |due| due.min(idle));
        if due.is_some_and(|due| due > until) {
            due = None;
        }
        thread::park_timeout(until.saturating_duration_since(Instant::now()));
        // Woken early, it is not late.
        due = due.filter(|due| Instant::now() >= *due);
    }
}
