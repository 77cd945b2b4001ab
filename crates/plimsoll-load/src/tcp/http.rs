//! Client of a web server: HTTP/1.1 over persistent connections.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::client::CONNECT_TIMEOUT;
use super::{check_connections, check_loopback};
use crate::clock::precise_timers;
use crate::config::ServiceConfig;
use crate::error::LoadError;
use crate::measure::Measure;
use crate::openloop::{Sink, new_measure, spawn};
use crate::run::{Backend, OpenLoop};
use crate::schedule::Request;

/// Maximum size of a response head, in bytes.
const HEAD_MAX: u64 = 65_536;
/// Status codes that count as success.
const SUCCESS: std::ops::Range<u16> = 200..300;

/// Request to a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Path of the page, starting with `/`.
    pub path: String,
    /// Connections, each with one request in flight, 1 to
    /// [`CONNECTIONS_MAX`](crate::limits::CONNECTIONS_MAX). Requests wait while all are in use.
    pub connections: usize,
}

impl HttpConfig {
    fn validate(&self) -> Result<(), LoadError> {
        check_connections(self.connections)?;
        if self.path.starts_with('/') && self.path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(());
        }
        let allowed = "a path of printable ASCII characters that begins with '/'";
        Err(LoadError::invalid("http", &self.path, allowed))
    }
}

/// Starts getting a page from the web server at `address`, once for each
/// request that is due. `config.workers` and `config.demand` are not used. A
/// response with another status than success is a failure.
///
/// # Errors
/// [`LoadError::Invalid`] for a setting out of range or an address that isn't
/// loopback,
/// [`LoadError::Io`] if there is no connection.
pub fn http(
    address: SocketAddr,
    http: &HttpConfig,
    config: &ServiceConfig,
) -> Result<OpenLoop, LoadError> {
    check_loopback("connect", address)?;
    http.validate()?;
    config.validate()?;
    let get = format!(
        "GET {} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: plimsoll-load\r\nAccept: */*\r\n\
         Accept-Encoding: gzip\r\n\r\n",
        http.path
    );
    let streams = (0..http.connections)
        .map(|_| connect(address))
        .collect::<Result<Vec<_>, _>>()?;
    let pool = Arc::new(Pool::new(get.into_bytes(), streams));
    let measure = new_measure(config, http.connections)?;
    let mut backend = Pages {
        pool: Arc::clone(&pool),
        readers: Vec::new(),
        path: http.path.clone(),
    };
    for index in 0..http.connections {
        let (pool, measure) = (Arc::clone(&pool), Arc::clone(&measure));
        backend.readers.push(spawn("load-reader", move || {
            pool.read_answers(index, &measure);
        })?);
    }
    let generator_lane = http.connections;
    let sink = Pooled(pool);
    OpenLoop::start(
        config,
        None,
        measure,
        generator_lane,
        sink,
        Box::new(backend),
    )
}

fn connect(address: SocketAddr) -> Result<TcpStream, LoadError> {
    let failed = |e| LoadError::io(format!("connecting to {address}"), e);
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// The connections, and the requests that use one or wait for one.
struct Pool {
    get: Vec<u8>,
    streams: Vec<TcpStream>,
    state: Mutex<State>,
    /// Set when a connection was closed.
    lost: AtomicBool,
}

struct State {
    /// Idle connections, longest idle first.
    idle: VecDeque<usize>,
    in_flight: Vec<Option<Request>>,
    waiting: VecDeque<Request>,
}

impl Pool {
    fn new(get: Vec<u8>, streams: Vec<TcpStream>) -> Self {
        let state = State {
            idle: (0..streams.len()).collect(),
            in_flight: vec![None; streams.len()],
            waiting: VecDeque::new(),
        };
        Self {
            get,
            streams,
            state: Mutex::new(state),
            lost: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, index: usize) -> io::Result<()> {
        match self.streams.get(index) {
            Some(mut stream) => stream.write_all(&self.get),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns the answered request of a connection, assigns the longest
    /// waiting one to it, and returns whether there was one.
    fn replace_request(&self, index: usize) -> (Option<Request>, bool) {
        let state = &mut *self.state();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.idle.push_back(index);
        }
        let slot = state.in_flight.get_mut(index);
        let done = slot.and_then(|slot| std::mem::replace(slot, next));
        (done, next.is_some())
    }

    fn read_answers(&self, index: usize, measure: &Measure) {
        precise_timers();
        let Some(stream) = self.streams.get(index) else {
            return;
        };
        let mut input = BufReader::new(stream);
        while let Ok(status) = read_answer(&mut input) {
            let (done, is_next) = self.replace_request(index);
            match done {
                Some(request) if SUCCESS.contains(&status) => measure.answered(index, request, 0),
                Some(request) => measure.unfinished(index, request, 0),
                None => {}
            }
            if is_next && self.send(index).is_err() {
                break;
            }
        }
        self.lost.store(true, Ordering::Relaxed);
        measure.timing.end_early();
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

struct Pooled(Arc<Pool>);

impl Sink for Pooled {
    fn submit(&self, request: Request) -> Result<(), Request> {
        // The CPU demand is unknown, because the server determines it.
        let request = Request {
            demand_ns: 0,
            ..request
        };
        let index = {
            let state = &mut *self.0.state();
            let Some(index) = state.idle.pop_front() else {
                state.waiting.push_back(request);
                return Ok(());
            };
            if let Some(slot) = state.in_flight.get_mut(index) {
                *slot = Some(request);
            }
            index
        };
        if self.0.send(index).is_ok() {
            return Ok(());
        }
        let mut state = self.0.state();
        match state.in_flight.get_mut(index).and_then(Option::take) {
            Some(request) => Err(request),
            // The thread that removed it has recorded its outcome.
            None => Ok(()),
        }
    }
}

struct Pages {
    pool: Arc<Pool>,
    readers: Vec<JoinHandle<()>>,
    path: String,
}

impl Pages {
    fn hang_up(&self) {
        for stream in &self.pool.streams {
            // Fails only if the server has closed the connection already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Backend for Pages {
    fn is_lost(&self) -> bool {
        self.pool.lost.load(Ordering::Relaxed)
    }

    fn describe_demand(&self) -> Option<String> {
        Some(format!("GET {}", self.path))
    }

    fn give_up(&mut self, measure: &Measure, lane: usize) -> Result<(), LoadError> {
        self.hang_up();
        for reader in self.readers.drain(..) {
            reader
                .join()
                .map_err(|_| LoadError::ThreadDied { role: "reader" })?;
        }
        let state = &mut *self.pool.state();
        let in_flight = state.in_flight.iter_mut().filter_map(Option::take);
        for request in in_flight.chain(state.waiting.drain(..)) {
            measure.unfinished(lane, request, 0);
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.hang_up();
    }
}
