//! Guests in virtual time: how they are booted, several at a time, and their figures kept.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};

/// The plimsoll that is measured. Like all paths here it is below the project's folder, in which
/// the lab runs.
pub const MEASURED: &str = "target/lab/plimsoll";

/// Does work, `jobs` pieces at a time, and returns what each piece yields, in their order.
pub fn in_parallel<Piece: Sync, Done: Send>(
    jobs: usize,
    work: &[Piece],
    act: impl Fn(&Piece) -> Done + Sync,
) -> Vec<Done> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = work.get(at) else { return };
                    let result = act(piece);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Returns the digest of files' contents and of words.
pub fn digest(paths: &[PathBuf], words: &[&str]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    for path in paths {
        let bytes = fs::read(path).map_err(LabError::file(path))?;
        bytes.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// Content of a file with a guest's figures, by which an interrupted run can resume.
#[derive(Debug, Serialize, Deserialize)]
struct Kept<T> {
    /// Digest of everything that affects them.
    digest: String,
    figures: T,
}

/// Returns the figures in a file, if they have this digest.
pub fn kept<T: DeserializeOwned>(path: &Path, digest: &str) -> Option<T> {
    let kept: Kept<T> = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    (kept.digest == digest).then_some(kept.figures)
}

/// Stores figures in a file, which has all of them or none.
pub fn keep<T: Serialize>(path: &Path, digest: &str, figures: &T) -> Result<()> {
    let digest = digest.to_owned();
    let text = serde_json::to_string(&Kept { digest, figures }).unwrap_or_default();
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(LabError::file(&new))?;
    fs::rename(&new, path).map_err(LabError::file(path))
}

/// Boots a guest with flags of `vm/run`, and with files at paths of its own, runs a command in it,
/// and returns its output.
pub fn boot(flags: &[(&str, String)], files: &[(&Path, &str)], command: &[&str]) -> Result<Output> {
    let mut run = Command::new("vm/run");
    run.stdin(Stdio::null()).arg("--virtual-time");
    for (flag, value) in flags {
        run.args([flag, value.as_str()]);
    }
    for (path, guest) in files {
        run.args(["--file", &format!("{}:{guest}", path.display())]);
    }
    run.arg("--").args(command);
    output_of(&mut run, "vm/run")
}

/// Runs a command and returns its output.
pub fn output_of(command: &mut Command, what: &str) -> Result<Output> {
    command.output().map_err(LabError::command(what))
}

/// Runs a command and returns what it prints; fails if the command does.
pub fn said_by(command: &mut Command, what: &str) -> Result<String> {
    let output = output_of(command, what)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LabError::Command {
        what: what.to_owned(),
        why: last_line(&output),
    })
}

/// Returns the last line of an output that failed, which says why.
pub fn last_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut lines = said.lines().chain(errors.lines()).map(str::trim);
    let last = lines.rfind(|line| !line.is_empty());
    last.unwrap_or("it says nothing").to_owned()
}

/// Returns the path of this program, which the guests run, too.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(LabError::file("/proc/self/exe"))
}

/// Prints progress; a reader that has gone is no reason to stop.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_work() {
        let work: Vec<usize> = (0..50).collect();
        assert_eq!(in_parallel(3, &work, |piece| *piece), work);
    }

    #[test]
    fn figures_are_kept_for_the_same_digest_only() {
        let name = format!("plimsoll-lab-kept-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        keep(&path, "abc", &1.5).unwrap();
        assert_eq!(kept(&path, "abc"), Some(1.5));
        assert_eq!(kept::<f64>(&path, "abd"), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(kept::<f64>(&path, "abc"), None);
    }
}
