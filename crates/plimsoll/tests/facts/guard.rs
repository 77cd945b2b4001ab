//! The guard of the fair class: attached for batch work, and detached soon after it.

use std::os::unix::process::CommandExt as _;

use plimsoll_daemon::state::GuardState;

use crate::common::{Host, command_of, in_vm, threads_of, wait_until};

/// Knobs of batch work on the stock kernel.
const BATCH: &str = "--enforcer cgroup --class batch";

fn state(host: &Host) -> Option<GuardState> {
    host.owner().expect("an owner runs").daemon.guard
}

/// Scheduling policies of the guard's threads in the owner.
fn threads(host: &Host) -> Vec<i32> {
    let policy = |tid: i32| {
        let command = command_of(tid)?;
        // SAFETY: it takes a number.
        let policy = || unsafe { libc::sched_getscheduler(tid) };
        command.starts_with("guard-").then(policy)
    };
    let tids = threads_of(host.owner_pid());
    tids.into_iter().filter_map(policy).collect()
}

/// The worst factor of the lab that doctor knows for this host.
fn worst_factor(host: &Host, guard: &str) -> Option<f64> {
    let doctor = host.run(["doctor", "--json"]).good().json();
    let factors = doctor["expected"][guard].as_array().cloned();
    let factors = factors.expect("four loads").into_iter();
    factors.filter_map(|it| it.as_f64()).max_by(f64::total_cmp)
}

#[test]
fn run_says_what_a_service_has_to_expect_with_the_guard_and_without() {
    for (switch, guard) in [("on", "guard"), ("off", "no_guard")] {
        let host = Host::new();
        let doctor = host.run(["doctor", "--json"]).good().json();
        if switch == "on" && doctor["guard"] != "yes" {
            continue;
        }
        let mut command = host.plimsoll(format!("run {BATCH} true").split(' '));
        command.env("PLIMSOLL_GUARD", switch);
        let told = host.spawn(command).finish().good().stderr;
        match worst_factor(&host, guard) {
            Some(factor) if factor >= 1.5 => {
                assert!(told.contains(&format!("{factor:.1} ×")), "{told}");
            }
            None if switch == "off" => assert!(told.contains("several times"), "{told}"),
            _ => assert_eq!(told, "", "a service hardly feels it"),
        }
    }
}

#[test]
fn an_owner_that_may_attach_no_guard_has_its_privileged_clients_say_so() {
    // CAP_SYS_ADMIN, CAP_PERFMON and CAP_BPF, in include/uapi/linux/capability.h.
    privileged_clients_say_so(&[21, 38, 39]);
}

#[test]
fn an_owner_that_gets_no_real_time_threads_has_its_privileged_clients_say_so() {
    // CAP_SYS_NICE.
    privileged_clients_say_so(&[23]);
}

/// `lacks`: the capabilities that the owner has not.
fn privileged_clients_say_so(lacks: &'static [libc::c_int]) {
    let host = Host::new();
    let off = ["run", "--enforcer", "cgroup", "--class", "batch", "true"];
    let mut without = host.plimsoll(off);
    without.env("PLIMSOLL_GUARD", "off");
    let expected = host.spawn(without).finish().good().stderr;
    assert!(host.end_idle_owner());
    let mut first = host.plimsoll(["run", "--name", "first", "--", "sleep", "600"]);
    // SAFETY: system calls that take numbers.
    unsafe {
        first.pre_exec(move || {
            for capability in lacks {
                if libc::prctl(libc::PR_CAPBSET_DROP, *capability, 0, 0, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let first = host.spawn(first);
    wait_until("there is an owner", || host.owner().is_some());
    // Before the owner has tried to attach it, and afterwards.
    assert_eq!(host.run(off).good().stderr, expected);
    wait_until("it is refused", || {
        state(&host).is_none_or(|it| it.problem.is_some())
    });
    assert_eq!(host.run(off).good().stderr, expected);
    first.stop();
}

#[test]
fn the_guard_is_attached_while_a_batch_group_is_there() {
    let host = Host::new();
    let other = host.sleeper("other", "--enforcer cgroup --weight 50");
    assert_eq!(state(&host), None);
    assert!(threads(&host).is_empty());
    let work = host.sleeper("work", BATCH);
    wait_until("the guard is attached or refused", || {
        state(&host).is_some()
    });
    let shown = host.run(["show"]).good().stdout;
    match state(&host).expect("it is there").problem {
        None => {
            let threads = threads(&host);
            assert!(!threads.is_empty());
            let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
            assert!(threads.iter().all(|it| *it == policy), "{threads:?}");
            assert!(shown.contains("guard: attached"), "{shown}");
        }
        Some(problem) => {
            assert!(!in_vm(), "these kernels have all that it needs: {problem}");
            wait_until("they have ended", || threads(&host).is_empty());
            assert!(
                shown.contains(&format!("guard: none, {problem}")),
                "{shown}"
            );
        }
    }
    work.stop();
    wait_until("it is detached", || {
        state(&host).is_none() && threads(&host).is_empty()
    });
    other.stop();
}

/// Tests for guests only: where other work runs, there may never be a CPU with nothing but batch
/// work.
mod vm_only {
    use std::process::Command;

    use nix::errno::Errno;
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::{BATCH, state, threads};
    use crate::common::{
        Host, Offline, Running, is_stopped, nr_cpus, on_cpus, on_one_cpu, task_ns, threads_of,
        wait_until, wait_until_busy,
    };

    fn wait_until_attached(host: &Host) {
        wait_until("the guard is attached", || state(host).is_some());
        let problem = state(host).and_then(|state| state.problem);
        assert_eq!(problem, None, "these kernels have all that it needs");
    }

    /// A host whose guard is attached, with batch work that always runs.
    fn beside_burners() -> (Host, Running) {
        let host = Host::new();
        let knobs = format!("--name work {BATCH}");
        let work = host.start_load(&knobs, "burn --threads 4 --duration 600s");
        wait_until("the owner runs", || host.owner().is_some());
        wait_until_attached(&host);
        (host, work)
    }

    /// Starts normal work that always runs.
    fn spinner(host: &Host) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        host.spawn(command)
    }

    /// Starts batch work that begins other work all the time.
    fn forks(host: &Host) -> Running {
        let knobs = ["run", "--name", "forks"]
            .into_iter()
            .chain(BATCH.split(' '));
        let forks = host.start(knobs.chain(["--", "sh", "-c", "while :; do /bin/true; done"]));
        wait_until("it runs", || host.batch("forks").all_processes().is_ok());
        forks
    }

    /// Waits until no batch work is bound: a move does so for a moment only.
    fn wait_until_free(host: &Host, everywhere: CpuSet) {
        wait_until("batch work is free", || {
            let groups = ["work", "forks"].map(|name| host.batch(name).all_processes());
            let processes = groups.into_iter().flat_map(|all| all.expect("it is there"));
            let cpus_of = |tid| sched_getaffinity(Pid::from_raw(tid));
            // A child may end meanwhile.
            let mut cpus = processes.flat_map(threads_of).map(cpus_of);
            cpus.all(|cpus| cpus == Ok(everywhere) || cpus == Err(Errno::ESRCH))
        });
    }

    fn cpus_of(task: &Running) -> CpuSet {
        sched_getaffinity(Pid::from_raw(task.pid())).expect("it runs")
    }

    fn choose(task: &Running, cpus: &CpuSet) {
        sched_setaffinity(Pid::from_raw(task.pid()), cpus).expect("it runs");
    }

    /// Returns when a task has run for some time.
    fn let_run(task: &Running) {
        let ran_ns = || task_ns(task.pid()).expect("it runs");
        let begin_ns = ran_ns();
        wait_until("it runs", || ran_ns() > begin_ns + 5_000_000);
    }

    #[test]
    fn a_task_that_waits_for_normal_work_is_moved_and_stays_free() {
        let (host, work) = beside_burners();
        let forks = forks(&host);
        let everywhere = sched_getaffinity(Pid::from_raw(0)).expect("it runs");
        // From its begin, so that no move of it is under way.
        let bound = on_cpus(1, || spinner(&host));
        let first = cpus_of(&bound);
        let free = [spinner(&host), spinner(&host)];
        wait_until("a task is moved", || {
            // Where the kernel has moved one first, both begin anew.
            for spinner in &free {
                choose(spinner, &first);
                choose(spinner, &everywhere);
            }
            state(&host).is_some_and(|state| state.counts.nr_pulled > 0)
        });
        // So is batch work.
        wait_until_free(&host, everywhere);
        work.stop();
        forks.stop();
        wait_until("it is detached", || threads(&host).is_empty());
        for spinner in &free {
            assert_eq!(cpus_of(spinner), everywhere);
        }
        assert_eq!(cpus_of(&bound), first, "somebody chose its CPU");
    }

    #[test]
    fn batch_work_that_is_owed_is_moved_and_stays_free() {
        let (mut host, work) = beside_burners();
        let forks = forks(&host);
        let everywhere = sched_getaffinity(Pid::from_raw(0)).expect("it runs");
        let group = host.group("service");
        let service = host.start_load_in(&group, "service --rate 2000 --duration 1h");
        wait_until("batch work is moved", || {
            state(&host).is_some_and(|state| state.counts.nr_pushed > 0)
        });
        service.kill_hard();
        wait_until_free(&host, everywhere);
        work.stop();
        forks.stop();
    }

    #[test]
    fn the_next_owner_attaches_a_guard_after_a_killed_one() {
        let (host, work) = beside_burners();
        host.kill_owner();
        host.sleeper("other", BATCH).stop();
        wait_until_attached(&host);
        assert!(!threads(&host).is_empty());
        work.stop();
    }

    #[test]
    fn a_cpu_that_goes_and_comes_back_has_a_guard() {
        let (host, work) = beside_burners();
        let nr_all = nr_cpus();
        assert_eq!(threads(&host).len(), nr_all);
        let offline = Offline::take(nr_all - 1);
        wait_until("the others have one", || {
            state(&host).is_some() && threads(&host).len() == nr_all - 1
        });
        drop(offline);
        wait_until("it has one again", || {
            state(&host).is_some() && threads(&host).len() == nr_all
        });
        work.stop();
    }

    #[test]
    fn cpus_that_a_user_chooses_before_a_move_stay() {
        let (host, work) = beside_burners();
        let everywhere = sched_getaffinity(Pid::from_raw(0)).expect("it runs");
        // From their begin, so that no move is under way when the owner is stopped.
        let [bound, chosen] = on_cpus(1, || [spinner(&host), spinner(&host)]);
        let first = cpus_of(&bound);
        let owner = Pid::from_raw(host.owner_pid());
        for _ in 0..20 {
            // Its threads are woken to move the task, and do not come to it.
            kill(owner, Signal::SIGSTOP).expect("it is there");
            wait_until("it is stopped", || is_stopped(owner.as_raw()));
            choose(&chosen, &first);
            choose(&chosen, &everywhere);
            let_run(&bound);
            choose(&chosen, &first);
            kill(owner, Signal::SIGCONT).expect("it goes on");
            assert!(state(&host).is_some());
            let_run(&chosen);
            assert_eq!(cpus_of(&chosen), first);
        }
        work.stop();
    }

    #[test]
    fn idle_work_inside_a_normal_cgroup_is_no_inversion_for_others() {
        let mut host = Host::new();
        let work = host.sleeper("work", BATCH);
        wait_until_attached(&host);
        let pods = host.group("pods");
        let below = pods.child("below");
        below.create().expect("it is created");
        pods.enable_children().expect("it has the controller");
        below.write_idle(true).expect("it is marked");
        let other = host.group("other");
        let load = "burn --threads 1 --duration 600s";
        let groups = [&below, &other];
        let running = on_one_cpu(|| groups.map(|group| host.start_load_in(group, load)));
        for group in groups {
            wait_until_busy(group);
        }
        let counts = state(&host).expect("it is attached").counts;
        assert_eq!((counts.nr_inverted, counts.nr_woken), (0, 0), "{counts:?}");
        for process in running {
            process.kill_hard();
        }
        work.stop();
    }
}
