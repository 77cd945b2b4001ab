//! Tables and plots of what was measured.

mod beside;
mod plot;
mod sources;
mod table;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::error::{LabError, Result};
use crate::results::{Outcome, Results};

/// Between these lines of the README stands its table.
const BEGIN: &str = "<!-- begin: make lab-report -->\n";
const END: &str = "<!-- end: make lab-report -->\n";

/// Prints what was found, and whether it is what the project's own results say.
pub fn print(found: &[Outcome], committed: &Path) {
    let results = Results {
        cells: found.to_vec(),
        ..Results::default()
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

/// Which figures are those of the project's own results, to the last digit.
fn compared(found: &[Outcome], committed: &Results) -> String {
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

/// The files that are made of results, by name within the project: `docs/results.md`, its
/// plots, and the README with its table.
fn files(results: &Results, root: &Path) -> Result<Vec<(String, String)>> {
    let mut files = vec![("docs/results.md".to_owned(), page(results))];
    files.extend(plot::all(results)?);
    let path = root.join("README.md");
    let readme = fs::read_to_string(&path).map_err(LabError::file(&path))?;
    let Some((before, rest)) = readme.split_once(BEGIN) else {
        return Err(bad(&path, "it has no line 'begin: make lab-report'"));
    };
    let Some((_, after)) = rest.split_once(END) else {
        return Err(bad(&path, "it has no line 'end: make lab-report'"));
    };
    let table = beside::headline(results);
    files.push((
        "README.md".to_owned(),
        format!("{before}{BEGIN}{table}{END}{after}"),
    ));
    Ok(files)
}

fn bad(path: &Path, why: &str) -> LabError {
    LabError::Results {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

/// Writes them.
pub fn write(results: &Results, root: &Path) -> Result<()> {
    for (name, text) in files(results, root)? {
        let path = root.join(name);
        fs::write(&path, text).map_err(LabError::file(path))?;
    }
    Ok(())
}

/// Fails unless they are as results make them.
pub fn check(results: &Results, root: &Path) -> Result<()> {
    for (name, text) in files(results, root)? {
        let path = root.join(name);
        if fs::read_to_string(&path).map_err(LabError::file(&path))? != text {
            return Err(bad(
                &path,
                "not what docs/results.json says; run: make lab-report",
            ));
        }
    }
    Ok(())
}

fn page(results: &Results) -> String {
    let kernels = results.cells.iter().map(|outcome| outcome.kernel.as_str());
    let mut kernels: Vec<&str> = kernels.collect();
    kernels.sort_unstable();
    kernels.dedup();
    let mut text = format!(
        "# Results\n\n\
         All figures of this page were measured in [virtual time](../vm/README.md): a distribution's \
         kernel in an emulator that counts instructions, one of which takes one nanosecond. They do \
         not depend on how fast or how busy a machine is. They do depend on the bytes that the guest \
         gets: another commit, compiler, kernel or C library gives other last digits. `make lab-report` \
         makes this page of [results.json](results.json), which `make lab WRITE=docs/results.json` and \
         `make lab-full WRITE=docs/results.json` fill.\n\n\
         Kernels: {}. {} cells.\n\n\
         Each row names its cell. One command repeats it, in some two minutes on an idle machine once all \
         is built (another project's scheduler takes some minutes more to build):\n\n\
         ```console\n$ make lab CELL=7/2/sched-ext/service-400\n```\n\n\
         What this shows is scheduling: who waits, how long, and how many instructions the scheduler \
         takes. It has no caches, no memory bandwidth, no frequencies, and SMT siblings that cost \
         each other nothing. All CPUs share one clock: with N of them busy, each does 1/N \
         instructions a nanosecond.\n\n",
        kernels.join(", "),
        results.cells.len(),
    );
    text.push_str(&beside::tables(results));
    text.push_str(&sources::tables(results));
    text
}
