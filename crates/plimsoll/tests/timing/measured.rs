//! Figures from exact counters, and their comparison with a promise.

use std::thread;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, Running, busy_ns, nr_cpus, tasks_below, wait_until};

/// Batch work's tolerance of 1 ms in 100 ms, in percent of the machine.
pub fn tolerance() -> f64 {
    1.0 / nr_cpus() as f64
}

/// Prints a figure with its bounds, and returns whether it is within them.
pub fn is_within(what: &str, found: f64, least: f64, most: f64) -> bool {
    println!("FIGURE: {what}: {found:.3}, promised {least:.3} to {most:.3}");
    (least..=most).contains(&found)
}

/// Panics unless a figure is within its bounds.
pub fn assert_within(what: &str, found: f64, least: f64, most: f64) {
    assert!(
        is_within(what, found, least, most),
        "{what}: {found:.3} is not within {least:.3} to {most:.3}"
    );
}

/// Panics unless a figure is within a distance of the promise.
pub fn assert_near(what: &str, found: f64, expected: f64, within: f64) {
    assert_within(what, found, expected - within, expected + within);
}

/// Shares of the machine over some time, in percent.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    pub side: f64,
    pub main: f64,
    pub idle: f64,
}

/// Shares of batch groups, of a service and of idle time.
pub struct Meter {
    side: Vec<CpuGroup>,
    main: CpuGroup,
    at: Instant,
    busy_ns: u64,
    side_ns: u64,
    main_ns: u64,
}

impl Meter {
    pub fn start(side: &[CpuGroup], main: &CpuGroup) -> Self {
        let mut meter = Self {
            side: side.to_vec(),
            main: main.clone(),
            at: Instant::now(),
            busy_ns: 0,
            side_ns: 0,
            main_ns: 0,
        };
        meter.lap();
        meter
    }

    /// The shares since the last call.
    pub fn lap(&mut self) -> Shares {
        let now = Instant::now();
        let capacity = (now - self.at).as_nanos() as f64 * nr_cpus() as f64;
        let percent = |ns: u64| 100.0 * ns as f64 / capacity;
        let busy_ns = busy_ns();
        let side_ns: u64 = self.side.iter().map(|side| side.usage_ns().unwrap()).sum();
        let main_ns = self.main.usage_ns().unwrap();
        let shares = Shares {
            side: percent(side_ns - self.side_ns),
            main: percent(main_ns - self.main_ns),
            idle: 100.0 - percent(busy_ns - self.busy_ns),
        };
        (self.at, self.busy_ns) = (now, busy_ns);
        (self.side_ns, self.main_ns) = (side_ns, main_ns);
        shares
    }

    /// The shares of the time that begins now.
    pub fn over(&mut self, time: Duration) -> Shares {
        self.lap();
        thread::sleep(time);
        let shares = self.lap();
        println!("{shares:.2?}");
        shares
    }
}

/// Burners in a group under headroom, in percent; they run when this returns.
pub fn start_side(host: &Host, name: &str, headroom: &str, knobs: &str) -> Running {
    // Two for each CPU, because the stock kernel may leave two batch threads on one CPU behind
    // normal work while the other CPU is idle.
    let threads = 2 * nr_cpus();
    let running = host.start_load(
        &format!("--name {name} --class batch --headroom {headroom} {knobs}"),
        &format!("burn --threads {threads} --duration 300s"),
    );
    let group = host.batch(name);
    wait_until("batch work runs", Duration::from_secs(30), || {
        tasks_below(&group).len() > threads
    });
    running
}
