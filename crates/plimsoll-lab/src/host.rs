//! Host part: boots a guest for each cell and stores its figures.
//!
//! Each cell has a guest of its own, because an earlier run in the same guest would change its
//! digits. A single `--cell` yields the same digits as the whole matrix.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use crate::cell::Cell;
use crate::error::{LabError, Result};
use crate::guest::{FOLDER, LAB, PLIMSOLL, RESULT, SCRIPT};
use crate::results::{Folder, Outcome};
use crate::workload::Workload;

/// Timeouts of a guest in seconds: of its own time, and of the host's.
const GUEST_MAX_SECONDS: u32 = 400;
const HOST_MAX_SECONDS: u32 = 1800;

/// Files of the guests, and folders of the results.
#[derive(Debug)]
pub struct Host {
    /// The project's folder.
    pub root: PathBuf,
    pub plimsoll: PathBuf,
    pub folder: Folder,
    /// Number of guests at a time; each keeps one core busy.
    pub jobs: usize,
}

/// A scheduler or benchmark that is not part of Plimsoll.
#[derive(Debug)]
struct Tool {
    path: PathBuf,
    guest: String,
}

/// The state that the workers share.
struct Shared {
    left: VecDeque<Cell>,
    total: usize,
    ended: usize,
    found: Vec<Outcome>,
    failed: Vec<String>,
    begun: Instant,
}

impl Host {
    /// Measures cells in parallel, prints a line for each, and returns the outcomes. A failed cell
    /// is reported in its line, and the others continue.
    pub fn measure(&self, cells: &[Cell], again: bool) -> (Vec<Outcome>, usize) {
        let shared = Mutex::new(Shared {
            left: cells.iter().copied().collect(),
            total: cells.len(),
            ended: 0,
            found: Vec::new(),
            failed: Vec::new(),
            begun: Instant::now(),
        });
        let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
        thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    loop {
                        let Some(cell) = lock().left.pop_front() else {
                            return;
                        };
                        let begun = Instant::now();
                        let result = self.cell(&cell, again);
                        lock().end(&cell, result, begun.elapsed());
                    }
                });
            }
        });
        let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        (shared.found, shared.failed.len())
    }

    fn cell(&self, cell: &Cell, again: bool) -> Result<Outcome> {
        let tools = self.tools(cell)?;
        let programs = self.digest(cell, &tools)?;
        if !again && let Some(outcome) = self.folder.get(cell, &programs) {
            return Ok(outcome);
        }
        let outcome = self.boot(cell, &tools)?;
        self.folder.put(cell, &programs, &outcome)?;
        Ok(outcome)
    }

    /// Programs that a cell needs beside Plimsoll.
    fn tools(&self, cell: &Cell) -> Result<Vec<Tool>> {
        let mut tools = Vec::new();
        if let Some(peer) = cell.policy.peer() {
            tools.push(Tool {
                path: self.peer(peer)?,
                guest: format!("{FOLDER}/{peer}"),
            });
        }
        if cell.policy.is_nice() {
            tools.push(Tool {
                path: on_path("nice")?,
                guest: "/usr/bin/nice".to_owned(),
            });
        }
        if cell.workload == Workload::Web {
            tools.extend(self.web()?);
        }
        if matches!(cell.workload, Workload::Pipe | Workload::Hackbench) {
            for name in ["hackbench", "bpftool"] {
                tools.push(Tool {
                    path: on_path(name)?,
                    guest: format!("{FOLDER}/{name}"),
                });
            }
        }
        Ok(tools)
    }

    /// Builds another project's scheduler, if it is missing.
    fn peer(&self, name: &str) -> Result<PathBuf> {
        let failed = |why: String| LabError::Command {
            what: format!("bench/peers {name}"),
            why,
        };
        let mut command = Command::new(self.root.join("bench/peers"));
        let output = command
            .arg(name)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let path = said.lines().find_map(|line| line.strip_prefix(name));
        match path {
            Some(path) if output.status.success() => Ok(PathBuf::from(path.trim())),
            _ => Err(failed(
                "it is not to be had (the reason is above)".to_owned(),
            )),
        }
    }

    /// Server, encoder and clip; the script finds Plimsoll and this program on its path.
    fn web(&self) -> Result<Vec<Tool>> {
        let script = self.root.join("bench/webserver");
        let failed = |why: String| LabError::Command {
            what: "bench/webserver --files".to_owned(),
            why,
        };
        let output = Command::new(script).arg("--files").output();
        let output = output.map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ));
        }
        let tool = |path: PathBuf, guest: &str| Tool {
            path,
            guest: guest.to_owned(),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let pairs = said.lines().filter_map(|line| line.split_once(':'));
        let mut tools: Vec<Tool> = pairs
            .map(|(path, guest)| tool(path.into(), guest))
            .collect();
        tools.push(tool(self.root.join("bench/webserver-guest"), SCRIPT));
        tools.push(tool(self.plimsoll.clone(), "/usr/bin/plimsoll"));
        tools.push(tool(this_program()?, "/usr/bin/plimsoll-lab"));
        Ok(tools)
    }

    /// Digest of everything that affects figures, except the kernel, whose version is part of the
    /// outcome.
    fn digest(&self, cell: &Cell, tools: &[Tool]) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        cell.to_string().hash(&mut hasher);
        let mut paths = vec![
            self.plimsoll.clone(),
            this_program()?,
            self.root.join("vm/run"),
            self.root.join("vm/init"),
        ];
        paths.extend(tools.iter().map(|tool| tool.path.clone()));
        for path in paths {
            let bytes = std::fs::read(&path).map_err(LabError::file(path))?;
            bytes.hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// Boots a guest and reads its result.
    fn boot(&self, cell: &Cell, tools: &[Tool]) -> Result<Outcome> {
        let mut command = Command::new(self.root.join("vm/run"));
        // Paths affect digits, so the guest's are independent of this machine's.
        command
            .stdin(Stdio::null())
            .args(["--virtual-time", "--directory", FOLDER]);
        command.args(["--kernel", cell.kernel.name()]);
        for (flag, value) in [
            ("--cpus", cell.cpus.count),
            ("--llcs", cell.cpus.llcs),
            ("--timeout", HOST_MAX_SECONDS),
            ("--guest-timeout", GUEST_MAX_SECONDS),
        ] {
            command.args([flag, &value.to_string()]);
        }
        let mut file = |path: &Path, guest: &str| {
            command.args(["--file", &format!("{}:{guest}", path.display())]);
        };
        file(&self.plimsoll, PLIMSOLL);
        file(&this_program()?, LAB);
        for tool in tools {
            file(&tool.path, &tool.guest);
        }
        command.args(["--", LAB, "guest", &cell.to_string()]);
        let failed = |why: String| LabError::Command {
            what: format!("cell {cell}"),
            why,
        };
        let output = command
            .output()
            .map_err(|error| failed(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let result = said.lines().find_map(|line| line.strip_prefix(RESULT));
        match result {
            Some(text) if output.status.success() => {
                serde_json::from_str(text).map_err(|error| failed(error.to_string()))
            }
            _ => {
                let errors = String::from_utf8_lossy(&output.stderr);
                let line = said
                    .lines()
                    .chain(errors.lines())
                    .rfind(|line| !line.trim().is_empty());
                Err(failed(
                    line.unwrap_or("the guest says nothing").trim().to_owned(),
                ))
            }
        }
    }
}

impl Shared {
    /// Prints the result of a cell and the progress.
    fn end(&mut self, cell: &Cell, result: Result<Outcome>, took: Duration) {
        self.ended += 1;
        let at = format!(
            "[{}/{}, {} s]",
            self.ended,
            self.total,
            self.begun.elapsed().as_secs()
        );
        let mut errors = std::io::stderr().lock();
        let _ = match result {
            Ok(outcome) => {
                let line = writeln!(
                    errors,
                    "{at} {cell}: {} ({} s)",
                    brief(&outcome),
                    took.as_secs()
                );
                self.found.push(outcome);
                line
            }
            Err(error) => {
                self.failed.push(cell.to_string());
                writeln!(errors, "{at} {cell}: FAILED: {error}")
            }
        };
    }
}

/// Main figure of a cell.
fn brief(outcome: &Outcome) -> String {
    for (name, words) in [
        ("p99_us", "p99 µs"),
        ("p99_median_us", "median p99 µs"),
        ("instructions_per_switch", "instructions per switch"),
        ("instructions_per_message", "instructions per message"),
        ("idle_share", "idle share"),
    ] {
        if let Some(value) = outcome.figures.get(name) {
            return format!("{words} {value}");
        }
    }
    format!("{} figures", outcome.figures.len())
}

/// The path of an installed program.
fn on_path(name: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
    paths
        .find(|path| path.exists())
        .ok_or_else(|| LabError::Command {
            what: name.to_owned(),
            why: "it is not installed; run: tools/install-deps lab".to_owned(),
        })
}

/// The path of this program, which the guests run, too.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(LabError::file("/proc/self/exe"))
}
