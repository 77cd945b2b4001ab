//! Attributes of cgroups, and the precedence of the origins of knobs.

use std::time::{Duration, Instant};

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_daemon::control::protocol::{Answer, Request};
use plimsoll_daemon::state::Origin;

use crate::common::{Host, bandwidth_us, wait_until};
use crate::rig::{
    AttributesTurn, Daemon, SHORT, is_idle, of_cgroup, quota_us, remove_attribute, remove_group,
    rule, set_attribute, shown, wait_for_quota,
};

fn refused(daemon: &Daemon) -> u64 {
    daemon.state().daemon.counters.attributes_refused
}

fn claim(group: &CpuGroup, knobs: &str) -> String {
    rule("claimed", &of_cgroup(&shown(group)), knobs)
}

#[test]
fn command_line_overrides_attributes_which_override_the_file() {
    let mut host = Host::shared();
    let _turn = AttributesTurn::take();
    let group = host.group("tenant");
    let name = shown(&group);
    let text = "allow-xattr = [\"quota\"]\n".to_owned() + &claim(&group, "quota = \"60ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    let origin = || daemon.group(&name).unwrap().origin;
    assert_eq!((quota_us(&group), origin()), (60_000, Origin::File));
    set_attribute(&group, "quota", "50ms/100ms");
    wait_for_quota(&daemon, &group, 50_000);
    assert_eq!(origin(), Origin::Attributes);
    host.run(["set", &name, "--quota", "40ms/100ms"]).good();
    assert_eq!((quota_us(&group), origin()), (40_000, Origin::CommandLine));
    // A knob of lower precedence has no effect.
    set_attribute(&group, "quota", "70ms/100ms");
    daemon.reload_with(
        &("allow-xattr = [\"quota\"]\n".to_owned() + &claim(&group, "quota = \"80ms/100ms\"")),
    );
    assert_eq!(quota_us(&group), 40_000);
    host.run(["set", &name, "--reset"]).good();
    wait_for_quota(&daemon, &group, 70_000);
    remove_attribute(&group, "quota");
    wait_for_quota(&daemon, &group, 80_000);
    assert_eq!(origin(), Origin::File);
    daemon.stop();
}

#[test]
fn attribute_is_in_force_until_it_is_removed() {
    let mut host = Host::shared();
    let _turn = AttributesTurn::take();
    let group = host.group("tenant");
    // No group of the file matches it; it has only attributes.
    let daemon = Daemon::start(&host, "allow-xattr = [\"class\"]\n");
    assert!(daemon.names().is_empty());
    for _ in 0..3 {
        set_attribute(&group, "class", "batch");
        wait_until("it is a batch group", SHORT, || is_idle(&group));
        remove_attribute(&group, "class");
        wait_until("it is as it was", SHORT, || !is_idle(&group));
    }
    assert!(daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn attribute_of_a_forbidden_knob_is_ignored_and_counted() {
    let mut host = Host::shared();
    let _turn = AttributesTurn::take();
    let group = host.group("tenant");
    let text = "allow-xattr = [\"class\"]\n".to_owned() + &claim(&group, "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    let before = refused(&daemon);
    set_attribute(&group, "quota", "90ms/100ms");
    wait_until("it is counted", SHORT, || refused(&daemon) > before);
    daemon.wait_for_log("user.plimsoll.quota: `90ms/100ms`");
    assert_eq!(quota_us(&group), 30_000);
    // It applies once the file permits it.
    let allowed = text.replace("[\"class\"]", "[\"class\", \"quota\"]");
    daemon.reload_with(&allowed);
    wait_for_quota(&daemon, &group, 90_000);
    daemon.reload_with(&text);
    wait_for_quota(&daemon, &group, 30_000);
    remove_attribute(&group, "quota");
    daemon.stop();
}

#[test]
fn bad_attribute_is_ignored_logged_and_counted_without_effect_on_others() {
    let mut host = Host::shared();
    let _turn = AttributesTurn::take();
    let group = host.group("tenant");
    let daemon = Daemon::start(&host, "allow-xattr = [\"class\", \"nice\", \"quota\"]\n");
    let mut seen = refused(&daemon);
    set_attribute(&group, "class", "batch");
    wait_until("it is a batch group", SHORT, || is_idle(&group));
    for (knob, value) in [
        ("quota", "much"),
        ("nice", "99"),
        ("quota", ""),
        ("colour", "blue"),
        ("quota", "\u{1b}[2J"),
        ("quota", &"9".repeat(2_000)),
    ] {
        set_attribute(&group, knob, value);
        wait_until("it is counted", SHORT, || refused(&daemon) > seen);
        seen = refused(&daemon);
        assert!(is_idle(&group), "{knob}={value}");
        assert_eq!(quota_us(&group), -1);
        remove_attribute(&group, knob);
    }
    let log = daemon.log();
    assert!(log.contains("user.plimsoll.quota: `much`"), "{log}");
    assert!(log.contains("user.plimsoll.nice: `99`"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
    remove_attribute(&group, "class");
    daemon.stop();
}

#[test]
fn attribute_in_conflict_with_the_file_leaves_the_file_in_force() {
    let mut host = Host::shared();
    let _turn = AttributesTurn::take();
    let (jobs, web) = (host.group("jobs"), host.group("web"));
    let text = "allow-xattr = [\"weight\", \"burst\", \"cap\", \"per-task\"]\n".to_owned()
        + &rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"")
        + &rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    // Each is valid and permitted, but an idle cgroup has no weight, and a cgroup has one quota.
    let set_all = || {
        set_attribute(&jobs, "weight", "200");
        set_attribute(&web, "weight", "300");
        set_attribute(&web, "burst", "80ms");
        set_attribute(&web, "cap", "90%");
        set_attribute(&web, "per-task", "true");
    };
    let expect = |daemon: &Daemon| {
        assert!(is_idle(&jobs), "{}", daemon.log());
        assert_eq!(bandwidth_us(&web), (30_000, 100_000, 0), "{}", daemon.log());
        assert_eq!(web.read_weight().unwrap(), 300);
        for what in [
            "jobs: user.plimsoll.weight: `200` cannot",
            "web: user.plimsoll.burst: `80ms`",
        ] {
            assert!(daemon.log().contains(what), "{}", daemon.log());
        }
        assert_eq!(daemon.group(&shown(&jobs)).unwrap().problem, None);
        assert_eq!(daemon.group(&shown(&web)).unwrap().problem, None);
    };
    set_all();
    let mut daemon = Daemon::start(&host, &text);
    expect(&daemon);
    assert!(refused(&daemon) >= 3);
    daemon.reload().good();
    expect(&daemon);
    // Nor does it undo a `set`; it applies again after the reset.
    host.run(["set", &shown(&web), "--class", "batch"]).good();
    assert!(is_idle(&web));
    host.run(["set", &shown(&web), "--reset"]).good();
    assert!(!is_idle(&web));
    expect(&daemon);
    daemon.end();
    for (group, knobs) in [
        (&jobs, &["weight"][..]),
        (&web, &["weight", "burst", "cap", "per-task"]),
    ] {
        knobs.iter().for_each(|knob| remove_attribute(group, knob));
    }
    daemon.assert_as_before();
}

#[test]
fn attributes_of_a_new_cgroup_apply_and_are_dropped_with_it() {
    let mut host = Host::shared();
    let _turn = AttributesTurn::take();
    host.group("bystander");
    let daemon = Daemon::start(&host, "allow-xattr = [\"class\"]\n");
    for _ in 0..10 {
        let group = host.base().child("short");
        group.create().unwrap();
        set_attribute(&group, "class", "batch");
        wait_until("it is a batch group", SHORT, || is_idle(&group));
        remove_group(&group);
    }
    wait_until("it is forgotten", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

/// How often the daemon has read the attributes of any cgroup.
fn nr_reads(daemon: &Daemon) -> u64 {
    let Answer::Text(text) = daemon.ask(&Request::Debug) else {
        panic!("no text");
    };
    let (_, rest) = text.split_once("(read ").unwrap();
    rest.split_once(" times)").unwrap().0.parse().unwrap()
}

#[test]
fn attributes_written_in_a_loop_are_read_ten_times_a_second_and_the_last_applies() {
    const LOOP: Duration = Duration::from_secs(3);
    let mut host = Host::shared();
    let _turn = AttributesTurn::take();
    let group = host.group("tenant");
    let daemon = Daemon::start(&host, "allow-xattr = [\"quota\"]\n");
    let cpu_usec = || daemon.state().daemon.cpu_usec;
    let (reads, cpu_before_usec, start) = (nr_reads(&daemon), cpu_usec(), Instant::now());
    let mut nr_writes: u64 = 0;
    while start.elapsed() < LOOP {
        // The same again is a write, too.
        set_attribute(
            &group,
            "quota",
            ["30ms/100ms", "31ms/100ms"][nr_writes as usize / 64 % 2],
        );
        nr_writes += 1;
    }
    let took = start.elapsed();
    let reads = nr_reads(&daemon) - reads;
    let cpu_usec = cpu_usec() - cpu_before_usec;
    let busy = cpu_usec as f64 / took.as_micros() as f64;
    println!(
        "{nr_writes} writes in {took:.1?}: read {reads} times, {:.1} % CPU",
        100.0 * busy
    );
    set_attribute(&group, "quota", "50ms/100ms");
    wait_for_quota(&daemon, &group, 50_000);
    // Ten times a second, and a margin for other cgroups on the host.
    assert!(reads <= 20 * took.as_secs() + 100, "{reads} of {nr_writes}");
    remove_attribute(&group, "quota");
    daemon.stop();
}
