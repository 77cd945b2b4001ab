//! Server side, which burns CPU time.

use std::fmt;
use std::io::BufReader;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use super::check_loopback;
use crate::clock::{CpuClock, burn, precise_timers};
use crate::error::LoadError;
use crate::limits::{CONNECTIONS_MAX, DEMAND_MAX, QUEUE_MAX, THREADS_MAX};
use crate::openloop::spawn;
use crate::queue::Queue;
use crate::report::row;
use crate::units::{check_count, nanos, seconds};
use crate::wire::{Frame, greet};

/// Time limit for a client to send its greeting, or to receive an answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which the listener checks whether it should end.
const LOOK_EVERY_MS: u8 = 50;

/// Settings of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Loopback address to listen on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Worker threads, 1 to [`THREADS_MAX`].
    pub workers: usize,
}

/// Figures of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Address it listens on.
    pub address: String,
    /// Worker threads.
    pub workers: usize,
    /// Time since the start.
    pub elapsed_seconds: f64,
    /// Connections with a valid greeting.
    pub connections: u64,
    /// Requests served.
    pub requests: u64,
    /// CPU time used for them.
    pub cpu_seconds: f64,
    /// CPU time that they asked for.
    pub cpu_asked_seconds: f64,
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = self.workers;
        row(
            f,
            "served",
            format_args!("{} on {}, {workers} workers", self.requests, self.address),
        )?;
        row(f, "connections", format_args!("{}", self.connections))?;
        row(f, "elapsed", format_args!("{:.3} s", self.elapsed_seconds))?;
        row(
            f,
            "CPU",
            format_args!(
                "{:.3} s used, {:.3} s asked",
                self.cpu_seconds, self.cpu_asked_seconds
            ),
        )
    }
}

/// A running server. Dropping it ends it without a report.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    started: Instant,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue<Job>,
    stop: AtomicBool,
    connections: AtomicU64,
    requests: AtomicU64,
    cpu_ns: AtomicU64,
    demand_ns: AtomicU64,
}

#[derive(Debug)]
struct Job {
    request: Frame,
    client: Arc<Client>,
}

/// One connection.
#[derive(Debug)]
struct Client {
    /// Workers write whole frames, one at a time.
    answers: Mutex<TcpStream>,
    stream: TcpStream,
    gone: AtomicBool,
}

impl Server {
    /// Listens and starts the workers.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for a setting out of range or an address that isn't loopback,
    /// [`LoadError::Io`] if the address is taken or a thread can't be started.
    pub fn start(config: &ServerConfig) -> Result<Self, LoadError> {
        check_loopback("listen", config.listen)?;
        check_count("workers", config.workers as u64, THREADS_MAX as u64)?;
        let doing = || format!("listening on {}", config.listen);
        let listener = TcpListener::bind(config.listen).map_err(|e| LoadError::io(doing(), e))?;
        let address = listener
            .local_addr()
            .map_err(|e| LoadError::io(doing(), e))?;
        listener
            .set_nonblocking(true)
            .map_err(|e| LoadError::io(doing(), e))?;
        let mut server = Self {
            address,
            started: Instant::now(),
            shared: Arc::new(Shared::new()),
            listener: None,
            workers: Vec::with_capacity(config.workers),
        };
        for _ in 0..config.workers {
            let shared = Arc::clone(&server.shared);
            server
                .workers
                .push(spawn("load-worker", move || shared.serve())?);
        }
        let shared = Arc::clone(&server.shared);
        server.listener = Some(spawn("load-listener", move || accept(&listener, &shared))?);
        Ok(server)
    }

    /// Address it listens on, with the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Live figures.
    #[must_use]
    pub fn snapshot(&self) -> ServerReport {
        let shared = &self.shared;
        ServerReport {
            address: self.address.to_string(),
            workers: self.workers.len(),
            elapsed_seconds: self.started.elapsed().as_secs_f64(),
            connections: shared.connections.load(Ordering::Relaxed),
            requests: shared.requests.load(Ordering::Relaxed),
            cpu_seconds: seconds(shared.cpu_ns.load(Ordering::Relaxed)),
            cpu_asked_seconds: seconds(shared.demand_ns.load(Ordering::Relaxed)),
        }
    }

    /// Closes all connections, ends the threads and reports.
    ///
    /// # Errors
    /// [`LoadError::ThreadDied`] if one of the threads panicked.
    pub fn finish(mut self) -> Result<ServerReport, LoadError> {
        self.shared.end();
        let died = |role| move |_| LoadError::ThreadDied { role };
        if let Some(listener) = self.listener.take() {
            listener.join().map_err(died("listener"))?;
        }
        let mut report = self.snapshot();
        for worker in self.workers.drain(..) {
            worker.join().map_err(died("worker"))?;
        }
        let workers = report.workers;
        report = self.snapshot();
        report.workers = workers;
        Ok(report)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    fn new() -> Self {
        Self {
            queue: Queue::new(QUEUE_MAX),
            stop: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            demand_ns: AtomicU64::new(0),
        }
    }

    fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.queue.close();
    }

    /// Main loop of a worker.
    fn serve(&self) {
        precise_timers();
        while let Some(Job { request, client }) = self.queue.pop() {
            if client.gone.load(Ordering::Relaxed) {
                continue;
            }
            let burnt = burn(CpuClock::Thread, request.cpu_ns, &self.stop);
            if !burnt.complete {
                continue;
            }
            // Counted before the answer is sent, so that a client that has all
            // its answers finds all of them counted.
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.cpu_ns.fetch_add(burnt.cpu_ns, Ordering::Relaxed);
            self.demand_ns.fetch_add(request.cpu_ns, Ordering::Relaxed);
            client.answer(Frame {
                id: request.id,
                cpu_ns: burnt.cpu_ns,
            });
        }
    }
}

impl Client {
    fn answer(&self, frame: Frame) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if frame.write_to(&mut *answers).is_err() {
            // The client is gone or reads too slowly. A partial frame may have
            // been sent, so the connection cannot be used any more.
            self.hang_up();
        }
    }

    fn hang_up(&self) {
        self.gone.store(true, Ordering::Relaxed);
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Main loop of the listener: accepts connections until told to stop, then
/// closes them all.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut clients: Vec<(Arc<Client>, JoinHandle<()>)> = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        // An interrupted or timed-out poll only leads to another check of the
        // flag.
        let _ = poll(&mut fds, PollTimeout::from(LOOK_EVERY_MS));
        while let Ok((stream, _)) = listener.accept() {
            clients.retain(|(_, reader)| !reader.is_finished());
            if clients.len() < CONNECTIONS_MAX {
                clients.extend(start_reader(stream, shared));
            }
        }
    }
    for (client, reader) in clients {
        client.hang_up();
        // A reader that panicked has lost its connection; nothing else depends
        // on it.
        let _ = reader.join();
    }
}

/// Starts the reader of a new connection; `None` if the system refuses.
fn start_reader(stream: TcpStream, shared: &Arc<Shared>) -> Option<(Arc<Client>, JoinHandle<()>)> {
    stream.set_nonblocking(false).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT)).ok()?;
    let client = Arc::new(Client {
        answers: Mutex::new(stream.try_clone().ok()?),
        stream,
        gone: AtomicBool::new(false),
    });
    let (shared, own) = (Arc::clone(shared), Arc::clone(&client));
    let reader = spawn("load-reader", move || {
        read_requests(&own, &shared);
        own.hang_up();
    });
    Some((client, reader.ok()?))
}

fn read_requests(client: &Arc<Client>, shared: &Shared) {
    precise_timers();
    let mut stream = &client.stream;
    if greet(&mut stream).is_err() || stream.set_read_timeout(None).is_err() {
        return;
    }
    shared.connections.fetch_add(1, Ordering::Relaxed);
    let mut input = BufReader::new(stream);
    while let Ok(request) = Frame::read_from(&mut input) {
        let job = Job {
            request,
            client: Arc::clone(client),
        };
        let too_much = request.cpu_ns > nanos(DEMAND_MAX);
        if too_much || shared.queue.push(job).is_err() {
            return;
        }
    }
}
