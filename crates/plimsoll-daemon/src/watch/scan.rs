//! New processes, found by listing `/proc` periodically: for hosts without process events.

use std::time::{Duration, Instant};

use crate::processes;

/// Interval of reading; a process is found that late.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time that an unchanged last pid is trusted: in some containers it never changes.
const SHORTCUT_TRUSTED: Duration = Duration::from_secs(1);
/// Number of repeated reports of a new process, an interval apart: it may be found before it
/// executes its program.
const REPEATS: u8 = 2;

/// State of the last reading.
#[derive(Debug)]
pub(super) struct Scan {
    /// Known pids, sorted.
    known: Vec<i32>,
    /// New pids, with the number of reports that are left.
    young: Vec<(i32, u8)>,
    last_pid: Option<String>,
    listed_at: Instant,
    due: Instant,
}

impl Scan {
    /// Begins to watch; present processes are not reported.
    pub(super) fn start(now: Instant) -> Self {
        let last_pid = last_pid();
        Self {
            known: sorted(processes::all()),
            young: Vec::new(),
            last_pid,
            listed_at: now,
            due: now + INTERVAL,
        }
    }

    /// When to read next.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Reads if it is due, and calls `each` with new pids.
    pub(super) fn read(&mut self, now: Instant, mut each: impl FnMut(i32)) {
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        for (pid, repeats) in &mut self.young {
            each(*pid);
            *repeats -= 1;
        }
        self.young.retain(|(_, repeats)| *repeats > 0);
        // Before the list: a process that starts in between is found by the next reading.
        let last_pid = last_pid();
        let is_trusted = now.duration_since(self.listed_at) < SHORTCUT_TRUSTED;
        if is_trusted && last_pid.is_some() && last_pid == self.last_pid {
            return;
        }
        self.last_pid = last_pid;
        self.listed_at = now;
        self.compare(sorted(processes::all()), each);
    }

    fn compare(&mut self, present: Vec<i32>, mut each: impl FnMut(i32)) {
        for pid in &present {
            if self.known.binary_search(pid).is_err() {
                each(*pid);
                self.young.push((*pid, REPEATS));
            }
        }
        self.known = present;
    }
}

fn sorted(mut pids: Vec<i32>) -> Vec<i32> {
    pids.sort_unstable();
    pids
}

/// The pid that the kernel assigned last (proc_loadavg(5)): while it is the same, no process has
/// started.
fn last_pid() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    Some(text.split_whitespace().nth(4)?.to_owned())
}
