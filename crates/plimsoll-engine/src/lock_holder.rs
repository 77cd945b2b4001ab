//! The process that holds a file's lock, as the kernel tells.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A process that holds the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    pid: i32,
    /// Its command's name.
    name: String,
    /// By a signal, or by a debugger.
    is_stopped: bool,
}

/// A lock is held by another process.
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
    /// The lock of a file that another process holds. `path`: the name that users know.
    pub(crate) fn of(file: &File, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            holder: holder_of(file),
        }
    }

    /// Whether the process that holds it is stopped, and will not let go of it.
    pub(crate) fn is_holder_stopped(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.is_stopped)
    }

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
    use super::*;

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
