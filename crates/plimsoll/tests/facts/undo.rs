//! Undo: after any end of Plimsoll, nothing is left and all values are restored.

use std::thread;

use crate::common::{
    Host, bandwidth_us, has_processes, is_alive, membership, task_ns, threads_of, wait_for,
    wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks::nice;

fn end(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

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
        for pid in descendants {
            assert!(is_alive(pid));
            assert_eq!(membership(pid), membership(this));
            assert_eq!(nice(pid).unwrap(), nice(this).unwrap());
            end(pid);
        }
        host.assert_clean();
    }
}

#[test]
fn sigterm_and_sigint_end_the_command_and_undo_everything() {
    let host = Host::new();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        for knobs in [
            "--cap 20%",
            "--class batch --headroom 30%",
            "--soft-cap 0%",
            "--cap 30% --per-task",
        ] {
            let words = format!("run --name g {knobs} -- sleep 600");
            let running = host.start(words.split(' '));
            wait_until("it is there", || {
                ["plimsoll/g", "plimsoll-batch/g", "plimsoll-soft-g"]
                    .iter()
                    .any(|name| has_processes(&host.base().child(name)))
            });
            running.send(signal);
            let finished = running.finish();
            assert_eq!(
                finished.code(),
                128 + signal as i32,
                "{knobs}: {finished:?}"
            );
            host.assert_clean();
        }
    }
}

/// The kernel in memory loses cgroups of groups of all kinds.
#[test]
fn externally_removed_group_is_created_again_and_its_command_continues() {
    let mut host = Host::new();
    let refuge = host.group("refuge");
    let words = "run --name g --class batch --headroom 30% -- sleep 600";
    let running = host.start(words.split(' '));
    let group = host.batch("g");
    let command = wait_for("its command", || {
        let pid = *group.all_processes().ok()?.first()?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name == "sleep\n").then_some(pid)
    });
    // The owner has answered, so it watches the group.
    host.show("g");
    let inode = || {
        let found = std::fs::metadata(group.cpu_file(""));
        found.map(|found| std::os::unix::fs::MetadataExt::ino(&found))
    };
    let before = inode().unwrap();
    wait_until("it is removed", || {
        // Not the recreated one.
        let is_there = inode().is_ok_and(|now| now == before);
        if is_there {
            let _ = refuge.add_process(command);
            remove_tree(&group);
        }
        !is_there
    });
    wait_until("it is made again", || {
        let is_another = inode().is_ok_and(|now| now != before);
        is_another && group.all_processes().is_ok_and(|all| all == [command])
    });
    let finished = running.stop();
    assert_eq!((finished.code(), &*finished.stderr), (143, ""));
    wait_until("everything is as it was", || host.is_clean());
}

fn remove_tree(group: &CpuGroup) {
    for child in group.children().unwrap_or_default() {
        remove_tree(&child);
    }
    // The folder of the cpu controller, which the owner watches, is the first.
    for folder in group.folders().iter().rev() {
        let _ = std::fs::remove_dir(folder);
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
    let all = host.run(["show"]).good().stdout;
    assert!(all.contains("LEFT BEHIND"), "{all}");
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
    end(orphan);
    host.assert_clean();
}
