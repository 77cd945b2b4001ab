//! Start and stop.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use nix::sys::signal::Signal;

use crate::common::{Host, wait_until};
use crate::moments::Changes;
use crate::rig::{Daemon, of_cgroup, quota_us, rule, rule_of, shown};

/// Metrics of a daemon, as they come over HTTP.
pub fn metrics(daemon: &Daemon) -> String {
    let log = daemon.log();
    let address = log.split("metrics at http://").nth(1).unwrap();
    let address = address.split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_served_on_the_address_of_the_file_as_soon_as_it_is_free() {
    let mut host = Host::new();
    let group = host.group("web");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let text = format!("[metrics]\nlisten = \"{address}\"\n")
        + &rule_of("web", &group, "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    assert_eq!(quota_us(&group), 30_000);
    daemon.wait_for_log("metrics.listen: cannot serve metrics");
    let problems = daemon.state().daemon.problems;
    let told = |problem: &String| problem.contains(&address.to_string());
    assert!(problems.iter().any(told), "{problems:?}");
    drop(taken);
    daemon.wait_for_log("metrics at http://");
    wait_until("nothing is wrong any more", || {
        daemon.state().daemon.problems.is_empty()
    });
    let answer = metrics(&daemon);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("plimsoll_"), "{answer}");
    assert!(answer.contains(&shown(&group)), "{answer}");
    daemon.stop();
}

#[test]
fn a_stop_in_the_middle_of_a_start_leaves_nothing() {
    let mut host = Host::new();
    let groups: Vec<_> = (0..40)
        .map(|index| host.group(&format!("g{index}")))
        .collect();
    let pattern = format!("{}/g*", host.base_path());
    let text = rule(
        "all",
        &of_cgroup(&pattern),
        "quota = \"30ms/100ms\", weight = 40",
    );
    let mut daemon = Daemon::ready(&host, &text);
    // At once, and after the nth change of its files, of which there are few.
    for moment in 0..8 {
        let mut changes = Changes::of(host.runtime());
        daemon.launch();
        changes.wait_for(moment, || !daemon.is_running() || host.owner().is_some());
        daemon.send(Signal::SIGTERM);
        daemon.wait_until_it_ended();
        // Before it handles signals it ends by them, and has changed nothing yet.
        daemon.assert_as_before();
    }
    assert_eq!(quota_us(&groups[0]), -1);
}
