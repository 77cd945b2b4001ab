//! Properties of processes, from `/proc`.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use nix::unistd::Uid;
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::tasks::TaskId;

use crate::matching::Process;

/// Maximum length of a command line; the rest is ignored.
const COMMAND_BYTES_MAX: u64 = 4096;
/// `stat` and `status` are far shorter.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// `PF_KTHREAD` (include/linux/sched.h): a thread of the kernel's own.
const FLAG_KERNEL_THREAD: u64 = 0x0020_0000;
/// Suffix that the kernel appends to the path of a removed file.
const REMOVED: &str = " (deleted)";

/// A process, identified by pid and start time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Distinguishes it from a later process with the same pid.
    pub task: TaskId,
    /// Properties that rules match.
    pub process: Process,
}

/// Reads a process. `None`: no process with that pid can be moved. It has ended, is a zombie, a
/// thread of a process, or a kernel thread.
#[must_use]
pub fn look(hierarchy: &Hierarchy, pid: i32) -> Option<Found> {
    let folder = format!("/proc/{pid}");
    let folder = Path::new(&folder);
    let stat = Stat::read(folder)?;
    if stat.has_ended || stat.is_kernel_thread {
        return None;
    }
    let process = Process {
        uid: effective_uid(folder, pid)?,
        cgroup: cgroup(hierarchy, pid)?,
        executable: executable(folder),
        command: command(folder)?,
    };
    let task = TaskId {
        tid: pid,
        start_time: stat.start_time,
    };
    // All of it is of one process only if none other has its number by now.
    let is_same = Stat::read(folder)?.start_time == task.start_time;
    is_same.then_some(Found { task, process })
}

/// The children of a process. Those of a process that has ended cannot be found.
#[must_use]
pub fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let texts =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let of_thread = |text: String| -> Vec<i32> {
        let pids = text.split_whitespace();
        pids.filter_map(|pid| pid.parse().ok()).collect()
    };
    texts.flat_map(of_thread).collect()
}

/// The pids of all processes of the host, threads of the kernel among them.
#[must_use]
pub fn all() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn read(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Fields of a task's `stat` (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    has_ended: bool,
    is_kernel_thread: bool,
    /// In clock ticks since boot.
    start_time: u64,
}

impl Stat {
    fn read(folder: &Path) -> Option<Self> {
        Self::parse(&read(&folder.join("stat"), FILE_BYTES_MAX)?)
    }

    /// The task's name is the second field. It stands in brackets, and may
    /// have any bytes.
    fn parse(stat: &[u8]) -> Option<Self> {
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
        // From the third field on.
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| -> Option<u64> { fields.get(field - 3)?.parse().ok() };
        Some(Self {
            has_ended: matches!(*fields.first()?, "Z" | "X" | "x"),
            is_kernel_thread: number(9)? & FLAG_KERNEL_THREAD != 0,
            start_time: number(22)?,
        })
    }
}

/// Effective user of a process. `None`: it has ended, or is a thread of a process.
fn effective_uid(folder: &Path, pid: i32) -> Option<Uid> {
    let status = read(&folder.join("status"), FILE_BYTES_MAX)?;
    uid_of_status(&String::from_utf8_lossy(&status), pid)
}

/// The effective uid (`Uid:` has real, effective, saved and file system's).
fn uid_of_status(status: &str, pid: i32) -> Option<Uid> {
    let values = |key: &str| {
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.map(str::split_whitespace)
    };
    let process: i32 = values("Tgid")?.next()?.parse().ok()?;
    let uid = values("Uid")?.nth(1)?.parse().ok()?;
    (process == pid).then(|| Uid::from_raw(uid))
}

/// Its cgroup below the mount point, with a `/` in front.
fn cgroup(hierarchy: &Hierarchy, pid: i32) -> Option<String> {
    let path = hierarchy.cgroup_of(pid).ok()?;
    Some(format!("/{}", path.to_string_lossy()))
}

/// Path of the executable. `None`: this process may not read it.
fn executable(folder: &Path) -> Option<String> {
    let path = fs::read_link(folder.join("exe")).ok()?;
    let path = path.to_string_lossy();
    Some(path.strip_suffix(REMOVED).unwrap_or(&path).to_owned())
}

fn command(folder: &Path) -> Option<String> {
    let bytes = read(&folder.join("cmdline"), COMMAND_BYTES_MAX)?;
    Some(command_of(&bytes))
}

/// The words of a command line, which end in a zero byte each, with one space
/// between them.
fn command_of(bytes: &[u8]) -> String {
    // A program may have written over its words and left zeros behind them.
    let end = bytes.iter().rposition(|byte| *byte != 0);
    let bytes = &bytes[..end.map_or(0, |last| last + 1)];
    String::from_utf8_lossy(bytes).replace('\0', " ")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::wait::wait_until;

    fn hierarchy() -> Option<Hierarchy> {
        let found = Hierarchy::find();
        if let Err(error) = &found {
            crate::skipped::skip(&error.to_string());
        }
        found.ok()
    }

    /// A process that ends with the test.
    struct Sleeper(Child);

    impl Sleeper {
        /// Returns when it runs its program: `spawn` returns a little earlier, while it has no
        /// command line.
        fn start(command: &mut Command) -> Self {
            let sleeper = Self(command.stdin(Stdio::null()).spawn().unwrap());
            let file = format!("/proc/{}/cmdline", sleeper.pid());
            wait_until("it has a command line", || {
                !fs::read(&file).unwrap().is_empty()
            });
            sleeper
        }

        fn pid(&self) -> i32 {
            self.0.id().cast_signed()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_has_command_user_executable_and_cgroup() {
        let Some(hierarchy) = hierarchy() else { return };
        let sleeper = Sleeper::start(Command::new("sleep").args(["60", "0"]));
        let found = look(&hierarchy, sleeper.pid()).unwrap();
        assert_eq!(found.task, TaskId::of(sleeper.pid()).unwrap());
        assert_eq!(found.process.command, "sleep 60 0");
        assert_eq!(found.process.uid, nix::unistd::geteuid());
        let executable = found.process.executable.unwrap();
        // On some systems it is one program for all.
        let name = Path::new(&executable).file_name().unwrap();
        assert!(["sleep", "coreutils", "busybox"].contains(&name.to_str().unwrap()));
        assert!(executable.starts_with('/'));
        let me = look(&hierarchy, std::process::id().cast_signed()).unwrap();
        assert_eq!(found.process.cgroup, me.process.cgroup, "it is inherited");
        assert!(found.process.cgroup.starts_with('/'));
    }

    #[test]
    fn an_executable_keeps_its_name_after_it_is_removed() {
        let Some(hierarchy) = hierarchy() else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sleeper");
        let sleep = ["/bin/sleep", "/usr/bin/sleep"].map(Path::new);
        let sleep = sleep.into_iter().find(|path| path.exists()).unwrap();
        fs::copy(sleep, &file).unwrap();
        let sleeper = Sleeper::start(Command::new(&file).arg("60"));
        fs::remove_file(&file).unwrap();
        let found = look(&hierarchy, sleeper.pid()).unwrap();
        assert_eq!(
            found.process.executable,
            Some(file.to_string_lossy().into_owned())
        );
    }

    #[test]
    fn a_long_command_line_is_cut() {
        let Some(hierarchy) = hierarchy() else { return };
        let sleeper = Sleeper::start(Command::new("sleep").args(["60", &"0".repeat(50_000)]));
        let command = look(&hierarchy, sleeper.pid()).unwrap().process.command;
        assert_eq!(command.len() as u64, COMMAND_BYTES_MAX);
        assert!(command.starts_with("sleep 60 000"));
    }

    #[test]
    fn a_zombie_and_a_thread_are_no_process() {
        let Some(hierarchy) = hierarchy() else { return };
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        // It is not waited for yet.
        wait_until("it has ended", || look(&hierarchy, pid).is_none());
        assert!(TaskId::of(pid).is_some(), "it is still to be seen");
        child.wait().unwrap();
        let thread = nix::unistd::gettid().as_raw();
        assert_ne!(thread, std::process::id().cast_signed());
        assert_eq!(look(&hierarchy, thread), None);
        assert_eq!(look(&hierarchy, i32::MAX), None);
    }

    #[test]
    fn a_kernel_thread_is_recognised_by_its_flag_with_any_name() {
        let kthreadd = b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0";
        let expected = Stat {
            has_ended: false,
            is_kernel_thread: true,
            start_time: 7,
        };
        assert_eq!(Stat::parse(kthreadd), Some(expected));
        let tricky = b"9 (a) S 1 \xff) Z 1 9 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 8 0 0";
        let expected = Stat {
            has_ended: true,
            is_kernel_thread: false,
            start_time: 8,
        };
        assert_eq!(Stat::parse(tricky), Some(expected));
        assert_eq!(Stat::parse(b"9 (a) S 1 9"), None);
        // Some hosts show their kernel's threads, others do not.
        let Some(hierarchy) = hierarchy() else { return };
        if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
            assert_eq!(look(&hierarchy, 2), None);
        }
    }

    #[test]
    fn the_user_of_a_process_is_its_effective_one() {
        let status = "Name:\tx\nTgid:\t7\nPid:\t7\nUid:\t1000\t0\t5\t6\nGid:\t1\t1\t1\t1\n";
        assert_eq!(uid_of_status(status, 7), Some(Uid::from_raw(0)));
        assert_eq!(uid_of_status(status, 8), None);
        assert_eq!(uid_of_status("Tgid:\t7\n", 7), None);
    }

    #[test]
    fn words_have_one_space_between_them() {
        assert_eq!(command_of(b"a\0b c\0\0d\0\0\0"), "a b c  d");
        assert_eq!(command_of(b"\0\0"), "");
        assert_eq!(command_of(b"a\xff\0"), "a\u{fffd}");
    }

    #[test]
    fn all_processes_are_listed_once() {
        let mut pids = all();
        assert!(pids.contains(&std::process::id().cast_signed()));
        let count = pids.len();
        pids.sort_unstable();
        pids.dedup();
        assert_eq!(pids.len(), count);
    }
}
