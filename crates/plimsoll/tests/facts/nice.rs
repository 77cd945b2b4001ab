//! Nice levels of the threads of a cgroup.

use plimsoll_engine::tasks::nice;

use crate::common::{Host, wait_until};
use crate::rig::shown;

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
    wait_until("it has its threads", || vm.threads().unwrap().len() >= 4);
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
    for end in [&["set", &target, "--reset"][..], &["restore"]] {
        for level in ["5", "6"] {
            host.run(["set", &target, "--nice", level]).good();
        }
        assert_eq!(levels(&[thread]), [6]);
        assert_eq!(levels(&others), vec![own(); others.len()]);
        assert_eq!(host.show(&target)["statistics"]["processes"], 1);
        host.run(end).good();
        assert_eq!(levels(&[thread]), [own()], "{end:?}");
    }
    let shown = host.run(["show", &target, "--json"]).good().json();
    assert_eq!(shown["cgroup"]["processes"], 1);
    process.kill_hard();
    crate::rig::remove_group(&emulator);
}
