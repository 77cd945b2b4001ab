//! What was done to the system, written down before it is done.
//!
//! Every process that changes something keeps one journal: a file of JSON
//! lines below the runtime folder, locked for as long as the process lives.
//! A journal that is not locked belongs to a process that is gone, however
//! it went: the next start undoes it. `plimsoll set` leaves a journal that
//! is meant to outlive it; only `restore` undoes that. What several processes
//! use together has one journal that all of them keep; the last undoes it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};
use crate::knobs::Knobs;
use crate::runtime::temporary;

/// The version of the journal's lines. Lines of another version are
/// refused, not guessed at.
pub const VERSION: u32 = 1;

/// What a group's control socket is called, beside its journal.
pub const SOCKET_EXTENSION: &str = "sock";
/// What the description of a group of the BPF scheduler is called, beside its
/// journal.
pub(crate) const SCHEDULED_EXTENSION: &str = "scheduled";

/// Who keeps a journal and why. Its first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// `VERSION`.
    pub version: u32,
    /// The group's name.
    pub name: String,
    /// Who wrote it; for people, the lock is what counts.
    pub pid: u32,
    /// Outlives the process that wrote it, until `restore`.
    pub persistent: bool,
    /// The command of a `run`, or the target of a `set`.
    pub subject: String,
    /// What was asked for.
    pub knobs: Knobs,
}

/// One change, with what it takes to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A cgroup is created, one folder a hierarchy. Undone by moving what
    /// still runs in it to `evacuate_to` and removing it.
    Create {
        /// The folders.
        folders: Vec<PathBuf>,
        /// Where its processes go.
        evacuate_to: Vec<PathBuf>,
    },
    /// A kernel file that was there before us is written.
    Write {
        /// The file.
        path: PathBuf,
        /// What it held.
        old: String,
        /// What it holds now.
        new: String,
    },
    /// A process that was there before us is moved.
    Move {
        /// The process.
        pid: i32,
        /// Its start time, which tells it from a later one of the same pid.
        start_time: u64,
        /// Where it was.
        from: Vec<PathBuf>,
    },
    /// The nice level of a task that was there before us is changed.
    Renice {
        /// The task.
        tid: i32,
        /// Its start time.
        start_time: u64,
        /// Its nice level before.
        old: i32,
    },
    /// The tasks of a cgroup and of all below it are handed to a BPF
    /// scheduler. Undone by handing all of them back to the fair class.
    Schedule {
        /// The cgroup's folder.
        folder: PathBuf,
        /// The policy of tasks of which nothing else is known: `SCHED_OTHER`,
        /// or that of whoever starts them.
        #[serde(default)]
        policy: i32,
    },
    /// The policy of a task that was there before us, or came with one of its
    /// own, is changed. Undone for its children too, which inherit it.
    Repolicy {
        /// The task.
        tid: i32,
        /// Its start time.
        start_time: u64,
        /// Its policy before: `SCHED_OTHER`, `SCHED_BATCH` or `SCHED_IDLE`.
        old: i32,
    },
    /// A file of ours is written that others read. Undone by removing it.
    Publish {
        /// The file.
        path: PathBuf,
    },
    /// BPF maps and programs are pinned. Undone by removing the folder.
    Pin {
        /// A folder of ours in a BPF file system.
        folder: PathBuf,
    },
}

/// A journal that this process keeps.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> EngineError {
    move |source| EngineError::Journal {
        path: path.to_owned(),
        source,
    }
}

impl Journal {
    /// Where the journal of that name is, or would be.
    pub fn path_of(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.journal"))
    }

    /// Starts a journal in `folder`.
    ///
    /// # Errors
    /// `NameTaken` when there is one of that name already.
    pub fn create(folder: &Path, header: &Header) -> Result<Self> {
        let path = Self::path_of(folder, &header.name);
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .open(&path);
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(EngineError::NameTaken {
                    name: header.name.clone(),
                });
            }
            other => other.map_err(failed(&path))?,
        };
        file.lock().map_err(failed(&path))?;
        let mut journal = Self { file, path };
        journal.append_line(header)?;
        Ok(journal)
    }

    /// Takes over the journal at `path` if the process that kept it is gone.
    /// `None`: it is still kept, or has just been removed.
    ///
    /// # Errors
    /// When it cannot be opened or locked.
    pub fn take_over(path: &Path) -> Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).append(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed(path))?,
        };
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => return Err(failed(path)(source)),
        }
        // Its keeper may have finished and removed it between open and lock.
        let journal = Self {
            file,
            path: path.to_owned(),
        };
        Ok(path.exists().then_some(journal))
    }

    /// Lets others keep the journal too, see [`Journal::join`].
    ///
    /// # Errors
    /// When it cannot be locked.
    pub fn share(&self) -> Result<()> {
        self.file.lock_shared().map_err(failed(&self.path))
    }

    /// Keeps the journal at `path` together with those who share it. As long
    /// as one of them lives nobody can take it over. To be called with the
    /// runtime lock held, as is [`Journal::leave`]: for a moment the lock is
    /// nobody's. `None`: there is none, or one process keeps it alone.
    ///
    /// # Errors
    /// When it cannot be opened or locked.
    pub fn join(path: &Path) -> Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).append(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed(path))?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Self {
                file,
                path: path.to_owned(),
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed(path)(source)),
        }
    }

    /// The same journal and the same lock, for another thread to write to.
    ///
    /// # Errors
    /// When this process has too many open files.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self {
            file: self.file.try_clone().map_err(failed(&self.path))?,
            path: self.path.clone(),
        })
    }

    /// Keeps a shared journal no longer. Who is the last to leave gets it.
    ///
    /// # Errors
    /// When it cannot be locked.
    pub fn leave(self) -> Result<Option<Self>> {
        match self.file.try_lock() {
            Ok(()) => Ok(Some(self)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed(&self.path)(source)),
        }
    }

    /// Whether a living process keeps the journal at `path`, alone or with
    /// others. To be asked with the runtime lock held: for a moment nobody can
    /// take the journal over.
    pub fn is_kept(path: &Path) -> bool {
        let Ok(file) = File::open(path) else {
            return false;
        };
        matches!(file.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn append_line(&mut self, line: &impl Serialize) -> Result<()> {
        let error = failed(&self.path);
        let mut text = serde_json::to_string(line).map_err(|e| error(e.into()))?;
        text.push('\n');
        let length = self.file.metadata().map_err(&error)?.len();
        self.file.write_all(text.as_bytes()).map_err(|source| {
            // Half a line, on a full disk, would spoil the ones that follow
            // it; where it cannot be cut off, at least nothing was changed.
            let _ = self.file.set_len(length);
            error(source)
        })
    }

    /// Writes entries down and waits until they are on disk. Only then may
    /// the changes be made.
    ///
    /// # Errors
    /// When the disk is full or broken: then nothing may be changed.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
        for entry in entries {
            self.append_line(entry)?;
        }
        self.file.sync_data().map_err(failed(&self.path))
    }

    /// What was written so far. A last line that was cut off stands for a
    /// change that was never made.
    ///
    /// # Errors
    /// When it cannot be read or is of another version.
    pub fn read(&mut self) -> Result<(Option<Header>, Vec<Entry>)> {
        let error = failed(&self.path);
        let mut text = String::new();
        self.file.rewind().map_err(&error)?;
        self.file.read_to_string(&mut text).map_err(&error)?;
        parse(&text).map_err(|problem| error(io::Error::new(io::ErrorKind::InvalidData, problem)))
    }

    /// Everything is undone: the journal goes, and what lay beside it.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn finish(self) -> Result<()> {
        let scheduled = self.path.with_extension(SCHEDULED_EXTENSION);
        let beside = [
            self.path.with_extension(SOCKET_EXTENSION),
            temporary(&scheduled),
            scheduled,
        ];
        for path in beside {
            // Not every group has them.
            let _ = fs::remove_file(path);
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&self.path)(error)),
            _ => Ok(()),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The header and entries of a journal's text.
fn parse(text: &str) -> std::result::Result<(Option<Header>, Vec<Entry>), String> {
    // A line without its end was cut off by a crash.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    let Some(first) = lines.next() else {
        return Ok((None, Vec::new()));
    };
    let header: Header = serde_json::from_str(first).map_err(|e| format!("line 1: {e}"))?;
    if header.version != VERSION {
        return Err(format!(
            "it is of version {}, this is version {VERSION}; use the plimsoll that wrote it",
            header.version
        ));
    }
    let entries = lines
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|e| format!("line {}: {e}", index + 2))
        })
        .collect::<std::result::Result<_, _>>()?;
    Ok((Some(header), entries))
}

/// What all journals in `folder` say, kept or not. Those that cannot be read
/// are left out.
pub fn entries_of_all(folder: &Path) -> Vec<Entry> {
    let texts = list(folder).unwrap_or_default().into_iter();
    let texts = texts.filter_map(|path| fs::read_to_string(path).ok());
    let parsed = texts.filter_map(|text| parse(&text).ok());
    parsed.flat_map(|(_, entries)| entries).collect()
}

/// Every journal in `folder`, by path.
///
/// # Errors
/// When the folder is there but cannot be read.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed(folder))?,
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "journal")
        })
        .collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str) -> Header {
        Header {
            version: VERSION,
            name: name.into(),
            pid: 1,
            persistent: false,
            subject: "true".into(),
            knobs: Knobs::default(),
        }
    }

    fn entry(old: &str) -> Entry {
        Entry::Write {
            path: "/x".into(),
            old: old.into(),
            new: "n".into(),
        }
    }

    #[test]
    fn what_is_recorded_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path(), &header("a")).unwrap();
        journal.record(&[entry("1"), entry("2")]).unwrap();
        let (found, entries) = journal.read().unwrap();
        assert_eq!(found, Some(header("a")));
        assert_eq!(entries, [entry("1"), entry("2")]);
    }

    #[test]
    fn a_torn_last_line_is_a_change_never_made() {
        let whole = format!("{}\n", serde_json::to_string(&header("a")).unwrap());
        let line = serde_json::to_string(&entry("1")).unwrap();
        for cut in 0..line.len() {
            let (_, entries) = parse(&format!("{whole}{line}\n{}", &line[..cut])).unwrap();
            assert_eq!(entries, [entry("1")]);
        }
        for cut in 0..whole.len() - 1 {
            assert_eq!(parse(&whole[..cut]).unwrap(), (None, Vec::new()));
        }
    }

    #[test]
    fn damage_in_the_middle_is_reported_not_skipped() {
        let text = format!(
            "{}\ngarbage\n",
            serde_json::to_string(&header("a")).unwrap()
        );
        assert!(parse(&text).unwrap_err().contains("line 2"));
        let other = Header {
            version: 2,
            ..header("a")
        };
        let text = format!("{}\n", serde_json::to_string(&other).unwrap());
        assert!(parse(&text).unwrap_err().contains("version 2"));
    }

    #[test]
    fn a_kept_journal_is_not_taken_over_and_a_left_one_is() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::create(folder.path(), &header("a")).unwrap();
        let path = journal.path().to_owned();
        assert!(Journal::take_over(&path).unwrap().is_none());
        drop(journal);
        assert_eq!(list(folder.path()).unwrap(), std::slice::from_ref(&path));
        Journal::take_over(&path)
            .unwrap()
            .unwrap()
            .finish()
            .unwrap();
        assert!(Journal::take_over(&path).unwrap().is_none());
        assert!(list(folder.path()).unwrap().is_empty());
    }

    #[test]
    fn a_shared_journal_goes_to_whoever_leaves_last() {
        let folder = tempfile::tempdir().unwrap();
        let first = Journal::create(folder.path(), &header("a")).unwrap();
        let path = first.path().to_owned();
        assert!(Journal::join(&path).unwrap().is_none(), "it is kept alone");
        first.share().unwrap();
        let second = Journal::join(&path).unwrap().unwrap();
        assert!(Journal::take_over(&path).unwrap().is_none());
        assert!(first.leave().unwrap().is_none());
        assert!(Journal::take_over(&path).unwrap().is_none());
        let mut last = second.leave().unwrap().unwrap();
        assert_eq!(last.read().unwrap().0, Some(header("a")));
        assert!(Journal::join(&path).unwrap().is_none(), "it is undone");
        last.finish().unwrap();
        assert!(Journal::join(&path).unwrap().is_none());
    }

    #[test]
    fn a_name_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let _journal = Journal::create(folder.path(), &header("a")).unwrap();
        let error = Journal::create(folder.path(), &header("a")).unwrap_err();
        assert!(matches!(error, EngineError::NameTaken { .. }));
    }
}
