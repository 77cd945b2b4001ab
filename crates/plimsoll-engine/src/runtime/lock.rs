//! The lock of the runtime folder: waited for, but not for ever.
//!
//! Who holds it may have been stopped with it (Ctrl-Z). A service that waited
//! for that would hang as well.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{EngineError, Result};
use crate::lock_holder::LockBusy;

/// A command has this much time.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The same where nothing will happen: the holder is stopped.
const STOPPED_WAIT_MAX: Duration = Duration::from_secs(3);
/// A service has other things to do, and tries again.
const SERVICE_WAIT_MAX: Duration = Duration::from_secs(5);
/// The same where the holder is stopped.
const SERVICE_STOPPED_WAIT_MAX: Duration = Duration::from_millis(200);
/// A service that has waited in vain takes the lock for so long only where it
/// is free: a thousand groups do not wait one after the other.
const SERVICE_PAUSE: Duration = Duration::from_secs(1);
/// Between two attempts, the first time …
const PAUSE_FIRST: Duration = Duration::from_micros(250);
/// … and at most.
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// Who holds it is looked up this often.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Held while journals come and go, and while what they share is changed.
#[derive(Debug)]
pub struct RuntimeLock {
    _file: File,
}

/// How long the lock is waited for, by all who share a folder's name.
#[derive(Debug, Default)]
pub(super) struct Patience(Mutex<Service>);

#[derive(Debug, Default)]
struct Service {
    /// A service waits, not a command.
    is_service: bool,
    /// When it has last waited in vain.
    gave_up: Option<Instant>,
}

impl Patience {
    fn service(&self) -> MutexGuard<'_, Service> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_of_service(&self) {
        self.service().is_service = true;
    }

    /// How long to wait at most, and how long for one that is stopped.
    fn wait_max(&self) -> (Duration, Duration) {
        let service = self.service();
        match (service.is_service, service.gave_up) {
            (true, Some(at)) if at.elapsed() < SERVICE_PAUSE => (Duration::ZERO, Duration::ZERO),
            (true, _) => (SERVICE_WAIT_MAX, SERVICE_STOPPED_WAIT_MAX),
            (false, _) => (WAIT_MAX, STOPPED_WAIT_MAX),
        }
    }

    fn note(&self, waited: Duration, was_had: bool) {
        let mut service = self.service();
        if was_had {
            service.gave_up = None;
        } else if !waited.is_zero() {
            service.gave_up = Some(Instant::now());
        }
    }
}

/// Takes the lock of `folder`, whose file is `file`.
pub(super) fn take(file: File, folder: &Path, patience: &Patience) -> Result<RuntimeLock> {
    let began = Instant::now();
    let (wait_max, stopped_wait_max) = patience.wait_max();
    let (mut pause, mut look) = (PAUSE_FIRST, began + stopped_wait_max);
    loop {
        match file.try_lock() {
            Ok(()) => {
                patience.note(wait_max, true);
                return Ok(RuntimeLock { _file: file });
            }
            Err(TryLockError::Error(source)) => {
                let path = folder.to_owned();
                return Err(EngineError::Journal { path, source });
            }
            Err(TryLockError::WouldBlock) => (),
        }
        let now = Instant::now();
        let is_over = now >= began + wait_max;
        if is_over || now >= look {
            look = now + LOOK_INTERVAL;
            let busy = LockBusy::of(&file, folder);
            if is_over || busy.is_holder_stopped() {
                patience.note(wait_max, false);
                return Err(EngineError::LockBusy(busy));
            }
        }
        thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Child, Command, Stdio};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;
    use crate::runtime::RuntimeFolder;

    /// Another process that holds the lock until it is dropped.
    struct Other(Child);

    impl Other {
        fn holding(runtime: &RuntimeFolder) -> Self {
            let path = runtime.path().join("lock");
            let mut command = Command::new("flock");
            command.args(["--no-fork", "-x"]).arg(&path);
            command.args(["sh", "-c", "echo held; read line"]);
            let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut line = [0; 4];
            let mut output = child.stdout.take().unwrap();
            output.read_exact(&mut line).unwrap();
            Self(child)
        }

        fn signal(&self, signal: Signal) {
            kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn busy(runtime: &RuntimeFolder) -> LockBusy {
        match runtime.lock() {
            Err(EngineError::LockBusy(busy)) => busy,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stopped_holder_is_named_and_not_waited_for_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let other = Other::holding(&runtime);
        other.signal(Signal::SIGSTOP);
        let began = Instant::now();
        let busy = busy(&runtime);
        assert!(began.elapsed() < WAIT_MAX / 2);
        let pid = other.0.id().cast_signed();
        assert_eq!(busy.holder_pid(), Some(pid));
        let message = busy.to_string();
        let shown = folder.path().display();
        let start = format!("{shown}: its lock is held by process {pid} (sh), which is stopped");
        assert!(message.starts_with(&start), "{message}");
        assert!(message.contains(&format!("kill -CONT {pid}")), "{message}");
        drop(other);
        runtime.lock().unwrap();
    }

    #[test]
    fn one_that_works_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let other = Other::holding(&runtime);
        let waiting = {
            let runtime = runtime.clone();
            thread::spawn(move || runtime.lock().is_ok())
        };
        // Longer than for one that is stopped.
        thread::sleep(STOPPED_WAIT_MAX + LOOK_INTERVAL);
        assert!(!waiting.is_finished());
        drop(other);
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn a_service_waits_once_for_all_that_it_has_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        runtime.is_of_service();
        let other = Other::holding(&runtime);
        other.signal(Signal::SIGSTOP);
        let began = Instant::now();
        for _ in 0..100 {
            busy(&runtime.clone());
        }
        // With one wait each, it would be twenty seconds.
        assert!(began.elapsed() < 50 * SERVICE_STOPPED_WAIT_MAX);
        drop(other);
        runtime.lock().unwrap();
    }
}
