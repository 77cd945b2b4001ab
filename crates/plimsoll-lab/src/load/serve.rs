//! The request service in two processes over loopback TCP: the server uses CPU time, the client
//! measures.
//!
//! A request is its number and its CPU time in ns, the answer is the number: words of 64 bits,
//! little-endian. A client has one connection with any number of requests on their way.

use std::io::{self, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_load::clock::{precise_timers, use_cpu};
use plimsoll_load::{Ledger, Queue, Requests, ServiceReport, available_cpus};

use super::requests::{measured, spawn};
use crate::error::{LabError, Result};

#[derive(Debug)]
struct Job {
    number: u64,
    demand_ns: u64,
    /// The connection; workers write one answer at a time to it.
    answers: Arc<Mutex<TcpStream>>,
}

/// Serves until the process is killed.
pub fn run(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).map_err(LabError::load("listening"))?;
    let jobs = Arc::new(Queue::default());
    for _ in 0..available_cpus() {
        let jobs = Arc::clone(&jobs);
        spawn("load-worker", move || work(&jobs))?;
    }
    loop {
        let (stream, _) = listener
            .accept()
            .map_err(LabError::load("accepting a client"))?;
        let jobs = Arc::clone(&jobs);
        // It ends with its connection.
        spawn("load-reader", move || drop(read(&stream, &jobs)))?;
    }
}

/// Main loop of the reader of a connection.
fn read(stream: &TcpStream, jobs: &Queue<Job>) -> io::Result<()> {
    precise_timers();
    stream.set_nodelay(true)?;
    let answers = Arc::new(Mutex::new(stream.try_clone()?));
    let mut input = BufReader::new(stream);
    loop {
        jobs.push(Job {
            number: read_word(&mut input)?,
            demand_ns: read_word(&mut input)?,
            answers: Arc::clone(&answers),
        });
    }
}

/// Main loop of a worker.
fn work(jobs: &Queue<Job>) {
    precise_timers();
    while let Some(job) = jobs.pop() {
        use_cpu(job.demand_ns);
        let mut answers = job.answers.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that is gone needs no answer.
        let _ = answers.write_all(&job.number.to_le_bytes());
    }
}

/// Sends requests to a server and measures their latency.
pub fn request(address: SocketAddr, requests: &Requests) -> Result<ServiceReport> {
    let connected = TcpStream::connect(address).and_then(|stream| {
        stream.set_nodelay(true)?;
        Ok((stream.try_clone()?, stream))
    });
    let (input, mut output) = connected.map_err(LabError::load("connecting"))?;
    let ledger = Arc::new(Ledger::new(requests));
    let shared = Arc::clone(&ledger);
    spawn("load-reader", move || {
        precise_timers();
        let mut input = BufReader::new(input);
        while let Ok(number) = read_word(&mut input) {
            shared.answered(number, true);
        }
        shared.stop();
    })?;
    measured(&ledger, |number, demand_ns| {
        let words = [number, demand_ns].map(u64::to_le_bytes);
        output.write_all(words.as_flattened())
    })
}

fn read_word(input: &mut impl Read) -> io::Result<u64> {
    let mut word = [0; 8];
    input.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}
