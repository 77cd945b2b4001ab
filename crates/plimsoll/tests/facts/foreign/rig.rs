//! Common parts of these tests.

use std::fs;
use std::process::Command;

use plimsoll_cgroupfs::{CpuGroup, os};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::knobs::{Bandwidth, Knobs};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;

use crate::common::{Host, Running};

pub fn knobs(json: &str) -> Knobs {
    let knobs: Knobs = serde_json::from_str(json).unwrap();
    knobs.check().unwrap();
    knobs
}

pub fn name_of(group: &CpuGroup) -> String {
    format!("/{}", group.path().display())
}

pub fn policy(group: &CpuGroup, json: &str) -> GroupPolicy {
    GroupPolicy {
        name: name_of(group),
        selector: Selector::Cgroup(group.path().to_owned()),
        knobs: knobs(json),
        scheduler: None,
    }
}

pub fn start(host: &Host) -> CgroupEnforcer {
    let runtime = RuntimeFolder::at(host.runtime());
    let (enforcer, left) = CgroupEnforcer::start(host.hierarchy(), &runtime).unwrap();
    assert_eq!(left, UndoReport::default());
    enforcer
}

pub fn nice_of(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(") ").next().unwrap();
    fields.split_whitespace().nth(16).unwrap().parse().unwrap()
}

/// Lets the loops run some times, each time when something falls due. The clock is made up: it
/// jumps from one due time to the next.
pub fn tick(enforcer: &mut CgroupEnforcer, times: usize) {
    let mut now = os::now();
    for _ in 0..times {
        let due = enforcer.tick(now).unwrap();
        now = due.map_or(now, |due| due.max(now));
    }
}

/// A cgroup with knobs of its own.
pub fn with_values(host: &mut Host, name: &str) -> CpuGroup {
    let group = host.group(name);
    group.write_weight(50).unwrap();
    let quota = "70ms/100ms".parse().unwrap();
    let old = Bandwidth::of(quota, Some("30ms".parse().unwrap()));
    group.write_cpu_max(&old.into()).unwrap();
    group
}

/// A cgroup with a quota of its own, in one without.
pub fn nested(host: &mut Host) -> (CpuGroup, CpuGroup) {
    let outer = host.group("z");
    outer.enable_children().unwrap();
    let inner = host.group("z/c");
    let quota = "70ms/100ms".parse().unwrap();
    inner
        .write_cpu_max(&Bandwidth::of(quota, None).into())
        .unwrap();
    (outer, inner)
}

pub fn remove_cgroup(group: &CpuGroup) {
    for folder in group.folders() {
        fs::remove_dir(folder).unwrap();
    }
}

/// Runs an ignored test of this folder in a process of its own.
pub fn helper(host: &Host, name: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        &format!("foreign::{name}"),
        "--ignored",
        "--nocapture",
    ]);
    host.confine(&mut command);
    host.spawn(command)
}
