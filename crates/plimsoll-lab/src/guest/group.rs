//! Cgroups of the lab.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{LabError, Result};

/// The guest's mount point of cgroup v2.
pub const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup (version 2) below the root.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    pub fn make(name: &str) -> Result<Self> {
        let path = Path::new(ROOT).join(name);
        fs::create_dir(&path).map_err(LabError::file(&path))?;
        Ok(Self(path))
    }

    /// Writes one of its files.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.0.join(file);
        fs::write(&path, value).map_err(LabError::file(path))
    }

    /// Shell command that enters the cgroup and executes its arguments.
    #[must_use]
    pub fn entry(&self) -> String {
        let path = self.0.display();
        format!("echo $$ >{path}/cgroup.procs; exec \"$@\"")
    }

    /// Makes a command start in it.
    pub fn adopt<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let procs = self.0.join("cgroup.procs");
        // SAFETY: between fork and exec the child opens and writes one file; it has no other
        // thread whose lock could be held.
        unsafe { command.pre_exec(move || fs::write(&procs, "0")) }
    }
}
