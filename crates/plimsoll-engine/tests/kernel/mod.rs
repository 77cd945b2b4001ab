//! A machine on the kernel in memory, and what others do on it. Also used by plimsoll-daemon.

use std::path::Path;

use plimsoll_cgroupfs::Version;
use plimsoll_cgroupfs::simulated::{self, Kernel, Write};

pub const EIO: i32 = nix::errno::Errno::EIO as i32;

/// The kernel of this thread, until it is dropped. Process 5 is in `s`; `d` is empty.
pub struct Machine(pub Version);

impl Machine {
    pub fn new(version: Version) -> Self {
        let mut kernel = Kernel::new(version);
        for path in ["d", "s"] {
            kernel.others_create(Path::new(path)).unwrap();
        }
        let own = std::process::id().cast_signed();
        kernel.tasks().start_in(own, Path::new(""));
        kernel.tasks().start_in(5, Path::new("s"));
        simulated::install(Some(kernel));
        Self(version)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        simulated::install(None);
    }
}

pub fn nice<const N: usize>(pids: [i32; N]) -> [i32; N] {
    simulated::with(|kernel| pids.map(|pid| kernel.tasks().get(pid).unwrap().nice))
}

/// Returns the cgroup of a process.
pub fn place(pid: i32) -> String {
    let cgroup = simulated::with(|kernel| kernel.tasks().get(pid).unwrap().cgroup.clone());
    cgroup.display().to_string()
}

/// Returns the text of a cgroup's file.
pub fn text(path: &str) -> Option<String> {
    simulated::with(|kernel| kernel.text(Path::new(path)))
}

pub fn others_write(path: &str, text: &str) {
    simulated::with(|kernel| kernel.others_write(Path::new(path), text)).unwrap();
}

pub fn others_move(pid: i32, path: &str) {
    others_write(&format!("{path}/cgroup.procs"), &pid.to_string());
}

pub fn others_create(path: &str) {
    simulated::with(|kernel| kernel.others_create(Path::new(path))).unwrap();
}

pub fn others_remove(path: &str) {
    simulated::with(|kernel| kernel.others_remove(Path::new(path))).unwrap();
}

pub fn fork(parent: i32, pid: i32) {
    simulated::with(|kernel| kernel.tasks().fork(parent, pid));
}

/// Has the kernel refuse one write, after so many.
pub fn refused<T>(after: u64, act: impl FnOnce() -> T) -> T {
    let refusal = Some((Write::Kernel, after, EIO));
    simulated::with(|kernel| kernel.faults.refusal_in = refusal);
    let done = act();
    simulated::with(|kernel| kernel.faults.refusal_in = None);
    done
}
