//! Host part: boots a guest for each cell and stores its figures.
//!
//! Each cell has a guest of its own, because an earlier run in the same guest would change its
//! digits. A single `--cell` yields the same digits as the whole matrix.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::cell::Cell;
use crate::error::{LabError, Result};
use crate::guest::{FOLDER, LAB, PLIMSOLL, RESULT, SCRIPT};
use crate::guests::{
    self, MEASURED, digest, in_parallel, keep, kept, last_line, output_of, said_by, say,
    this_program,
};
use crate::results::CellOutcome;
use crate::workload::Workload;

/// Timeouts of a guest in seconds: of its own time, and of the host's.
const GUEST_MAX_SECONDS: u32 = 400;
const HOST_MAX_SECONDS: u32 = 1800;

/// Folder with a file for each measured cell, so that an interrupted run can resume. Without it
/// all are measured again.
const FIGURES: &str = "target/lab/cells";

/// A scheduler or benchmark that is not part of Plimsoll.
#[derive(Debug)]
struct Tool {
    path: PathBuf,
    guest: String,
}

/// Measures cells in parallel, prints a line for each, and returns the outcomes. A failed cell
/// is reported in its line, and the others continue.
pub fn measure(cells: &[Cell], jobs: usize) -> Result<(Vec<CellOutcome>, usize)> {
    fs::create_dir_all(FIGURES).map_err(LabError::file(FIGURES))?;
    let (begun, ended) = (Instant::now(), AtomicUsize::new(0));
    let outcomes = in_parallel(jobs, cells, |cell| {
        let cell_begun = Instant::now();
        let result = measure_cell(cell);
        let at = format!(
            "[{}/{}, {} s] {cell}",
            ended.fetch_add(1, Ordering::Relaxed) + 1,
            cells.len(),
            begun.elapsed().as_secs()
        );
        let took = cell_begun.elapsed().as_secs();
        match &result {
            Ok(outcome) => say(&format!("{at}: {} ({took} s)", brief(outcome))),
            Err(error) => say(&format!("{at}: FAILED: {error}")),
        }
        result.ok()
    });
    let found: Vec<CellOutcome> = outcomes.into_iter().flatten().collect();
    let failed = cells.len() - found.len();
    Ok((found, failed))
}

fn measure_cell(cell: &Cell) -> Result<CellOutcome> {
    let tools = tools(cell)?;
    let programs = digest_of(cell, &tools)?;
    let name = cell.to_string().replace('/', "_");
    let path = Path::new(FIGURES).join(format!("{name}.json"));
    if let Some(outcome) = kept(&path, &programs) {
        return Ok(outcome);
    }
    let outcome = boot(cell, &tools)?;
    keep(&path, &programs, &outcome)?;
    Ok(outcome)
}

/// Programs that a cell needs beside Plimsoll.
fn tools(cell: &Cell) -> Result<Vec<Tool>> {
    let mut tools = Vec::new();
    if let Some(peer) = cell.policy.peer() {
        tools.push(Tool {
            path: build_peer(peer)?,
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
        tools.extend(web_files()?);
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
fn build_peer(name: &str) -> Result<PathBuf> {
    let what = format!("bench/peers {name}");
    let mut command = Command::new("bench/peers");
    let output = output_of(command.arg(name).stderr(Stdio::inherit()), &what)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let path = said.lines().find_map(|line| line.strip_prefix(name));
    match path {
        Some(path) if output.status.success() => Ok(PathBuf::from(path.trim())),
        _ => Err(LabError::Command {
            what,
            why: "it is not to be had (the reason is above)".to_owned(),
        }),
    }
}

/// Server, encoder and clip; the script finds Plimsoll and this program on its path.
fn web_files() -> Result<Vec<Tool>> {
    let what = "bench/webserver-files";
    let said = said_by(&mut Command::new(what), what)?;
    let tool = |path: PathBuf, guest: &str| Tool {
        path,
        guest: guest.to_owned(),
    };
    let pairs = said.lines().filter_map(|line| line.split_once(':'));
    let mut tools: Vec<Tool> = pairs
        .map(|(path, guest)| tool(path.into(), guest))
        .collect();
    tools.push(tool("bench/webserver-guest".into(), SCRIPT));
    tools.push(tool(MEASURED.into(), "/usr/bin/plimsoll"));
    tools.push(tool(this_program()?, "/usr/bin/plimsoll-lab"));
    Ok(tools)
}

/// Digest of everything that affects figures, except the kernel, whose version is part of the
/// outcome.
fn digest_of(cell: &Cell, tools: &[Tool]) -> Result<String> {
    let mut paths = vec![this_program()?];
    paths.extend([MEASURED, "vm/run", "vm/init"].map(PathBuf::from));
    paths.extend(tools.iter().map(|tool| tool.path.clone()));
    digest(&paths, &[&cell.to_string()])
}

/// Boots a guest and reads its result.
fn boot(cell: &Cell, tools: &[Tool]) -> Result<CellOutcome> {
    // Paths affect digits, so the guest's are independent of this machine's.
    let flags = [
        ("--directory", FOLDER.to_owned()),
        ("--kernel", cell.kernel.to_string()),
        ("--cpus", cell.cpus.count.to_string()),
        ("--llcs", cell.cpus.llcs.to_string()),
        ("--timeout", HOST_MAX_SECONDS.to_string()),
        ("--guest-timeout", GUEST_MAX_SECONDS.to_string()),
    ];
    let lab = this_program()?;
    let mut files: Vec<(&Path, &str)> = vec![(Path::new(MEASURED), PLIMSOLL), (&lab, LAB)];
    files.extend(tools.iter().map(|tool| (&*tool.path, &*tool.guest)));
    let command = [LAB, "guest", &cell.to_string()];
    let output = guests::boot(&flags, &files, &command)?;
    let failed = |why: String| LabError::Command {
        what: format!("cell {cell}"),
        why,
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let result = said.lines().find_map(|line| line.strip_prefix(RESULT));
    match result {
        Some(text) if output.status.success() => {
            serde_json::from_str(text).map_err(|error| failed(error.to_string()))
        }
        _ => Err(failed(last_line(&output))),
    }
}

/// Main figure of a cell.
fn brief(outcome: &CellOutcome) -> String {
    for (name, words) in [
        ("p99_us", "p99 µs"),
        ("p99_median_us", "median p99 µs"),
        ("instructions_per_switch", "instructions per switch"),
        ("instructions_per_message", "instructions per message"),
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
