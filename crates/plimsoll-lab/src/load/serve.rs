//! The request service in two processes over loopback TCP: the server uses CPU time, the client
//! measures.
//!
//! A request is its number and its CPU time in ns, the answer is the number: words of 64 bits,
//! little-endian. A client has one connection with any number of requests on their way.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use plimsoll_load::available_cpus;
use plimsoll_load::clock::{precise_timers, use_cpu};

use super::open_loop::{Ledger, Report};
use super::{Requests, failed, spawn};
use crate::error::Result;

/// Requests that wait for a worker.
#[derive(Debug, Default)]
struct Jobs {
    waiting: Mutex<VecDeque<Job>>,
    filled: Condvar,
}

#[derive(Debug)]
struct Job {
    number: u64,
    demand_ns: u64,
    /// The connection; workers write one answer at a time to it.
    answers: Arc<Mutex<TcpStream>>,
}

/// Serves until the process is killed.
pub fn run(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).map_err(failed("listening"))?;
    let jobs = Arc::new(Jobs::default());
    for _ in 0..available_cpus() {
        let jobs = Arc::clone(&jobs);
        spawn("load-worker", move || jobs.work())?;
    }
    loop {
        let (stream, _) = listener.accept().map_err(failed("accepting a client"))?;
        let jobs = Arc::clone(&jobs);
        // It ends with its connection.
        spawn("load-reader", move || drop(jobs.read(&stream)))?;
    }
}

impl Jobs {
    /// Main loop of the reader of a connection.
    fn read(&self, stream: &TcpStream) -> io::Result<()> {
        precise_timers();
        stream.set_nodelay(true)?;
        let answers = Arc::new(Mutex::new(stream.try_clone()?));
        let mut input = BufReader::new(stream);
        loop {
            let job = Job {
                number: read_word(&mut input)?,
                demand_ns: read_word(&mut input)?,
                answers: Arc::clone(&answers),
            };
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push_back(job);
            drop(waiting);
            self.filled.notify_one();
        }
    }

    /// Main loop of a worker.
    fn work(&self) {
        precise_timers();
        loop {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let filled = self.filled.wait_while(waiting, |jobs| jobs.is_empty());
            let mut waiting = filled.unwrap_or_else(PoisonError::into_inner);
            let Some(job) = waiting.pop_front() else {
                continue;
            };
            drop(waiting);
            use_cpu(job.demand_ns);
            let mut answers = job.answers.lock().unwrap_or_else(PoisonError::into_inner);
            // A client that is gone needs no answer.
            let _ = answers.write_all(&job.number.to_le_bytes());
        }
    }
}

/// Sends requests to a server and measures their latency.
pub fn request(address: SocketAddr, requests: &Requests) -> Result<Report> {
    let connected = TcpStream::connect(address).and_then(|stream| {
        stream.set_nodelay(true)?;
        Ok((stream.try_clone()?, stream))
    });
    let (input, mut output) = connected.map_err(failed("connecting"))?;
    let ledger = Arc::new(Ledger::new(requests));
    let shared = Arc::clone(&ledger);
    spawn("load-reader", move || {
        precise_timers();
        let mut input = BufReader::new(input);
        while let Ok(number) = read_word(&mut input) {
            shared.answered(number, true);
        }
        shared.lost();
    })?;
    ledger.run(requests, |number, demand_ns| {
        let words = [number, demand_ns].map(u64::to_le_bytes);
        output.write_all(words.as_flattened())
    })
}

fn read_word(input: &mut impl Read) -> io::Result<u64> {
    let mut word = [0; 8];
    input.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}
