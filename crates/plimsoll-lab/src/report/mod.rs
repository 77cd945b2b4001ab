//! Tables and plots of results.

mod beside;
mod plot;
mod printed;
mod seeds;
mod sources;
mod table;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::error::{LabError, Result};
use crate::promises::{PromiseRow, promises_table, scheduler_table};
use crate::results::{CellOutcome, Results};

pub use table::Table;

/// Lines that enclose the generated part of a file.
const BEGIN: &str = "<!-- begin: make lab-report -->\n";
const END: &str = "<!-- end: make lab-report -->\n";

/// Prints results, and compares them with the committed ones.
pub fn print(found: &[CellOutcome], committed: &Path) {
    let results = Results {
        cells: found.to_vec(),
    };
    let mut text = beside::tables(&results);
    text.push_str(&sources::tables(&results));
    if found.len() == 1 {
        for (name, value) in &found[0].figures {
            let _ = writeln!(text, "{name:26} {value}");
        }
    }
    print!("{text}");
    if let Ok(committed) = Results::read(committed) {
        println!("{}", compared(found, &committed));
    }
}

/// Lists the cells that equal the committed results to the last digit, and those that differ.
fn compared(found: &[CellOutcome], committed: &Results) -> String {
    let mut same = 0;
    let mut differ = Vec::new();
    for outcome in found {
        match committed.cells.iter().find(|old| old.cell == outcome.cell) {
            Some(old) if old == outcome => same += 1,
            Some(old) if old.kernel != outcome.kernel => {
                differ.push(format!("{} (kernel {} there)", outcome.cell, old.kernel));
            }
            Some(_) => differ.push(outcome.cell.clone()),
            None => differ.push(format!("{} (not there)", outcome.cell)),
        }
    }
    let mut text = format!("\n{same} cells are equal to docs/results.json to the last digit");
    if !differ.is_empty() {
        let _ = write!(text, "; {} differ: {}", differ.len(), differ.join(", "));
    }
    text
}

/// Generates files from results, by name within the project: `docs/results.md`, its plots, and the
/// README and `docs/scheduler.md` with their tables.
fn files(results: &Results, promises: &[PromiseRow]) -> Result<Vec<(String, String)>> {
    let mut files = vec![("docs/results.md".to_owned(), page(results, promises))];
    files.extend(plot::all(results)?);
    let table = beside::headline(results);
    files.push(("README.md".to_owned(), with("README.md", &table)?));
    let name = "docs/scheduler.md";
    let table = format!("\n{}\n", scheduler_table(promises));
    files.push((name.to_owned(), with(name, &table)?));
    Ok(files)
}

/// A file with other text between the marks.
fn with(name: &str, generated: &str) -> Result<String> {
    let text = fs::read_to_string(name).map_err(LabError::file(name))?;
    let Some((before, rest)) = text.split_once(BEGIN) else {
        return Err(bad(name, "it has no line 'begin: make lab-report'"));
    };
    let Some((_, after)) = rest.split_once(END) else {
        return Err(bad(name, "it has no line 'end: make lab-report'"));
    };
    Ok(format!("{before}{BEGIN}{generated}{END}{after}"))
}

fn bad(path: &str, why: &str) -> LabError {
    LabError::Results {
        path: path.into(),
        why: why.to_owned(),
    }
}

pub fn write(results: &Results, promises: &[PromiseRow]) -> Result<()> {
    for (name, text) in files(results, promises)? {
        fs::write(&name, text).map_err(LabError::file(name))?;
    }
    Ok(())
}

/// Fails if a generated file differs from the present one.
pub fn check(results: &Results, promises: &[PromiseRow]) -> Result<()> {
    for (name, text) in files(results, promises)? {
        if fs::read_to_string(&name).map_err(LabError::file(&name))? != text {
            return Err(bad(
                &name,
                "not what docs/results.json and docs/promises.json say; run: make lab-report",
            ));
        }
    }
    Ok(())
}

fn page(results: &Results, promises: &[PromiseRow]) -> String {
    let kernels = results.cells.iter().map(|outcome| outcome.kernel.as_str());
    let mut kernels: Vec<&str> = kernels.collect();
    kernels.sort_unstable();
    kernels.dedup();
    let mut text = format!(
        "# Results\n\n\
         All figures of this page were measured in [virtual time](../vm/README.md): a distribution's \
         kernel in an emulator that counts instructions, one of which takes one nanosecond. They are \
         independent of the speed and load of the machine, but depend on every byte in the guest: \
         another commit, compiler, kernel or C library gives other last digits. `make lab-report` \
         generates this page from [results.json](results.json), which `make lab WRITE=docs/results.json` \
         and `make lab-full WRITE=docs/results.json` update.\n\n\
         Kernels: {}. {} cells.\n\n\
         A cell's name is KERNEL/CPUS/POLICY/WORKLOAD. One command repeats it and prints all its figures \
         (more quantiles, failed requests, inversions, the controller's CPU time), in about two minutes \
         on an idle machine after the build (other projects' schedulers take some minutes more to \
         build):\n\n\
         ```console\n$ make lab CELL=7/2/sched-ext/service-400\n```\n\n\
         Virtual time shows scheduling: which thread waits, for how long, and how many instructions the \
         scheduler takes. It has no caches, memory bandwidth or frequencies, and SMT siblings do not \
         slow each other down. All CPUs share one clock: with N of them busy, each executes 1/N \
         instructions per nanosecond.\n\n",
        kernels.join(", "),
        results.cells.len(),
    );
    text.push_str(&beside::tables(results));
    text.push_str(&seeds::table(results));
    text.push_str(&sources::tables(results));
    let _ = write!(text, "\n## Promises\n\n{}", promises_table(promises));
    text
}
