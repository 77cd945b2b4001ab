//! Values that the kernel refuses, permanently or for now.

use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::knobs::Bandwidth;
use plimsoll_engine::runtime::RuntimeFolder;

use super::rig::{nested, policy, start, with_values};
use crate::common::{Host, assert_same, bandwidth_us};

#[test]
fn nested_limits_are_accepted_in_any_order() {
    let mut host = Host::new();
    let outer = host.group("outer");
    outer.enable_children().unwrap();
    let inner = outer.child("inner");
    inner.create().unwrap();
    let narrow = Bandwidth::of("10ms/100ms".parse().unwrap(), None);
    outer.write_cpu_max(&narrow.into()).unwrap();
    let before = host.snapshot();
    for order in [[&outer, &inner], [&inner, &outer]] {
        let mut enforcer = start(&host);
        let policies = order.map(|group| {
            let json = r#"{"quota": "50ms/100ms"}"#;
            (policy(group, json), String::new())
        });
        for result in enforcer.add_all(&policies) {
            result.unwrap();
        }
        assert_eq!(bandwidth_us(&inner).0, 50_000);
        // Version 1 accepts the old value of the outer cgroup only after that of the inner one.
        let report = enforcer.remove(&policies[0].0.name).unwrap();
        assert_eq!(report.problems, <[String; 0]>::default());
        if host.is_v2() || order[0].path() == inner.path() {
            assert_ne!(bandwidth_us(order[0]).0, 50_000);
        }
        let report = enforcer.remove(&policies[1].0.name).unwrap();
        assert_eq!(report.problems, <[String; 0]>::default());
        assert_eq!(bandwidth_us(&outer).0, 10_000);
        for result in enforcer.add_all(&policies) {
            result.unwrap();
        }
        assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
        assert_same(&before, &host.snapshot());
    }
}

#[test]
fn value_that_cannot_be_restored_yet_is_restored_later() {
    let mut host = Host::new();
    let (outer, inner) = nested(&mut host);
    let before = host.snapshot();
    let mut enforcer = start(&host);
    let quota = |ms: u32| format!(r#"{{"quota": "{ms}ms/100ms"}}"#);
    let outers = policy(&outer, &quota(20));
    let inners = policy(&inner, &quota(15));
    enforcer.add(&inners, "").unwrap();
    enforcer.add(&outers, "").unwrap();
    enforcer.remove(&inners.name).unwrap();
    // Version 1 refuses a quota above that of the parent, so the first value waits for the
    // parent's.
    for ms in [10, 5, 7] {
        let inners = policy(&inner, &quota(ms));
        enforcer.add(&inners, "").unwrap();
        assert_eq!(
            enforcer.remove(&inners.name).unwrap().problems,
            <[&str; 0]>::default()
        );
    }
    let inners = policy(&inner, &quota(3));
    enforcer.add(&inners, "").unwrap();
    enforcer.remove(&outers.name).unwrap();
    assert_eq!(bandwidth_us(&inner).0, 3_000);
    enforcer.remove(&inners.name).unwrap();
    drop(enforcer);
    assert_same(&before, &host.snapshot());
}

#[test]
fn restore_refused_at_the_end_is_retried_by_the_next_start() {
    let mut host = Host::new();
    let (outer, inner) = nested(&mut host);
    let before = host.snapshot();
    let mut enforcer = start(&host);
    enforcer
        .add(&policy(&inner, r#"{"quota": "10ms/100ms"}"#), "")
        .unwrap();
    // A foreign cgroup.
    let quota = "20ms/100ms".parse().unwrap();
    let none = outer.read_cpu_max().unwrap();
    outer
        .write_cpu_max(&Bandwidth::of(quota, None).into())
        .unwrap();
    let report = enforcer.undo();
    drop(enforcer);
    outer.write_cpu_max(&none).unwrap();
    // Version 2 takes a quota above that of the parent.
    let nr_refused = usize::from(!host.is_v2());
    assert_eq!(report.problems.len(), nr_refused, "{report:?}");
    if nr_refused > 0 {
        let runtime = RuntimeFolder::at(host.runtime());
        let (_, left) = CgroupEnforcer::start(host.hierarchy(), &runtime).unwrap();
        assert_eq!(left.problems, <[&str; 0]>::default());
    }
    assert_same(&before, &host.snapshot());
}

#[test]
fn refused_change_leaves_nothing() {
    let mut host = Host::new();
    let group = with_values(&mut host, "g");
    let before = host.snapshot();
    let mut enforcer = start(&host);
    let taken = host.snapshot();
    // A burst above its quota, after a valid weight.
    let refused = policy(
        &group,
        r#"{"weight": "70", "quota": "20ms/100ms", "burst": "50ms"}"#,
    );
    assert!(enforcer.add(&refused, "").is_err());
    assert_same(&taken, &host.snapshot());
    for json in [
        r#"{"cap": "5%", "per-task": true}"#,
        r#"{"cap": "5%", "quota": "1cpus"}"#,
        r#"{"headroom": "5%", "quota": "1cpus"}"#,
        r#"{"class": "batch", "weight": "70"}"#,
    ] {
        let error = enforcer.add(&policy(&group, json), "").unwrap_err();
        assert!(error.to_string().contains("plimsoll run"), "{error}");
    }
    let good = policy(&group, r#"{"weight": "70"}"#);
    let twice = [(good.clone(), String::new()), (good.clone(), String::new())];
    let results = enforcer.add_all(&twice);
    assert!(results[0].is_ok() && results[1].is_err(), "{results:?}");
    assert!(enforcer.add(&good, "").is_err());
    // A refused change has no effect.
    assert!(enforcer.change(&good.name, &refused.knobs).is_err());
    assert_eq!(enforcer.knobs(&good.name).unwrap(), &good.knobs);
    assert_eq!(group.read_weight().unwrap(), 70);
    assert_eq!(bandwidth_us(&group), (70_000, 100_000, 30_000));
    assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
    assert_same(&before, &host.snapshot());
}
