//! Client side, which measures.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::check_loopback;
use crate::clock::precise_timers;
use crate::config::ServiceConfig;
use crate::error::LoadError;
use crate::measure::Measure;
use crate::openloop::{Sink, new_measure, spawn};
use crate::run::{Backend, OpenLoop};
use crate::schedule::Request;
use crate::wire::{Frame, greet};

/// Time limit for a server to accept and to send its greeting.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Lane of the reader; the generator has the next one.
const READER_LANE: usize = 0;

/// Starts sending requests to the server at `address`, over one connection with
/// any number of requests in flight. `config.workers` is not used.
///
/// # Errors
/// [`LoadError::Invalid`] for a setting out of range or an address that isn't
/// loopback,
/// [`LoadError::Io`] if there is no connection, [`LoadError::Protocol`] if the
/// peer is not such
/// a server.
pub fn request(address: SocketAddr, config: &ServiceConfig) -> Result<OpenLoop, LoadError> {
    check_loopback("connect", address)?;
    config.validate()?;
    let stream = connect(address)?;
    let clone = || {
        stream
            .try_clone()
            .map_err(|e| LoadError::io("cloning a socket", e))
    };
    let (reader_stream, sink_stream) = (clone()?, clone()?);
    let flight = Arc::new(Flight::default());
    let measure = new_measure(config, 1)?;
    let reader = {
        let (flight, measure) = (Arc::clone(&flight), Arc::clone(&measure));
        spawn("load-reader", move || {
            read_answers(reader_stream, &flight, &measure)
        })?
    };
    let sink = Remote {
        flight: Arc::clone(&flight),
        stream: sink_stream,
    };
    let backend = Connected {
        flight,
        stream,
        reader: Some(reader),
    };
    OpenLoop::start(
        config,
        None,
        measure,
        READER_LANE + 1,
        sink,
        Box::new(backend),
    )
}

fn connect(address: SocketAddr) -> Result<TcpStream, LoadError> {
    let doing = || format!("connecting to {address}");
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
        .map_err(|e| LoadError::io(doing(), e))?;
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(CONNECT_TIMEOUT)))
        .map_err(|e| LoadError::io(doing(), e))?;
    greet(&mut stream).map_err(|e| LoadError::Protocol {
        peer: address.to_string(),
        reason: e.to_string(),
    })?;
    stream
        .set_read_timeout(None)
        .map_err(|e| LoadError::io(doing(), e))?;
    Ok(stream)
}

/// Requests in flight.
#[derive(Debug, Default)]
struct Flight {
    pending: Mutex<HashMap<u64, Request>>,
    /// Set when the reader has seen the end of the connection.
    lost: AtomicBool,
}

impl Flight {
    fn pending(&self) -> MutexGuard<'_, HashMap<u64, Request>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Remote {
    flight: Arc<Flight>,
    stream: TcpStream,
}

impl Sink for Remote {
    fn submit(&self, request: Request) -> Result<(), Request> {
        self.flight.pending().insert(request.id, request);
        let frame = Frame {
            id: request.id,
            cpu_ns: request.demand_ns,
        };
        match frame.write_to(&mut &self.stream) {
            Ok(()) => Ok(()),
            // Only the thread that removes the request from the table records
            // its outcome.
            Err(_) => match self.flight.pending().remove(&request.id) {
                Some(request) => Err(request),
                None => Ok(()),
            },
        }
    }
}

fn read_answers(stream: TcpStream, flight: &Flight, measure: &Measure) {
    precise_timers();
    let mut input = BufReader::new(stream);
    while let Ok(frame) = Frame::read_from(&mut input) {
        let request = flight.pending().remove(&frame.id);
        if let Some(request) = request {
            measure.answered(READER_LANE, request, frame.cpu_ns);
        }
    }
    flight.lost.store(true, Ordering::Relaxed);
    measure.timing.end_early();
}

struct Connected {
    flight: Arc<Flight>,
    stream: TcpStream,
    reader: Option<JoinHandle<()>>,
}

impl Connected {
    fn hang_up(&mut self) {
        let _ = self.stream.flush();
        // Fails only if the peer has closed the connection already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Backend for Connected {
    fn is_lost(&self) -> bool {
        self.flight.lost.load(Ordering::Relaxed)
    }

    fn give_up(&mut self, measure: &Measure, lane: usize) -> Result<(), LoadError> {
        self.hang_up();
        if let Some(reader) = self.reader.take() {
            reader
                .join()
                .map_err(|_| LoadError::ThreadDied { role: "reader" })?;
        }
        let rest = std::mem::take(&mut *self.flight.pending());
        for request in rest.into_values() {
            measure.unfinished(lane, request, 0);
        }
        Ok(())
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.hang_up();
    }
}
