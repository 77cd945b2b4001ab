//! SPEC 3, headroom by quotas: the table, the tolerance, sharing and the controller.

use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::common::{Host, Running, ms, nr_cpus, wait_until};
use crate::measured::{Meter, assert_near, assert_within, start_side, tolerance};

/// In percent of the machine.
const HEADROOM: f64 = 30.0;
/// Tolerance of each row of SPEC's table, in points.
const WITHIN: f64 = 2.0;
/// Time until a change of the load is over.
const SETTLED: Duration = Duration::from_millis(400);

#[test]
fn batch_work_and_idle_time_match_the_table_within_2_points() {
    let mut host = Host::alone();
    let main = host.group("main");
    let side = start_side(&host, "side", "30%", "");
    let mut meter = Meter::start(&[host.batch("side")], &main);
    for percent in [0, 30, 40, 50, 60, 70, 80] {
        let load = (percent > 0).then(|| {
            let load = format!("steady --percent {percent} --duration 300s");
            host.start_load_in(&main, &load)
        });
        thread::sleep(SETTLED);
        let shares = meter.over(ms(2_000));
        let load_share = f64::from(percent);
        // Otherwise it would be another row.
        assert_near("the service load", shares.main, load_share, WITHIN);
        // Usage of the kernel and of the owner is normal work, too.
        let normal = 100.0 - shares.side - shares.idle;
        let expected = (100.0 - HEADROOM - normal).max(tolerance());
        let what = format!("batch work beside a service load of {percent} %");
        assert_near(&what, shares.side, expected, WITHIN);
        let idle = 100.0 - normal - expected;
        let what = format!("idle time beside a service load of {percent} %");
        assert_near(&what, shares.idle, idle, WITHIN);
        if let Some(load) = load {
            load.stop();
        }
    }
    side.stop();
    host.assert_clean();
}

#[test]
fn batch_work_gets_its_tolerance_when_the_service_load_leaves_no_room() {
    let mut host = Host::alone();
    let main = host.group("main");
    let side = start_side(&host, "side", "30%", "");
    let mut meter = Meter::start(&[host.batch("side")], &main);
    let load = host.start_load_in(&main, "steady --percent 90 --duration 300s");
    thread::sleep(SETTLED);
    let shares = meter.over(ms(2_000));
    // Of 1 ms in 100 ms the kernel's ticks make whole milliseconds.
    let what = "batch work beside a service load of 90 %, percent of the machine";
    assert_within(what, shares.side, 0.9 * tolerance(), 2.0 * tolerance());
    load.stop();
    side.stop();
    host.assert_clean();
}

#[test]
fn batch_groups_share_the_allowance_by_weight_within_2_points() {
    let mut host = Host::alone();
    let main = host.group("main");
    let first = start_side(&host, "first", "30%", "--weight 100");
    let second = start_side(&host, "second", "30%", "--weight 300");
    let groups = [host.batch("first"), host.batch("second")];
    thread::sleep(ms(1_000));
    let before = groups.each_ref().map(|group| group.usage_ns().unwrap());
    let mut meter = Meter::start(&groups, &main);
    let shares = meter.over(ms(1_500));
    let used = |i: usize| (groups[i].usage_ns().unwrap() - before[i]) as f64;
    let share = 100.0 * used(0) / (used(0) + used(1));
    assert_near("share of weight 100 beside 300", share, 25.0, WITHIN);
    assert_near("idle time", shares.idle, HEADROOM, WITHIN);
    // Neither a killed command nor a killed owner releases its group.
    first.kill_hard();
    host.kill_owner();
    let shares = meter.over(ms(1_000));
    let what = "idle time after the owner was killed";
    assert_within(what, shares.idle, HEADROOM - WITHIN, 100.0);
    // The next owner has both groups again.
    host.run(["run", "--", "true"]).good();
    thread::sleep(ms(1_500));
    let shares = meter.over(ms(1_000));
    let what = "idle time under the next owner";
    assert_near(what, shares.idle, HEADROOM, WITHIN);
    for pid in groups[0].all_processes().unwrap() {
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    second.stop();
    wait_until("both groups have ended", Duration::from_secs(20), || {
        host.is_clean()
    });
    host.assert_clean();
}

/// A group under headroom that waits for a line in a pipe, and then runs.
fn start_sleeper(host: &Host, name: &str, pipe: &Path) -> Running {
    mkfifo(pipe, Mode::S_IRWXU).unwrap();
    let script = "read -r line <\"$0\"; while :; do :; done";
    let words = format!("run --name {name} --class batch --headroom 30% -- sh -c");
    let words: Vec<&str> = words.split(' ').collect();
    let running = host.start(words.into_iter().chain([script, pipe.to_str().unwrap()]));
    wait_until("it is there", Duration::from_secs(10), || {
        host.batch(name).is_populated().unwrap_or(false)
    });
    running
}

#[test]
fn waking_batch_group_has_its_share_within_100_ms() {
    let mut host = Host::alone();
    let main = host.group("main");
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let side = start_side(&host, "side", "30%", "");
    let sleeper = start_sleeper(&host, "sleeper", &pipe);
    let group = host.batch("sleeper");
    thread::sleep(ms(1_500));
    let mut meter = Meter::start(&[host.batch("side"), group.clone()], &main);
    // Until then it has the smallest quota that the kernel accepts.
    let quota_usec = group.read_cpu_max().unwrap().quota_usec;
    assert_eq!(quota_usec, Some(1_000));
    std::fs::write(&pipe, "go\n").unwrap();
    thread::sleep(ms(100));
    let before = group.usage_ns().unwrap();
    let shares = meter.over(ms(400));
    let used = group.usage_ns().unwrap() - before;
    // It is entitled to half of 70 % of the machine; one thread uses at most one CPU.
    let share = 100.0 * used as f64 / (400e6 * nr_cpus() as f64);
    assert_near("share of a group that has woken up", share, 35.0, WITHIN);
    assert_near("idle time", shares.idle, HEADROOM, WITHIN);
    sleeper.stop();
    side.stop();
    host.assert_clean();
}

#[test]
fn a_cap_holds_inside_a_headroom_within_a_point() {
    let mut host = Host::alone();
    let main = host.group("main");
    let side = start_side(&host, "side", "30%", "--cap 20%");
    let mut meter = Meter::start(&[host.batch("side")], &main);
    thread::sleep(SETTLED);
    let shares = meter.over(ms(2_000));
    let cap = 20.0 / nr_cpus() as f64;
    assert_near("batch work under a cap of 20 %", shares.side, cap, 1.0);
    side.stop();
    host.assert_clean();
}

#[test]
fn the_headroom_controller_takes_under_1_percent_of_a_cpu() {
    let host = Host::alone();
    let side = host.start_load(
        "--name side --class batch --headroom 30% --stats --json",
        "burn --threads 2 --duration 2s",
    );
    let finished = side.finish(Duration::from_secs(30)).good();
    let headroom = &finished.stats()["statistics"]["headroom"];
    let count = |name: &str| headroom[name].as_f64().unwrap();
    let controller = count("controller_usec");
    // It runs every 10 ms, and gives more to a busy group each time.
    assert_within("updates in 2 s", count("nr_updates"), 190.0, 210.0);
    let what = "writes, of updates";
    assert_within(what, count("nr_writes") / count("nr_updates"), 0.9, 1.0);
    let what = "the controller, percent of a CPU";
    assert_within(what, 100.0 * controller / 2e6, 0.0, 1.0);
    host.assert_clean();
}
