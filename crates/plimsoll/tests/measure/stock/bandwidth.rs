//! SPEC 1: quotas in the long run, bursts, and their effect on latency.

use crate::clock::{MEASURED, rate_of, sleep_ms};
use crate::common::{Host, nr_cpus, wait_until_busy};
use crate::figure::{ANY, SPEC_1, near};

/// Slice that a CPU takes from the pool, and the time that a task may overrun until the tick, in
/// percent of the measured time.
const SLICE_AND_TICK: f64 = (5.0 + 4.0) / 20.0;

fn rate_under(host: &Host, knobs: &str, threads: usize) -> f64 {
    let group = host.normal("limited");
    let running = host.start_load(
        &format!("--name limited {knobs}"),
        &format!("burn --threads {threads} --duration 80000s"),
    );
    wait_until_busy(&group);
    // Quota saved at the start is used first.
    sleep_ms(500);
    let rate = rate_of(&group, MEASURED);
    running.stop();
    rate
}

#[test]
fn quota_in_the_long_run() {
    let host = Host::new();
    for knobs in ["--quota 30ms/100ms", "--quota 30ms/100ms --burst 30ms"] {
        let rate = rate_under(&host, knobs, 1);
        SPEC_1.figure(knobs, rate, "% of a CPU", near(30.0, SLICE_AND_TICK));
    }
    let knobs = "--quota 50ms/100ms --cap 30%";
    let rate = rate_under(&host, knobs, 2);
    let slack = nr_cpus() as f64 * SLICE_AND_TICK;
    SPEC_1.figure(knobs, rate, "% of a CPU", near(30.0, slack));
}

/// Runs a load of 60 ms of work every 330 ms, which begins at every phase of the period.
fn throttling_of_a_bursty_load(host: &Host, knobs: &str, bounds: [[f64; 2]; 2]) {
    let finished = host
        .start_load(
            &format!("--stats --json {knobs}"),
            "service --workers 1 --burst-size 6 --burst-every 330ms \
             --service const:10ms --warmup 0s --duration 4s --json",
        )
        .finish()
        .good();
    let quota = &finished.stats()["statistics"]["quota"];
    for (name, [least, most]) in ["nr_throttled", "nr_bursts"].iter().zip(bounds) {
        let count = quota[name].as_f64().unwrap();
        let what = format!("{name} of a bursty load with {knobs}");
        SPEC_1.figure(&what, count, "", least..=most);
    }
}

#[test]
fn burst_within_the_average() {
    let host = Host::new();
    // Twelve bursts, each more than a period's quota. Of ten phases there are two at which the
    // boundary of periods cuts the work so that neither part is more.
    let [never, mostly] = [[0.0, 0.0], [8.0, ANY]];
    throttling_of_a_bursty_load(&host, "--quota 40ms/100ms", [mostly, never]);
    throttling_of_a_bursty_load(&host, "--quota 40ms/100ms --burst 40ms", [never, mostly]);
}

/// The p99 of requests that arrive in bursts, in microseconds.
fn p99_of_bursty_requests(host: &Host, knobs: &str) -> f64 {
    // On average 0.3 CPUs; a burst takes 36 ms of CPU time, more than a period's quota of 24 ms
    // and less than quota and burst. Two boundaries of periods lie between any two bursts.
    let load = "service --workers 2 --burst-size 36 --burst-every 120ms \
                --service const:1ms --warmup 500ms --duration 2s --json";
    let finished = host.start_load(knobs, load).finish().good();
    finished.json()["latency"]["p99_us"].as_f64().unwrap()
}

#[test]
fn p99_with_quota_and_burst() {
    let host = Host::new();
    let free = p99_of_bursty_requests(&host, "");
    let limited = p99_of_bursty_requests(&host, "--quota 24ms/50ms");
    let burst = p99_of_bursty_requests(&host, "--quota 24ms/50ms --burst 24ms");
    // Otherwise the experiment would prove nothing.
    let what = "p99 of bursty requests with a quota, of that without";
    SPEC_1.figure(what, limited / free, "times", 2.0..=ANY);
    let what = "p99 of bursty requests with a quota and burst, of that without a quota";
    SPEC_1.figure(what, burst / free, "times", 0.0..=1.1);
}
