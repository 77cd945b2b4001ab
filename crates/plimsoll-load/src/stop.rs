//! Ending a workload early, by a signal.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::LoadError;

/// A flag that ends workloads early. Clones share the flag; once set it stays
/// set.
///
/// Waiters sleep until it is set instead of polling, because periodic wake-ups
/// would disturb the measured work: the kernel changes the CPU share of a group
/// in which a task wakes up.
#[derive(Debug, Clone)]
pub struct Stop {
    /// Number of the last signal; 0 before one comes.
    signal: Arc<AtomicUsize>,
    /// Socket pair that becomes readable when the flag is set and stays so, to
    /// wake all waiters.
    wakeup: Arc<(UnixStream, UnixStream)>,
}

impl Stop {
    /// A flag that SIGINT and SIGTERM set, from now on and for the lifetime of
    /// the process.
    ///
    /// # Errors
    /// If the signal handlers can't be installed, or no socket can be opened.
    pub fn on_signals() -> Result<Self, LoadError> {
        let stop = Self::unset().map_err(|e| LoadError::io("opening a pair of sockets", e))?;
        for signal in [SIGINT, SIGTERM] {
            let value = signal.unsigned_abs() as usize;
            let failed = |e| LoadError::io(format!("installing the handler of signal {signal}"), e);
            signal_hook::flag::register_usize(signal, Arc::clone(&stop.signal), value)
                .map_err(failed)?;
            let sender = stop.wakeup.1.try_clone().map_err(failed)?;
            // Registered after the flag: handlers run in the order of their
            // registration.
            signal_hook::low_level::pipe::register(signal, sender).map_err(failed)?;
        }
        Ok(stop)
    }

    fn unset() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        sender.set_nonblocking(true)?;
        Ok(Self {
            signal: Arc::default(),
            wakeup: Arc::new((receiver, sender)),
        })
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Number of the signal that set the flag.
    #[must_use]
    pub fn signal(&self) -> Option<u8> {
        u8::try_from(self.signal.load(Ordering::Relaxed))
            .ok()
            .filter(|&n| n != 0)
    }

    /// Sleeps for `at_most`, or until the flag is set. Returns whether it is set.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> bool {
        let end = Instant::now() + at_most;
        while !self.is_set() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.sleep(left);
        }
        true
    }

    /// Sleeps for `at_most`, or until the socket becomes readable.
    fn sleep(&self, at_most: Duration) {
        // Rounded up: a waiter that wakes too early would poll again at once.
        let at_most = at_most.saturating_add(Duration::from_micros(999));
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        let fd = PollFd::new(self.wakeup.0.as_fd(), PollFlags::POLLIN);
        // Another signal may interrupt the sleep; the caller repeats it.
        let _ = poll(&mut [fd], timeout);
    }
}

#[cfg(test)]
impl Stop {
    /// A flag that only [`Stop::set`] sets: a signal would end the workloads of
    /// all tests.
    pub(crate) fn new() -> Self {
        Self::unset().unwrap()
    }

    pub(crate) fn set(&self) {
        self.signal.store(15, Ordering::Relaxed);
        io::Write::write_all(&mut &self.wakeup.1, &[0]).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_without_a_signal() {
        let stop = Stop::new();
        assert!(!stop.is_set() && !stop.wait(Duration::ZERO));
        assert_eq!(stop.signal(), None);
    }

    #[test]
    fn signal_is_stored_and_wakes_all_waiters() {
        let stop = Stop::on_signals().unwrap();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let stop = stop.clone();
                std::thread::spawn(move || stop.wait(Duration::from_secs(3600)))
            })
            .collect();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        for thread in waiting {
            assert!(thread.join().unwrap());
        }
        assert_eq!(stop.signal(), Some(15));
    }
}
