//! A process that was stopped while it held the lock of the runtime folder.

use crate::common::{Host, StoppedHolder};
use crate::rig::{Daemon, Sleeper, is_in, own_group, quota_us, rule, shown, wait_until_in};

fn of_processes(name: &str, sleeper: &Sleeper) -> String {
    let matches = format!("executable = \"{}\"", sleeper.path());
    rule(name, &matches, "quota = \"50ms/100ms\"")
}

#[test]
fn a_stopped_process_with_the_lock_holds_up_nothing_but_what_needs_it() {
    let mut host = Host::shared();
    let home = host.group("home");
    let sleeper = Sleeper::new(&format!("plimsoll-lock-{}", std::process::id()));
    let member = host.start_in(&home, sleeper.words());
    let daemon = Daemon::start(&host, "");
    let holder = StoppedHolder::of(host.runtime());
    // A group of Plimsoll's own has a journal, and that takes the lock.
    let waiting = of_processes("waiting", &sleeper);
    let others = rule(
        "others",
        &format!("cgroup = \"{}\"", shown(&home)),
        "quota = \"40ms/100ms\"",
    );
    daemon.reload_with(&(waiting.clone() + &others));
    let told = format!("its lock is held by process {} (", holder.pid());
    daemon.wait_for_log(&told);
    assert_eq!(quota_us(&home), 40_000);
    let problem = daemon.group("waiting").unwrap().problem.unwrap();
    assert!(problem.contains(&told), "{problem}");
    assert!(!is_in(&host, member.pid(), "waiting"));

    drop(holder);
    wait_until_in(&daemon, member.pid(), "waiting");
    let told = daemon.log();
    assert_eq!(told.matches("its lock is held").count(), 1, "{told}");

    // What is put back does not wait for it.
    let holder = StoppedHolder::of(host.runtime());
    daemon.reload_with(&others);
    assert!(own_group(&host, "waiting").is_none(), "{}", daemon.log());
    assert!(home.processes().unwrap().contains(&member.pid()));
    daemon.reload_with("");
    assert_eq!(quota_us(&home), -1);
    drop(holder);
    // With the empty parent, which nobody could remove before.
    daemon.stop();
}
