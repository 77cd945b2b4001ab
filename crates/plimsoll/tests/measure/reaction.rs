//! SPEC 3, reaction: idle time after a jump of the service load, and the use of free time after a
//! fall.

use std::time::Duration;

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;

use crate::clock::sleep_ms;
use crate::common::{Running, nr_cpus, tasks_below};
use crate::figure::{ANY, SPEC_3};
use crate::switches::{Switches, Trace, now_us};

/// Share of the machine that batch work may not use, in percent, and the tolerance in points of
/// SPEC's table.
const HEADROOM: f64 = 30.0;
const WITHIN: f64 = 2.0;
/// Time after a fall until batch work uses the free time.
const ROOM: Duration = Duration::from_millis(100);
/// The window of the law.
const LAW: Duration = Duration::from_millis(100);
/// Shares of single windows of 30 ms are up to 3 points apart.
const STEPS: usize = 12;

/// An enforcer's promise.
#[derive(Debug, Clone, Copy)]
pub struct Reaction {
    /// Time after a jump until idle time is back.
    pub back: Duration,
    /// The length of a measurement after a jump: some periods in which batch work is throttled and
    /// released. A delay of a tenth of it is 3 to 5 points.
    pub window: Duration,
    /// The `grain` of the enforcer: time that each CPU may run beyond the law in a single window.
    /// Only the mean shows that the reaction is in time.
    pub grain: Duration,
    /// Least share of the service load, in percent of the machine; it demands half.
    pub main_least: f64,
}

pub const SCHED_EXT: Reaction = Reaction {
    back: Duration::from_millis(5),
    window: Duration::from_millis(30),
    grain: Duration::from_millis(6),
    main_least: 49.0,
};

pub const QUOTAS: Reaction = Reaction {
    back: Duration::from_millis(30),
    window: LAW,
    grain: Duration::from_millis(10),
    // On the stock kernel batch work has its fair share where it meets the service.
    main_least: 33.0,
};

/// A trace of steps of the service load.
struct Steps {
    seen: Switches,
    main: Vec<i32>,
    side: Vec<i32>,
}

impl Steps {
    /// Shares of tasks in windows after each step, in percent of the machine.
    fn shares(
        &self,
        tids: &[i32],
        begun_us: &[u64],
        after: Duration,
        window: Duration,
    ) -> Vec<f64> {
        let capacity = window.as_micros() as f64 * nr_cpus() as f64;
        let share = |begun_us: &u64| {
            let from = begun_us + after.as_micros() as u64;
            let to = from + window.as_micros() as u64;
            100.0 * self.seen.ran_us(tids, from, to) as f64 / capacity
        };
        begun_us.iter().map(share).collect()
    }

    /// Prints the used part of the headroom, and the idle time beyond it, after some time.
    fn print(&self, step: &str, begun_us: &[u64], after: Duration, window: Duration, grain: f64) {
        let busy = [self.main.as_slice(), &self.side].concat();
        let words = format!("{} ms after {step} of the service load", after.as_millis());
        let within = |window: Duration| format!("{words}, within {} ms", window.as_millis());
        let figure = |what: &str, value: f64, most: f64| {
            SPEC_3.figure(what, value, "% of the machine", 0.0..=most);
        };
        let used = 100.0 - HEADROOM;
        let short = self.shares(&busy, begun_us, after, window);
        let what = format!("service and batch work {}, mean", within(window));
        figure(&what, mean(&short), used + WITHIN);
        let law = self.shares(&busy, begun_us, after, LAW);
        let what = format!("service and batch work {}, most", within(LAW));
        figure(&what, most(&law), used + grain);
        let idle = self.shares(&[0], begun_us, after, LAW);
        let what = format!("idle {}, mean", within(LAW));
        figure(&what, mean(&idle), HEADROOM + WITHIN);
        let what = format!("idle {}, most", within(LAW));
        figure(&what, most(&idle), HEADROOM + grain);
    }
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

fn most(all: &[f64]) -> f64 {
    all.iter().copied().fold(f64::MIN, f64::max)
}

/// Stops and continues a service load of half the machine beside batch work, and prints the shares
/// when the headroom is due after a jump, and 100 ms after a fall.
///
/// Means have the points of SPEC's table; a single window has what all CPUs can run in a grain,
/// SPEC's and the core's bound of it.
pub fn measure(promise: Reaction, load: &Running, main: &CpuGroup, side: &CpuGroup) {
    let (main, side) = (tasks_below(main), tasks_below(side));
    let trace = Trace::start();
    sleep_ms(500);
    let (mut falls, mut jumps) = (Vec::new(), Vec::new());
    for _ in 0..STEPS {
        falls.push(now_us());
        load.send(Signal::SIGSTOP);
        sleep_ms(300);
        jumps.push(now_us());
        load.send(Signal::SIGCONT);
        sleep_ms(300);
    }
    let seen = trace.stop();
    let steps = Steps { seen, main, side };
    let grain = 100.0 * promise.grain.as_secs_f64() / LAW.as_secs_f64();
    steps.print("a jump", &jumps, promise.back, promise.window, grain);
    steps.print("a fall", &falls, ROOM, LAW, grain);
    // Otherwise there was no jump.
    let there = steps.shares(&steps.main, &jumps, promise.back, promise.window);
    let least = there.into_iter().fold(f64::MAX, f64::min);
    let bounds = promise.main_least..=ANY;
    SPEC_3.figure(
        "service load after a jump, least",
        least,
        "% of the machine",
        bounds,
    );
}
