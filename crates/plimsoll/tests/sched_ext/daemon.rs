//! The daemon with the BPF scheduler: foreign cgroups that start and end.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::enforcer::{EnforcerKind, SchedulerSample};
use plimsoll_engine::tasks;
use serde_json::Value;

use crate::common::{ms, nr_cpus, tasks_below, text, wait_until};
use crate::daemon_rig::{
    Daemon, PROMISED, SHORT, Sleeper, is_idle, kill_all, members, of_cgroup, quota_us,
    remove_group, rule, shown, wait_until_in,
};
use crate::rig::{
    EagerHugePages, MEASURED, Rig, all_cpus, are_fair, are_scheduled, assert_quotas, assert_within,
    describe, rates_of, rig,
};

mod nested;
mod reaction;

const STATE: &str = "/sys/kernel/sched_ext/state";

/// A batch group of the file for all cgroups of the base that are called so.
fn jobs(rig: &Rig, knobs: &str) -> String {
    let pattern = format!("{}/job-*", rig.host.base_path());
    rule("jobs", &of_cgroup(&pattern), &with_class(knobs))
}

fn with_class(knobs: &str) -> String {
    let comma = if knobs.is_empty() { "" } else { ", " };
    format!("class = \"batch\"{comma}{knobs}")
}

fn main_with(group: &CpuGroup, headroom: &str) -> String {
    let knobs = format!("headroom = \"{headroom}\"");
    rule("main", &of_cgroup(&shown(group)), &knobs)
}

fn scheduler(daemon: &Daemon) -> SchedulerSample {
    daemon.state().scheduler.expect("no scheduler")
}

/// The slots that are in use.
fn slots(rig: &Rig) -> Vec<Value> {
    rig.debug()["groups"].as_array().unwrap().clone()
}

fn slots_of_groups(rig: &Rig) -> usize {
    let of_groups = |group: &&Value| group["slot"] != 0;
    slots(rig).iter().filter(of_groups).count()
}

/// Waits until all tasks of a cgroup are scheduled.
fn wait_until_scheduled(daemon: &Daemon, group: &CpuGroup) {
    let start = Instant::now();
    loop {
        let tids = tasks_below(group);
        if !tids.is_empty() && are_scheduled(&tids) {
            return;
        }
        let late = start.elapsed() > SHORT * 8;
        assert!(!late, "{:?}: {}", describe(&tids), daemon.log());
        thread::sleep(ms(5));
    }
}

fn remove_all(groups: &[CpuGroup]) {
    groups.iter().for_each(remove_group);
}

/// Panics if the daemon's scheduler was reloaded or had an error.
fn assert_never_ejected(daemon: &Daemon) {
    let scheduler = scheduler(daemon);
    assert_eq!(scheduler.state, "running", "{scheduler:?}");
    assert_eq!(scheduler.nr_reloads, 0, "{scheduler:?}");
    assert_eq!(scheduler.last_exit, None, "{scheduler:?}");
}

#[test]
fn batch_cgroups_are_scheduled_and_normal_ones_are_not() {
    let mut rig = rig();
    let (early, web) = (rig.host.group("job-early"), rig.host.group("web"));
    let before = rig.fair_burners(&early, 1, 1);
    let beside = rig.host.start_in(&web, ["sleep", "600"]);
    let text_of = jobs(&rig, "") + &rule("web", &of_cgroup(&shown(&web)), "nice = 3");
    let daemon = Daemon::start(&rig.host, &text_of);
    assert_eq!(text(Path::new(STATE)).trim(), "enabled");
    wait_until_scheduled(&daemon, &early);
    let late = rig.host.base().child("job-late");
    late.create().unwrap();
    wait_until("it is in force", SHORT, || is_idle(&late));
    let after = rig.fair_burners(&late, 2, 1);
    wait_until_scheduled(&daemon, &late);
    assert!(are_fair(&tasks_below(&web)), "a normal group is touched");
    // Beside it, a command of root's joins the same scheduler.
    let own = rig.batch_burners("own", "", 1, 1);
    wait_until_scheduled(&daemon, &rig.host.batch("own"));
    assert_eq!(slots_of_groups(&rig), 3);
    let scheduler = scheduler(&daemon);
    assert_eq!(i64::from(scheduler.owner_pid), i64::from(daemon.pid()));
    assert_eq!(daemon.state().daemon.enforcer, EnforcerKind::SchedExt);
    let json = rig
        .host
        .run(["show", &shown(&late), "--json"])
        .good()
        .json();
    println!("{json}");
    let run_usec = || {
        let group = daemon.group(&shown(&late)).unwrap();
        let statistics = group.statistics.unwrap();
        assert_eq!(statistics.scheduler.unwrap().state, "running");
        statistics.batch.unwrap().total.run_usec
    };
    wait_until("its time is counted", SHORT, || run_usec() > 100_000);
    assert_never_ejected(&daemon);
    rig.end("own", own);
    after.kill_hard();
    wait_until("it can be removed", SHORT, || tasks_below(&late).is_empty());
    remove_group(&late);
    wait_until("it is forgotten", SHORT, || {
        daemon.group(&shown(&late)).is_none() && slots_of_groups(&rig) == 1
    });
    daemon.stop();
    assert!(are_fair(&tasks_below(&early)));
    before.kill_hard();
    beside.kill_hard();
    rig.assert_nothing_left();
}

#[test]
fn quota_with_burst_above_it_holds_and_a_reload_changes_it() {
    let mut rig = rig();
    let job = rig.host.group("job-1");
    let load = rig.fair_burners(&job, 1, 1);
    let quota = |ms: u32| {
        let knobs = format!("quota = \"{ms}ms/100ms\", burst = \"250ms\"");
        jobs(&rig, &knobs)
    };
    let daemon = Daemon::start(&rig.host, &quota(20));
    wait_until_scheduled(&daemon, &job);
    assert_eq!(quota_us(&job), -1, "the scheduler does it");
    let expect = |percent: f64| assert_quotas("a quota of the daemon's", &[&job], &[percent]);
    expect(20.0);
    daemon.reload_with(&quota(40));
    expect(40.0);
    let group = daemon.group(&shown(&job)).unwrap();
    assert!(group.problem.is_none(), "{group:?}");
    assert!(group.statistics.unwrap().quota.unwrap().nr_periods > 10);
    // Limits of the stock kernel are reported when it takes over.
    daemon.write(&format!("enforcer = \"cgroup\"\n{}", quota(40)));
    let refused = daemon.reload();
    assert_ne!(refused.code(), 0);
    assert!(refused.stderr.contains("burst"), "{refused:?}");
    wait_until_scheduled(&daemon, &job);
    expect(40.0);
    daemon.reload_with("");
    wait_until("it is an ordinary cgroup", SHORT, || {
        are_fair(&tasks_below(&job)) && !is_idle(&job)
    });
    assert_eq!(slots_of_groups(&rig), 0);
    daemon.stop();
    load.kill_hard();
    rig.assert_nothing_left();
}

#[test]
fn headroom_is_kept_as_a_share_and_as_cpus() {
    let mut rig = rig();
    let cpus = nr_cpus();
    let (main, job) = (rig.host.group("main"), rig.host.group("job-1"));
    let load = rig.fair_burners(&job, all_cpus(), cpus);
    let text_of = |headroom: &str| main_with(&main, headroom) + &jobs(&rig, "");
    let daemon = Daemon::start(&rig.host, &text_of("30%"));
    wait_until_scheduled(&daemon, &job);
    let all = 100.0 * cpus as f64;
    // Within 2 points of the machine, and never starved below the tolerance.
    let expect = |what: &str, percent: f64| {
        let what = format!("{what}: batch work, percent of the machine");
        let used = rates_of(&[&job], MEASURED)[0] / cpus as f64;
        let lawful = percent / cpus as f64;
        let least = (lawful - 2.0).max(0.9 / cpus as f64);
        assert_within(&what, used, least..=lawful + 2.0);
    };
    expect("a headroom of 30 %", 0.7 * all);
    assert_eq!(daemon.state().headroom.unwrap().headroom_ppm, 300_000);
    daemon.reload_with(&text_of("1cpus"));
    expect("a headroom of 1cpus", all - 100.0);
    let sample = daemon.state().headroom.unwrap();
    assert_eq!(sample.in_force.as_deref(), Some("1cpus"), "{sample:?}");
    let busy = rig.fair_burners(&main, 1, 1);
    let left = (all - 200.0).max(1.0);
    expect("1cpus beside a CPU that is taken", left);
    busy.kill_hard();
    // The headroom ends with its group.
    wait_until("it is empty", SHORT, || tasks_below(&main).is_empty());
    remove_group(&main);
    expect("without a service group", all);
    main.create().unwrap();
    daemon.stop();
    load.kill_hard();
    rig.assert_nothing_left();
}

#[test]
fn slots_of_removed_cgroups_are_reused() {
    let mut rig = rig();
    rig.host.group("web");
    let daemon = Daemon::start(&rig.host, &jobs(&rig, ""));
    let job = rig.host.base().child("job-1");
    for _ in 0..150 {
        job.create().unwrap();
        let start = Instant::now();
        while !is_idle(&job) {
            assert!(start.elapsed() < SHORT * 8, "{}", daemon.log());
            thread::sleep(ms(1));
        }
        remove_group(&job);
    }
    wait_until("all are forgotten", SHORT, || {
        daemon.names().is_empty() && slots_of_groups(&rig) == 0
    });
    assert_never_ejected(&daemon);
    daemon.stop();
    rig.assert_nothing_left();
}

#[test]
fn batch_cgroups_beyond_the_slots_are_idle_and_reported() {
    const PLACES: usize = 1023;
    const MORE: usize = 12;
    let mut rig = rig();
    rig.host.group("web");
    let group = |number: usize| rig.host.base().child(format!("job-{number:04}"));
    let all: Vec<CpuGroup> = (0..PLACES + MORE).map(group).collect();
    for group in &all {
        group.create().unwrap();
    }
    let start = Instant::now();
    let mut daemon = Daemon::start(&rig.host, &jobs(&rig, "quota = \"50ms/100ms\""));
    wait_until("all are in force", SHORT * 4, || {
        is_idle(&all[PLACES + MORE - 1])
    });
    println!("{} groups in force after {:?}", all.len(), start.elapsed());
    let waiting = || {
        let start = Instant::now();
        let groups = daemon.state().groups;
        println!("asked for {} groups: {:?}", groups.len(), start.elapsed());
        let waits = groups.into_iter().filter(|group| group.problem.is_some());
        waits.collect::<Vec<_>>()
    };
    let seen = waiting();
    assert_eq!(seen.len(), MORE, "{}", daemon.log());
    let problem = seen[0].problem.clone().unwrap();
    println!("{problem}");
    assert!(
        problem.contains("1023") && problem.contains("idle mark"),
        "{problem}"
    );
    assert!(all.iter().all(is_idle));
    // Tasks of a waiting cgroup are ordinary ones, with `cpu.idle`.
    let last = all.last().unwrap();
    let load = rig.fair_burners(last, 1, 1);
    thread::sleep(ms(500));
    assert!(are_fair(&tasks_below(last)));
    // It gets a slot.
    for group in &all[..MORE] {
        remove_group(group);
    }
    wait_until_scheduled(&daemon, last);
    wait_until("nobody waits", SHORT, || waiting().is_empty());
    assert_quotas("its quota of 50 %", &[last], &[50.0]);
    daemon.end();
    assert!(!is_idle(last) && are_fair(&tasks_below(last)));
    load.kill_hard();
    remove_all(&all[MORE..]);
    rig.assert_nothing_left();
}

#[test]
fn ejected_scheduler_is_loaded_again_with_all_groups() {
    let mut rig = rig();
    let (main, one, two) = (
        rig.host.group("main"),
        rig.host.group("job-1"),
        rig.host.group("job-2"),
    );
    let loads = [rig.fair_burners(&one, 1, 1), rig.fair_burners(&two, 2, 1)];
    let text_of = main_with(&main, "10%") + &jobs(&rig, "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&rig.host, &text_of);
    for group in [&one, &two] {
        wait_until_scheduled(&daemon, group);
    }
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    wait_until("it is loaded again", SHORT, || {
        let scheduler = scheduler(&daemon);
        scheduler.state == "running" && scheduler.nr_reloads == 1
    });
    daemon.wait_for_log("thrown out");
    wait_until("all are its again", SHORT, || slots_of_groups(&rig) == 2);
    for group in [&one, &two] {
        wait_until_scheduled(&daemon, group);
    }
    assert_quotas("quotas of 30 % afterwards", &[&one, &two], &[30.0; 2]);
    let state = daemon.state();
    assert_eq!(state.headroom.unwrap().headroom_ppm, 100_000);
    assert!(state.scheduler.unwrap().last_exit.is_some());
    assert!(state.groups.iter().all(|group| group.problem.is_none()));
    daemon.stop();
    loads.into_iter().for_each(|load| load.kill_hard());
    rig.assert_nothing_left();
}

#[test]
fn limits_hold_after_a_kill_of_the_daemon_and_under_the_next() {
    let mut rig = rig();
    let job = rig.host.group("job-1");
    let load = rig.fair_burners(&job, 1, 1);
    let quota = "quota = \"30ms/100ms\"";
    let mut daemon = Daemon::start(&rig.host, &jobs(&rig, quota));
    wait_until_scheduled(&daemon, &job);
    let expect = |when: &str| assert_quotas(when, &[&job], &[30.0]);
    for _ in 0..2 {
        daemon.kill_hard();
        assert_eq!(text(Path::new(STATE)).trim(), "enabled");
        expect("without its daemon");
        daemon.restart();
        wait_until_scheduled(&daemon, &job);
        expect("under the next");
        assert_eq!(slots_of_groups(&rig), 1);
        assert_never_ejected(&daemon);
    }
    // Without a next one, `restore` undoes everything.
    daemon.kill_hard();
    rig.host.run(["restore"]).good();
    assert!(are_fair(&tasks_below(&job)) && !is_idle(&job));
    daemon.restart();
    wait_until_scheduled(&daemon, &job);
    daemon.stop();
    assert!(are_fair(&tasks_below(&job)) && !is_idle(&job));
    load.kill_hard();
    rig.assert_nothing_left();
}

#[test]
fn a_reload_goes_to_the_stock_kernel_and_back() {
    let mut rig = rig();
    let job = rig.host.group("job-1");
    let load = rig.fair_burners(&job, 1, 1);
    let text_of = |enforcer: &str| {
        let jobs = jobs(&rig, "quota = \"30ms/100ms\"");
        format!("enforcer = \"{enforcer}\"\n{jobs}")
    };
    let daemon = Daemon::start(&rig.host, &text_of("auto"));
    for _ in 0..2 {
        wait_until_scheduled(&daemon, &job);
        assert_eq!(quota_us(&job), -1);
        daemon.reload_with(&text_of("cgroup"));
        assert_eq!(daemon.state().daemon.enforcer, EnforcerKind::Cgroup);
        assert!(are_fair(&tasks_below(&job)) && is_idle(&job));
        assert_eq!(quota_us(&job), 30_000);
        assert_eq!(text(Path::new(STATE)).trim(), "disabled");
        daemon.reload_with(&text_of("sched-ext"));
        assert_eq!(daemon.state().daemon.enforcer, EnforcerKind::SchedExt);
    }
    wait_until_scheduled(&daemon, &job);
    assert_quotas("a quota of 30 % in the end", &[&job], &[30.0]);
    daemon.stop();
    load.kill_hard();
    rig.assert_nothing_left();
}

#[test]
fn mode_all_schedules_normal_groups() {
    let mut rig = rig();
    let _eager = EagerHugePages::start();
    let (job, web) = (rig.host.group("job-1"), rig.host.group("web"));
    let loads = [rig.fair_burners(&job, 1, 1), rig.fair_burners(&web, 2, 1)];
    let burst = "quota = \"20ms/100ms\", burst = \"100ms\"";
    let text_of = |mode: &str, web_knobs: &str| {
        let web = rule("web", &of_cgroup(&shown(&web)), web_knobs);
        format!(
            "mode = \"{mode}\"\n{}{web}",
            jobs(&rig, "quota = \"30ms/100ms\"")
        )
    };
    let daemon = Daemon::start(&rig.host, &text_of("all", burst));
    assert_eq!(scheduler(&daemon).mode, "all");
    assert_quotas("quotas of 30 and 20 %", &[&job, &web], &[30.0, 20.0]);
    daemon.reload_with(&text_of("partial", "quota = \"20ms/100ms\""));
    assert_eq!(scheduler(&daemon).mode, "partial");
    // The mode of an ended enforcer does not affect the next.
    let log = daemon.log();
    assert!(!log.contains("is loaded in mode"), "{log}");
    wait_until_scheduled(&daemon, &job);
    assert!(are_fair(&tasks_below(&web)));
    assert_eq!(quota_us(&web), 20_000);
    daemon.reload_with(&text_of("all", burst));
    assert_eq!(quota_us(&web), -1);
    assert_quotas("the same again", &[&job, &web], &[30.0, 20.0]);
    daemon.stop();
    loads.into_iter().for_each(|load| load.kill_hard());
    rig.assert_nothing_left();
}

#[test]
fn matched_processes_are_scheduled_at_once_and_get_their_policy_back() {
    let rig = rig();
    let sleeper = Sleeper::new("plimsoll-scx-sleeper");
    let matches = format!("executable = \"{}\"", sleeper.path());
    let daemon = Daemon::start(&rig.host, &rule("taken", &matches, &with_class("")));
    let mut running = Vec::new();
    for policy in [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE] {
        // As `chrt` does: the policy is there before the program.
        let before = tasks::policy_number(0).unwrap();
        let mut command = sleeper.command();
        // SAFETY: only system calls.
        unsafe {
            use std::os::unix::process::CommandExt as _;
            command.pre_exec(move || {
                let priority = libc::sched_param { sched_priority: 0 };
                match libc::sched_setscheduler(0, policy, &raw const priority) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let start = Instant::now();
        let child = rig.host.spawn(command);
        assert_eq!(tasks::policy_number(0).unwrap(), before);
        let pid = child.pid();
        running.push((child, policy));
        wait_until_in(&daemon, pid, "taken");
        wait_until("it is the scheduler's", SHORT, || are_scheduled(&[pid]));
        let took = start.elapsed();
        assert!(took <= PROMISED, "the scheduler's after {took:.1?}");
    }
    assert!(!members(&rig.host, "taken").is_empty());
    daemon.stop();
    for (child, policy) in &running {
        assert_eq!(tasks::policy_number(child.pid()), Some(*policy));
    }
    kill_all(
        &running
            .iter()
            .map(|(child, _)| child.pid())
            .collect::<Vec<_>>(),
    );
    running.into_iter().for_each(|(child, _)| child.kill_hard());
    rig.assert_nothing_left();
}
