//! Boots the guests that measure promises, and stores their figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{Guest, PromiseRow, rows};
use crate::cell::KernelVersion;
use crate::cpus::Cpus;
use crate::error::{LabError, Result};
use crate::guests::{
    self, MEASURED, digest, in_parallel, keep, kept, last_line, said_by, say, this_program,
};

/// Limit of one test in seconds of its guest's time, and of a guest in this machine's.
const TEST_MAX_SECONDS: u32 = 900;
const HOST_MAX_SECONDS: u32 = 12 * 3600;

/// The program with the tests.
const MEASURE: &str = "target/lab/measure";
/// Folder of the guests' figures, so that an interrupted run can resume. Without it all are
/// measured again.
const FIGURES: &str = "target/lab/promises";
/// The script that runs the tests in a guest, below the project's folder.
const IN_GUEST: &str = "crates/plimsoll/tests/in-guest";

/// A machine, and the tests that run there: those of a module of `measure`.
#[derive(Debug)]
struct Place {
    module: &'static str,
    kernel: KernelVersion,
    cpus: Cpus,
}

const PLACES: [Place; 4] = [
    Place {
        module: "scheduler",
        kernel: KernelVersion::V7,
        cpus: Cpus::TWO,
    },
    Place {
        module: "stock",
        kernel: KernelVersion::V6_18,
        cpus: Cpus::TWO,
    },
    Place {
        module: "four_cpus",
        kernel: KernelVersion::V7,
        cpus: Cpus::FOUR,
    },
    Place {
        module: "one_cpu",
        kernel: KernelVersion::V7,
        cpus: Cpus::ONE,
    },
];

impl Place {
    fn name(&self) -> String {
        format!("{}/{}", self.kernel, self.cpus)
    }
}

/// How promises are measured.
#[derive(Debug, clap::Args)]
pub struct Measurement {
    /// Only tests whose name contains this
    #[arg(long)]
    pub filter: Option<String>,
    /// Number of guests for each machine, 1 to 30, each with another path
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=30))]
    perturbations: u8,
    /// Number of guests at a time, 1 to 64; each keeps one core busy
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
}

/// The guest's folder. Its path is on every command line and stack, so that its length shifts
/// what follows: enough for other figures, and nothing else differs.
fn guest_folder(perturbation: u8) -> String {
    match perturbation {
        0 => "/lab".to_owned(),
        number => {
            let letter = char::from(b'a' + number % 26);
            format!("/lab-{}", letter.to_string().repeat(number.into()))
        }
    }
}

impl Measurement {
    /// Measures in parallel, prints a line for each guest, and returns the rows and the number of
    /// guests and tests that failed.
    pub fn run(&self) -> Result<(Vec<PromiseRow>, usize)> {
        let programs = Self::programs()?;
        let tests = self.tests()?;
        fs::create_dir_all(FIGURES).map_err(LabError::file(FIGURES))?;
        let of_place = |place: &Place| -> Vec<String> {
            let module = format!("{}::", place.module);
            let all = tests.iter().filter(|test| test.starts_with(&module));
            all.cloned().collect()
        };
        let chosen = PLACES.iter().map(|place| (place, of_place(place)));
        let chosen: Vec<_> = chosen.filter(|(_, tests)| !tests.is_empty()).collect();
        if chosen.is_empty() {
            return Err(LabError::Guest(
                "no test has the filter in its name".to_owned(),
            ));
        }
        let work = (0..self.perturbations)
            .flat_map(|number| (0..chosen.len()).map(move |place| (place, number)));
        let work: Vec<(usize, u8)> = work.collect();
        let ended = AtomicUsize::new(0);
        let guests = in_parallel(self.jobs.into(), &work, |&(place, number)| {
            let (place, tests) = &chosen[place];
            let guest = Self::guest(place, tests, number, &programs);
            let guest = guest.map_err(|error| say(&format!("FAILED: {error}"))).ok();
            let ended = ended.fetch_add(1, Ordering::Relaxed) + 1;
            say(&format!("[{ended}/{}]", work.len()));
            guest
        });
        let mut all = Vec::new();
        let mut failed = 0;
        for (at, (place, _)) in chosen.iter().enumerate() {
            let of_place = work.iter().zip(&guests).filter(|(job, _)| job.0 == at);
            let of_place = of_place.filter_map(|(_, guest)| guest.clone());
            let of_place: Vec<Guest> = of_place.collect();
            failed += usize::from(self.perturbations) - of_place.len();
            failed += of_place
                .iter()
                .map(|guest| guest.failed.len())
                .sum::<usize>();
            all.extend(rows(&place.name(), &programs, &of_place));
        }
        Ok((all, failed))
    }

    /// Figures of a guest, of an earlier run if it had the same programs and tests.
    fn guest(place: &Place, tests: &[String], number: u8, programs: &str) -> Result<Guest> {
        let words = [
            programs,
            &place.name(),
            &guest_folder(number),
            &tests.join(" "),
        ];
        let digest = digest(&[], &words)?;
        let path = Path::new(FIGURES).join(format!("{digest}.json"));
        let name = format!("{} in {}", place.name(), guest_folder(number));
        if let Some(guest) = kept::<Guest>(&path, &digest) {
            say(&format!("{name}: {} figures, kept", guest.figures.len()));
            return Ok(guest);
        }
        let begun = Instant::now();
        let guest = Self::boot(place, tests, number, &digest)?;
        say(&format!(
            "{name}: {} figures in {} s",
            guest.figures.len(),
            begun.elapsed().as_secs()
        ));
        for test in &guest.failed {
            say(&format!("{name}: NOT MEASURED: {test}; see {digest}.log"));
        }
        if guest.is_complete {
            keep(&path, &digest, &guest)?;
        } else {
            say(&format!("{name}: THE GUEST DID NOT END; see {digest}.log"));
        }
        Ok(guest)
    }

    /// Boots a guest; its output stays beside its figures.
    fn boot(place: &Place, tests: &[String], number: u8, digest: &str) -> Result<Guest> {
        let folder = guest_folder(number);
        let list = Path::new(FIGURES).join(format!("{digest}.tests"));
        fs::write(&list, tests.join("\n") + "\n").map_err(LabError::file(&list))?;
        let flags = [
            ("--kernel", place.kernel.to_string()),
            ("--cpus", place.cpus.count.to_string()),
            ("--llcs", place.cpus.llcs.to_string()),
            ("--timeout", HOST_MAX_SECONDS.to_string()),
            ("--directory", folder.clone()),
            ("--env", format!("PLIMSOLL_BIN={folder}/plimsoll")),
            ("--env", format!("PLIMSOLL_LAB_BIN={folder}/plimsoll-lab")),
            ("--env", "PLIMSOLL_TEST_VM=1".to_owned()),
            ("--env", "RUST_BACKTRACE=0".to_owned()),
        ];
        let in_guest = |name: &str| format!("{folder}/{name}");
        let script = in_guest("in-guest");
        let files: [(&Path, &str); 5] = [
            (Path::new(MEASURED), &in_guest("plimsoll")),
            (&this_program()?, &in_guest("plimsoll-lab")),
            (Path::new(MEASURE), &in_guest("measure")),
            (Path::new(IN_GUEST), &script),
            (&list, &in_guest("tests")),
        ];
        // The figures are in the tests' output.
        let seconds = TEST_MAX_SECONDS.to_string();
        let command = ["sh", &script, "measure", &seconds, "--show-output"];
        let output = guests::boot(&flags, &files, &command)?;
        let log = Path::new(FIGURES).join(format!("{digest}.log"));
        fs::write(&log, &output.stdout).map_err(LabError::file(&log))?;
        let guest = Guest::parse(&String::from_utf8_lossy(&output.stdout));
        if guest.kernel.is_empty() {
            let why = last_line(&output);
            return Err(LabError::Guest(format!("{}: {why}", place.name())));
        }
        Ok(guest)
    }

    /// The names of the tests, filtered.
    fn tests(&self) -> Result<Vec<String>> {
        let mut list = Command::new(MEASURE);
        list.args(["--list", "--format", "terse"])
            .args(&self.filter);
        let listed = said_by(&mut list, "the tests")?;
        let names = listed
            .lines()
            .filter_map(|line| Some(line.strip_suffix(": test")?.to_owned()));
        Ok(names.collect())
    }

    /// Hash of all that affects figures, except the kernel, whose version is with them.
    fn programs() -> Result<String> {
        let mut paths = vec![this_program()?];
        paths.extend([MEASURED, MEASURE, "vm/run", "vm/init", IN_GUEST].map(PathBuf::from));
        digest(&paths, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_perturbation_has_a_path_of_another_length() {
        assert_eq!(guest_folder(0), "/lab");
        assert_eq!(guest_folder(2), "/lab-cc");
        let mut lengths: Vec<usize> = (0..30).map(|number| guest_folder(number).len()).collect();
        lengths.dedup();
        assert_eq!(lengths.len(), 30);
    }
}
