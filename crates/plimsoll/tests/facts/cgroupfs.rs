//! The files of cgroups on a real kernel: the cases of conformance, and what the kernel in memory
//! does not have.

use std::fs;
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy};

use crate::cases::{self, Machine};
use crate::common::{Host, Running, max, wait_until, wait_until_busy};
use crate::rig::remove_group;

/// A host with its processes.
struct Real {
    host: Host,
    running: Vec<Running>,
}

impl Real {
    fn new() -> Self {
        Self {
            host: Host::new(),
            running: Vec::new(),
        }
    }
}

impl Machine for Real {
    fn hierarchy(&self) -> Arc<Hierarchy> {
        Arc::clone(self.host.hierarchy())
    }

    fn base(&self) -> CpuGroup {
        self.host.base().clone()
    }

    fn group(&mut self, name: &str) -> CpuGroup {
        self.host.group(name)
    }

    fn remove(&mut self, group: &CpuGroup) {
        for folder in group.folders() {
            fs::remove_dir(folder).unwrap();
        }
    }

    fn start_in(&mut self, group: &CpuGroup) -> i32 {
        let sleeper = self.host.start_in(group, ["sleep", "600"]);
        let pid = sleeper.pid();
        self.running.push(sleeper);
        pid
    }

    fn end(&mut self, pid: i32) {
        let is_it = |running: &Running| running.pid() == pid;
        let index = self.running.iter().position(is_it).unwrap();
        self.running.remove(index).stop();
        wait_until("it has gone", || {
            let everywhere = self.host.base().all_processes();
            everywhere.is_ok_and(|all| !all.contains(&pid))
        });
    }

    fn wait_until(&self, what: &str, is_so: impl FnMut() -> bool) {
        wait_until(what, is_so);
    }
}

cases::conformance!(Real::new());

#[test]
fn counters_follow_usage_and_end_with_the_cgroup() {
    let mut host = Host::new();
    let group = host.group("g");
    let counter = group.usage_counter().unwrap();
    let start_ns = counter.read_ns().unwrap();
    let load = host.start_load_in(&group, "burn --threads 1 --duration 600s");
    group.write_cpu_max(&max("1ms/10ms")).unwrap();
    wait_until_busy(&group);
    wait_until("it is throttled", || {
        group.stat().unwrap().throttled_usec > 0
    });
    let (first, usage, second) = (counter.read_ns(), group.usage_ns(), counter.read_ns());
    let usage_ns = usage.unwrap();
    assert!(first.unwrap() <= usage_ns && usage_ns <= second.unwrap());
    assert!(usage_ns > start_ns);
    let stat = group.stat().unwrap();
    assert!(0 < stat.nr_throttled && stat.nr_throttled <= stat.nr_periods);
    assert!(stat.throttled_usec > 0);
    load.stop();
    remove_group(&group);
    assert!(counter.read_ns().unwrap_err().is_gone());
}
