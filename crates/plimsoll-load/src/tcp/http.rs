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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    use crate::arrivals::Arrivals;
    use crate::report::Ending;

    fn answers(text: &str) -> Vec<Option<u16>> {
        let mut input = text.as_bytes();
        let mut found = Vec::new();
        while !input.is_empty() {
            let answer = read_answer(&mut input).ok();
            found.push(answer);
            if answer.is_none() {
                break;
            }
        }
        found
    }

    #[test]
    fn responses_are_read_completely() {
        let text = "HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello\
                    HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n\
                    3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nField: x\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(answers(text), [Some(200), Some(404), Some(200)]);
    }

    #[test]
    fn invalid_response_is_an_error() {
        for text in [
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        ] {
            assert_eq!(answers(text), [None], "{text}");
        }
    }

    /// Server that answers each connection `answers` times, every tenth time
    /// without success, and then closes it.
    fn server(answers: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || serve(&stream.unwrap(), answers));
            }
        });
        address
    }

    fn serve(stream: &TcpStream, answers: usize) {
        let mut input = BufReader::new(stream);
        for n in 1..=answers {
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                if input.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
            }
            let status = if n % 10 == 0 { 503 } else { 200 };
            let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 2\r\n\r\nhi");
            let _ = { stream }.write_all(answer.as_bytes());
        }
    }

    fn config() -> ServiceConfig {
        ServiceConfig {
            arrivals: Arrivals::Uniform { rate: 1_000.0 },
            duration: Duration::from_millis(201),
            warmup: Duration::ZERO,
            grace: Duration::from_secs(60),
            deadline: Duration::from_secs(60),
            ..ServiceConfig::default()
        }
    }

    fn page(path: &str, connections: usize) -> HttpConfig {
        let path = path.to_owned();
        HttpConfig { path, connections }
    }

    #[test]
    fn each_request_is_answered_once_and_error_responses_are_failures() {
        let run = http(server(usize::MAX), &page("/x", 1), &config()).unwrap();
        let report = run.finish().unwrap();
        assert_eq!((report.requests, report.answered), (200, 180));
        assert_eq!((report.failures, report.ending), (20, Ending::Complete));
        assert_eq!(report.service, "GET /x");
        assert!(report.cpu_asked_seconds == 0.0, "{report:?}");
    }

    #[test]
    fn closed_connection_is_detected() {
        let run = http(server(5), &page("/", 2), &config()).unwrap();
        let report = run.finish().unwrap();
        assert_eq!(report.ending, Ending::ConnectionLost);
        assert!(report.answered <= 10, "{report:?}");
    }

    #[test]
    fn settings_are_checked() {
        let far = "192.0.2.1:80".parse().unwrap();
        let near = "127.0.0.1:1".parse().unwrap();
        for (address, page) in [
            (far, page("/", 1)),
            (near, page("/", 0)),
            (near, page("/", 1_000)),
            (near, page("x", 1)),
            (near, page("/a b", 1)),
        ] {
            let refused = http(address, &page, &config()).err().unwrap();
            assert!(matches!(refused, LoadError::Invalid { .. }), "{refused}");
        }
        let refused = http(near, &page("/", 1), &config()).err().unwrap();
        assert!(matches!(refused, LoadError::Io { .. }), "{refused}");
    }
}
