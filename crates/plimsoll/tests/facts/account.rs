//! Plimsoll as another user.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use plimsoll_cgroupfs::CpuGroup;
use tempfile::TempDir;

/// The uid of the first user is the same everywhere.
pub const USER: u32 = 1000;

/// A copy of the binary, a runtime folder and a home with access for a user.
pub struct Account {
    folder: TempDir,
    runtime: TempDir,
    uid: u32,
}

impl Account {
    pub fn new(uid: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // By another process: children of this one could have the copy open for writing, which
        // prevents its execution.
        let mut copy = Command::new("cp");
        copy.arg(crate::common::binary()).arg(folder.path());
        assert!(copy.status().unwrap().success());
        let runtime = crate::common::memory_folder();
        chown(runtime.path(), Some(uid), Some(uid)).unwrap();
        Self {
            folder,
            runtime,
            uid,
        }
    }

    pub fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    /// Plimsoll as this user, without the tests' variables.
    pub fn plimsoll(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.folder.path().join("plimsoll"));
        command.args(words).uid(self.uid).gid(self.uid);
        self.confine(&mut command);
        command
    }

    /// Plimsoll as this user in a cgroup. Root moves the process there, because a user may not
    /// enter a delegated subtree from outside.
    pub fn plimsoll_in(&self, group: &CpuGroup, words: &[&str]) -> Command {
        let uid = self.uid.to_string();
        let mut command = Command::new("/usr/bin/setpriv");
        command
            .args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"])
            .arg(self.folder.path().join("plimsoll"))
            .args(words);
        crate::common::begin_in(&mut command, group, 0);
        self.confine(&mut command);
        command
    }

    fn confine(&self, command: &mut Command) {
        command
            .current_dir("/")
            .env_remove("PLIMSOLL_CGROUP_BASE")
            .env_remove("PLIMSOLL_RUNTIME_DIR")
            .env("XDG_RUNTIME_DIR", self.runtime())
            .stdin(Stdio::null());
    }
}
