//! SPEC 3, reaction: time until idle time is back at the headroom after a jump of the service
//! load, and until batch work uses the free time after a fall.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;

use super::switches::{Trace, now_us};
use super::{Running, ms, nr_cpus, tasks_below};

/// Headroom in percent of the machine.
const HEADROOM: f64 = 30.0;
/// Points, as for SPEC's table.
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
    /// Minimum share of the service load, in percent of the machine; it demands half.
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

/// Shares of the machine in one window, in percent.
#[derive(Debug, Clone, Copy)]
struct Shares {
    side: f64,
    main: f64,
    idle: f64,
}

impl Shares {
    fn mean(all: &[Self]) -> Self {
        let mean = |share: fn(&Self) -> f64| all.iter().map(share).sum::<f64>() / all.len() as f64;
        Self {
            side: mean(|shares| shares.side),
            main: mean(|shares| shares.main),
            idle: mean(|shares| shares.idle),
        }
    }

    /// Other work, such as the daemon, may use the headroom so late in a window that it cannot be
    /// balanced.
    fn leaves_headroom(&self, within: f64) -> bool {
        self.side + self.main <= 100.0 - HEADROOM + within
    }

    fn uses_the_rest(&self, within: f64) -> bool {
        self.idle <= HEADROOM + within
    }
}

/// Stops and continues a service load of half the machine beside batch work, and says whether
/// 1. the headroom is back when it is due after a jump, and
/// 2. batch work has the room, and not the headroom, 100 ms after a fall.
///
/// Both hold on average within the points of SPEC's table, and in the law's window after each
/// step within what all CPUs can run in a grain, SPEC's and the core's bound of a single window.
pub fn is_prompt(promise: Reaction, load: &Running, main: &CpuGroup, side: &CpuGroup) -> [bool; 2] {
    let (main, side) = (tasks_below(main), tasks_below(side));
    let trace = Trace::start();
    thread::sleep(ms(500));
    let (mut falls, mut jumps) = (Vec::new(), Vec::new());
    for _ in 0..STEPS {
        falls.push(now_us());
        load.send(Signal::SIGSTOP);
        thread::sleep(ms(300));
        jumps.push(now_us());
        load.send(Signal::SIGCONT);
        thread::sleep(ms(300));
    }
    let seen = trace.stop();
    let shares = |begun_us: &u64, after: Duration, window: Duration| {
        let from = begun_us + after.as_micros() as u64;
        let to = from + window.as_micros() as u64;
        let capacity = window.as_micros() as f64 * nr_cpus() as f64;
        let percent = |tids: &[i32]| 100.0 * seen.ran_us(tids, from, to) as f64 / capacity;
        Shares {
            side: percent(&side),
            main: percent(&main),
            idle: percent(&[0]),
        }
    };
    let grain = 100.0 * promise.grain.as_secs_f64() / LAW.as_secs_f64();
    let is_kept = |begun_us: &[u64], after: Duration, window: Duration| {
        let of = |window| -> Vec<_> {
            let all = begun_us
                .iter()
                .map(|begun_us| shares(begun_us, after, window));
            all.collect()
        };
        let (short, law) = (of(window), of(LAW));
        let (mean, mean_of_law) = (Shares::mean(&short), Shares::mean(&law));
        println!("FIGURE: {after:?} after it, {window:?}: mean {mean:.2?} of {short:.2?}");
        let is_lawful = |one: &Shares| one.leaves_headroom(grain) && one.uses_the_rest(grain);
        let is_kept = mean.leaves_headroom(WITHIN)
            && mean_of_law.uses_the_rest(WITHIN)
            && law.iter().all(is_lawful);
        (short, is_kept)
    };
    println!("The service load jumps.");
    let (jumped, is_back) = is_kept(&jumps, promise.back, promise.window);
    let is_there = |shares: &Shares| shares.main >= promise.main_least;
    assert!(jumped.iter().all(is_there), "the service load is not there");
    println!("The service load falls.");
    let (_, has_room) = is_kept(&falls, ROOM, LAW);
    [is_back, has_room]
}
