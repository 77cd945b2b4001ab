//! Nested groups of the daemon, which start and end separately.

use std::thread;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks;

use super::{slots_of_groups, wait_until_scheduled, with_class};
use crate::common::{ms, tasks_below};
use crate::daemon_rig::{Daemon, of_cgroup, rule, shown};
use crate::rig::{are_scheduled, assert_quotas, rig};

#[test]
fn nested_cgroup_belongs_to_a_later_parent_but_not_to_its_successor() {
    let mut rig = rig();
    let outer = rig.host.group("outer");
    outer.enable_children().unwrap();
    let (inner, other) = (rig.host.group("outer/inner"), rig.host.group("other"));
    let loads = [
        rig.fair_burners(&inner, 1, 1),
        rig.fair_burners(&other, 2, 1),
    ];
    let of = |group: &CpuGroup, percent: u32| {
        let knobs = with_class(&format!("quota = \"{percent}ms/100ms\""));
        rule(&format!("of-{percent}"), &of_cgroup(&shown(group)), &knobs)
    };
    let expect = |what: &str, groups: &[&CpuGroup], percents: &[f64]| {
        assert_quotas(what, groups, percents);
    };
    let daemon = Daemon::start(&rig.host, &of(&inner, 40));
    wait_until_scheduled(&daemon, &inner);
    expect("a quota of 40 % alone", &[&inner], &[40.0]);
    daemon.reload_with(&(of(&inner, 40) + &of(&outer, 20)));
    expect("inside a group with 20 %", &[&inner], &[20.0]);
    // The other cgroup takes the path of the removed one.
    daemon.reload_with(&of(&inner, 40));
    assert!(are_scheduled(&tasks_below(&inner)), "no gap is left");
    daemon.reload_with(&(of(&inner, 40) + &of(&other, 10)));
    wait_until_scheduled(&daemon, &other);
    let both = [&inner, &other];
    expect("beside another with 10 %", &both, &[40.0, 10.0]);
    assert_eq!(slots_of_groups(&rig), 2);
    daemon.stop();
    loads.into_iter().for_each(|load| load.kill_hard());
    rig.assert_nothing_left();
}

#[test]
fn task_of_a_nested_group_keeps_its_policy_when_either_group_ends() {
    let mut rig = rig();
    let outer = rig.host.group("outer");
    outer.enable_children().unwrap();
    let inner = rig.host.group("outer/inner");
    let words = ["/usr/bin/chrt", "-b", "0", "sleep", "600"];
    let sleeper = rig.host.start_in(&inner, words);
    let of = |group: &CpuGroup| {
        let name = format!("of{}", shown(group).replace('/', "-"));
        rule(&name, &of_cgroup(&shown(group)), &with_class(""))
    };
    for stays in [&inner, &outer] {
        let daemon = Daemon::start(&rig.host, &(of(&inner) + &of(&outer)));
        wait_until_scheduled(&daemon, &inner);
        daemon.reload_with(&of(stays));
        wait_until_scheduled(&daemon, &inner);
        // A wrong identification would have happened by now.
        thread::sleep(ms(500));
        daemon.stop();
        let policy = tasks::policy_number(sleeper.pid());
        assert_eq!(policy, Some(libc::SCHED_BATCH), "{}", shown(stays));
    }
    sleeper.kill_hard();
    rig.assert_nothing_left();
}
