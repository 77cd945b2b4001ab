//! Reaction times of the daemon, and shares of batch work under it.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::knobs::Bandwidth;

use crate::common::{Host, ms, nr_cpus, rate_percent, wait_until};
use crate::measured::{assert_near, assert_within};
use crate::rig::{
    Daemon, PROMISED, SHORT, Sleeper, is_idle, of_cgroup, quota_us, remove_attribute, remove_group,
    rule, set_attribute, shown, wait_for_quota, wait_until_in,
};

fn assert_prompt(what: &str, took: Duration, promised: Duration) {
    let in_ms = |time: Duration| time.as_secs_f64() * 1e3;
    assert_within(&format!("{what}, ms"), in_ms(took), 0.0, in_ms(promised));
}

#[test]
fn a_new_cgroup_is_limited_within_200_ms() {
    let mut host = Host::alone();
    host.group("bystander");
    let pattern = format!("{}/job-*", host.base_path());
    let text = rule("jobs", &of_cgroup(&pattern), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    for number in 0..5 {
        let group = host.base().child(format!("job-{number}"));
        group.create().unwrap();
        let took = wait_for_quota(&daemon, &group, 30_000);
        assert_prompt("a new cgroup is limited after", took, PROMISED);
        remove_group(&group);
    }
    daemon.stop();
}

#[test]
fn a_new_process_is_in_its_group_within_200_ms() {
    let mut host = Host::alone();
    let home = host.group("home");
    let sleeper = Sleeper::new(&format!("plimsoll-late-{}", std::process::id()));
    let matches = format!("executable = \"{}\"", sleeper.path());
    let daemon = Daemon::start(&host, &rule("late", &matches, "class = \"batch\""));
    for _ in 0..5 {
        let running = host.start_in(&home, sleeper.words());
        let took = wait_until_in(&daemon, running.pid(), "late");
        assert_prompt("a new process is in its group after", took, PROMISED);
        running.kill_hard();
    }
    daemon.stop();
}

#[test]
fn an_attribute_is_in_force_within_200_ms() {
    let mut host = Host::alone();
    let group = host.group("tenant");
    let daemon = Daemon::start(&host, "allow-xattr = [\"class\"]\n");
    for _ in 0..3 {
        set_attribute(&group, "class", "batch");
        let took = wait_until("it is a batch group", SHORT, || is_idle(&group));
        assert_prompt("an attribute is in force after", took, PROMISED);
        remove_attribute(&group, "class");
        wait_until("it is as it was", SHORT, || !is_idle(&group));
    }
    daemon.stop();
}

#[test]
fn external_change_is_noticed_within_a_second() {
    let mut host = Host::alone();
    let group = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&group)), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    let seen = || daemon.state().daemon.counters.foreign_changes;
    for (round, quota) in [60, 70, 80].into_iter().enumerate() {
        // At a different phase of the daemon's second each time.
        thread::sleep(ms(300));
        let theirs = Bandwidth::of(format!("{quota}ms/100ms").parse().unwrap(), None);
        let start = Instant::now();
        group.write_cpu_max(&theirs.into()).unwrap();
        wait_until("it is noticed", SHORT, || seen() > round as u64);
        let what = "an external change is noticed after";
        assert_prompt(what, start.elapsed(), Duration::from_secs(1));
    }
    daemon.reload().good();
    daemon.stop();
}

#[test]
fn a_thousand_groups_are_in_force_within_a_second_and_shown_within_50_ms_of_a_cpu_of_4_gips() {
    const GROUPS: usize = 1_000;
    let mut host = Host::alone();
    let many = host.group("many");
    many.enable_children().unwrap();
    let groups: Vec<CpuGroup> = (0..GROUPS).map(|n| many.child(format!("g{n}"))).collect();
    groups.iter().for_each(|group| group.create().unwrap());
    let pattern = format!("{}/many/*", host.base_path());
    let mut daemon = Daemon::ready(&host, "");
    daemon.take_as_before();
    daemon.restart();
    daemon.write(&rule("many", &of_cgroup(&pattern), "class = \"batch\""));
    let start = Instant::now();
    daemon.reload().good();
    let applied = start.elapsed();
    assert!(groups.iter().all(is_idle));
    let start = Instant::now();
    let state = daemon.state();
    let told = start.elapsed();
    assert_eq!(state.groups.len(), GROUPS);
    daemon.stop();
    groups.iter().for_each(remove_group);
    assert_prompt(
        "a thousand groups are in force after",
        applied,
        Duration::from_secs(1),
    );
    // The guest's CPU executes one instruction per nanosecond; the promised 50 ms are for a CPU
    // that executes four.
    assert_prompt("a thousand groups are shown after", told, 4 * ms(50));
}

/// Batch work beside a group with headroom.
fn with_headroom(percent: u32, look: impl FnOnce(&Daemon, &CpuGroup)) {
    let mut host = Host::alone();
    let (main, jobs) = (host.group("main"), host.group("jobs"));
    let burner = host.start_load_in(&jobs, "burn --threads 4 --duration 600s");
    let text = rule(
        "main",
        &of_cgroup(&shown(&main)),
        &format!("headroom = \"{percent}%\""),
    ) + &rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"");
    let daemon = Daemon::start(&host, &text);
    wait_until("batch work is limited", SHORT, || quota_us(&jobs) > 0);
    thread::sleep(ms(400));
    look(&daemon, &jobs);
    daemon.stop();
    burner.kill_hard();
}

/// Usage of a group, in percent of the machine.
fn share(group: &CpuGroup, time: Duration) -> f64 {
    rate_percent(group, time) / nr_cpus() as f64
}

#[test]
fn batch_group_gets_the_rest_of_a_headroom_of_60_percent_within_2_points() {
    with_headroom(60, |_, jobs| {
        let found = share(jobs, ms(1_000));
        assert_near("batch work beside a headroom of 60 %", found, 40.0, 2.0);
    });
}

#[test]
fn batch_work_stays_limited_while_the_daemon_is_stopped_and_has_its_share_again_afterwards() {
    with_headroom(50, |daemon, jobs| {
        let found = share(jobs, ms(1_000));
        assert_near("batch work beside a headroom of 50 %", found, 50.0, 2.0);
        daemon.send(Signal::SIGSTOP);
        let found = share(jobs, ms(2_000));
        assert_within("batch work while the daemon is stopped", found, 0.0, 52.0);
        assert!(is_idle(jobs) && quota_us(jobs) > 0);
        daemon.send(Signal::SIGCONT);
        // SPEC 3: free time is used again within 100 ms.
        thread::sleep(ms(100));
        let found = share(jobs, ms(1_000));
        assert_near("batch work when the daemon goes on", found, 50.0, 2.0);
    });
}
