//! New and changed processes.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::connector::{Connector, QUEUE_BYTES};
use super::scan::Scan;

/// Changes of processes since the last call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessChanges {
    /// Processes that started, run another program, or changed their user or name, each once.
    /// Some may have ended already.
    pub appeared: Vec<i32>,
    /// Events were lost: all processes have to be read again.
    pub lost: bool,
}

/// Watches all processes of the host.
#[derive(Debug)]
pub struct ProcessWatch {
    source: Source,
    /// The reason for a scan in place of events.
    refused: Option<String>,
}

#[derive(Debug)]
enum Source {
    Connector(Connector),
    Scan(Scan),
}

impl ProcessWatch {
    /// Begins to watch. Present processes are not reported:
    /// [`processes::all`](crate::processes::all), called afterwards, has them, and all that
    /// start in between.
    #[must_use]
    pub fn start() -> Self {
        match Connector::start(QUEUE_BYTES) {
            Ok(connector) => Self {
                source: Source::Connector(connector),
                refused: None,
            },
            Err(error) => Self::scanning(&error),
        }
    }

    fn scanning(error: &std::io::Error) -> Self {
        Self {
            source: Source::Scan(Scan::start(Instant::now())),
            refused: Some(error.to_string()),
        }
    }

    /// The source of changes, in words.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self.source {
            Source::Connector(_) => "the kernel's process events",
            Source::Scan(_) => {
                "a list of all processes every 100 ms, which shows new ones but not those that \
                 change program or user"
            }
        }
    }

    /// The reason why the kernel's process events are not used, if so.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The file that becomes readable when there are changes. `None`: see
    /// [`ProcessWatch::due`].
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Connector(connector) => Some(connector.as_fd()),
            Source::Scan(_) => None,
        }
    }

    /// When to read changes. `None`: see [`ProcessWatch::fd`].
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        match &self.source {
            Source::Connector(_) => None,
            Source::Scan(scan) => Some(scan.due()),
        }
    }

    /// Reads changes since the last call, without waiting. [`ProcessWatch::fd`] and
    /// [`ProcessWatch::due`] may change: a socket that fails is replaced by a scan.
    pub fn changes(&mut self) -> ProcessChanges {
        let mut changes = ProcessChanges::default();
        let mut reported = HashSet::new();
        let mut report = |pid| {
            if reported.insert(pid) {
                changes.appeared.push(pid);
            }
        };
        match &mut self.source {
            Source::Connector(connector) => match connector.read(&mut report) {
                Ok(is_lost) => changes.lost = is_lost,
                Err(error) => {
                    *self = Self::scanning(&error);
                    changes.lost = true;
                }
            },
            Source::Scan(scan) => scan.read(Instant::now(), &mut report),
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn connected(queue_bytes: usize) -> Option<ProcessWatch> {
        match Connector::start(queue_bytes) {
            Ok(connector) => Some(ProcessWatch {
                source: Source::Connector(connector),
                refused: None,
            }),
            Err(error) => {
                crate::skipped::skip(&format!("process events take root: {error}"));
                None
            }
        }
    }

    fn sleeper() -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null()).spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits as the service does, until a process is reported.
    fn is_reported(watch: &mut ProcessWatch, pid: i32) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let changes = watch.changes();
            if changes.appeared.contains(&pid) {
                return true;
            }
            match (watch.fd(), watch.due()) {
                (Some(fd), None) => {
                    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
                    poll(&mut fds, PollTimeout::from(100u8)).unwrap();
                }
                (None, Some(due)) => std::thread::sleep(due - Instant::now()),
                other => panic!("{other:?}"),
            }
        }
        false
    }

    #[test]
    fn new_and_changed_processes_are_reported_by_events() {
        let Some(mut watch) = connected(QUEUE_BYTES) else {
            return;
        };
        assert_eq!(watch.refused(), None);
        let mut shell = Command::new("sh");
        let script = "echo; read go; printf another >/proc/self/comm; read go; exec sleep 60";
        let shell = shell.args(["-c", script]);
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let pid = child.id().cast_signed();
        assert!(is_reported(&mut watch, pid));
        // It runs its script, so all events of its start are in the queue.
        let output = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(output, &mut [0]).unwrap();
        watch.changes();
        for change in ["its name", "its program"] {
            let input = child.stdin.as_mut().unwrap();
            std::io::Write::write_all(input, b"\n").unwrap();
            assert!(is_reported(&mut watch, pid), "{change}");
        }
        end(child);
    }

    #[test]
    fn a_short_lived_process_is_reported_once_and_no_thread_is() {
        let Some(mut watch) = connected(QUEUE_BYTES) else {
            return;
        };
        let tids: Vec<i32> = (0..20)
            .map(|_| std::thread::spawn(|| nix::unistd::gettid().as_raw()))
            .map(|thread| thread.join().unwrap())
            .collect();
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        // It is all in the queue, fork and exec.
        let appeared = watch.changes().appeared;
        let pid = child.id().cast_signed();
        assert_eq!(appeared.iter().filter(|other| **other == pid).count(), 1);
        assert!(!tids.iter().any(|tid| appeared.contains(tid)));
    }

    #[test]
    fn lost_events_are_reported_and_later_ones_arrive() {
        let Some(mut watch) = connected(4096) else {
            return;
        };
        for _ in 0..50 {
            Command::new("true").status().unwrap();
        }
        assert!(watch.changes().lost);
        let child = sleeper();
        // Others start processes, too: with so little room for it, that of
        // this one may be lost, which is reported.
        let until = Instant::now() + PATIENCE;
        let mut is_known = false;
        while !is_known && Instant::now() < until {
            let changes = watch.changes();
            is_known = changes.lost || changes.appeared.contains(&child.id().cast_signed());
        }
        end(child);
        assert!(is_known);
    }

    #[test]
    fn a_second_listener_goes_on_after_the_first_has_stopped() {
        let (Some(first), Some(mut second)) = (connected(QUEUE_BYTES), connected(QUEUE_BYTES))
        else {
            return;
        };
        drop(first);
        let child = sleeper();
        assert!(is_reported(&mut second, child.id().cast_signed()));
        end(child);
    }

    #[test]
    fn new_processes_are_found_without_events_of_the_kernel() {
        let refused = io::Error::from_raw_os_error(nix::libc::EPERM);
        let mut watch = ProcessWatch::scanning(&refused);
        assert!(watch.refused().unwrap().contains("not permitted"));
        assert!(watch.method().contains("100 ms"));
        let child = sleeper();
        assert!(is_reported(&mut watch, child.id().cast_signed()));
        end(child);
    }

    #[test]
    fn watching_begins_with_the_best_source_of_the_host() {
        let mut watch = ProcessWatch::start();
        assert_ne!(watch.fd().is_some(), watch.due().is_some());
        assert_eq!(watch.fd().is_none(), watch.refused().is_some());
        let child = sleeper();
        assert!(is_reported(&mut watch, child.id().cast_signed()));
        end(child);
    }
}
