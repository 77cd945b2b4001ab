//! SPEC 3, reaction: how soon idle time is back at the headroom after a jump of the main load,
//! and how soon side work has the room after a fall.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;

use super::switches::{Trace, now_us};
use super::{Running, ms, nr_cpus, tasks_below};

/// Of the group that asks, in percent of the machine.
const HEADROOM: f64 = 30.0;
/// Points, as for SPEC's table.
const WITHIN: f64 = 2.0;
/// After a fall side work has the room.
const ROOM: Duration = Duration::from_millis(100);
/// The window of the law.
const LAW: Duration = Duration::from_millis(100);
/// Shares of single windows of 30 ms are up to 3 points apart.
const STEPS: usize = 12;

/// An enforcer's promise.
#[derive(Debug, Clone, Copy)]
pub struct Reaction {
    /// So soon after a jump idle time is back.
    pub back: Duration,
    /// The length of a measurement after a jump: some turns in which side work comes and goes.
    /// Work that is late by a tenth of it is 3 to 5 points off.
    pub window: Duration,
    /// The `grain` that the enforcer gives to the core: what each CPU may run beyond the law in a
    /// single window. Only the mean shows that the reaction is in time.
    pub grain: Duration,
    /// The least that the main load gets, in percent of the machine; it wants half of it.
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
    // The stock kernel gives side work of the normal class its fair share where the two meet.
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

    /// Others, such as the daemon, may take of the headroom, so soon before the end of a window
    /// that nothing could make up for it.
    fn leaves_headroom(&self, within: f64) -> bool {
        self.side + self.main <= 100.0 - HEADROOM + within
    }

    fn uses_the_rest(&self, within: f64) -> bool {
        self.idle <= HEADROOM + within
    }
}

/// Stops and continues a main load of half the machine beside side work, and says whether
/// 1. the headroom is back when it is due after a jump, and
/// 2. side work has the room, and not the headroom, 100 ms after a fall.
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
    println!("The main load jumps.");
    let (jumped, is_back) = is_kept(&jumps, promise.back, promise.window);
    let is_there = |shares: &Shares| shares.main >= promise.main_least;
    assert!(jumped.iter().all(is_there), "the main load is not there");
    println!("The main load falls.");
    let (_, has_room) = is_kept(&falls, ROOM, LAW);
    [is_back, has_room]
}
