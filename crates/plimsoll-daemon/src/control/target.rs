//! Facts about a process, for a decision on the permissions of its owner.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use plimsoll_cgroupfs::{CgroupError, CpuGroup, Hierarchy, WEIGHT_DEFAULT};
use plimsoll_engine::tasks;

/// A process as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// The user of all its threads: real, effective, saved and file system uid are the same.
    /// `None`: they differ. It has rights of several users, so that no user owns it.
    pub owner: Option<u32>,
    /// When it was started, in clock ticks since boot.
    pub started: u64,
    /// The highest nice level of its threads.
    pub nice: i32,
}

impl Process {
    /// Reads a process. `None`: there is none with that pid.
    pub fn read(pid: i32) -> Option<Self> {
        let started = tasks::start_time(pid)?;
        let threads = tasks::threads(pid);
        let nice = threads
            .iter()
            .filter_map(|tid| tasks::nice(*tid).ok())
            .max()?;
        let process = Self {
            pid,
            owner: owner_of_all(pid, &threads),
            started,
            nice,
        };
        // The pid was not reused between the reads.
        process.is_still_there().then_some(process)
    }

    /// Whether this process still has the pid. After an operation on the pid, this confirms
    /// that the process was its target.
    pub fn is_still_there(&self) -> bool {
        tasks::start_time(self.pid) == Some(self.started)
    }
}

/// The owner of all threads of a process. Threads may have different owners, as those of file
/// servers do.
fn owner_of_all(pid: i32, threads: &[i32]) -> Option<u32> {
    let mut owners = threads.iter().filter_map(|tid| {
        // A thread that has ended has no owner.
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        Some(owner(&status))
    });
    let first = owners.next()??;
    owners.all(|owner| owner == Some(first)).then_some(first)
}

/// The owner, from the text of a thread's `status`.
fn owner(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let numbers: Option<Vec<u32>> = line
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    let numbers = numbers.filter(|numbers| numbers.len() == 4)?;
    numbers
        .iter()
        .all(|uid| *uid == numbers[0])
        .then_some(numbers[0])
}

/// The cgroup whose limits a process would leave if it was moved into a group
/// of Plimsoll's: one that it is in, directly or further up, with a quota, an
/// idle mark, less than the usual weight, CPUs of its own, or a limit of memory
/// or I/O.
pub fn confined_by(hierarchy: &Arc<Hierarchy>, pid: i32) -> Option<String> {
    let path = match hierarchy.cgroup_of(pid) {
        Ok(path) => path,
        // Its limits are not to be seen: it may have any.
        Err(CgroupError::NotVisible { cgroup, .. }) => return Some(cgroup.display().to_string()),
        Err(_) => return None,
    };
    let confines = |path: &&Path| !path.as_os_str().is_empty() && has_limits(hierarchy, path);
    let found = path.ancestors().find(confines)?;
    Some(format!("/{}", found.display()))
}

fn has_limits(hierarchy: &Arc<Hierarchy>, path: &Path) -> bool {
    let group = CpuGroup::at(hierarchy, path);
    // A missing file limits nothing.
    let quota = group
        .read_cpu_max()
        .is_ok_and(|max| max.quota_usec.is_some());
    let idle = group.read_idle().unwrap_or(false);
    let weight = group
        .read_weight()
        .is_ok_and(|weight| weight < WEIGHT_DEFAULT);
    // On v2, these go with the cgroup too; on v1 the files are elsewhere.
    let text = |name: &str| fs::read_to_string(group.cpu_file(name)).unwrap_or_default();
    let memory = ["memory.max", "memory.high", "memory.swap.max"]
        .into_iter()
        .any(|name| !matches!(text(name).trim(), "" | "max"));
    // Without a limit these are empty. `pids.max` is not looked at: systemd
    // sets it on the slice of every user.
    let others = ["cpuset.cpus", "io.max"]
        .into_iter()
        .any(|name| !text(name).trim().is_empty());
    quota || idle || weight || memory || others
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_owner_of_a_process_is_read_from_all_four_uids() {
        let status = "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t0\t0\t0\t0\n";
        assert_eq!(owner(status), Some(1000));
        for numbers in [
            "0\t1000\t1000\t1000",
            "1000\t0\t1000\t1000",
            "1000\t1000\t0\t1000",
            "1000\t1000\t1000\t0",
            "1000\t1000\t1000",
            "",
            "x\tx\tx\tx",
        ] {
            assert_eq!(owner(&format!("Uid:\t{numbers}\n")), None, "{numbers}");
        }
        assert_eq!(owner("Name:\tUid:\t1"), None);
    }

    #[test]
    fn a_process_has_no_owner_if_one_thread_has_another() {
        if !nix::unistd::geteuid().is_root() {
            crate::skipped::skip("threads of several users take root");
            return;
        }
        let own = std::process::id().cast_signed();
        let (send, received) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            use nix::libc::{SYS_gettid, SYS_setresuid, syscall};
            // SAFETY: numbers only; the system calls change this thread's
            // credentials and return its number.
            let (changed, tid) = unsafe {
                let changed = syscall(SYS_setresuid, 4_242, 4_242, 4_242);
                (changed, syscall(SYS_gettid))
            };
            send.send((changed, i32::try_from(tid).unwrap())).unwrap();
            let _ = ended.recv();
        });
        let (changed, tid) = received.recv().unwrap();
        assert_eq!(changed, 0);
        for number in [own, tid] {
            assert_eq!(Process::read(number).unwrap().owner, None, "{number}");
        }
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_process_is_distinguished_from_a_later_one_with_its_pid() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().cast_signed();
        let process = Process::read(pid).unwrap();
        assert_eq!(process.owner, Some(nix::unistd::geteuid().as_raw()));
        assert!(process.is_still_there());
        let later = Process {
            started: process.started + 1,
            ..process.clone()
        };
        assert!(!later.is_still_there());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_still_there());
        assert_eq!(Process::read(pid), None);
    }
}
