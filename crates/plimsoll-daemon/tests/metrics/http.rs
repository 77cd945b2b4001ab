//! A small HTTP client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time after which a server counts as hung, so that the test ends.
const HUNG: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// In lower case, a line each.
    pub head: String,
    pub body: String,
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HUNG)).unwrap();
    stream
}

/// Asks once; `None`: there was no answer.
pub fn try_request(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &str,
) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(HUNG)).ok()?;
    // Of HTTP 1.0, so that the answer has no chunks.
    let request = format!("{method} {target} HTTP/1.0\r\nHost: test\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some(Answer {
        status: head.split(' ').nth(1)?.parse().ok()?,
        head: head.to_lowercase(),
        body: body.to_owned(),
    })
}

pub fn request(address: SocketAddr, method: &str, target: &str, headers: &str) -> Answer {
    try_request(address, method, target, headers).expect("an answer")
}

pub fn get(address: SocketAddr, target: &str) -> Answer {
    request(address, "GET", target, "")
}

/// Encodes a text for the query of a target.
pub fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
