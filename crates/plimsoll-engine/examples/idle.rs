//! Prints the idle share of the machine over time, from exact counters:
//! `idle INTERVAL_MS SAMPLES`. One line a sample: seconds, idle percent.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::cgroup::BusyMeter;
use plimsoll_engine::host::nr_cpus_online;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let interval = Duration::from_millis(args.next().ok_or("usage: idle INTERVAL_MS SAMPLES")??);
    let samples = args.next().ok_or("usage: idle INTERVAL_MS SAMPLES")??;
    let mut meter = BusyMeter::start(&Arc::new(Hierarchy::find()?))?;
    let mut last = Instant::now();
    let mut due = last + interval;
    for _ in 0..samples {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due += interval;
        let busy_ns = meter.busy_ns()?;
        let now = Instant::now();
        let capacity_ns = (now - last).as_nanos() as f64 * f64::from(nr_cpus_online());
        last = now;
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .as_secs_f64();
        println!(
            "{wall:.6} {:.2}",
            100.0 * (1.0 - busy_ns as f64 / capacity_ns)
        );
    }
    Ok(())
}
