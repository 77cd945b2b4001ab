//! External changes of kernel files.

use std::process::Command;
use std::sync::Arc;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::runtime::RuntimeFolder;

use super::rig::{knobs, name_of, policy, start, tick, with_values};
use crate::common::{Host, assert_same};

#[test]
fn external_change_is_reported_once_respected_and_overwritten_on_request() {
    let mut host = Host::new();
    let group = with_values(&mut host, "g");
    let name = name_of(&group);
    let before = host.snapshot();
    let mut enforcer = start(&host);
    let json = r#"{"weight": "200", "quota": "20ms/100ms"}"#;
    enforcer.add(&policy(&group, json), "").unwrap();
    assert_eq!(enforcer.audit(&name).unwrap(), <[String; 0]>::default());

    group.write_weight(77).unwrap();
    let told = enforcer.audit(&name).unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains(&name) && told[0].contains("was changed to"),
        "{told:?}"
    );
    assert_eq!(enforcer.audit(&name).unwrap(), <[String; 0]>::default());
    assert_eq!(enforcer.sample(&name).unwrap().foreign_changes, told);
    tick(&mut enforcer, 5);
    assert_eq!(group.read_weight().unwrap(), 77);

    enforcer.reapply(&name).unwrap();
    assert_eq!(group.read_weight().unwrap(), 200);
    assert!(enforcer.sample(&name).unwrap().foreign_changes.is_empty());
    assert!(enforcer.audit(&name).unwrap().is_empty());

    // The external value stays at the end, and is reported.
    group.write_weight(88).unwrap();
    let report = enforcer.remove(&name).unwrap();
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(report.problems[0].contains("not ours"), "{report:?}");
    assert_eq!(group.read_weight().unwrap(), 88);
    assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
    group.write_weight(50).unwrap();
    assert_same(&before, &host.snapshot());
}

#[test]
fn external_change_of_an_own_cgroup_is_found() {
    let host = Host::new();
    let group = host.normal("own");
    let runtime = RuntimeFolder::at(host.runtime());
    // Its groups are at the top: it must not see this test's base by name.
    let mut command = Command::new(std::env::current_exe().unwrap());
    let helper = "foreign::external::helper_that_keeps_a_group_of_its_own";
    command.args(["--exact", helper, "--ignored", "--nocapture"]);
    host.confine(&mut command);
    let finished = host.spawn(command).finish();
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(finished.stdout.contains("1 passed"), "{finished:?}");
    assert!(!group.exists() && runtime.path().is_dir());
    host.assert_clean();
}

/// Not a test of its own.
#[test]
#[ignore = "run by external_change_of_an_own_cgroup_is_found"]
fn helper_that_keeps_a_group_of_its_own() {
    let hierarchy = Arc::new(Hierarchy::find().unwrap());
    let runtime = RuntimeFolder::of_this_user();
    let (mut enforcer, _) = CgroupEnforcer::start(&hierarchy, &runtime).unwrap();
    let own = GroupPolicy {
        name: "own".into(),
        selector: Selector::Process(std::process::id().cast_signed()),
        knobs: knobs(r#"{"weight": "70", "quota": "1cpus"}"#),
        scheduler: None,
    };
    enforcer.add(&own, "").unwrap();
    let group = enforcer.cgroup("own").unwrap();
    assert!(enforcer.audit("own").unwrap().is_empty());
    group.write_weight(99).unwrap();
    assert_eq!(enforcer.audit("own").unwrap().len(), 1);
    assert!(enforcer.audit("own").unwrap().is_empty());
    enforcer.reapply("own").unwrap();
    assert_eq!(group.read_weight().unwrap(), 70);
    assert!(enforcer.audit("own").unwrap().is_empty());
    enforcer.undo();
}
