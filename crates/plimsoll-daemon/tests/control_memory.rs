//! The server's memory for clients is limited. Alone in its process, whose
//! memory is measured.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "control/rig.rs"]
mod rig;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use plimsoll_daemon::control::protocol::{Answer, Request};
use plimsoll_daemon::control::server::CLIENTS_MAX;
use rig::wait::wait_until;
use rig::{Echo, REQUEST, Rig, state_of};

const MIB: u64 = 1 << 20;

/// The most memory that this process had resident since `forget_peak`.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn has_hung_up(stream: &UnixStream) -> bool {
    let mut files = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    poll(&mut files, PollTimeout::ZERO).unwrap() > 0
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn memory_is_bounded_with_long_requests_and_unread_answers() {
    let rig = Rig::new(Echo::answering(Answer::State(Box::new(state_of(5_000)))));
    let files = open_files();
    forget_peak();
    let before = peak_bytes();

    // A gigabyte on one line, and one on many.
    for piece in [&[b'x'; 65_536][..], &b"{}\n".repeat(20_000)[..]] {
        let mut stream = rig.connect();
        stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        wait_until("it is disconnected", || {
            while let Ok(length) = stream.write(piece) {
                sent += length;
                assert!(sent < 1 << 30, "it took everything");
            }
            rig.advance(Duration::from_secs(1));
            has_hung_up(&stream)
        });
    }
    let grown = peak_bytes() - before;
    assert!(grown < 8 * MIB, "{grown} bytes");

    let deaf: Vec<UnixStream> = (0..CLIENTS_MAX)
        .map(|_| {
            let mut stream = rig.connect();
            stream.write_all(REQUEST).unwrap();
            stream
        })
        .collect();
    // Each of these answers has more than 1 MB.
    wait_until("many are being answered", || {
        rig.advance(Duration::from_millis(100));
        rig.handler.answered() > 16
    });
    let grown = peak_bytes() - before;
    assert!(grown < 40 * MIB, "{grown} bytes");
    drop(deaf);
    rig.client().ask(&Request::Debug).unwrap();
    wait_until("their files are closed", || open_files() <= files);
}
