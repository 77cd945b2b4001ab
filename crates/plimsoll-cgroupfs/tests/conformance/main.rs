//! The cases of conformance on the kernel in memory. Those of real kernels are among the facts of
//! the command.
#![cfg(feature = "simulated")]
#![allow(clippy::unwrap_used)]

mod cases;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cases::Machine;
use plimsoll_cgroupfs::simulated::{self, Kernel, MOUNT};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy, Version};

/// The kernel of this thread, until it is dropped.
struct InMemory {
    hierarchy: Arc<Hierarchy>,
    last_pid: i32,
}

impl InMemory {
    fn new(version: Version) -> Self {
        simulated::install(Some(Kernel::new(version)));
        let hierarchy = Arc::new(Hierarchy::at_folder(Path::new(MOUNT), version));
        Self {
            hierarchy,
            last_pid: 1,
        }
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        simulated::install(None);
    }
}

impl Machine for InMemory {
    fn hierarchy(&self) -> Arc<Hierarchy> {
        Arc::clone(&self.hierarchy)
    }

    fn base(&self) -> CpuGroup {
        CpuGroup::at(&self.hierarchy, "base")
    }

    fn group(&mut self, name: &str) -> CpuGroup {
        let base = self.base();
        if !base.exists() {
            CpuGroup::at(&self.hierarchy, "").enable_children().unwrap();
            base.create().unwrap();
            base.enable_children().unwrap();
        }
        let group = base.child(name);
        group.create().unwrap();
        group
    }

    fn remove(&mut self, group: &CpuGroup) {
        simulated::with(|kernel| kernel.others_remove(group.path())).unwrap();
    }

    fn start_in(&mut self, group: &CpuGroup) -> i32 {
        self.last_pid += 1;
        simulated::with(|kernel| kernel.tasks().start_in(self.last_pid, group.path()));
        self.last_pid
    }

    fn end(&mut self, pid: i32) {
        simulated::with(|kernel| {
            kernel.end(pid);
            kernel.pass(Duration::ZERO);
        });
    }

    fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        assert!(is_so(), "{what}");
    }
}

mod v1 {
    use super::*;
    cases::conformance!(InMemory::new(Version::V1));
}

mod v2 {
    use super::*;
    cases::conformance!(InMemory::new(Version::V2));
}
