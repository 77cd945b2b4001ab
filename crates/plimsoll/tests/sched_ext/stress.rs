//! Everything at once, again and again: nothing stalls, nothing leaks.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::common::{ms, nr_cpus, wait_until};
use crate::rig::{SHORT, all_cpus, burners, rates_of, rig, rig_in_vm};

/// Whether tests are to last: `in-vm --long`.
fn is_long() -> bool {
    std::env::var_os("PLIMSOLL_TEST_LONG").is_some()
}

#[test]
fn a_thousand_cgroups_come_and_go_below_a_group_and_a_process_with_them() {
    let Some(rig) = rig() else { return };
    let work = rig.batch_burners("work", "--quota 200ms/100ms", all_cpus(), nr_cpus());
    let group = rig.host.batch("work");
    let nomad = rig.fair_load(&group, all_cpus(), "burn --threads 2 --duration 600s");
    let start = Instant::now();
    let mut made = 0;
    let goes_on = |made, elapsed| match is_long() {
        true => elapsed < Duration::from_secs(60),
        false => made < 1000 && elapsed < Duration::from_secs(20),
    };
    while goes_on(made, start.elapsed()) {
        let child = group.child(&format!("c{made}"));
        child.create().unwrap();
        child.add_process(nomad.pid()).unwrap();
        group.add_process(nomad.pid()).unwrap();
        for folder in child.folders() {
            fs::remove_dir(folder).unwrap();
        }
        made += 1;
    }
    println!("{made} cgroups in {:.1?}", start.elapsed());
    assert!(made >= 300, "{made}");
    rig.assert_never_ejected("work");
    // It is scheduled as before.
    let rate = rates_of(&[&group], Duration::from_secs(2))[0];
    assert!((rate - 200.0).abs() < 6.0 || nr_cpus() < 3, "{rate:.1} %");
    nomad.kill_hard();
    work.stop();
    rig.assert_nothing_left();
}

fn online_file(cpu: usize) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"))
}

/// Brings a CPU back whatever happens.
struct Offline(usize);

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = fs::write(online_file(self.0), "1");
    }
}

#[test]
fn cpus_come_and_go_and_affinities_change_under_load() {
    let Some(rig) = rig_in_vm() else { return };
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
    let rate = rates_of(&[&group], Duration::from_secs(3))[0] / cpus as f64;
    assert!((rate - 80.0).abs() < 3.0, "{rate:.1} % of each CPU");
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn processes_come_and_go_under_every_knob() {
    let Some(rig) = rig() else { return };
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
fn the_scheduler_is_loaded_and_unloaded_again_and_again_and_nothing_is_left() {
    let Some(rig) = rig() else { return };
    let start = Instant::now();
    let rounds = if is_long() { 100 } else { 20 };
    for round in 0..rounds {
        let finished = rig
            .batch("work", "--quota 50ms/100ms", &["true"])
            .finish(Duration::from_secs(30))
            .good();
        assert_eq!(finished.stderr, "", "round {round}");
    }
    println!("{rounds} times in {:.1?}", start.elapsed());
    rig.assert_nothing_left();
}
