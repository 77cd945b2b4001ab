//! Notifications to a supervisor such as systemd.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_daemon::log::Log;
use plimsoll_daemon::service::Heartbeat;
use sd_notify::NotifyState;

/// The supervisor of this process, if it has one.
pub struct Supervisor {
    log: Arc<Log>,
    /// Interval within which the supervisor expects a sign of life; `None`: never.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Finds the supervisor in the environment.
    pub fn of_this_process(log: &Arc<Log>) -> Self {
        let mut usec = 0;
        let wanted = sd_notify::watchdog_enabled(false, &mut usec);
        Self {
            log: Arc::clone(log),
            watchdog: wanted.then(|| Duration::from_micros(usec)),
        }
    }

    fn tell(&self, states: &[NotifyState]) {
        // Without a supervisor, this does nothing.
        if let Err(error) = sd_notify::notify(false, states) {
            self.log
                .warning("notify", &format!("cannot reach the supervisor: {error}"));
        }
    }

    /// Returns a function that sends signs of life, at most four in each interval.
    pub fn heartbeat(&self) -> Heartbeat {
        let Some(interval) = self.watchdog.map(|watchdog| watchdog / 4) else {
            return Box::new(|| ());
        };
        let last: Mutex<Option<Instant>> = Mutex::new(None);
        Box::new(move || {
            let now = Instant::now();
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_none_or(|last| now - last >= interval) {
                *last = Some(now);
                // The next one may succeed.
                let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
            }
        })
    }

    pub fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    pub fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }
}
