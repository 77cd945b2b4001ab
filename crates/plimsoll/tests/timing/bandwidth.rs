//! SPEC 1: quotas in the long run, bursts, and their effect on latency.

use std::thread;
use std::time::Duration;

use crate::common::{Host, ms, nr_cpus, rate_percent, wait_until_busy};
use crate::measured::{assert_near, assert_within};

/// Slice that a CPU takes from the pool, and the time that a task may overrun until the tick, in
/// milliseconds.
const SLICE_AND_TICK_MS: f64 = 5.0 + 4.0;

#[test]
fn a_quota_holds_in_the_long_run_with_and_without_burst() {
    const PERIODS: u64 = 20;
    let host = Host::alone();
    let group = host.normal("limited");
    for knobs in ["--quota 30ms/100ms", "--quota 30ms/100ms --burst 30ms"] {
        let running = host.start_load(
            &format!("--name limited {knobs}"),
            "burn --threads 1 --duration 120s",
        );
        wait_until_busy(&group);
        // Quota saved at the start is used first.
        thread::sleep(ms(500));
        let rate = rate_percent(&group, ms(100 * PERIODS));
        // Slice that a CPU may hold at the edges of the window, as a share of the window.
        let slack = SLICE_AND_TICK_MS / PERIODS as f64;
        assert_near(knobs, rate, 30.0, slack);
        running.stop();
    }
    host.assert_clean();
}

/// Runs a load of 60 ms of work every 330 ms, which begins at every phase of the period;
/// returns the kernel's counters.
fn throttling_of_a_bursty_load(host: &Host, knobs: &str) -> (u64, u64) {
    let finished = host
        .start_load(
            &format!("--stats --json {knobs}"),
            "service --workers 1 --arrivals bursty --burst-size 6 --burst-every 330ms \
             --service const:10ms --warmup 0s --duration 4s --json",
        )
        .finish(Duration::from_secs(20))
        .good();
    let quota = &finished.stats()["statistics"]["quota"];
    println!("{knobs}: {quota}");
    let count = |name: &str| quota[name].as_u64().unwrap();
    (count("nr_throttled"), count("nr_bursts"))
}

#[test]
fn a_burst_within_the_average_is_not_throttled() {
    let host = Host::alone();
    let (throttled, bursts) = throttling_of_a_bursty_load(&host, "--quota 40ms/100ms");
    // Twelve bursts, each more than a period's quota. Of ten phases there are two at which the
    // boundary of periods cuts the work so that neither part is more.
    assert!(throttled >= 8, "{throttled}");
    assert_eq!(bursts, 0);
    let knobs = "--quota 40ms/100ms --burst 40ms";
    let (throttled, bursts) = throttling_of_a_bursty_load(&host, knobs);
    assert_eq!(throttled, 0);
    assert!(bursts >= 8, "{bursts}");
    host.assert_clean();
}

/// The p99 of requests that arrive in bursts, in microseconds.
fn p99_of_bursty_requests(host: &Host, knobs: &str) -> f64 {
    // On average 0.3 CPUs; a burst takes 36 ms of CPU time, more than a period's quota of 24 ms
    // and less than quota and burst. Two boundaries of periods lie between any two bursts.
    let load = "service --workers 2 --arrivals bursty --burst-size 36 --burst-every 120ms \
                --service const:1ms --warmup 500ms --duration 2s --json";
    let finished = host
        .start_load(knobs, load)
        .finish(Duration::from_secs(60))
        .good();
    finished.json()["latency"]["p99_us"].as_f64().unwrap()
}

#[test]
fn p99_with_burst_is_at_most_1_1_times_p99_without_a_quota() {
    let host = Host::alone();
    let free = p99_of_bursty_requests(&host, "");
    let limited = p99_of_bursty_requests(&host, "--quota 24ms/50ms");
    let burst = p99_of_bursty_requests(&host, "--quota 24ms/50ms --burst 24ms");
    println!("p99: without a quota {free:.0} us, with {limited:.0}, with burst {burst:.0}");
    // Otherwise the experiment would prove nothing.
    let what = "p99 with a quota, of that without";
    assert_within(what, limited / free, 2.0, 1000.0);
    let what = "p99 with a quota and burst, of that without a quota";
    assert_within(what, burst / free, 0.0, 1.1);
    host.assert_clean();
}

#[test]
fn a_cap_inside_a_quota_holds_within_its_grain() {
    let host = Host::alone();
    let group = host.normal("both");
    let running = host.start_load(
        "--name both --quota 50ms/100ms --cap 30%",
        "burn --threads 2 --duration 120s",
    );
    wait_until_busy(&group);
    thread::sleep(ms(200));
    let rate = rate_percent(&group, ms(2_000));
    let slack = nr_cpus() as f64 * SLICE_AND_TICK_MS / 20.0;
    assert_near("the narrower of cap and quota", rate, 30.0, slack);
    running.stop();
    host.assert_clean();
}
