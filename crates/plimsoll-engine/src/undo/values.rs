//! Undo of the values of kernel files.

use std::collections::HashSet;
use std::path::Path;

use plimsoll_cgroupfs::{find_folder, name, read_text, write_text_of};

use super::UndoReport;
use crate::error::{EngineError, Result};
use crate::journal::{Entry, FileRestore};

/// Returns the value of a weight file after the idle mark of its cgroup is cleared; `None`: `path`
/// is no weight file.
fn default_weight(path: &Path) -> Option<&'static str> {
    match path.file_name()?.to_str()? {
        "cpu.shares" => Some("1024"),
        "cpu.weight" => Some("100"),
        _ => None,
    }
}

fn is_idle_mark(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "cpu.idle")
}

/// Returns whether the kernel currently refuses the value.
pub(crate) fn is_refused(error: &EngineError) -> bool {
    error.os_error() == Some(libc::EINVAL)
}

/// Writes the old value of each file. An external change stays, and is added to the report. Cgroups
/// that are gone are ignored. Returns the files that could not be restored for now. The kernel
/// refuses a quota below the burst, and in version 1 a quota above that of the parent
/// cgroup, so refused values are retried after the others. Idle marks go first, because an idle
/// cgroup has no weight.
pub(crate) fn try_restore_files<'a>(
    files: &'a [FileRestore],
    report: &mut UndoReport,
) -> Vec<(&'a FileRestore, EngineError)> {
    let (marks, others): (Vec<_>, Vec<_>) = files
        .iter()
        .rev()
        .partition(|file| is_idle_mark(&file.path));
    let marked = Marked::of(&marks);
    let mut left = [marks, others].concat();
    loop {
        let mut refused = Vec::new();
        for file in &left {
            match restore_file(file, &marked, report) {
                Err(error) if !error.is_gone() => refused.push((*file, error)),
                _ => (),
            }
        }
        if refused.len() == left.len() {
            return refused;
        }
        left = refused.into_iter().map(|(file, _)| file).collect();
    }
}

/// Puts settings of the machine back. An external change stays, and is added to the report. Returns
/// an entry for each but those that cannot be written now: they are tried again, also where the file
/// is gone.
pub(crate) fn put_back_settings<'a>(
    settings: impl Iterator<Item = &'a FileRestore>,
    report: &mut UndoReport,
) -> Vec<Entry> {
    let mut done = Vec::new();
    for setting in settings {
        match restore_file(setting, &Marked::of(&[]), report) {
            Ok(()) => {
                report.undone.push(name::text_of(&setting.path));
                done.push(Entry::gone(&setting.path));
            }
            Err(error) => report.problems.push(error.to_string()),
        }
    }
    done
}

/// Returns the choice in brackets of a text that lists all choices.
pub(crate) fn chosen(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    words.find_map(|word| word.strip_prefix('(')?.strip_suffix(')'))
}

/// Cgroups whose idle mark is ours.
struct Marked<'a> {
    all: HashSet<&'a Path>,
    /// Cgroups of which the mark is to be taken away.
    to_clear: HashSet<&'a Path>,
}

impl<'a> Marked<'a> {
    fn of(marks: &[&'a FileRestore]) -> Self {
        let folder = |file: &&'a FileRestore| file.path.parent();
        let to_clear = marks.iter().filter(|file| file.old == "0");
        Self {
            all: marks.iter().filter_map(folder).collect(),
            to_clear: to_clear.filter_map(folder).collect(),
        }
    }
}

/// Writes the old value of a file.
fn restore_file(file: &FileRestore, marked: &Marked<'_>, report: &mut UndoReport) -> Result<()> {
    let FileRestore {
        path,
        inode,
        old,
        ours,
        ..
    } = file;
    let is_in = |set: &HashSet<&Path>| path.parent().is_some_and(|at| set.contains(at));
    let folder = find_folder(path.parent().unwrap_or(path), *inode)?;
    let path = &folder.join(path.file_name().unwrap_or_default());
    let text = read_text(path)?;
    let now = chosen(&text).unwrap_or(&text);
    if now == old {
        return Ok(());
    }
    let default = default_weight(path);
    if default.is_some() && read_text(&path.with_file_name("cpu.idle")).is_ok_and(|it| it == "1") {
        // An idle cgroup has no weight. The kernel refuses it until the mark is cleared, and then
        // it is written again.
        return match is_in(&marked.to_clear) {
            true => Ok(write_text_of(path, *inode, old)?),
            false => Ok(()),
        };
    }
    let is_cleared = default == Some(now) && is_in(&marked.all);
    if file.is_driven() || is_cleared || ours.iter().any(|it| it == now) {
        return Ok(write_text_of(path, *inode, old)?);
    }
    report.problems.push(format!(
        "{}: holds `{now}`, which is not ours (`{}`); left as it is, it was `{old}`",
        path.display(),
        ours.last().unwrap_or(old)
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_idle_mark_decides_about_the_weight() {
        for (found, weight_after) in [("0", "50"), ("1", "1024")] {
            let folder = tempfile::tempdir().unwrap();
            let (idle, weight) = (
                folder.path().join("cpu.idle"),
                folder.path().join("cpu.shares"),
            );
            let ours = if found == "0" { "1" } else { "0" };
            fs::write(&idle, ours).unwrap();
            // The value that the kernel sets when the mark is cleared.
            fs::write(&weight, "1024").unwrap();
            let files = [
                FileRestore::new(&idle, found, Some(ours)),
                FileRestore::new(&weight, "50", Some("300")),
            ];
            let mut report = UndoReport::default();
            try_restore_files(&files, &mut report);
            assert_eq!(report, UndoReport::default());
            assert_eq!(fs::read_to_string(&idle).unwrap(), found);
            // A regular file, unlike a kernel file, keeps the old text after the new one.
            let weight = fs::read_to_string(&weight).unwrap();
            assert!(weight.starts_with(weight_after), "{weight}");
        }
    }
}
