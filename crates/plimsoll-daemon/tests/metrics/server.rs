//! The server, with good and bad clients.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use plimsoll_daemon::metrics::{Limits, MetricsServer, openmetrics};

use crate::fixture::{self, Served};
use crate::http::{connect, get, request, try_request};
use crate::wait::wait_until;

/// Header that Prometheus 2.42 sends.
const ACCEPT: &str = "Accept: application/openmetrics-text;version=1.0.0,\
    application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";

fn start_with_state() -> (Served, String) {
    let text = openmetrics(fixture::state(100));
    let served = text.clone();
    (Served::start(move || served.clone()), text)
}

#[test]
fn every_client_gets_openmetrics_with_any_accept_header() {
    let (server, text) = start_with_state();
    for accept in [ACCEPT, "", "Accept: text/plain;version=0.0.4\r\n"] {
        let answer = request(server.address, "GET", "/metrics", accept);
        assert_eq!(answer.status, 200);
        let content_type =
            "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(answer.head.contains(content_type), "{}", answer.head);
        assert_eq!(answer.body, text);
    }
}

#[test]
fn a_browser_finds_the_way_and_the_rest_is_refused() {
    let (server, _) = start_with_state();
    let address = server.address;
    let page = get(address, "/");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("href=\"/metrics\""), "{}", page.body);
    assert_eq!(get(address, "/secret").status, 404);
    let refused = request(address, "POST", "/metrics", "Content-Length: 0\r\n");
    assert_eq!(refused.status, 405);
    assert!(
        refused.head.contains("allow: get, head"),
        "{}",
        refused.head
    );
    let head = request(address, "HEAD", "/metrics", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(!head.head.contains("content-length: 0"), "{}", head.head);
}

#[test]
fn the_text_is_never_made_twice_at_once_and_always_anew() {
    static RUNNING: AtomicU64 = AtomicU64::new(0);
    static MADE: AtomicU64 = AtomicU64::new(0);
    let server = Served::start(|| {
        assert_eq!(RUNNING.fetch_add(1, Ordering::SeqCst), 0);
        thread::yield_now();
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        format!("made {}\n# EOF\n", MADE.fetch_add(1, Ordering::SeqCst))
    });
    let address = server.address;
    let ask = || get(address, "/metrics").body;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        for client in clients {
            assert!(client.join().unwrap().starts_with("made "));
        }
    });
    let (first, second) = (ask(), ask());
    assert_ne!(first, second);
}

#[test]
fn a_request_that_is_too_large_or_no_request_is_refused() {
    let (server, text) = start_with_state();
    let address = server.address;
    let large = format!("X-Large: {}\r\n", "x".repeat(64 << 10));
    let many: String = (0..100).map(|n| format!("X-{n}: y\r\n")).collect();
    for headers in [large, many] {
        // The connection may be reset before the refusal is read.
        if let Some(refused) = try_request(address, "GET", "/metrics", &headers) {
            assert_eq!(refused.status, 431);
        }
    }
    let mut stream = connect(address);
    stream
        .write_all(b"\x16\x03\x01 no http at all\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(!answer.contains(" 200 "), "{answer}");
    assert_eq!(get(address, "/metrics").body, text);
}

#[test]
fn a_request_that_is_never_finished_is_given_up() {
    let limits = Limits {
        head: Duration::from_millis(1),
        ..Limits::default()
    };
    let server = Served::at(fixture::ANY_PORT, String::new, limits);
    let mut slow = connect(server.address);
    slow.set_nonblocking(true).unwrap();
    // A byte now and then does not help.
    wait_until("it is closed", || {
        let is_taken = slow.write_all(b"G").is_ok();
        let read = slow.read(&mut [0; 1024]);
        let is_open = read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        !is_taken || !is_open
    });
}

/// Runs in a process of its own, whose memory no other test uses.
#[test]
fn new_clients_are_served_and_memory_bounded_beside_clients_that_never_read() {
    const ALONE: &str = "PLIMSOLL_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return clients_that_never_read();
    }
    let name = "server::new_clients_are_served_and_memory_bounded_beside_clients_that_never_read";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let is_good = output.status.success() && said.contains("1 passed");
    assert!(is_good, "{said}{}", String::from_utf8_lossy(&output.stderr));
}

fn clients_that_never_read() {
    let state = Arc::new(fixture::many_groups(5000));
    let text = openmetrics(Arc::clone(&state));
    let server = Served::start(move || openmetrics(Arc::clone(&state)));
    let before = resident_bytes();
    let request_text = format!("GET /metrics HTTP/1.1\r\nHost: test\r\n{ACCEPT}\r\n");
    let deaf: Vec<_> = (0..30)
        .map(|_| {
            let mut stream = connect(server.address);
            stream.write_all(request_text.as_bytes()).unwrap();
            // Waits until the answer begins.
            stream.peek(&mut [0]).unwrap();
            stream
        })
        .collect();
    let grown = resident_bytes().saturating_sub(before);
    // The text of each of eight connections, another that is being made, and what the others
    // have cost.
    let allowed = 10 * text.len() as u64 + 30 * (512 << 10);
    println!(
        "30 deaf clients, {} bytes each: {grown} bytes more",
        text.len()
    );
    assert!(grown < allowed, "{grown} of {allowed}");
    let answer = get(server.address, "/metrics");
    assert!(answer.body == text);
    drop(deaf);
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_server_that_has_stopped_has_freed_its_address() {
    let (server, _) = start_with_state();
    let address = server.address;
    let mut idle = connect(address);
    assert_eq!(get(address, "/metrics").status, 200);
    server.server.stop();
    assert_eq!(idle.read(&mut [0; 1]).unwrap_or(0), 0);
    assert!(try_request(address, "GET", "/metrics", "").is_none());
    assert_eq!(
        Served::at(address, String::new, Limits::default()).address,
        address
    );
}

#[test]
fn an_address_in_use_is_reported_and_a_server_that_waits_for_it_can_stop() {
    let (server, _) = start_with_state();
    let (sender, reports) = channel();
    let report = move |result| sender.send(result).unwrap();
    let second =
        MetricsServer::start(server.address, String::new, report, Limits::default()).unwrap();
    let refused: io::Result<SocketAddr> = reports.recv().unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AddrInUse);
    second.stop();
}
