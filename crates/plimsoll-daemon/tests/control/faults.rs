//! Misbehaving clients: none delays another. Time passes only where a test says so.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_daemon::control::connection::WHOLE_WITHIN;
use plimsoll_daemon::control::protocol::{Answer, Request};
use plimsoll_daemon::control::server::CLIENTS_MAX;

use crate::rig::wait::wait_until;
use crate::rig::{Echo, REQUEST, Rig, has_heard, state_of};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_request_that_trickles_in_is_refused_after_its_deadline_and_not_before() {
    let rig = Rig::new(Echo::default());
    let mut slow: Vec<UnixStream> = (0..10).map(|_| rig.connect()).collect();
    for passes in [WHOLE_WITHIN - MS, MS] {
        for slow in &mut slow {
            slow.write_all(b" ").unwrap();
        }
        rig.is_answered();
        assert!(!slow.iter().any(has_heard));
        rig.advance(passes);
    }
    for mut slow in slow {
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("not whole after 5 s"), "{answer}");
    }
    assert_eq!(rig.handler.answered(), 2);
}

#[test]
fn a_request_that_was_whole_in_time_outlives_a_long_answer() {
    let rest = Arc::new(Mutex::new(None::<UnixStream>));
    let handler = Echo::at_debug({
        let rest = rest.clone();
        move |echo: &Echo| {
            // The request becomes whole while another is answered, which takes longer than a
            // request may.
            let mut rest = rest.lock().unwrap();
            rest.as_mut().unwrap().write_all(&REQUEST[20..]).unwrap();
            echo.advance(WHOLE_WITHIN + MS);
        }
    });
    let rig = Rig::new(handler);
    let mut stream = rig.connect();
    stream.write_all(&REQUEST[..20]).unwrap();
    *rest.lock().unwrap() = Some(stream.try_clone().unwrap());
    rig.is_answered();
    rig.client().ask(&Request::Debug).unwrap();
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).unwrap();
    assert_eq!(&answer[..length], b"{\"text\":\"Reload\"}\n");
}

#[test]
fn a_file_comes_with_one_request_alone() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let rig = Rig::new(Echo::default());
    let mut stream = rig.connect();
    let file = std::fs::File::open("/dev/null").unwrap();
    let files = [file.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let two = [REQUEST, REQUEST].concat();
    let pieces = [std::io::IoSlice::new(&two)];
    sendmsg(&stream, &pieces, &mut control, SendFlags::empty()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("is sent by itself"), "{answer}");
    assert_eq!(rig.handler.answered(), 0);
}

#[test]
fn idle_clients_are_disconnected_while_others_wait() {
    let rig = Rig::new(Echo::default());
    let silent: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| rig.connect()).collect();
    let mut another = rig.connect();
    another.write_all(REQUEST).unwrap();
    wait_until("it is answered", || {
        rig.advance(100 * MS);
        has_heard(&another)
    });
    // The server has not hung up.
    assert_eq!(another.read(&mut [0]).unwrap(), 1);
    drop(silent);
}

#[test]
fn the_memory_of_unread_answers_is_bounded_and_slow_readers_make_room() {
    let state = Answer::State(Box::new(state_of(5_000)));
    let rig = Rig::new(Echo::answering(state));
    let ask = || {
        let mut stream = rig.connect();
        stream.write_all(REQUEST).unwrap();
        stream
    };
    let slow: Vec<UnixStream> = (0..CLIENTS_MAX - 8).map(|_| ask()).collect();
    wait_until("they are being answered", || rig.handler.answered() > 3);
    let another = ask();
    for stream in &slow {
        stream.set_nonblocking(true).unwrap();
    }
    wait_until("another is answered", || {
        // Each of them reads a little each time: none is ever seen to stand still.
        for mut stream in &slow {
            let _ = stream.read(&mut [0; 4096]);
        }
        rig.advance(500 * MS);
        has_heard(&another)
    });
    assert_eq!((&another).read(&mut [0]).unwrap(), 1);
}

#[test]
fn five_hundred_clients_at_once_are_all_answered() {
    let rig = Rig::new(Echo::default());
    std::thread::scope(|scope| {
        for _ in 0..500 {
            scope.spawn(|| {
                let answer = rig.client().ask(&Request::Reload).unwrap();
                assert_eq!(answer, Answer::Text("Reload".into()));
            });
        }
    });
    assert_eq!(rig.handler.answered(), 500);
}

#[test]
fn answers_of_megabytes_arrive_whole_and_after_the_client_hangs_up_its_writing_side() {
    let state = Answer::State(Box::new(state_of(10_000)));
    let rig = Rig::new(Echo::answering(state.clone()));
    assert_eq!(rig.client().ask(&Request::Debug).unwrap(), state);
    let answer: Answer = serde_json::from_str(&rig.exchange(REQUEST)).unwrap();
    assert_eq!(answer, state);
}
