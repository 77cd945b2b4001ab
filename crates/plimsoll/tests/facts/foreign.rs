//! Foreign cgroups with knobs on this kernel. What happens between any two writes is shown by the
//! random steps of the owner on the kernel in memory.

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;

use crate::common::{Host, assert_same};
use crate::rig::shown;

/// The knobs that a test asks for on a foreign cgroup.
pub fn policy(group: &CpuGroup, json: &str) -> GroupPolicy {
    GroupPolicy {
        name: shown(group),
        selector: Selector::Cgroup(group.path().to_owned()),
        subject: String::new(),
        knobs: serde_json::from_str(json).unwrap(),
        is_scheduled: false,
    }
}

/// The engine without a daemon; nothing was left to it.
pub fn start(host: &Host) -> CgroupEnforcer {
    let runtime = RuntimeFolder::at(host.runtime());
    let (enforcer, left) = CgroupEnforcer::adopting(host.hierarchy(), &runtime).unwrap();
    assert_eq!(left, UndoReport::default());
    enforcer
}

mod v2_only {
    use super::*;

    #[test]
    fn a_cgroup_without_the_controller_gets_it_and_loses_it_at_the_end() {
        let mut host = Host::new();
        assert!(host.is_v2(), "cgroup v1 has no controllers to give");
        let outer = host.group("outer");
        let middle = outer.child("middle");
        let inner = middle.child("inner");
        for group in [&middle, &inner] {
            group.create().unwrap();
        }
        assert!(!inner.cpu_file("cpu.weight").exists());
        let before = host.snapshot();
        let mut enforcer = start(&host);
        let weighed = policy(&inner, r#"{"weight": "70"}"#);
        enforcer.put(&weighed).unwrap();
        assert_eq!(inner.read_weight().unwrap(), 70);
        enforcer.remove(&weighed.name).unwrap();
        assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
        assert!(!inner.cpu_file("cpu.weight").exists());
        assert_same(&before, &host.snapshot());
    }
}
