//! A daemon that ends before it has answered: the client knows whether the request was read.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use plimsoll_daemon::control::client::{Client, ClientError};
use plimsoll_daemon::control::protocol::{Answer, Request};

/// Asks for a change, while a thread plays the daemon.
fn ask(daemon: impl FnOnce(UnixListener) + Send) -> Result<Answer, ClientError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut client = Client::connect(&path).unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| daemon(listener));
        client.ask(&Request::Reload)
    })
}

fn is_unread(ended: Result<Answer, ClientError>) -> bool {
    match ended {
        Err(ClientError::Ended { is_unread, .. }) => is_unread,
        other => panic!("{other:?}"),
    }
}

fn accept(listener: &UnixListener) -> UnixStream {
    listener.accept().unwrap().0
}

fn read_request(client: &UnixStream) {
    BufReader::new(client)
        .read_line(&mut String::new())
        .unwrap();
}

#[test]
fn a_request_is_unread_if_the_client_was_not_accepted_or_not_read_to_the_end() {
    assert!(is_unread(ask(drop)));
    assert!(is_unread(ask(|listener| {
        let mut client = accept(&listener);
        client.read_exact(&mut [0; 10]).unwrap();
        // The client cannot connect again.
        drop(listener);
    })));
}

#[test]
fn a_request_that_was_read_may_have_been_carried_out_and_is_not_sent_again() {
    let ended = ask(|listener| {
        read_request(&accept(&listener));
        let mut again = String::new();
        listener.set_nonblocking(true).unwrap();
        // Only a client that asks again is accepted.
        if let Ok((client, _)) = listener.accept() {
            BufReader::new(client).read_line(&mut again).unwrap();
        }
        assert_eq!(again, "");
    });
    assert!(!is_unread(ended));
}

#[test]
fn an_unread_request_is_sent_again_to_the_daemon_that_listens() {
    let answer = ask(|listener| {
        accept(&listener).read_exact(&mut [0]).unwrap();
        let mut client = accept(&listener);
        read_request(&client);
        let answer = serde_json::to_vec(&Answer::Text("done".into())).unwrap();
        client
            .write_all(&[answer, b"\n".to_vec()].concat())
            .unwrap();
    });
    assert_eq!(answer.unwrap(), Answer::Text("done".into()));
}
