//! Cgroups, CPUs and processes that come and go: no stalls, no leaks.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_cgroupfs::CpuGroup;

use crate::common::{
    Offline, bind, command_of, is_alive, nr_cpus, task_ns, wait_until, wait_until_busy,
};
use crate::daemon_rig::kill_all;
use crate::rig::{EagerHugePages, all_cpus, burners, wait_for_threads};
use crate::shared::with_command;

#[test]
fn a_hundred_cgroups_with_a_process_come_and_go_below_a_group() {
    let rig = with_command();
    let work = rig.batch_burners("work", "--quota 20ms/100ms", all_cpus(), nr_cpus());
    let group = rig.host.batch("work");
    let nomad = rig.fair_load(&group, all_cpus(), "burn --threads 2 --duration 80000s");
    wait_for_threads(nomad.pid(), 4);
    for number in 0..100 {
        let child = group.child(format!("c{number}"));
        child.create().unwrap();
        child.add_process(nomad.pid()).unwrap();
        group.add_process(nomad.pid()).unwrap();
        for folder in child.folders() {
            fs::remove_dir(folder).unwrap();
        }
    }
    rig.wait_until_all_run(&burners(&group));
    rig.assert_quota("work", 20_000, 100_000);
    nomad.kill_hard();
    work.stop();
}

#[test]
fn tasks_that_wait_for_a_cpu_run_on_when_it_goes_offline() {
    let rig = with_command();
    let cpu = nr_cpus() - 1;
    assert!(cpu >= 1, "this takes two CPUs");
    let work = rig.batch_burners("work", "", 1 << cpu, 3);
    let limited = rig.batch_burners("limited", "--quota 20ms/100ms", 1 << cpu, 3);
    let groups = ["work", "limited"].map(|name| rig.host.batch(name));
    let tids: Vec<_> = groups.iter().flat_map(burners).collect();
    rig.wait_until_all_run(&tids);
    let offline = Offline::take(cpu);
    rig.wait_until_all_run(&tids);
    drop(offline);
    wait_until("the CPU is back", || nr_cpus() == cpu + 1);
    rig.wait_until_all_run(&tids);
    work.stop();
    limited.stop();
}

#[test]
fn tasks_run_while_cpus_come_and_go_and_affinities_change() {
    let rig = with_command();
    let cpus = nr_cpus();
    assert!(cpus >= 2, "this takes two CPUs");
    let work = rig.batch_burners("work", "--cpu-limit 80%", all_cpus(), 2 * cpus);
    let tids = burners(&rig.host.batch("work"));
    for round in 0..2 {
        for (index, tid) in tids.iter().enumerate() {
            bind(*tid, [0, 1].map(|more| (index + round + more) % cpus)).unwrap();
        }
        let cpu = 1 + round % (cpus - 1);
        let offline = Offline::take(cpu);
        rig.wait_until_all_run(&tids);
        drop(offline);
        rig.wait_until_all_run(&tids);
    }
    wait_until("all CPUs are back", || nr_cpus() == cpus);
    tids.iter().for_each(|tid| bind(*tid, 0..cpus).unwrap());
    rig.wait_until_all_run(&tids);
    work.stop();
}

/// A CPU needs interrupts that it sends itself for its kicks and its timers.
#[test]
fn a_cpu_that_was_offline_while_tasks_waited_starts_timers_again() {
    let rig = with_command();
    let cpu = nr_cpus() - 1;
    assert!(cpu >= 1, "this takes two CPUs");
    let work = rig.batch_burners("work", "", all_cpus(), 3 * nr_cpus());
    let offline = Offline::take(cpu);
    drop(offline);
    wait_until("the CPU is back", || nr_cpus() == cpu + 1);
    let limited = rig.batch_burners("limited", "--quota 1ms/2ms", 1 << cpu, 1);
    // Five hundred periods. Without timers the group would have one a second.
    wait_until("it runs in each period", || {
        let used_ns = rig.host.batch("limited").usage_ns();
        used_ns.is_ok_and(|used_ns| used_ns > 500_000_000)
    });
    work.stop();
    limited.stop();
}

#[test]
fn processes_come_and_go_under_every_knob() {
    let rig = with_command();
    let knobs = [
        "",
        "--quota 50ms/20ms --burst 20ms",
        "--cap 80%",
        "--cap 50% --per-task",
        "--soft-cap 10%",
        "--headroom 20% --cpu-limit 90%",
    ];
    let load = "storm --processes 40 --parallel 8 --cpu-each 1ms";
    let storms: Vec<_> = (0..)
        .zip(knobs)
        .map(|(number, knobs)| rig.batch_load(&format!("storm{number}"), knobs, all_cpus(), load))
        .collect();
    for storm in storms {
        let finished = storm.finish().good();
        assert!(!finished.stderr.contains("thrown out"), "{finished:?}");
    }
}

/// A shell with so much memory that its exit takes many server slices.
const LARGE: &str = "x=$(head -c 100000000 /dev/zero | tr '\\0' x); sleep 100000; echo $x";

#[test]
fn batch_work_that_exits_stays_behind_normal_work() {
    let rig = with_command();
    let words = ["taskset", "1", "sh", "-c", LARGE];
    let commands = ["one", "two"].map(|name| rig.batch(name, "", &words));
    let groups = ["one", "two"].map(|name| rig.host.batch(name));
    let members = |group: &CpuGroup| group.all_processes().unwrap_or_default();
    wait_until("both have their memory", || {
        let sleeps = |pid: &i32| command_of(*pid).as_deref() == Some("sleep");
        groups.iter().all(|group| members(group).iter().any(sleeps))
    });
    let is_shell = |pid: &i32| command_of(*pid).as_deref() == Some("sh");
    let shells: Vec<i32> = groups.iter().flat_map(members).filter(is_shell).collect();
    assert_eq!(shells.len(), 2);
    let fair = rig.group("fair");
    let spinner = rig.fair_burners(&fair, 1, 1);
    let used_ns = || {
        let batch = groups.each_ref().map(|group| group.usage_ns().unwrap());
        (fair.usage_ns().unwrap(), batch[0] + batch[1])
    };
    let begin_ns = used_ns();
    for pid in &shells {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
    wait_until("one has gone", || shells.iter().any(|pid| !is_alive(*pid)));
    let end_ns = used_ns();
    let (normal_ns, batch_ns) = (end_ns.0 - begin_ns.0, end_ns.1 - begin_ns.1);
    assert!(normal_ns > 5 * batch_ns, "{normal_ns}, {batch_ns}");
    spinner.kill_hard();
    groups.iter().for_each(|group| kill_all(&members(group)));
    commands
        .into_iter()
        .for_each(|command| drop(command.finish()));
}

/// `khugepaged` is of nice 19: a seventieth of the CPU is its share. It may be ahead of that by two
/// requests and a tick, 10 ms, so that 30 ms are none of chance.
#[test]
fn kernel_thread_of_one_cpu_has_no_more_than_its_share() {
    let rig = with_command();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_khugepaged = |pid: &i32| command_of(*pid).as_deref() == Some("khugepaged");
    let thread = pids.find(is_khugepaged).unwrap();
    let eager = EagerHugePages::start();
    let memory = vec![1_u8; 64 << 20];
    wait_until("it never sleeps", || task_ns(thread) > Some(30_000_000));
    bind(thread, [0]).unwrap();
    let fair = rig.group("fair");
    let spinner = rig.fair_burners(&fair, 1, 1);
    wait_until_busy(&fair);
    let used_ns = || (fair.usage_ns().unwrap(), task_ns(thread).unwrap());
    let begin_ns = used_ns();
    wait_until("it has run beside the other", || {
        used_ns().1 > begin_ns.1 + 30_000_000
    });
    let end_ns = used_ns();
    let (normal_ns, thread_ns) = (end_ns.0 - begin_ns.0, end_ns.1 - begin_ns.1);
    assert!(normal_ns > 5 * thread_ns, "{normal_ns}, {thread_ns}");
    drop((eager, memory));
    bind(thread, 0..nr_cpus()).unwrap();
    spinner.kill_hard();
}

#[test]
fn task_that_binds_itself_to_an_overloaded_cpu_takes_turns_there() {
    let rig = with_command();
    let cpu = nr_cpus() - 1;
    assert!(cpu >= 1, "this takes two CPUs");
    // Virtual time passes a thousand times slower there than on the other CPUs.
    let bound = rig.batch_burners("bound", "--weight 10000", 1 << cpu, 3);
    let free = rig.batch_burners("free", "--weight 10", all_cpus(), cpu);
    wait_until("the others are 12 s of virtual time ahead", || {
        rig.statistics("free").usage_usec > 1_200_000 * cpu as u64
    });
    let tids = burners(&rig.host.batch("free"));
    bind(tids[0], [cpu]).unwrap();
    rig.wait_until_all_run(&tids);
    let batch = rig.statistics("free").batch.expect("it is scheduled");
    assert_eq!(batch.total.nr_overdue, 0);
    bound.stop();
    free.stop();
}
