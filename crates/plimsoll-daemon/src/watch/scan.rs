//! New processes, found by listing `/proc` again and again: for hosts on which
//! the kernel tells nobody.

use std::time::{Duration, Instant};

use crate::processes;

/// How long somebody may be overlooked.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long the shortcut is trusted: some containers are shown a number that
/// stands still.
const SHORTCUT_TRUSTED: Duration = Duration::from_secs(1);
/// How often a new process is told again, an interval later each time: it may
/// have been found before it ran the program that it is for.
const REPEATS: u8 = 2;

/// What is known from the last time.
#[derive(Debug)]
pub(super) struct Scan {
    /// In order.
    known: Vec<i32>,
    /// Those that are told again, and how often.
    young: Vec<(i32, u8)>,
    last_pid: Option<String>,
    listed_at: Instant,
    due: Instant,
}

impl Scan {
    /// Those that are there now are no news.
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

    /// When to look next.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Looks, if it is time, and calls `each` with whoever is new.
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
        // Before the list: who comes in between is found the next time.
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

/// The pid that the kernel gave away last (proc_loadavg(5)): as long as it is
/// the same, nobody is new.
fn last_pid() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    Some(text.split_whitespace().nth(4)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_is_told_and_told_again_and_then_known() {
        let now = Instant::now();
        let mut scan = Scan::start(now);
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let mut told = Vec::new();
        // Time is what it is told to be.
        let mut at = now;
        for _ in 0..6 {
            let mut seen = false;
            scan.read(at, |other| seen |= other == pid);
            told.push(seen);
            at = scan.due();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(told, [false, true, true, true, false, false]);
    }

    #[test]
    fn one_that_comes_back_under_an_old_number_is_new() {
        let mut scan = Scan::start(Instant::now());
        scan.known = vec![1, 5, 7];
        let mut told = Vec::new();
        for present in [vec![1, 7, 8], vec![1, 5, 7, 8], vec![]] {
            scan.compare(present, |pid| told.push(pid));
        }
        assert_eq!(told, [8, 5]);
    }

    #[test]
    fn the_shortcut_is_not_trusted_for_long() {
        let now = Instant::now();
        let mut scan = Scan::start(now);
        let me = std::process::id().cast_signed();
        scan.known.retain(|pid| *pid != me);
        let mut is_told = false;
        let late = now + SHORTCUT_TRUSTED;
        scan.read(late, |pid| is_told |= pid == me);
        assert!(is_told);
    }
}
