//! The whole owner on a kernel in memory: configuration, clients, the watch of cgroups, actions of
//! others, refused writes, full disks, boots, and deaths and panics between any two writes, all
//! from a seed.
//!
//! After every single write the promises are checked: a limited process stays limited, with an
//! owner and without. After every clean stop each value is the one that others left.
//!
//! `PLIMSOLL_SEED=N` is the seed of the first world; each further world has the next number.
//! `PLIMSOLL_STEPS=N` makes more steps, or fewer. A failure prints the seed of its world: with
//! `PLIMSOLL_TRACE=1`, too, that world alone is repeated, and every step and every write is
//! printed.

#[allow(clippy::unwrap_used)]
mod cases;
mod chance;
#[allow(clippy::unwrap_used)]
#[path = "../../../plimsoll-engine/tests/kernel/mod.rs"]
mod kernel;
mod shadow;
mod stock;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use plimsoll_cgroupfs::simulated::{self, Kernel, PromiseWatch};
use plimsoll_cgroupfs::{Version, os};

use world::{Counts, World};

/// Number of steps in all; `make audit` makes a million.
const STEPS: u64 = 250_000;
/// Seed of the first world.
const SEED: u64 = 0;
/// Number of steps in each world: a failure in a young world is easier to read.
const STEPS_EACH: u64 = 200;
/// Number of worlds that run at a time: they have nothing in common.
const THREADS: u64 = 2;

/// Parses a number from the environment.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text}: not a number")),
    )
}

fn run(seed: u64, is_traced: bool) -> Counts {
    let version = if seed.is_multiple_of(3) {
        Version::V1
    } else {
        Version::V2
    };
    let mut kernel = Kernel::new(version);
    kernel.trace = is_traced.then(Vec::new);
    simulated::install(Some(kernel));
    let mut world = World::new(seed, version, is_traced);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..STEPS_EACH {
            world.step();
        }
        world.stop();
        std::mem::take(&mut world.counts)
    }));
    let counts = ran.unwrap_or_else(|problem| {
        let step = world.counts.steps;
        let text = problem.downcast_ref::<String>();
        panic!("PLIMSOLL_SEED={seed} PLIMSOLL_TRACE=1 step {step}: {text:?}");
    });
    drop(world);
    simulated::install(None);
    counts
}

#[test]
fn promises_hold_in_every_random_step() {
    let first = number("PLIMSOLL_SEED").unwrap_or(SEED);
    if number("PLIMSOLL_TRACE").is_some_and(|trace| trace > 0) {
        run(first, true);
        return;
    }
    let steps = number("PLIMSOLL_STEPS").unwrap_or(STEPS);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            thread::spawn(move || {
                let mut counts = Counts::default();
                let worlds = steps / STEPS_EACH / THREADS;
                for world in thread * worlds..(thread + 1) * worlds {
                    counts.add(run(first + world, false));
                }
                counts
            })
        })
        .collect();
    let mut counts = Counts::default();
    for thread in threads {
        counts.add(thread.join().expect("a promise was broken: see above"));
    }
    println!("{counts:#?}");
    counts.check();
}

/// Breaks the promise, to show that the tests above can fail.
#[test]
fn a_limit_that_is_lifted_for_one_write_is_noticed() {
    let mut kernel = Kernel::new(Version::V1);
    let group = std::path::Path::new("a");
    kernel.cgroups().create(group).unwrap();
    kernel.tasks().start_in(7, group);
    simulated::install(Some(kernel));
    let quota = std::path::Path::new(simulated::MOUNT).join("a/cpu.cfs_quota_us");
    os::write(&quota, "20000").unwrap();
    simulated::with(|kernel| {
        kernel.watches.push(PromiseWatch {
            pid: 7,
            rate_max_ppm: Some(200_000),
            is_idle: false,
        });
    });
    os::write(&quota, "10000").unwrap();
    assert!(simulated::with(|kernel| kernel.broken.is_empty()));
    os::write(&quota, "-1").unwrap();
    os::write(&quota, "20000").unwrap();
    assert_eq!(simulated::with(|kernel| kernel.broken.len()), 1);
    simulated::install(None);
}
