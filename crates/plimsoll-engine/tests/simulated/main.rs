//! The owner's engine on a kernel in memory: groups, clients, actions of others, refused writes,
//! full disks, boots, and deaths between any two writes, all from a seed.
//!
//! After every single write the promises are checked: a limited process stays limited, with an
//! owner and without. After every clean stop each value is the one that others left.
//!
//! `PLIMSOLL_SEED=N` is the seed of the first world; each further world has the next number.
//! `PLIMSOLL_STEPS=N` makes more steps, or fewer. A failure prints the seed of its world: with
//! `PLIMSOLL_TRACE=1`, too, that world alone is repeated, and every step and every write is
//! printed.

mod chance;
mod shadow;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use plimsoll_cgroupfs::simulated::{self, Kernel, Watch};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy, Version, os};

use plimsoll_engine::cgroup::{CgroupEnforcer, check_place};
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::runtime::RuntimeFolder;
use world::{Counts, World, machine_policy};

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
                    counts.add(&run(first + world, false));
                }
                counts
            })
        })
        .collect();
    let mut counts = Counts::default();
    for thread in threads {
        counts.add(&thread.join().expect("a promise was broken: see above"));
    }
    println!("{counts:#?}");
    counts.check();
}

/// Checks the quota that a runtime finds: runtimes size themselves by the quota of the cgroup of
/// their process, which must not be the one that the headroom controller writes.
#[test]
fn processes_of_a_group_with_headroom_find_its_quota_or_none() {
    let path = std::path::Path::new;
    for version in [Version::V1, Version::V2] {
        for (knobs, on_v2) in [
            (r#"{"class": "batch"}"#, None),
            (r#"{"class": "batch", "quota": "50ms/100ms"}"#, Some(50_000)),
        ] {
            let mut kernel = Kernel::new(version);
            for pid in [7, std::process::id().cast_signed()] {
                kernel.tasks().start_in(pid, path(""));
            }
            simulated::install(Some(kernel));
            let hierarchy = Arc::new(Hierarchy::at_folder(path(simulated::MOUNT), version));
            let runtime = RuntimeFolder::at(path("/run/plimsoll"));
            let (mut enforcer, _) = CgroupEnforcer::adopting(&hierarchy, &runtime).unwrap();
            enforcer.set_machine(&machine_policy(true)).unwrap();
            let policy = GroupPolicy {
                name: "g".into(),
                selector: Selector::Process(7),
                knobs: serde_json::from_str(knobs).unwrap(),
                is_scheduled: false,
            };
            enforcer.add(&policy, "").unwrap();
            let place = simulated::with(|kernel| kernel.tasks().get(7).unwrap().cgroup.clone());
            let place = CpuGroup::at(&hierarchy, place);
            let found = match place.read_cpu_max() {
                Ok(max) => max.quota_usec,
                // The controller is not switched on for this cgroup.
                Err(error) if error.is_gone() => None,
                Err(error) => panic!("{error}"),
            };
            let expected = on_v2.filter(|_| version == Version::V2);
            assert_eq!(found, expected, "{version:?} {knobs}");
            let limits: Vec<_> = std::iter::successors(place.parent(), CpuGroup::parent)
                .filter_map(|group| group.read_cpu_max().ok()?.quota_usec)
                .collect();
            assert!(limits.contains(&1_000), "{version:?} {knobs}: {limits:?}");
            assert_eq!(enforcer.undo().problems, [""; 0]);
            simulated::install(None);
        }
    }
}

/// Checks that v2's threading is avoided: it would happen to a cgroup with processes where the
/// controller is enabled for the cgroups in it.
#[test]
fn a_controller_that_would_make_a_cgroup_threaded_is_refused() {
    let path = std::path::Path::new;
    for has_process in [true, false] {
        let mut kernel = Kernel::new(Version::V2);
        for group in ["app", "app/job1"] {
            kernel.cgroups().create(path(group)).unwrap();
        }
        let root = path("cgroup.subtree_control");
        kernel.others_write(root, "+cpu").unwrap();
        if has_process {
            kernel.tasks().start_in(7, path("app"));
        }
        simulated::install(Some(kernel));
        let hierarchy = Arc::new(Hierarchy::at_folder(path(simulated::MOUNT), Version::V2));
        let group = CpuGroup::at(&hierarchy, "app/job1");
        let knobs = serde_json::from_str(r#"{"quota": "50ms/100ms"}"#).unwrap();
        let checked = check_place(&group, &knobs).map_err(|error| error.to_string());
        let runtime = RuntimeFolder::at(path("/run/plimsoll"));
        let (mut enforcer, _) = CgroupEnforcer::adopting(&hierarchy, &runtime).unwrap();
        let policy = GroupPolicy {
            name: "/app/job1".into(),
            selector: Selector::Cgroup("app/job1".into()),
            knobs,
            is_scheduled: false,
        };
        let added = enforcer.add(&policy, "").map_err(|error| error.to_string());
        if has_process {
            assert!(
                added.clone().unwrap_err().contains("holds process 7"),
                "{added:?}"
            );
            assert_eq!(added, checked);
            assert!(!group.parent().unwrap().children_enabled().unwrap());
        } else {
            assert_eq!((added, checked), (Ok(()), Ok(())));
        }
        assert!(simulated::with(|kernel| kernel.broken.is_empty()));
        simulated::install(None);
    }
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
        kernel.watches.push(Watch {
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
