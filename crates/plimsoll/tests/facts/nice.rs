//! Nice levels inherited from parents with a knob `nice` are reset at its end.

use crate::common::{Host, wait_until};
use crate::foreign::{policy, start};
use crate::rig::shown;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_engine::tasks::nice;

fn levels(pids: &[i32]) -> Vec<i32> {
    pids.iter().map(|pid| nice(*pid).unwrap()).collect()
}

/// Nice level of the tests and their children.
fn own() -> i32 {
    nice(std::process::id().cast_signed()).unwrap()
}

#[test]
fn only_the_threads_of_a_cgroup_have_its_nice_level() {
    let mut host = Host::new();
    let vm = host.group("vm");
    let process = host.start_load_in(&vm, "burn --threads 2 --duration 600s");
    wait_until("it has its threads", || vm.threads().unwrap().len() >= 3);
    let emulator = vm.child("em");
    emulator.create().unwrap();
    if host.is_v2() {
        emulator.make_threaded().unwrap();
        vm.enable_children().unwrap();
    }
    let threads = vm.threads().unwrap();
    let is_other = |tid: &&i32| **tid != process.pid();
    let thread = *threads.iter().find(is_other).unwrap();
    emulator.add_thread(thread).unwrap();
    let others: Vec<i32> = threads.into_iter().filter(|tid| *tid != thread).collect();
    let target = shown(&emulator);
    for is_removed in [true, false] {
        let mut enforcer = start(&host);
        for json in [r#"{"nice": "5"}"#, r#"{"nice": "6"}"#] {
            enforcer.put(&policy(&emulator, json)).unwrap();
        }
        assert_eq!(levels(&[thread]), [6]);
        assert_eq!(levels(&others), vec![own(); others.len()]);
        assert_eq!(enforcer.sample(&target, false).unwrap().processes, 1);
        match is_removed {
            true => drop(enforcer.remove(&target).unwrap()),
            false => assert_eq!(enforcer.undo().problems, [""; 0]),
        }
        assert_eq!(levels(&[thread]), [own()], "{is_removed}");
    }
    let shown = host.run(["show", &target, "--json"]).good().json();
    assert_eq!(shown["cgroup"]["processes"], 1);
    process.kill_hard();
    crate::rig::remove_group(&emulator);
}

#[test]
fn restore_after_a_kill_resets_inherited_nice_levels() {
    let host = Host::new();
    let script = "sleep 600 & (sleep 600 &); echo started; wait";
    let words = ["run", "--name", "family", "--nice", "15", "--", "sh", "-c"];
    let running = host.start(words.into_iter().chain([script]));
    wait_until("it has a child and an orphan", || {
        running.stdout().contains("started")
    });
    let processes = host.normal("family").all_processes().unwrap();
    assert_eq!(levels(&processes), [15; 3]);
    running.kill_hard();
    host.kill_owner();
    host.run(["restore"]).good();
    assert_eq!(levels(&processes), [own(); 3]);
    for pid in processes {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    host.assert_clean();
}
