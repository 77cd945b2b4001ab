//! Malicious clients of the control socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use plimsoll_daemon::control::client::Client;
use plimsoll_daemon::control::protocol::{Answer, Request};

use super::random::Random;
use crate::common::{Host, native_or_vm, patience, wait_until};
use crate::rig::{Daemon, SHORT, of_cgroup, quota_us, remove_group, rule, shown, wait_for_quota};

/// Bound of its resident memory.
const MEMORY_MAX: u64 = 64 << 20;

fn start(host: &mut Host) -> (plimsoll_cgroupfs::CpuGroup, String) {
    let (jobs, main) = (host.group("jobs"), host.group("main"));
    let base = host.base_path();
    let text = rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"")
        + &rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"")
        + &rule(
            "g",
            &of_cgroup(&format!("{base}/g-*")),
            "quota = \"30ms/100ms\"",
        );
    (jobs, text)
}

/// Checks that other clients are answered, cgroups are limited, and control continues.
fn assert_it_works(daemon: &Daemon, jobs: &plimsoll_cgroupfs::CpuGroup) {
    let start = Instant::now();
    let state = daemon.state();
    let took = start.elapsed();
    assert!(
        took < patience(Duration::from_secs(5)),
        "answered after {took:?}"
    );
    assert!(
        state.daemon.resident_bytes < MEMORY_MAX,
        "{}",
        state.daemon.resident_bytes
    );
    let updates = |state: plimsoll_daemon::state::State| state.headroom.unwrap().nr_updates;
    let before = updates(state);
    wait_until("the controller goes on", SHORT, || {
        updates(daemon.state()) > before
    });
    let group = daemon.host.base().child("g-new");
    group.create().unwrap();
    wait_for_quota(daemon, &group, 30_000);
    remove_group(&group);
    assert!(quota_us(jobs) > 0);
}

fn connect(daemon: &Daemon) -> UnixStream {
    let stream = UnixStream::connect(daemon.socket()).unwrap();
    stream.set_read_timeout(Some(patience(SHORT))).unwrap();
    stream.set_write_timeout(Some(patience(SHORT))).unwrap();
    stream
}

#[test]
fn garbage_is_refused_without_effect_on_others() {
    let mut random = Random::of_this_run("garbage");
    let mut host = Host::shared();
    let (jobs, text) = start(&mut host);
    let daemon = Daemon::start(&host, &text);
    let envelopes = [
        r#"{"version":2,"request":"nothing"}"#,
        r#"{"version":1,"request":"reload"}"#,
        r#"{"version":3,"request":"reload"}"#,
        r#"{"version":2,"request":{"set":{"target":"jobs","knobs":{"quota":"NaN"}}}}"#,
        r#"{"version":2,"request":{"set":{"target":"/../../etc","knobs":{"cap":"5%"}}}}"#,
        r#"{"version":2,"request":{"run":{"name":"../x","pid":1,"subject":"","knobs":{}}}}"#,
        r#"{"version":2,"request":{"end":{"name":"jobs","release":true}}}"#,
        "[[[[[[[[[[[[[[[[[[[[[[[[",
        "null",
        "",
        "\0",
    ];
    let before = host.snapshot();
    for envelope in envelopes {
        let mut stream = connect(&daemon);
        stream.write_all(envelope.as_bytes()).unwrap();
        stream.write_all(b"\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        // It may be disconnected without an answer.
        let _ = stream.read_to_string(&mut answer);
        assert!(
            answer.is_empty() || answer.contains("refused"),
            "{envelope}: {answer}"
        );
    }
    for _ in 0..native_or_vm(500, 50) {
        let mut stream = connect(&daemon);
        let length = random.within(1..2_000) as usize;
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        // It may have been disconnected meanwhile.
        let _ = stream.write_all(&bytes);
    }
    // The headroom controller changes values, but not the set of files.
    assert!(host.snapshot().keys().eq(before.keys()));
    assert_it_works(&daemon, &jobs);
    daemon.stop();
}

#[test]
fn stalled_clients_do_not_delay_others() {
    let mut host = Host::shared();
    let (jobs, text) = start(&mut host);
    let daemon = Daemon::start(&host, &text);
    let mut halves = Vec::new();
    for _ in 0..30 {
        let mut half = connect(&daemon);
        half.write_all(br#"{"version":2,"requ"#).unwrap();
        halves.push(half);
    }
    let request = b"{\"version\":2,\"request\":{\"show\":{\"details\":true}}}\n";
    for _ in 0..30 {
        let mut deaf = connect(&daemon);
        deaf.set_nonblocking(true).unwrap();
        for _ in 0..1_000 {
            if deaf.write_all(request).is_err() {
                break;
            }
        }
        halves.push(deaf);
    }
    for _ in 0..5 {
        assert_it_works(&daemon, &jobs);
    }
    drop(halves);
    assert_it_works(&daemon, &jobs);
    daemon.stop();
}

#[test]
fn request_of_a_gigabyte_is_refused() {
    let mut host = Host::shared();
    let (jobs, text) = start(&mut host);
    let daemon = Daemon::start(&host, &text);
    let piece = vec![b'x'; 1 << 16];
    let mut stream = connect(&daemon);
    let mut sent: u64 = 0;
    while sent < 1 << 30 && stream.write_all(&piece).is_ok() {
        sent += piece.len() as u64;
    }
    println!("{sent} bytes were taken");
    assert!(sent < 16 << 20, "{sent}");
    assert_it_works(&daemon, &jobs);
    daemon.stop();
}

#[test]
fn five_hundred_clients_at_once_are_all_answered() {
    let clients = native_or_vm(500, 100);
    let mut host = Host::shared();
    let (jobs, text) = start(&mut host);
    let daemon = Daemon::start(&host, &text);
    let socket = daemon.socket();
    let ask = || {
        let within = patience(Duration::from_secs(60));
        let mut client = Client::connect_within(&socket, within).unwrap().unwrap();
        let request = Request::Show {
            target: None,
            details: false,
        };
        matches!(client.ask(&request).unwrap(), Answer::State(_))
    };
    let start = Instant::now();
    let answered: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(ask)).collect();
        let answers = threads.into_iter().map(|thread| thread.join().unwrap());
        answers.filter(|answered| *answered).count()
    });
    println!(
        "{answered} clients were answered in {:.1?}",
        start.elapsed()
    );
    assert_eq!(answered, clients);
    assert_it_works(&daemon, &jobs);
    daemon.stop();
}

#[test]
fn with_five_hundred_idle_connections_the_next_is_answered() {
    let mut host = Host::shared();
    let (jobs, text) = start(&mut host);
    let daemon = Daemon::start(&host, &text);
    let idle: Vec<_> = (0..500).map(|_| connect(&daemon)).collect();
    assert_it_works(&daemon, &jobs);
    assert_eq!(idle.len(), 500);
    daemon.send(Signal::SIGHUP);
    assert_it_works(&daemon, &jobs);
    daemon.stop();
}
