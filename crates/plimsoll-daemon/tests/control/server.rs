//! One client at a time, and the socket itself.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use nix::unistd::{Group, geteuid};
use plimsoll_daemon::control::client::{Client, ClientError};
use plimsoll_daemon::control::protocol::{Answer, Choice, OPERATORS, Request, SetRequest};
use plimsoll_daemon::control::server::{Server, ServerError};
use plimsoll_engine::knobs::Knobs;

use crate::rig::{Echo, Rig};

#[test]
fn only_the_user_and_roots_operators_may_connect_until_the_server_stops() {
    let rig = Rig::new(Echo::default());
    let socket = std::fs::metadata(&rig.path).unwrap();
    let operators = Group::from_name(OPERATORS).unwrap();
    match operators.filter(|_| geteuid().is_root()) {
        Some(group) => {
            assert_eq!(socket.permissions().mode() & 0o777, 0o660);
            assert_eq!(socket.gid(), group.gid.as_raw());
        }
        None => assert_eq!(socket.permissions().mode() & 0o777, 0o600),
    }
    rig.server.stop();
    assert!(!rig.path.exists());
    assert!(Client::connect(&rig.path).unwrap().is_none());
}

#[test]
fn the_socket_of_an_ended_daemon_is_replaced_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists() && Client::connect(&path).unwrap().is_none());

    let server = Server::bind(&path, Arc::new(Echo::default())).unwrap();
    assert!(Client::connect(&path).unwrap().is_some());
    let second = Server::bind(&path, Arc::new(Echo::default()));
    assert!(matches!(second, Err(ServerError::Taken { .. })));
    server.stop();
}

#[test]
fn a_later_daemons_socket_is_left_alone() {
    let rig = Rig::new(Echo::default());
    std::fs::remove_file(&rig.path).unwrap();
    let later = Server::bind(&rig.path, Arc::new(Echo::default())).unwrap();
    rig.server.stop();
    assert!(Client::connect(&rig.path).unwrap().is_some());
    later.stop();
}

#[test]
fn a_request_that_is_too_long_is_not_sent() {
    let rig = Rig::new(Echo::default());
    let request = Request::Set(Box::new(SetRequest {
        target: "x".repeat(70_000),
        knobs: Knobs::default(),
        choice: Choice::default(),
    }));
    let refused = rig.client().ask(&request).unwrap_err();
    assert!(matches!(refused, ClientError::TooLong));
    assert_eq!(rig.handler.answered(), 0);
}

#[test]
fn a_request_of_another_version_is_refused_with_both_versions() {
    let rig = Rig::new(Echo::default());
    let answer = rig.exchange(b"{\"version\":9,\"request\":{\"new\":[]},\"more\":1}\n");
    let Answer::Refused(why) = serde_json::from_str(&answer).unwrap() else {
        panic!("{answer}")
    };
    assert!(
        why.contains("version 9") && why.contains("version 5"),
        "{why}"
    );
    assert_eq!(rig.handler.answered(), 0);
    assert_eq!(rig.handler.unreadable(), 1);
}

#[test]
fn a_daemon_that_fails_at_one_request_answers_the_next() {
    let rig = Rig::new(Echo::at_debug(|_| panic!("a fault of this test")));
    let mut client = rig.client();
    let answer = client.ask(&Request::Debug).unwrap();
    assert!(matches!(answer, Answer::Refused(why) if why.contains("failed")));
    assert!(matches!(
        client.ask(&Request::Reload).unwrap(),
        Answer::Text(_)
    ));
}
