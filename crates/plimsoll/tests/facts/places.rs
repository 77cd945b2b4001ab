//! Checks before a write: the harm of a request to others, and their limits around it.

use crate::common::{Host, bandwidth_us, max, membership, wait_for, wait_until};
use crate::rig::shown;
use plimsoll_engine::tasks;

#[test]
fn real_time_tasks_are_counted_and_told() {
    let host = Host::new();
    if host.base().cpu_file("cpu.rt_runtime_us").exists() {
        // This kernel lets none into a group; then the caller may not be one.
        let words = ["-f", "5", crate::common::binary().to_str().unwrap()].map(str::to_owned);
        let mut command = std::process::Command::new("chrt");
        command
            .args(words)
            .args(["run", "--cap", "10%", "--", "true"]);
        host.confine(&mut command);
        let refused = host.spawn(command).finish();
        assert!(
            refused.refusal().contains("is a real-time task"),
            "{refused:?}"
        );
        // Nor may a process of which another thread is one.
        let burner = host.spawn(host.plimsoll("load burn --threads 2 --duration 600s".split(' ')));
        let pid = burner.pid();
        let another = || tasks::threads(pid).into_iter().find(|tid| *tid != pid);
        let tid = wait_for("it has two threads", another).to_string();
        let chrt = std::process::Command::new("chrt")
            .args(["-f", "-p", "5", &tid])
            .status();
        assert!(chrt.unwrap().success());
        let refused = host.run(["set", &pid.to_string(), "--cap", "10%"]);
        burner.kill_hard();
        assert!(refused.one_line().contains("or has one"), "{refused:?}");
        return;
    }
    let run = "run --name rt --cap 10% -- chrt -f 5 sleep 600";
    let run = host.start(run.split(' '));
    wait_until("it has become one", || {
        host.owner().is_some_and(|state| {
            let groups = state.groups.iter();
            let samples = groups.filter_map(|group| group.statistics.as_ref());
            samples.map(|sample| sample.real_time).sum::<u64>() == 1
        })
    });
    let shown = host.run(["show", "rt"]).good().stdout;
    assert!(shown.contains("real-time   1 tasks"), "{shown}");
    let told = host.run(["set", "rt", "--cap", "20%"]).good().stderr;
    assert!(told.contains("real-time tasks, 1 now"), "{told}");
    run.stop();
    // Also one that nobody has looked at meanwhile.
    let run = ["run", "--cap", "10%", "--", "chrt", "-f", "5", "true"];
    let told = host.run(run).good().stderr;
    assert!(told.contains("was a real-time task"), "{told}");
}

mod v1_only {
    use std::fs;

    use super::*;

    #[test]
    fn a_parent_in_one_of_two_hierarchies_is_completed_and_left_as_it_was() {
        let mut host = Host::new();
        let outer = host.group("outer");
        let folders = outer.child("plimsoll").folders();
        let run = || {
            let mut command = host.plimsoll(["run", "--cap", "50%", "true"]);
            command.env(
                "PLIMSOLL_CGROUP_BASE",
                format!("/{}", outer.path().display()),
            );
            let finished = host.spawn(command).finish();
            host.end_idle_owner();
            finished
        };
        for present in &folders {
            fs::create_dir(present).unwrap();
            run().good();
            let left: Vec<bool> = folders.iter().map(|it| it.exists()).collect();
            let expected: Vec<bool> = folders.iter().map(|it| it == present).collect();
            assert_eq!(left, expected);
            fs::remove_dir(present).unwrap();
        }
        // The base itself is not made, but named.
        for gone in outer.folders().iter().skip(1) {
            fs::remove_dir(gone).unwrap();
            let finished = run();
            fs::create_dir(gone).unwrap();
            let expected = format!("{}: no such cgroup (from ", gone.display());
            assert!(finished.refusal().contains(&expected), "{finished:?}");
        }
    }

    #[test]
    fn quota_beyond_that_of_the_parent_is_refused_with_its_name() {
        let mut host = Host::new();
        let (pod, container) = (host.group("pod"), host.group("pod/ctr"));
        pod.write_cpu_max(&max("50ms/100ms")).unwrap();
        let target = shown(&container);
        let expected = format!("{} has 50%", shown(&pod));
        for dry_run in [&[][..], &["--dry-run"]] {
            let words = ["set", &target, "--quota", "600ms/1s"];
            let refused = host.run(words.iter().chain(dry_run));
            assert!(refused.refusal().contains(&expected), "{refused:?}");
        }
        // And a parent has no less than what is inside.
        container.write_cpu_max(&max("30ms/100ms")).unwrap();
        let refused = host.run(["set", &shown(&pod), "--cap", "20%"]);
        assert!(
            refused.one_line().contains(&format!("{target} has 30%")),
            "{refused:?}"
        );
        assert_eq!(bandwidth_us(&pod).0, 50_000);
        host.run(["set", &target, "--quota", "500ms/1s"]).good();
        host.run(["set", &target, "--reset"]).good();
        assert_eq!(bandwidth_us(&container).0, 30_000);
    }

    #[test]
    fn caps_of_tasks_inside_of_headroom_are_refused() {
        let host = Host::new();
        let knobs = "run --class batch --headroom 30% --cap 50% --per-task -- true";
        let refused = host.run(knobs.split(' '));
        assert!(
            refused
                .refusal()
                .contains("per-task: cannot be `true` here"),
            "{refused:?}"
        );
    }
}

mod v2_only {
    use super::*;
    use crate::common::{begin_in, binary, with_own_mounts};

    #[test]
    fn process_with_threads_in_cgroups_of_their_own_is_left_alone() {
        let mut host = Host::new();
        let vm = host.group("vm");
        let process = host.start_load_in(&vm, "burn --threads 2 --duration 600s");
        wait_until("it has its threads", || vm.threads().unwrap().len() >= 4);
        let vcpu = vm.child("vcpu0");
        vcpu.create().unwrap();
        vcpu.make_threaded().unwrap();
        vm.enable_children().unwrap();
        vcpu.write_cpu_max(&max("20ms/100ms")).unwrap();
        let threads = vm.threads().unwrap().into_iter();
        let thread = threads
            .into_iter()
            .find(|tid| *tid != process.pid())
            .unwrap();
        vcpu.add_thread(thread).unwrap();
        let refused = host.run(["set", &process.pid().to_string(), "--cap", "50%"]);
        assert!(
            refused
                .refusal()
                .contains("threads in cgroups of their own"),
            "{refused:?}"
        );
        assert_eq!(vcpu.threads().unwrap(), [thread]);
        // All of it can be limited together.
        host.run(["set", &shown(&vm), "--quota", "50ms/100ms"])
            .good();
        assert_eq!(vcpu.threads().unwrap(), [thread]);
        host.run(["set", &shown(&vm), "--reset"]).good();
        process.kill_hard();
        crate::rig::remove_group(&vcpu);
    }

    /// The owner is in a container: in a cgroup that it takes for the root, whose processes are
    /// further down.
    #[test]
    fn owner_in_a_cgroup_namespace_stays_out_of_the_top_cgroup() {
        let mut host = Host::new();
        let container = host.group("container");
        let script = "set -e
            umount -l \"$MOUNT\"
            mount -t cgroup2 none \"$MOUNT\"
            mkdir \"$MOUNT/init\"
            echo $$ >\"$MOUNT/init/cgroup.procs\"
            unset PLIMSOLL_CGROUP_BASE
            \"$0\" run --name inner --cap 50% -- cat /proc/self/cgroup";
        let mut command = with_own_mounts(script);
        command.arg(binary());
        begin_in(&mut command, &container, libc::CLONE_NEWCGROUP);
        let finished = host.finish_with_mount(command).good();
        assert_eq!(finished.stdout, "0::/plimsoll/inner\n", "{finished:?}");
        assert_eq!(finished.stderr, "", "{finished:?}");
        let owner = membership(host.owner_pid());
        assert!(owner.trim_end().ends_with("/container/init"), "{owner}");
        assert!(container.processes().unwrap().is_empty());
        wait_until("the owner has ended", || host.end_idle_owner());
        assert!(!container.children_enabled().unwrap(), "as it was");
        crate::rig::remove_group(&container.child("init"));
        host.assert_clean();
    }

    #[test]
    fn cgroup_without_the_controller_is_shown_as_far_as_it_goes() {
        let mut host = Host::new();
        let app = host.group("app");
        let process = host.start_in(&app, ["sleep", "600"]);
        let bare = app.child("bare");
        bare.create().unwrap();
        let text = host.run(["show", &shown(&bare)]).good().stdout;
        assert!(
            text.contains("no cpu controller") && text.contains("cpu time"),
            "{text}"
        );
        let json = host.run(["show", &shown(&bare), "--json"]).good().json();
        assert!(
            json["cgroup"]["usage_usec"].is_u64() && json["cgroup"].get("weight").is_none(),
            "{json}"
        );
        process.stop();
        crate::rig::remove_group(&bare);
    }
}
