//! Workloads of Plimsoll and of the lab as the service load.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::counters::round;
use super::group::GuestGroup;
use super::programs::{LAB, PLIMSOLL};
use crate::cpus::Cpus;
use crate::error::{LabError, Result};
use crate::guests::said_by;
use crate::results::Figures;
use crate::workload::Workload;

/// Measured time of a service. The p99 of 10 s of 400 requests a second varies by 3 % between
/// seeds, that of 5 s by more.
const SECONDS: u32 = 10;
/// Runs of [`Workload::Seeds`], and the measured time of each.
const SEEDS: u32 = 8;
const SEED_SECONDS: u32 = 5;
const REQUEST_US: f64 = 300.0;
const DEADLINE: &str = "5ms";

/// The flags of `plimsoll load service` for a workload. The seed chooses the arrivals.
fn flags(workload: Workload, cpus: Cpus, seconds: u32, seed: u32) -> String {
    let cpus = f64::from(cpus.count);
    let at = |percent: u8, us: f64| f64::from(percent) / 100.0 * cpus * 1e6 / us;
    let (rate, service, deadline) = match workload {
        Workload::Load(percent) | Workload::Seeds(percent) => {
            (at(percent, REQUEST_US), "const:300us", DEADLINE)
        }
        // The source's 25 % of the machine; a deadline of 11 times the mean.
        Workload::Bt1 => (at(25, REQUEST_US), "exp:300us", "3350us"),
        Workload::Bt2 => (at(25, 5_000.0), "exp:5ms", "50ms"),
        // The source's load 1.0 is 22 % of its machine.
        Workload::Latency(percent) => (
            at(22, 2_000.0) * f64::from(percent) / 100.0,
            "exp:2ms",
            "100ms",
        ),
        _ => (400.0, "const:300us", DEADLINE),
    };
    format!(
        "--rate {rate:.0} --service {service} --deadline {deadline} --duration {seconds}s \
         --seed {seed}"
    )
}

/// Runs a request service in its group and reads its latencies.
pub fn service(group: &GuestGroup, workload: Workload, cpus: Cpus) -> Result<Figures> {
    latencies(&serve(group, workload, cpus, SECONDS, 1)?)
}

/// Runs the service once for each seed: median and worst p99, and the longest request of all.
pub fn seeds(group: &GuestGroup, workload: Workload, cpus: Cpus) -> Result<Figures> {
    let (mut p99s, mut max) = (Vec::new(), 0.0_f64);
    for seed in 1..=SEEDS {
        let said = serve(group, workload, cpus, SEED_SECONDS, seed)?;
        p99s.push(number(&said["latency"]["p99_us"])?);
        max = max.max(number(&said["latency"]["max_us"])?);
    }
    p99s.sort_by(f64::total_cmp);
    let middle = p99s.len() / 2;
    let figures = [
        (
            "p99_median_us",
            f64::midpoint(p99s[middle - 1], p99s[middle]),
        ),
        ("p99_worst_us", p99s[p99s.len() - 1]),
        ("max_us", max),
    ];
    Ok(figures
        .map(|(name, us)| (name.to_owned(), round(us, 1e3)))
        .into())
}

/// Latencies, requests and failures of a service's report.
fn latencies(said: &Value) -> Result<Figures> {
    let mut figures = Figures::new();
    for name in ["p50_us", "p90_us", "p99_us", "p999_us", "max_us", "mean_us"] {
        let value = number(&said["latency"][name])?;
        figures.insert(name.to_owned(), round(value, 1e3));
    }
    for name in ["requests", "failures"] {
        figures.insert(name.to_owned(), number(&said[name])?);
    }
    Ok(figures)
}

/// Runs a request service in its group and returns its whole report.
pub fn serve(
    group: &GuestGroup,
    workload: Workload,
    cpus: Cpus,
    seconds: u32,
    seed: u32,
) -> Result<Value> {
    let flags = flags(workload, cpus, seconds, seed);
    if workload != Workload::Tcp400 {
        return report(PLIMSOLL, group, &format!("load service {flags} --json"));
    }
    let mut server = command(LAB, group, "load serve --listen 127.0.0.1:7117");
    let server = server.stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server(server.spawn().map_err(LabError::command(LAB))?);
    server.wait()?;
    let words = format!("load request --connect 127.0.0.1:7117 {flags}");
    report(LAB, group, &words)
}

/// A server that ends with the measurement.
struct Server(Child);

impl Server {
    /// Waits until the server listens.
    fn wait(&self) -> Result<()> {
        for _ in 0..500 {
            if std::net::TcpStream::connect("127.0.0.1:7117").is_ok() {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Err(LabError::Guest("the server does not listen".to_owned()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(program: &str, group: &GuestGroup, words: &str) -> Command {
    let mut command = Command::new(program);
    command.args(words.split(' ')).stdin(Stdio::null());
    group.adopt(&mut command);
    command
}

/// Runs a command in a group and reads the JSON that it prints.
fn report(program: &str, group: &GuestGroup, words: &str) -> Result<Value> {
    let mut command = command(program, group, words);
    let what = format!("{program} {words}");
    let said = said_by(&mut command, &what)?;
    serde_json::from_str(said.trim()).map_err(|error| LabError::Command {
        what,
        why: error.to_string(),
    })
}

pub fn number(value: &Value) -> Result<f64> {
    value
        .as_f64()
        .ok_or_else(|| LabError::Guest(format!("no number: {value}")))
}
