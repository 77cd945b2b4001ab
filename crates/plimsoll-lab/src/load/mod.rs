//! Workloads that only the lab runs. Those for everybody are `plimsoll load`.
//!
//! Each prints one JSON object, except `serve` and `hold`, which run until they are killed.

mod http;
mod lock;
mod need;
mod requests;
mod serve;
mod wake;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use plimsoll_load::{Requests, duration};
use serde::Serialize;

use crate::error::{LabError, Result};

/// A workload with its settings.
#[derive(Debug, Subcommand)]
pub enum Load {
    /// Use an amount of CPU time; print the rate achieved
    Need {
        /// The CPU time, such as 0.5s or 50ms
        #[arg(value_parser = duration)]
        cpu: Duration,
        /// CPU time between two rests
        #[arg(long, requires = "rest", value_parser = duration)]
        piece: Option<Duration>,
        /// Sleep so long after each piece
        #[arg(long, requires = "piece", value_parser = duration)]
        rest: Option<Duration>,
    },
    /// Sleep and wake up periodically; print the delay of the wake-ups
    Wake {
        /// Time between two wake-ups
        #[arg(long, value_parser = duration)]
        every: Duration,
        #[arg(long, value_parser = duration)]
        duration: Duration,
    },
    /// Use CPU time for requests over loopback TCP, with a thread for each CPU
    Serve {
        #[arg(long, value_parser = loopback)]
        listen: SocketAddr,
    },
    /// Send requests at random times to a `serve`, or with --http to a web server; print latencies
    Request {
        #[arg(long, value_parser = loopback)]
        connect: SocketAddr,
        #[command(flatten)]
        requests: Requests,
        /// Get this page from a web server instead, over HTTP/1.1
        #[arg(long, value_name = "PATH", conflicts_with = "service")]
        http: Option<String>,
    },
    /// Hold a lock repeatedly, for which a `wait` process waits
    Hold {
        /// The lock file, which is made if it is not there
        file: PathBuf,
        /// CPU time for which the lock, in the memory of the file, is held
        #[arg(long, default_value = "100us", value_parser = duration)]
        section: Duration,
        /// Hold the kernel's lock of the file instead, by writes of this size
        #[arg(long, conflicts_with = "section", value_parser = clap::value_parser!(u16).range(1..=1024))]
        write_mib: Option<u16>,
        /// CPU time between two sections
        #[arg(long, default_value = "100us", value_parser = duration)]
        pause: Duration,
    },
    /// Acquire the lock of a `hold` process repeatedly; print the waits
    Wait {
        /// The lock file, which is made if it is not there
        file: PathBuf,
        /// The lock, and how to wait for it
        #[arg(long, value_enum, default_value_t)]
        by: lock::By,
        /// Time between the end of a round and the next
        #[arg(long, value_parser = duration)]
        every: Duration,
        #[arg(long, value_parser = duration)]
        duration: Duration,
    },
}

impl Load {
    /// Runs the workload to its end and prints its figures.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Need { cpu, piece, rest } => print(&need::run(
                cpu,
                piece.unwrap_or(cpu),
                rest.unwrap_or_default(),
            )),
            Self::Wake { every, duration } => print(&wake::run(every, duration)),
            Self::Serve { listen } => serve::run(listen),
            Self::Request {
                connect,
                requests,
                http: None,
            } => print(&serve::request(connect, &requests)?),
            Self::Request {
                connect,
                requests,
                http: Some(path),
            } => print(&http::request(connect, &path, &requests)?),
            Self::Hold {
                file,
                section,
                write_mib: None,
                pause,
            } => lock::hold(&lock::in_memory(&file)?, section, pause),
            Self::Hold {
                file,
                write_mib: Some(mib),
                pause,
                ..
            } => lock::write(&lock::open(&file)?, mib.into(), pause),
            Self::Wait {
                file,
                by,
                every,
                duration,
            } => print(&lock::wait(&file, by, every, duration)?),
        }
    }
}

fn print(report: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(report).map_err(|e| LabError::Load(e.to_string()))?;
    println!("{text}");
    Ok(())
}

/// Parses an address of this machine: a server uses CPU time for any client, and over a network
/// the latency would not be that of this machine's scheduler.
fn loopback(text: &str) -> std::result::Result<SocketAddr, String> {
    let address: Option<SocketAddr> = text.parse().ok();
    address
        .filter(|address| address.ip().is_loopback())
        .ok_or_else(|| "allowed: a loopback address and port, such as 127.0.0.1:7117".to_owned())
}
