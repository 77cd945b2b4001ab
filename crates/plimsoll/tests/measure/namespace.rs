//! A mount namespace in which the runtime folder is a file system of its own,
//! small enough to be filled.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use crate::common::{Host, Running, wait_until, with_own_mounts};

/// Space for journals and requested knobs.
const SIZE: &str = "256k";

/// File system at the runtime folder, in a mount namespace; both go with the process that holds
/// them.
pub struct SmallDisk {
    holder: Running,
    runtime: PathBuf,
}

impl SmallDisk {
    pub fn new(host: &Host) -> Self {
        let runtime = host.runtime().to_owned();
        let script = format!(
            "mount -t tmpfs -o size={SIZE},mode=700 tmpfs {} && echo ready && exec sleep 100000",
            runtime.display()
        );
        let holder = host.spawn(with_own_mounts(&script));
        wait_until("the file system is mounted", || {
            holder.stdout().contains("ready")
        });
        Self { holder, runtime }
    }

    /// Command line that starts a process in the namespace.
    pub fn enter(&self) -> [String; 6] {
        let pid = self.holder.pid().to_string();
        // Its root as well, because a chroot has another root than the namespace.
        ["nsenter", "-t", &pid, "-m", "-r", "--"].map(str::to_owned)
    }

    /// A file of the runtime folder, as seen from here.
    pub fn path(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.pid()));
        root.join(self.runtime.strip_prefix("/").unwrap())
            .join(name)
    }

    /// Fills the disk to the last byte.
    pub fn fill(&self) {
        let mut file = File::create(self.path("filler")).unwrap();
        let piece = [0; 1024];
        while file.write_all(&piece).is_ok() {}
        while file.write_all(&piece[..1]).is_ok() {}
    }

    /// Frees the space again.
    pub fn free(&self) {
        // It may have space already.
        let _ = fs::remove_file(self.path("filler"));
    }

    /// Files on the disk, without locks and the socket.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names
            .filter(|name| name != "lock" && !name.ends_with(".lock"))
            .collect();
        names.sort();
        names
    }
}
