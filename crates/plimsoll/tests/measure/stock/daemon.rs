//! Reaction times and costs of the daemon, and shares of batch work while it is stopped.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;

use crate::clock::{MEASURED, ms, ms_until, rate_of, rates_of_tasks, sleep_ms};
use crate::common::{Host, max, nr_cpus, threads_of, wait_until};
use crate::daemon_rig::{Daemon, is_idle, of_cgroup, quota_us, remove_group, rule, shown};
use crate::figure::{ANY, DAEMON, SPEC_3, SPEC_6, near};

/// The guest's CPU executes one instruction per nanosecond; costs are promised for a CPU that
/// executes four.
const SLOWER: f64 = 4.0;

fn most(all: &[f64]) -> f64 {
    all.iter().copied().fold(0.0, f64::max)
}

#[test]
fn a_new_cgroup_is_limited() {
    let mut host = Host::new();
    host.group("bystander");
    let pattern = format!("{}/job-*", host.base_path());
    let text = rule("jobs", &of_cgroup(&pattern), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    let took = [0, 1, 2, 3, 4].map(|number| {
        let group = host.base().child(format!("job-{number}"));
        group.create().unwrap();
        let took = ms_until(|| quota_us(&group) == 30_000);
        remove_group(&group);
        took
    });
    let what = "a new cgroup is limited, most of five";
    DAEMON.figure(what, most(&took), "ms", 0.0..=200.0);
    daemon.stop();
}

#[test]
fn an_external_change_is_noticed() {
    let mut host = Host::new();
    let group = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&group)), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    let seen = || daemon.state().daemon.counters.foreign_changes;
    let took = [60, 70, 80].map(|quota| {
        // At a different phase of the daemon's second each time.
        sleep_ms(300);
        let before = seen();
        group
            .write_cpu_max(&max(&format!("{quota}ms/100ms")))
            .unwrap();
        ms_until(|| seen() > before)
    });
    let what = "an external change is noticed, most of three";
    SPEC_6.figure(what, most(&took), "ms", 0.0..=1_000.0);
    daemon.reload().good();
    daemon.stop();
}

/// Cgroups of other programs, which are made, below one of theirs.
fn make_many(host: &mut Host, count: usize) -> Vec<CpuGroup> {
    let many = host.group("many");
    many.enable_children().unwrap();
    let groups: Vec<CpuGroup> = (0..count).map(|n| many.child(format!("g{n}"))).collect();
    groups.iter().for_each(|group| group.create().unwrap());
    groups
}

/// Prints the CPU time of all threads of a daemon that has nothing to do.
fn print_cpu_time(daemon: &Daemon, beside: &str) {
    sleep_ms(3_000);
    let rates = rates_of_tasks(&threads_of(daemon.pid()), Duration::from_secs(10));
    let what = format!("the daemon beside {beside}");
    let share = rates.iter().sum();
    DAEMON.figure(&what, share, "% of a CPU", 0.0..=SLOWER * 0.5);
}

#[test]
fn a_thousand_groups() {
    const GROUPS: usize = 1_000;
    let mut host = Host::new();
    let main = host.group("main");
    let groups = make_many(&mut host, GROUPS);
    let pattern = format!("{}/many/*", host.base_path());
    let mut daemon = Daemon::ready(&host, "");
    daemon.restart();
    let jobs = rule("many", &of_cgroup(&pattern), "class = \"batch\"");
    daemon.write(&jobs);
    let ms_of = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    daemon.reload().good();
    let applied = ms_of(start);
    assert!(groups.iter().all(is_idle));
    // Loading it is no part of showing.
    wait_until("the guard is attached or refused", || {
        daemon.state().daemon.guard.is_some()
    });
    let start = Instant::now();
    let state = daemon.state();
    let told = ms_of(start);
    assert_eq!(state.groups.len(), GROUPS);
    let what = "a thousand groups are in force";
    DAEMON.figure(what, applied, "ms", 0.0..=1_000.0);
    let what = "a thousand groups are shown";
    DAEMON.figure(what, told, "ms", 0.0..=SLOWER * 50.0);
    print_cpu_time(&daemon, "a thousand batch groups");
    let service = rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"");
    daemon.reload_with(&(service + &jobs));
    print_cpu_time(&daemon, "a thousand idle batch groups under headroom");
    daemon.stop();
    groups.iter().for_each(remove_group);
}

#[test]
fn a_command_starts_in_a_group() {
    let host = Host::new();
    let ms_of = |mut command: Command| {
        let start = Instant::now();
        let status = command.stderr(Stdio::null()).status().unwrap();
        assert!(status.success());
        start.elapsed().as_secs_f64() * 1e3
    };
    let end_owner = || wait_until("no owner is left", || host.end_idle_owner());
    let alone = ms_of(Command::new("true"));
    let words = "run --enforcer cgroup --class batch -- true".split(' ');
    let more = || ms_of(host.plimsoll(words.clone())) - alone;
    let first = [(); 5].map(|()| {
        end_owner();
        more()
    });
    let next = [(); 5].map(|()| more());
    let what = "`run --class batch -- true` more than `true`, most of five";
    let beside = format!("{what}, beside an owner");
    DAEMON.figure(&beside, most(&next), "ms", 0.0..=SLOWER * 10.0);
    let starts = format!("{what}, which starts one");
    DAEMON.figure(&starts, most(&first), "ms", 0.0..=SLOWER * 40.0);
    end_owner();
}

#[test]
fn an_owner_without_work_sleeps() {
    let host = Host::new();
    let words = |number| format!("run --name job-{number} --quota 30ms/100ms -- sleep 600");
    let jobs: Vec<_> = (0..20)
        .map(|number| host.start(words(number).split(' ')))
        .collect();
    wait_until("all run", || {
        let state = host.owner();
        state.is_some_and(|state| state.groups.len() == jobs.len())
    });
    let owner = host.owner_pid();
    // The owner answers, and looks at what has begun.
    sleep_ms(5_000);
    let before = nr_sleeps(owner);
    sleep_ms(60_000);
    let slept = nr_sleeps(owner) - before;
    let what = "an owner of twenty commands with quotas wakes, in a minute";
    DAEMON.figure(what, slept as f64, "times", 0.0..=60.0);
    drop(jobs);
}

/// Number of times that the threads of a process have gone to sleep.
fn nr_sleeps(pid: i32) -> u64 {
    let of_thread = |tid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap();
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    threads_of(pid).into_iter().map(of_thread).sum()
}

#[test]
fn the_start_with_a_thousand_groups() {
    const GROUPS: usize = 1_000;
    let mut host = Host::new();
    let groups = make_many(&mut host, GROUPS);
    let text: String = (0..GROUPS)
        .zip(&groups)
        .map(|(n, group)| {
            let matches = of_cgroup(&shown(group));
            rule(&format!("g{n}"), &matches, "quota = \"30ms/100ms\"")
        })
        .collect();
    let mut daemon = Daemon::ready(&host, &text);
    daemon.launch();
    let took = ms_until(|| groups.iter().all(|group| quota_us(group) == 30_000));
    let what = "a start with a thousand groups in the file, all in force";
    DAEMON.figure(what, took, "ms", 0.0..=1_000.0);
    daemon.wait_until_it_answers();
    print_cpu_time(&daemon, "a thousand groups with quotas");
    daemon.stop();
    groups.iter().for_each(remove_group);
}

#[test]
fn new_cgroups_come_by_the_thousand() {
    const GROUPS: usize = 1_000;
    let mut host = Host::new();
    let many = host.group("many");
    many.enable_children().unwrap();
    let pattern = format!("{}/many/*", host.base_path());
    let text = rule("many", &of_cgroup(&pattern), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    let memory = || daemon.state().daemon.resident_bytes as f64 / f64::from(1 << 20);
    let before = memory();
    let groups: Vec<CpuGroup> = (0..GROUPS).map(|n| many.child(format!("g{n}"))).collect();
    let begun = Instant::now();
    for (group, due_ms) in groups.iter().zip(1..) {
        group.create().unwrap();
        thread::sleep(ms(due_ms).saturating_sub(begun.elapsed()));
    }
    let took = ms_until(|| groups.iter().all(|group| quota_us(group) == 30_000));
    let what = "all of a thousand cgroups that come within a second are limited";
    DAEMON.figure(what, took, "ms", 0.0..=ANY);
    assert_eq!(daemon.state().groups.len(), GROUPS);
    // The emulator takes too long to make them all.
    let all = before + 10.0 * (memory() - before);
    let what = "memory of the daemon with 10,000 groups, by what 1,000 add";
    DAEMON.figure(what, all, "MiB", 0.0..=64.0);
    groups.iter().for_each(remove_group);
    daemon.stop();
}

#[test]
fn batch_work_while_the_daemon_is_stopped() {
    let mut host = Host::new();
    let (main, jobs) = (host.group("main"), host.group("jobs"));
    let _burner = host.start_load_in(&jobs, "burn --threads 4 --duration 80000s");
    let text = rule("main", &of_cgroup(&shown(&main)), "headroom = \"50%\"")
        + &rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"");
    let daemon = Daemon::start(&host, &text);
    wait_until("batch work is limited", || quota_us(&jobs) > 0);
    sleep_ms(400);
    let figure = |when: &str, bounds| {
        let share = rate_of(&jobs, MEASURED) / nr_cpus() as f64;
        let what = format!("batch work beside a headroom of 50 % {when}");
        SPEC_3.figure(&what, share, "% of the machine", bounds);
    };
    figure("under a daemon", near(50.0, 2.0));
    daemon.send(Signal::SIGSTOP);
    figure("while the daemon is stopped", 0.0..=52.0);
    daemon.send(Signal::SIGCONT);
    // SPEC 3: free time is used again within 100 ms.
    sleep_ms(100);
    figure("when the daemon goes on", near(50.0, 2.0));
    daemon.stop();
}
