//! Cgroups of the lab.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{LabError, Result};

/// The guest's mount point of cgroup v2.
pub const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup (version 2) below the root.
#[derive(Debug)]
pub struct GuestGroup {
    path: PathBuf,
    /// Whether commands that start in the group are of the class `SCHED_FIFO`.
    is_real_time: bool,
}

/// Priority of real-time tasks.
const PRIORITY: libc::c_int = 10;

impl GuestGroup {
    pub fn make(name: &str) -> Result<Self> {
        let path = Path::new(ROOT).join(name);
        fs::create_dir(&path).map_err(LabError::file(&path))?;
        Ok(Self {
            path,
            is_real_time: false,
        })
    }

    /// Makes commands that start in the group real-time tasks.
    #[must_use]
    pub fn real_time(self, is_real_time: bool) -> Self {
        Self {
            is_real_time,
            ..self
        }
    }

    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value).map_err(LabError::file(path))
    }

    /// Shell command that enters the cgroup and executes its arguments.
    #[must_use]
    pub fn entry(&self) -> String {
        let path = self.path.display();
        format!("echo $$ >{path}/cgroup.procs; exec \"$@\"")
    }

    /// Makes a command start in the group.
    pub fn adopt<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let procs = self.path.join("cgroup.procs");
        let is_real_time = self.is_real_time;
        let enter = move || {
            fs::write(&procs, "0")?;
            if !is_real_time {
                return Ok(());
            }
            let parameters = libc::sched_param {
                sched_priority: PRIORITY,
            };
            // SAFETY: the pointer is valid; 0 is the calling thread.
            let status =
                unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
            if status == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        };
        // SAFETY: between fork and exec the child opens and writes one file and makes a system
        // call; it has no other thread whose lock could be held.
        unsafe { command.pre_exec(enter) }
    }
}
