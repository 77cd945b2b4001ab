//! How soon batch cgroups of others make room for a main group, and have it
//! back: by exact counters, against what the law of headroom says.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use plimsoll_engine::cgroup::{BusyMeter, CpuGroup};

use crate::common::{Host, ms, native_or_vm, nr_cpus, wait_until};
use crate::rig::{Daemon, SHORT, is_idle, of_cgroup, quota_us, rule, shown};

/// In percent of the machine.
const HEADROOM: f64 = 30.0;
const WINDOW: Duration = Duration::from_millis(100);
const STEPS: usize = 8;
const ATTEMPTS: usize = 3;

#[test]
fn batch_cgroups_make_room_within_30_ms_and_come_back_within_100_ms() {
    reaction(0);
}

#[test]
fn so_they_do_beside_200_others() {
    reaction(200);
}

/// So much of the machine may stay unused, in percent, in a window that begins
/// when the room changes.
const LOST_MAX: f64 = 25.0;

/// What batch work uses in a window, and what it may by the law, in percent of
/// the machine.
#[derive(Debug, Clone, Copy)]
struct Seen {
    used: f64,
    room: f64,
}

fn look(host: &Host, job: &CpuGroup) -> Seen {
    let mut busy = BusyMeter::start(host.hierarchy()).unwrap();
    let (start, before) = (Instant::now(), job.usage_ns().unwrap());
    thread::sleep(WINDOW);
    let busy_ns = busy.busy_ns().unwrap() as f64;
    let used_ns = (job.usage_ns().unwrap() - before) as f64;
    let percent = |ns: f64| 100.0 * ns / (start.elapsed().as_nanos() as f64 * nr_cpus() as f64);
    let others = percent(busy_ns - used_ns);
    let tolerance = 1.0 / nr_cpus() as f64;
    Seen {
        used: percent(used_ns),
        room: (100.0 - HEADROOM - others).max(tolerance),
    }
}

fn median(seen: &[Seen]) -> f64 {
    let mut all: Vec<f64> = seen.iter().map(|seen| seen.used - seen.room).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn reaction(others: usize) {
    let mut host = Host::alone();
    let cpus = nr_cpus();
    let (main, job) = (host.group("main"), host.group("job-busy"));
    let others_of = |host: &Host| -> Vec<CpuGroup> {
        let other = |number| host.base().child(&format!("job-{number}"));
        (0..others).map(other).collect()
    };
    let idle = others_of(&host);
    idle.iter().for_each(|group| group.create().unwrap());
    let half = cpus.div_ceil(2);
    let load = host.start_load_in(&main, &format!("burn --threads {half} --duration 600s"));
    let side = host.start_load_in(&job, &format!("burn --threads {cpus} --duration 600s"));
    let text = rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"")
        + &rule(
            "jobs",
            &of_cgroup(&format!("{}/job-*", host.base_path())),
            "class = \"batch\"",
        );
    let daemon = Daemon::start(&host, &format!("enforcer = \"cgroup\"\n{text}"));
    wait_until("all are in force", SHORT, || {
        idle.iter().all(is_idle) && quota_us(&job) > 0
    });
    let mut tries = Vec::new();
    let within = native_or_vm(5.0, 10.0);
    let good = (0..ATTEMPTS).any(|_| {
        let (mut free, mut jumped) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            load.send(Signal::SIGSTOP);
            thread::sleep(ms(100));
            free.push(look(&host, &job));
            thread::sleep(ms(600));
            load.send(Signal::SIGCONT);
            thread::sleep(ms(30));
            jumped.push(look(&host, &job));
            thread::sleep(ms(600));
        }
        println!("main gone: {free:.1?}\nmain back: {jumped:.1?}");
        if free.iter().all(|seen| seen.room < 10.0) {
            println!("NOT QUIET: other work on this machine leaves no room to come back to");
        }
        let (free, jumped) = (median(&free), median(&jumped));
        tries.push((free, jumped));
        // Too much is what must not be. What is lost depends on what else the
        // machine does in windows as short as these.
        [free, jumped]
            .iter()
            .all(|more| (-LOST_MAX..=within).contains(more))
    });
    println!(
        "batch work beside {others} others, percent of the machine more than the law says: \
         main gone and back: {tries:.1?}, at most {within}"
    );
    let state = daemon.state();
    println!("{:?}\n{:?}", state.headroom, state.daemon.control_delay);
    assert!(good, "{tries:.1?}");
    daemon.stop();
    load.kill_hard();
    side.kill_hard();
    idle.iter().for_each(crate::rig::remove_group);
}
