//! Undo: after any end of Plimsoll, nothing is left and all values are restored.

use std::fs;
use std::thread;

use crate::common::{
    Host, bandwidth_us, has_processes, is_alive, membership, task_ns, threads_of, wait_until,
};
use crate::rig::kill_all;
use nix::sys::signal::Signal;
use plimsoll_engine::tasks::nice;

#[test]
fn sigterm_releases_descendants_that_run_on() {
    let host = Host::new();
    let group = host.normal("family");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let words = "run --name family --cap 20% --quota 50ms/100ms --nice 16 -- sh -c";
        let script = "sleep 600 & sleep 600 & exit 0";
        let running = host.start(words.split(' ').chain([script]));
        wait_until("it says that it stays", || {
            running.stderr().contains("run on")
        });
        let descendants = group.all_processes().unwrap();
        let levels = descendants.iter().map(|pid| nice(*pid).unwrap());
        assert_eq!(levels.collect::<Vec<_>>(), [16; 2]);
        running.send(signal);
        running.finish().good();
        let this = std::process::id().cast_signed();
        for &pid in &descendants {
            assert!(is_alive(pid));
            assert_eq!(membership(pid), membership(this));
            assert_eq!(nice(pid).unwrap(), nice(this).unwrap());
        }
        kill_all(&descendants);
        host.assert_clean();
    }
}

#[test]
fn groups_that_come_and_go_at_once_leave_nothing() {
    const ROUNDS: usize = 12;
    let host = Host::new();
    let knobs = [
        "",
        "--cap 50%",
        "--quota 50ms/100ms --burst 20ms",
        "--class batch",
        "--soft-cap 0%",
        "--class batch --headroom 10% --cap 80%",
        "--cap 20% --per-task",
        "--quota 50ms/100ms --cap 20% --nice 5",
    ];
    thread::scope(|scope| {
        for worker in knobs {
            let host = &host;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let words = format!("run {worker} -- true");
                    let finished = host.run(words.split_whitespace());
                    assert_eq!(finished.code(), 0, "{worker}: {finished:?}");
                    assert_eq!(finished.stderr, "", "{worker}");
                }
            });
        }
    });
    host.assert_clean();
}

#[test]
fn restore_without_an_owner_moves_running_processes_out_of_their_groups() {
    let host = Host::new();
    let group = host.normal("orphans");
    let running = host.start_load(
        "--name orphans --quota 2ms/100ms",
        "burn --threads 2 --duration 600s",
    );
    let first = || group.all_processes().ok()?.first().copied();
    wait_until("it runs", || {
        first().is_some_and(|pid| threads_of(pid).len() > 3)
    });
    let orphan = first().unwrap();
    running.kill_hard();
    host.kill_owner();
    // It is still limited, and reported.
    assert!(has_processes(&group));
    assert_eq!(bandwidth_us(&group), (2_000, 100_000, 0));
    for words in [&["show"][..], &["show", "orphans"]] {
        let left = host.run(words).good().stdout;
        assert!(left.contains("LEFT BEHIND"), "{left}");
    }
    // Without its journal it is no group that is undone.
    let journal = host.runtime().join("groups.journal");
    let aside = host.runtime().join("aside");
    fs::rename(&journal, &aside).unwrap();
    let lost = host.run(["restore"]);
    let told = "orphans: its journal is lost";
    assert!(lost.refusal().contains(told), "{lost:?}");
    assert_eq!(lost.stdout, "");
    fs::rename(&aside, &journal).unwrap();
    let restored = host.run(["restore"]).good().stdout;
    assert!(restored.contains("undone: orphans"), "{restored}");
    assert!(is_alive(orphan));
    assert_eq!(
        membership(orphan),
        membership(i32::try_from(std::process::id()).unwrap())
    );
    let used = || -> u64 { threads_of(orphan).into_iter().filter_map(task_ns).sum() };
    let before = used();
    wait_until("it runs freely", || used() > before + 50_000_000);
    kill_all(&[orphan]);
    host.assert_clean();
}
