//! Misbehaving clients: none delays another.

#![allow(clippy::unwrap_used)]

mod control_common;

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use control_common::{Echo, Rig, as_user, state_of, wait_until};
use plimsoll_daemon::control::protocol::{Answer, Request};
use plimsoll_daemon::control::server::{CLIENTS_MAX, USER_CLIENTS_MAX};

const REQUEST: &[u8] = b"{\"version\":2,\"request\":\"reload\"}\n";
/// Far more than it takes, far less than the deadlines that others have.
const SOON: Duration = Duration::from_secs(20);

/// Sends a request as a well-behaved client.
#[track_caller]
fn is_answered_soon(rig: &Rig) {
    let began = Instant::now();
    rig.client().ask(&Request::Reload).unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn garbage_is_refused_line_by_line() {
    let rig = Rig::new(Echo::default());
    let answers = rig.exchange(b"garbage\n\n\xff\xfe\n{\"version\":2}\n[[[[\n");
    assert_eq!(answers.lines().count(), 5);
    for line in answers.lines() {
        let answer: Answer = serde_json::from_str(line).unwrap();
        assert!(matches!(answer, Answer::Refused(why) if why.starts_with("not a request")));
    }
    assert_eq!(rig.handler.answered(), 0);
    assert_eq!(rig.handler.unreadable(), 5);
}

#[test]
fn an_unfinished_request_is_refused_after_its_deadline() {
    let rig = Rig::new(Echo::default());
    let mut halves: Vec<UnixStream> = (0..10).map(|_| rig.connect()).collect();
    for half in &mut halves {
        half.write_all(&REQUEST[..20]).unwrap();
    }
    is_answered_soon(&rig);
    for mut half in halves {
        let mut answer = String::new();
        half.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("not whole after 5 s"), "{answer}");
    }
    assert_eq!(rig.handler.answered(), 1);
}

#[test]
fn a_request_that_was_whole_in_time_outlives_a_long_answer() {
    // Longer than any request may take to be whole.
    let rig = Rig::new(Echo::taking(Duration::from_secs(6)));
    let mut other = rig.connect();
    let mut half = rig.connect();
    half.write_all(&REQUEST[..20]).unwrap();
    // It arrives before the other asks.
    std::thread::sleep(Duration::from_millis(200));
    other.write_all(REQUEST).unwrap();
    wait_until("the other is being answered", || {
        rig.handler.answered() == 1
    });
    half.write_all(&REQUEST[20..]).unwrap();
    half.set_read_timeout(Some(SOON)).unwrap();
    let mut answer = [0; 64];
    let length = half.read(&mut answer).unwrap();
    assert_eq!(&answer[..length], b"{\"text\":\"Reload\"}\n");
}

#[test]
fn a_request_that_trickles_in_is_refused_after_its_deadline() {
    let rig = Rig::new(Echo::default());
    let mut slow = rig.connect();
    let began = Instant::now();
    // One byte at a time would take a minute and more.
    let refused = std::iter::repeat_n(b' ', 600).any(|byte| {
        std::thread::sleep(Duration::from_millis(100));
        slow.write_all(&[byte]).is_err()
    });
    assert!(refused && began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn idle_clients_are_disconnected_while_others_wait() {
    let rig = Rig::new(Echo::default());
    let silent: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| rig.connect()).collect();
    is_answered_soon(&rig);
    drop(silent);
}

#[test]
fn other_clients_are_served_beside_clients_that_never_read() {
    let state = Answer::State(Box::new(state_of(5_000)));
    let rig = Rig::new(Echo::answering(state));
    let deaf: Vec<UnixStream> = (0..CLIENTS_MAX - 1)
        .map(|_| {
            let mut stream = rig.connect();
            stream.write_all(REQUEST).unwrap();
            stream
        })
        .collect();
    wait_until("they are being answered", || rig.handler.answered() > 3);
    is_answered_soon(&rig);
    drop(deaf);
    is_answered_soon(&rig);
}

/// Clients of several users take root.
fn assert_root() {
    assert!(nix::unistd::geteuid().is_root(), "THIS TEST NEEDS ROOT");
}

#[test]
fn all_clients_are_served_beside_users_that_read_slowly() {
    assert_root();
    let state = Answer::State(Box::new(state_of(5_000)));
    let rig = Rig::new(Echo::answering(state));
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            as_user(1000);
            let ask = |_| {
                let mut stream = rig.connect();
                stream.set_nonblocking(true).unwrap();
                stream.write_all(REQUEST).unwrap();
                stream
            };
            let mut slow: Vec<UnixStream> = (0..USER_CLIENTS_MAX - 8).map(ask).collect();
            while !is_over.load(Ordering::Relaxed) {
                // Something always moves: none of them is ever seen to stand still.
                for stream in &mut slow {
                    let _ = stream.read(&mut [0; 4096]);
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        // More than the limit of unread answers.
        wait_until("many are being answered", || rig.handler.answered() > 8);
        rig.client().ask(&Request::Reload).unwrap();
        println!("an operator was answered after {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(4));
        let another = scope.spawn(|| {
            as_user(1001);
            rig.client().ask(&Request::Reload).unwrap();
            began.elapsed()
        });
        let took = another.join().unwrap();
        println!("another user was answered after {took:?}");
        is_over.store(true, Ordering::Relaxed);
        assert!(took < Duration::from_secs(28));
    });
}

#[test]
fn operators_are_served_during_a_flood_of_connections_of_users() {
    assert_root();
    let rig = Rig::new(Echo::default());
    let is_over = AtomicBool::new(false);
    let comers = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                as_user(1000);
                // Some stay, with half a request: there is no room for more.
                let mut halves: Vec<UnixStream> = (0..10).map(|_| rig.connect()).collect();
                while !is_over.load(Ordering::Relaxed) {
                    for half in &mut halves {
                        if half.write_all(b"{").is_err() {
                            *half = rig.connect();
                        }
                        for _ in 0..20 {
                            drop(rig.connect());
                        }
                        comers.fetch_add(20, Ordering::Relaxed);
                    }
                }
            });
        }
        wait_until("they come", || comers.load(Ordering::Relaxed) > 5_000);
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            let began = Instant::now();
            rig.client().ask(&Request::Reload).unwrap();
            longest = longest.max(began.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
        println!("an operator was answered within {longest:?}");
        assert!(longest < Duration::from_secs(4), "{longest:?}");
    });
}

#[test]
fn no_memory_or_file_is_kept_for_clients_that_vanish() {
    let rig = Rig::new(Echo::answering(Answer::State(Box::new(state_of(2_000)))));
    for number in 0..300 {
        let mut stream = rig.connect();
        let missing = number % 3;
        stream
            .write_all(&REQUEST[..REQUEST.len() - missing])
            .unwrap();
        if missing == 0 && number % 2 == 0 {
            let _ = stream.read(&mut [0; 100]);
        }
    }
    is_answered_soon(&rig);
}

/// All at once, each on a thread of its own.
fn crowd(rig: &Rig, uid: Option<u32>, clients: usize) -> usize {
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                uid.inspect(|uid| as_user(*uid));
                let answer = rig.client().ask(&Request::Reload).unwrap();
                assert_eq!(answer, Answer::Text("Reload".into()));
                answered.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    answered.into_inner()
}

#[test]
fn five_hundred_clients_at_once_are_all_answered() {
    let rig = Rig::new(Echo::taking(Duration::from_millis(1)));
    assert_eq!(crowd(&rig, None, 500), 500);
    assert_eq!(rig.handler.answered(), 500);
}

#[test]
fn five_hundred_clients_of_a_user_are_all_answered() {
    assert_root();
    let rig = Rig::new(Echo::taking(Duration::from_millis(1)));
    assert_eq!(crowd(&rig, Some(1000), 500), 500);
    assert_eq!(rig.handler.answered(), 500);
}

#[test]
fn slots_are_kept_for_operators() {
    assert_root();
    let rig = Rig::new(Echo::default());
    let halves = std::thread::scope(|scope| {
        let connect = || {
            as_user(1000);
            // Half a request is not resting: these keep their places.
            let one = |_| {
                let mut stream = rig.connect();
                let _ = stream.write_all(b"{");
                stream
            };
            (0..2 * CLIENTS_MAX).map(one).collect::<Vec<_>>()
        };
        scope.spawn(connect).join().unwrap()
    });
    let began = Instant::now();
    rig.client().ask(&Request::Reload).unwrap();
    // Before those have had their time.
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    let is_busy = |mut stream: UnixStream| {
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.contains("busy")
    };
    let busy = halves.into_iter().map(is_busy).filter(|is| *is).count();
    assert_eq!(busy, 2 * CLIENTS_MAX - USER_CLIENTS_MAX);
}

#[test]
fn a_client_that_hangs_up_its_writing_side_still_reads_all() {
    let state = state_of(3_000);
    let rig = Rig::new(Echo::answering(Answer::State(Box::new(state.clone()))));
    let mut stream = rig.connect();
    stream.write_all(REQUEST).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let answer: Answer = serde_json::from_str(&text).unwrap();
    assert_eq!(answer, Answer::State(Box::new(state)));
}
