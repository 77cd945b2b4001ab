//! Client of a web server: HTTP/1.1 over persistent connections.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_load::clock::precise_timers;
use plimsoll_load::{Ledger, Requests, ServiceReport};

use super::requests::{measured, spawn};
use crate::error::{LabError, Result};

/// Connections, each with one request at a time.
const CONNECTIONS: usize = 16;
/// Maximum size of a response head, in bytes.
const HEAD_MAX: u64 = 65_536;
/// Status codes that count as success.
const SUCCESS: std::ops::Range<u16> = 200..300;

/// Gets a page from a web server, once for each request that is due, and measures the latency.
/// Requests wait while all connections are in use.
pub fn request(address: SocketAddr, path: &str, requests: &Requests) -> Result<ServiceReport> {
    let get = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: plimsoll-lab\r\nAccept: */*\r\n\
         Accept-Encoding: gzip\r\n\r\n"
    );
    let connect = |_| {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let streams: io::Result<Vec<_>> = (0..CONNECTIONS).map(connect).collect();
    let streams = streams.map_err(LabError::load("connecting"))?;
    let pool = Arc::new(WorkerPool::new(get.into_bytes(), streams));
    let ledger = Arc::new(Ledger::new(requests));
    for index in 0..CONNECTIONS {
        let (pool, ledger) = (Arc::clone(&pool), Arc::clone(&ledger));
        spawn("load-reader", move || {
            // Ends only with the connection or the process.
            let _ = pool.read_answers(index, &ledger);
            ledger.stop();
        })?;
    }
    measured(&ledger, |number, _| pool.submit(number))
}

/// The connections, and the requests that use one or wait for one, by number.
struct WorkerPool {
    get: Vec<u8>,
    streams: Vec<TcpStream>,
    state: Mutex<State>,
}

struct State {
    /// Idle connections, longest idle first.
    idle: VecDeque<usize>,
    /// The request on each connection.
    in_flight: Vec<u64>,
    waiting: VecDeque<u64>,
}

impl WorkerPool {
    fn new(get: Vec<u8>, streams: Vec<TcpStream>) -> Self {
        let state = State {
            idle: (0..streams.len()).collect(),
            in_flight: vec![0; streams.len()],
            waiting: VecDeque::new(),
        };
        Self {
            get,
            streams,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, number: u64) -> io::Result<()> {
        let mut state = self.state();
        let Some(index) = state.idle.pop_front() else {
            state.waiting.push_back(number);
            return Ok(());
        };
        state.in_flight[index] = number;
        drop(state);
        (&self.streams[index]).write_all(&self.get)
    }

    fn read_answers(&self, index: usize, ledger: &Ledger) -> io::Result<()> {
        precise_timers();
        let mut input = BufReader::new(&self.streams[index]);
        loop {
            let status = read_answer(&mut input)?;
            let mut state = self.state();
            let number = state.in_flight[index];
            let next = state.waiting.pop_front();
            match next {
                Some(next) => state.in_flight[index] = next,
                None => state.idle.push_back(index),
            }
            drop(state);
            ledger.answered(number, SUCCESS.contains(&status));
            if next.is_some() {
                (&self.streams[index]).write_all(&self.get)?;
            }
        }
    }
}

/// Reads one response completely and returns its status.
fn read_answer(input: &mut impl BufRead) -> io::Result<u16> {
    let mut head = input.take(HEAD_MAX);
    let status = read_line(&mut head)?
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| invalid("the status line"))?;
    let (mut length, mut is_chunked) = (None, false);
    loop {
        let line = read_line(&mut head)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid("a field"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok(),
            "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    match length {
        _ if is_chunked => skip_chunks(input)?,
        Some(bytes) => skip(input, bytes)?,
        None => return Err(invalid("the length of the body")),
    }
    Ok(status)
}

fn skip_chunks(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let line = read_line(&mut input.take(HEAD_MAX))?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let bytes = u64::from_str_radix(digits, 16).map_err(|_| invalid("a chunk"))?;
        skip(input, bytes)?;
        // Optional trailer fields follow the last chunk, then an empty line.
        while !read_line(&mut input.take(HEAD_MAX))?.is_empty() {
            if bytes > 0 {
                return Err(invalid("a chunk"));
            }
        }
        if bytes == 0 {
            return Ok(());
        }
    }
}

fn skip(input: &mut impl BufRead, bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut input.take(bytes), &mut io::sink())?;
    if skipped == bytes {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Reads a line, without its terminator.
fn read_line(input: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(text) => Ok(text.trim_end_matches('\r').to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is not valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_to_their_end() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 404 Not Found\r\ntransfer-encoding: Chunked\r\n\r\n\
            3;x=y\r\nabc\r\n0\r\nTrailer: t\r\n\r\n\
            HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";
        let mut input = text.as_bytes();
        let statuses: Vec<u16> = (0..3).map(|_| read_answer(&mut input).unwrap()).collect();
        assert_eq!(statuses, [200, 404, 204]);
        assert!(input.is_empty());
        assert!(read_answer(&mut input).is_err());
    }

    #[test]
    fn bad_answers_are_errors() {
        for text in [
            "hello\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        ] {
            assert!(read_answer(&mut text.as_bytes()).is_err(), "{text}");
        }
    }
}
