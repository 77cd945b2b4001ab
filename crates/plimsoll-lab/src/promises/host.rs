//! Boots the guests that measure promises, and stores their figures.

use std::collections::VecDeque;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Guest, Row, rows};
use crate::cell::Kernel;
use crate::error::{LabError, Result};
use crate::host::this_program;

/// Limit of one test in seconds of its guest's time, and of a guest in this machine's.
const TEST_MAX_SECONDS: u32 = 900;
const HOST_MAX_SECONDS: u32 = 12 * 3600;

/// The script that runs the tests in a guest, below the project's folder.
const IN_GUEST: &str = "crates/plimsoll/tests/in-guest";

/// A machine, and the tests that run there: those of a module of `measure`.
#[derive(Debug)]
struct Place {
    module: &'static str,
    kernel: Kernel,
    cpus: u32,
}

const PLACES: [Place; 4] = [
    Place {
        module: "scheduler",
        kernel: Kernel::V7,
        cpus: 2,
    },
    Place {
        module: "stock",
        kernel: Kernel::V6_18,
        cpus: 2,
    },
    Place {
        module: "four_cpus",
        kernel: Kernel::V7,
        cpus: 4,
    },
    Place {
        module: "one_cpu",
        kernel: Kernel::V7,
        cpus: 1,
    },
];

impl Place {
    fn name(&self) -> String {
        format!("{}/{}", self.kernel.name(), self.cpus)
    }
}

#[derive(Debug)]
pub struct Measurement {
    /// The project's folder.
    pub root: PathBuf,
    pub plimsoll: PathBuf,
    /// The program with the tests.
    pub measure: PathBuf,
    /// Folder of the guests' figures, so that an interrupted run can resume.
    pub folder: PathBuf,
    /// Regular expression of grep -E; all tests without one.
    pub filter: Option<String>,
    /// Guests for each place.
    pub perturbations: usize,
    /// Number of guests at a time; each keeps one core busy.
    pub jobs: usize,
    /// Whether to ignore earlier figures.
    pub again: bool,
}

/// Content of a guest's file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    digest: String,
    guest: Guest,
}

/// The guest's folder. Its path is on every command line and stack, so that its length shifts
/// what follows: enough for other figures, and nothing else differs.
fn guest_folder(perturbation: usize) -> String {
    match u8::try_from(perturbation) {
        Ok(0) | Err(_) => "/lab".to_owned(),
        Ok(number) => {
            let letter = char::from(b'a' + number % 26);
            format!("/lab-{}", letter.to_string().repeat(perturbation))
        }
    }
}

impl Measurement {
    /// Measures in parallel, prints a line for each guest, and returns the rows and the number of
    /// guests and tests that failed.
    pub fn run(&self) -> Result<(Vec<Row>, usize)> {
        let programs = self.programs()?;
        let tests = self.tests()?;
        fs::create_dir_all(&self.folder).map_err(LabError::file(&self.folder))?;
        let of_place = |place: &Place| -> Vec<String> {
            let module = format!("{}::", place.module);
            let all = tests.iter().filter(|test| test.starts_with(&module));
            all.cloned().collect()
        };
        let chosen = PLACES.iter().map(|place| (place, of_place(place)));
        let chosen: Vec<_> = chosen.filter(|(_, tests)| !tests.is_empty()).collect();
        if chosen.is_empty() {
            return Err(LabError::Guest("no test matches the filter".to_owned()));
        }
        let work = (0..self.perturbations)
            .flat_map(|number| (0..chosen.len()).map(move |place| (place, number)));
        let guests = self.in_parallel(work.collect(), |(place, number)| {
            let (place, tests) = &chosen[place];
            self.guest(place, tests, number, &programs)
        });
        let mut all = Vec::new();
        let mut failed = 0;
        for (at, (place, _)) in chosen.iter().enumerate() {
            let of_place = guests.iter().filter(|(job, _)| job.0 == at);
            let of_place = of_place.filter_map(|(_, guest)| guest.clone());
            let of_place: Vec<Guest> = of_place.collect();
            failed += self.perturbations - of_place.len();
            failed += of_place
                .iter()
                .map(|guest| guest.failed.len())
                .sum::<usize>();
            all.extend(rows(&place.name(), &programs, &of_place));
        }
        Ok((all, failed))
    }

    /// Does jobs, several at a time, in their order.
    fn in_parallel(
        &self,
        work: Vec<(usize, usize)>,
        act: impl Fn((usize, usize)) -> Result<Guest> + Sync,
    ) -> Vec<((usize, usize), Option<Guest>)> {
        let total = work.len();
        let left = Mutex::new(VecDeque::from(work));
        let done = Mutex::new(Vec::new());
        let next = || {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            left.pop_front()
        };
        thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    while let Some(job) = next() {
                        let result = act(job);
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        let guest = result
                            .map_err(|error| say(&format!("FAILED: {error}")))
                            .ok();
                        done.push((job, guest));
                        say(&format!("[{}/{total}]", done.len()));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(job, _)| *job);
        done
    }

    /// Figures of a guest, of an earlier run if it had the same programs and tests.
    fn guest(
        &self,
        place: &Place,
        tests: &[String],
        number: usize,
        programs: &str,
    ) -> Result<Guest> {
        let digest = digest_of(&[
            programs,
            &place.name(),
            &guest_folder(number),
            &tests.join(" "),
        ]);
        let path = self.folder.join(format!("{digest}.json"));
        let name = format!("{} in {}", place.name(), guest_folder(number));
        if !self.again
            && let Some(guest) = kept(&path, &digest)
        {
            say(&format!("{name}: {} figures, kept", guest.figures.len()));
            return Ok(guest);
        }
        let begun = Instant::now();
        let guest = self.boot(place, tests, number, &digest)?;
        say(&format!(
            "{name}: {} figures in {} s",
            guest.figures.len(),
            begun.elapsed().as_secs()
        ));
        for test in &guest.failed {
            say(&format!("{name}: NOT MEASURED: {test}; see {digest}.log"));
        }
        if guest.is_complete {
            keep(
                &path,
                Kept {
                    digest,
                    guest: guest.clone(),
                },
            )?;
        } else {
            say(&format!("{name}: THE GUEST DID NOT END; see {digest}.log"));
        }
        Ok(guest)
    }

    /// Boots a guest; its output stays beside its figures.
    fn boot(&self, place: &Place, tests: &[String], number: usize, digest: &str) -> Result<Guest> {
        let folder = guest_folder(number);
        let list = self.folder.join(format!("{digest}.tests"));
        fs::write(&list, tests.join("\n") + "\n").map_err(LabError::file(&list))?;
        let mut command = Command::new(self.root.join("vm/run"));
        command.stdin(Stdio::null()).arg("--virtual-time");
        for (flag, value) in [
            ("--kernel", place.kernel.name().to_owned()),
            ("--cpus", place.cpus.to_string()),
            ("--timeout", HOST_MAX_SECONDS.to_string()),
            ("--directory", folder.clone()),
            ("--env", format!("PLIMSOLL_BIN={folder}/plimsoll")),
            ("--env", format!("PLIMSOLL_LAB_BIN={folder}/plimsoll-lab")),
            ("--env", "PLIMSOLL_TEST_VM=1".to_owned()),
            ("--env", "RUST_BACKTRACE=0".to_owned()),
        ] {
            command.args([flag, &value]);
        }
        for (path, name) in [
            (&self.plimsoll, "plimsoll"),
            (&this_program()?, "plimsoll-lab"),
            (&self.measure, "measure"),
            (&self.root.join(IN_GUEST), "in-guest"),
            (&list, "tests"),
        ] {
            command.args(["--file", &format!("{}:{folder}/{name}", path.display())]);
        }
        // The figures are in the tests' output.
        let (script, seconds) = (format!("{folder}/in-guest"), TEST_MAX_SECONDS.to_string());
        command.args(["--", "sh", &script, "measure", &seconds, "--show-output"]);
        let output = output_of(&mut command, "vm/run")?;
        let log = self.folder.join(format!("{digest}.log"));
        fs::write(&log, &output.stdout).map_err(LabError::file(&log))?;
        let guest = Guest::parse(&String::from_utf8_lossy(&output.stdout));
        if guest.kernel.is_empty() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let why = errors.lines().last().unwrap_or("it says nothing");
            return Err(LabError::Guest(format!("{}: {why}", place.name())));
        }
        Ok(guest)
    }

    /// The names of the tests, filtered.
    fn tests(&self) -> Result<Vec<String>> {
        let mut list = Command::new(&self.measure);
        let listed = output_of(list.args(["--list", "--format", "terse"]), "the tests")?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let names: Vec<String> = listed
            .lines()
            .filter_map(|line| Some(line.strip_suffix(": test")?.to_owned()))
            .collect();
        let Some(filter) = &self.filter else {
            return Ok(names);
        };
        let mut grep = Command::new("grep");
        let mut grep = grep
            .args(["-E", "-e", filter])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(LabError::file("grep"))?;
        if let Some(mut input) = grep.stdin.take() {
            let written = input.write_all((names.join("\n") + "\n").as_bytes());
            written.map_err(LabError::file("grep"))?;
        }
        let matched = grep.wait_with_output().map_err(LabError::file("grep"))?;
        let matched = String::from_utf8_lossy(&matched.stdout).into_owned();
        Ok(matched.lines().map(str::to_owned).collect())
    }

    /// Hash of all that affects figures, except the kernel, whose version is with them.
    fn programs(&self) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        for path in [&self.plimsoll, &this_program()?, &self.measure] {
            fs::read(path)
                .map_err(LabError::file(path))?
                .hash(&mut hasher);
        }
        for name in ["vm/run", "vm/init", IN_GUEST] {
            let path = self.root.join(name);
            fs::read(&path)
                .map_err(LabError::file(path))?
                .hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }
}

fn digest_of(words: &[&str]) -> String {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn kept(path: &Path, digest: &str) -> Option<Guest> {
    let kept: Kept = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    (kept.digest == digest).then_some(kept.guest)
}

fn keep(path: &Path, kept: Kept) -> Result<()> {
    let new = path.with_extension("new");
    let text = serde_json::to_string(&kept).unwrap_or_default();
    fs::write(&new, text).map_err(LabError::file(&new))?;
    fs::rename(&new, path).map_err(LabError::file(path))
}

fn output_of(command: &mut Command, what: &str) -> Result<std::process::Output> {
    command.output().map_err(|error| LabError::Command {
        what: what.to_owned(),
        why: error.to_string(),
    })
}

/// Prints progress; a reader that has gone is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
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
