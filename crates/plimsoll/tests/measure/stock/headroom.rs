//! SPEC 3, headroom by quotas: the table, the tolerance, sharing and the controller.

use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::clock::{MEASURED, ms, rates_of, sleep_ms};
use crate::common::{Host, Running, has_processes, nr_cpus, wait_until};
use crate::figure::{SPEC_3, near};
use crate::meter::{shares, start_side, tolerance};

/// In percent of the machine.
const HEADROOM: f64 = 30.0;
/// Tolerance of each row of SPEC's table, in points.
const WITHIN: f64 = 2.0;
/// Time in milliseconds until a change of the load is over.
const WARM_UP_MS: u64 = 400;
const UNIT: &str = "% of the machine";

#[test]
fn headroom_table() {
    let mut host = Host::new();
    let main = host.group("main");
    let side = start_side(&host, "side", "30%", "");
    let group = [host.batch("side")];
    for percent in [0, 30, 40, 50, 60, 70, 80, 90] {
        let load = (percent > 0).then(|| {
            let load = format!("steady --percent {percent} --duration 80000s");
            host.start_load_in(&main, &load)
        });
        sleep_ms(WARM_UP_MS);
        let seen = shares(&group, MEASURED);
        // Usage of the kernel and of the owner is normal work, too.
        let normal = 100.0 - seen.side - seen.idle;
        let expected = 100.0 - HEADROOM - normal;
        let what = format!("batch work beside a service load of {percent} %");
        if percent < 90 {
            let expected = expected.max(tolerance());
            SPEC_3.figure(&what, seen.side, UNIT, near(expected, WITHIN));
            let what = format!("idle time beside a service load of {percent} %");
            SPEC_3.figure(
                &what,
                seen.idle,
                UNIT,
                near(100.0 - normal - expected, WITHIN),
            );
        } else {
            // Of 1 ms in 100 ms the kernel's ticks make whole milliseconds.
            SPEC_3.figure(
                &what,
                seen.side,
                UNIT,
                0.9 * tolerance()..=2.0 * tolerance(),
            );
        }
        if let Some(load) = load {
            load.stop();
        }
    }
    side.stop();
}

#[test]
fn two_batch_groups_share_the_allowance_by_weight() {
    let host = Host::new();
    let first = start_side(&host, "first", "30%", "--weight 100");
    let _second = start_side(&host, "second", "30%", "--weight 300");
    let groups = [host.batch("first"), host.batch("second")];
    sleep_ms(1_000);
    let rates = rates_of(&groups.each_ref(), MEASURED);
    let share = 100.0 * rates[0] / (rates[0] + rates[1]);
    SPEC_3.figure(
        "weight 100 beside 300",
        share,
        "% of both",
        near(25.0, WITHIN),
    );
    let idle = |when: &str, bounds| {
        let idle = shares(&groups, ms(1_000)).idle;
        let what = format!("idle time beside two batch groups{when}");
        SPEC_3.figure(&what, idle, UNIT, bounds);
    };
    idle("", near(HEADROOM, WITHIN));
    // Neither a killed command nor a killed owner releases its group.
    first.kill_hard();
    host.kill_owner();
    idle(" after the owner was killed", HEADROOM - WITHIN..=100.0);
    // The next owner has both groups again.
    host.run(["run", "--", "true"]).good();
    sleep_ms(1_500);
    idle(" under the next owner", near(HEADROOM, WITHIN));
}

/// A group under headroom that waits for a line in a pipe, and then runs.
fn start_sleeper(host: &Host, name: &str, pipe: &Path) -> Running {
    mkfifo(pipe, Mode::S_IRWXU).unwrap();
    let script = "read -r line <\"$0\"; while :; do :; done";
    let words = format!("run --name {name} --class batch --headroom 30% -- sh -c");
    let words: Vec<&str> = words.split(' ').collect();
    let running = host.start(words.into_iter().chain([script, pipe.to_str().unwrap()]));
    wait_until("it is there", || has_processes(&host.batch(name)));
    running
}

#[test]
fn share_of_a_waking_group_after_100_ms() {
    let host = Host::new();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let _side = start_side(&host, "side", "30%", "");
    let _sleeper = start_sleeper(&host, "sleeper", &pipe);
    sleep_ms(1_500);
    std::fs::write(&pipe, "go\n").unwrap();
    sleep_ms(100);
    let group = host.batch("sleeper");
    let before = group.usage_ns().unwrap();
    let both = [host.batch("side"), group.clone()];
    let idle = shares(&both, ms(400)).idle;
    let used = group.usage_ns().unwrap() - before;
    // It is entitled to half of 70 % of the machine; one thread uses at most one CPU.
    let share = 100.0 * used as f64 / (400e6 * nr_cpus() as f64);
    SPEC_3.figure("a group that has woken up", share, UNIT, near(35.0, WITHIN));
    let what = "idle time beside a group that has woken up";
    SPEC_3.figure(what, idle, UNIT, near(HEADROOM, WITHIN));
}

#[test]
fn a_cap_inside_a_headroom() {
    let host = Host::new();
    let _side = start_side(&host, "side", "30%", "--cap 20%");
    sleep_ms(WARM_UP_MS);
    let used = shares(&[host.batch("side")], MEASURED).side;
    let cap = 20.0 / nr_cpus() as f64;
    SPEC_3.figure("batch work under a cap of 20 %", used, UNIT, near(cap, 1.0));
}

#[test]
fn cost_of_the_controller() {
    let host = Host::new();
    let side = host.start_load(
        "--name side --class batch --headroom 30% --stats --json",
        "burn --threads 2 --duration 2s",
    );
    let finished = side.finish().good();
    let statistics = &finished.stats()["statistics"]["headroom"];
    let used = statistics["controller_usec"].as_f64().unwrap();
    SPEC_3.figure(
        "the controller of headroom",
        100.0 * used / 2e6,
        "% of a CPU",
        0.0..=1.0,
    );
}
