//! Stress: no stalls, no leaks.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::common::{ms, nr_cpus, wait_until};
use crate::rig::{MEASURED, SHORT, all_cpus, assert_quotas, assert_within, burners, rates_of, rig};

#[test]
fn a_thousand_cgroups_with_a_process_come_and_go_below_a_group() {
    let rig = rig();
    let work = rig.batch_burners("work", "--quota 150ms/100ms", all_cpus(), nr_cpus());
    let group = rig.host.batch("work");
    let nomad = rig.fair_load(&group, all_cpus(), "burn --threads 2 --duration 600s");
    let start = Instant::now();
    for number in 0..1000 {
        let child = group.child(format!("c{number}"));
        child.create().unwrap();
        child.add_process(nomad.pid()).unwrap();
        group.add_process(nomad.pid()).unwrap();
        for folder in child.folders() {
            fs::remove_dir(folder).unwrap();
        }
    }
    println!("1000 cgroups in {:.1?}", start.elapsed());
    rig.assert_never_ejected("work");
    // It is scheduled as before, once the kernel's threads have freed the cgroups: with a quota of
    // 1.5 of two CPUs there is little room for them.
    thread::sleep(ms(2_000));
    assert_quotas("a quota of 1.5 CPUs afterwards", &[&group], &[150.0]);
    nomad.kill_hard();
    work.stop();
    rig.assert_nothing_left();
}

fn online_file(cpu: usize) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"))
}

/// Brings a CPU back online in any case.
struct Offline(usize);

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = fs::write(online_file(self.0), "1");
    }
}

#[test]
fn cpus_come_and_go_and_affinities_change_under_load() {
    let rig = rig();
    let cpus = nr_cpus();
    assert!(cpus >= 2, "this takes two CPUs");
    let work = rig.batch_burners("work", "--cpu-limit 80%", all_cpus(), 2 * cpus);
    let group = rig.host.batch("work");
    let tids = burners(&group);
    for round in 0..4 {
        for (index, tid) in tids.iter().enumerate() {
            let mut set = CpuSet::new();
            set.set((index + round) % cpus).unwrap();
            set.set((index + round + 1) % cpus).unwrap();
            sched_setaffinity(Pid::from_raw(*tid), &set).unwrap();
        }
        let cpu = 1 + round % (cpus - 1);
        let offline = Offline(cpu);
        fs::write(online_file(cpu), "0").unwrap();
        thread::sleep(ms(300));
        drop(offline);
        thread::sleep(ms(300));
    }
    wait_until("all CPUs are back", SHORT, || nr_cpus() == cpus);
    rig.assert_never_ejected("work");
    for tid in &tids {
        let mut set = CpuSet::new();
        (0..cpus).for_each(|cpu| set.set(cpu).unwrap());
        sched_setaffinity(Pid::from_raw(*tid), &set).unwrap();
    }
    thread::sleep(ms(300));
    let rate = rates_of(&[&group], MEASURED)[0] / cpus as f64;
    assert_within("of each CPU, percent", rate, 79.0..=81.0);
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn processes_come_and_go_under_every_knob() {
    let rig = rig();
    let knobs = [
        "",
        "--quota 50ms/20ms --burst 20ms",
        "--cap 80%",
        "--cap 50% --per-task",
        "--soft-cap 10%",
        "--headroom 20% --cpu-limit 90%",
    ];
    let load = "storm --processes 120 --parallel 8 --cpu-each 1ms";
    let storms: Vec<_> = (0..)
        .zip(knobs)
        .map(|(number, knobs)| rig.batch_load(&format!("storm{number}"), knobs, all_cpus(), load))
        .collect();
    let start = Instant::now();
    for storm in storms {
        let finished = storm.finish(Duration::from_secs(60)).good();
        assert!(!finished.stderr.contains("thrown out"), "{finished:?}");
    }
    println!("{} storms in {:.1?}", knobs.len(), start.elapsed());
    rig.assert_nothing_left();
}

#[test]
fn repeated_loads_and_unloads_leave_nothing() {
    const ROUNDS: usize = 10;
    let rig = rig();
    let start = Instant::now();
    for round in 0..ROUNDS {
        let finished = rig
            .batch("work", "--quota 50ms/100ms", &["true"])
            .finish(Duration::from_secs(30))
            .good();
        assert_eq!(finished.stderr, "", "round {round}");
    }
    println!("{ROUNDS} times in {:.1?}", start.elapsed());
    rig.assert_nothing_left();
}
