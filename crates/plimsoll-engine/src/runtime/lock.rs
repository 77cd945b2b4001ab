//! The lock of the runtime folder: waited for, but not for ever.
//!
//! Who holds it may have been stopped with it (Ctrl-Z). A service that waited
//! for that would hang as well.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::error::{EngineError, Result};

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

/// A process that holds the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    pid: i32,
    /// Its command's name.
    name: String,
    /// By a signal, or by a debugger.
    is_stopped: bool,
}

/// The lock was not to be had in time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{path}: its lock is held by {holder}; {remedy}, then try again",
    path = path.display(),
    holder = self.describe_holder(),
    remedy = self.remedy()
)]
pub struct LockBusy {
    path: PathBuf,
    holder: Option<Holder>,
}

impl LockBusy {
    /// The process that holds it; `None`: the kernel does not tell.
    #[must_use]
    pub fn holder_pid(&self) -> Option<i32> {
        self.holder.as_ref().map(|holder| holder.pid)
    }

    fn describe_holder(&self) -> String {
        match &self.holder {
            None => "another process".into(),
            Some(Holder {
                pid,
                name,
                is_stopped,
            }) => {
                let stopped = if *is_stopped {
                    ", which is stopped"
                } else {
                    ""
                };
                format!("process {pid} ({name}){stopped}")
            }
        }
    }

    fn remedy(&self) -> String {
        match &self.holder {
            Some(holder) if holder.is_stopped => {
                let pid = holder.pid;
                format!("continue it (kill -CONT {pid}) or end it")
            }
            _ => "wait for it or end it".into(),
        }
    }
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
            let holder = holder_of(&file);
            if is_over || holder.as_ref().is_some_and(|holder| holder.is_stopped) {
                patience.note(wait_max, false);
                let path = folder.to_owned();
                return Err(EngineError::LockBusy(LockBusy { path, holder }));
            }
        }
        thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// That the lock of a file, which is at `path`, is held by another.
pub(crate) fn busy(file: &File, path: &Path) -> EngineError {
    EngineError::LockBusy(LockBusy {
        path: path.to_owned(),
        holder: holder_of(file),
    })
}

/// Whether the lock of a file is held by a process that is stopped.
pub(crate) fn is_holder_stopped(file: &File) -> bool {
    holder_of(file).is_some_and(|holder| holder.is_stopped)
}

/// The process that holds the lock of a file, as the kernel tells.
fn holder_of(file: &File) -> Option<Holder> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = pid_in(&locks, &file.metadata().ok()?)?;
    // One that has ended has left the lock to another.
    let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
    let stat = stat.ok()?;
    Some(Holder {
        pid,
        name: stat.comm,
        is_stopped: matches!(stat.state, 'T' | 't'),
    })
}

/// The line of a lock is `1: FLOCK ADVISORY WRITE 77 fe:00:9978179 0 EOF`; of
/// one that waits for it, `1: -> FLOCK …`. A process of another namespace has
/// no pid here.
fn pid_in(locks: &str, file: &fs::Metadata) -> Option<i32> {
    let device = file.dev();
    let id = format!(
        "{:02x}:{:02x}:{}",
        libc::major(device),
        libc::minor(device),
        file.ino()
    );
    let mut lines = locks.lines().map(|line| line.split_whitespace().skip(1));
    lines.find_map(|mut words| {
        let is_flock = words.next() == Some("FLOCK");
        let pid = words.nth(2).and_then(|word| word.parse::<i32>().ok());
        let is_it = words.next() == Some(&id);
        pid.filter(|pid| is_flock && is_it && *pid > 0)
    })
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

    #[test]
    fn the_lock_of_another_file_is_another_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let id = File::create(&path).unwrap().metadata().unwrap();
        let (major, minor) = (libc::major(id.dev()), libc::minor(id.dev()));
        let line = |kind: &str, pid: i32, inode: u64| {
            format!("1: {kind}  ADVISORY  WRITE {pid} {major:02x}:{minor:02x}:{inode} 0 EOF\n")
        };
        let inode = id.ino();
        let others = [
            line("FLOCK", 1, inode + 1),
            line("POSIX", 2, inode),
            line("-> FLOCK", 3, inode),
            line("FLOCK", 0, inode),
        ];
        let others = others.concat();
        assert_eq!(pid_in(&others, &id), None);
        assert_eq!(pid_in(&(others + &line("FLOCK", 7, inode)), &id), Some(7));
    }
}
