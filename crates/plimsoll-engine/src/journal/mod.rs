//! Write-ahead journal of changes to the system.
//!
//! The owner keeps journals: files of JSON lines below the runtime folder, locked for as long as
//! the owner lives. A journal that is not locked belongs to an owner that is gone, however it
//! ended: the next owner takes it over or undoes it.

mod entry;
mod kept;
mod record;
mod restores;
mod text;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_cgroupfs::name::text_of;
use plimsoll_cgroupfs::os::{self, Access, File, FileInfo};
use plimsoll_cgroupfs::read_text;

use crate::error::{EngineError, Result};
use crate::runtime::{set_aside, temporary};

pub use entry::{Entry, Header, VERSION};
pub(crate) use kept::KeptJournal;
pub(crate) use record::{FileRestore, ForeignRestore, LayoutRestore, OwnRestore};
pub(crate) use restores::{GroupRestore, Restores, TaskRestore};
pub use text::Parsed;

/// Time within which a process that has released the tree releases its journals.
const LET_GO_MAX: Duration = Duration::from_secs(2);

/// Journal that this process keeps.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Whether the file ends with half a line, which could not be cut off yet.
    is_torn: bool,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> EngineError {
    move |source| EngineError::Journal {
        path: path.to_owned(),
        source,
    }
}

fn invalid(path: &Path, problem: &str) -> EngineError {
    failed(path)(io::Error::new(io::ErrorKind::InvalidData, problem))
}

/// Returns whether `path` refers to the open file.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let id = |found: FileInfo| (found.device, found.inode);
    matches!(
        (file.look().map(id), os::look(path).map(id)),
        (Ok(open), Ok(found)) if open == found
    )
}

/// Identifies the present boot; `None`: the kernel does not tell.
pub fn boot_id() -> Option<String> {
    read_text(Path::new("/proc/sys/kernel/random/boot_id")).ok()
}

impl Header {
    /// Creates the header of a journal that this process begins now.
    pub fn new(name: &str, subject: &str) -> Self {
        Self {
            version: VERSION,
            name: name.into(),
            pid: std::process::id(),
            subject: subject.into(),
            boot: boot_id(),
        }
    }

    /// Returns whether the journal was written before the current boot.
    pub fn is_of_another_boot(&self) -> bool {
        self.boot.is_some() && self.boot != boot_id()
    }
}

impl Journal {
    /// Path of the journal of that name, whether it exists or not.
    pub fn path_of(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.journal"))
    }

    /// Starts a journal in `folder`.
    ///
    /// # Errors
    /// `NameTaken` when there is a journal of that name already.
    pub fn create(folder: &Path, header: &Header) -> Result<Self> {
        let path = Self::path_of(folder, &header.name);
        let file = match File::open(&path, Access::AppendNew) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(EngineError::NameTaken {
                    name: header.name.clone(),
                });
            }
            other => other.map_err(failed(&path))?,
        };
        if !file.try_lock().map_err(failed(&path))? {
            // Another owner has found the file in this moment, and removes it.
            return Err(EngineError::NameTaken {
                name: header.name.clone(),
            });
        }
        let mut journal = Self {
            file,
            path,
            is_torn: false,
        };
        let line = text::line(header).map_err(failed(&journal.path))?;
        if let Err(error) = journal.append(&line) {
            // A file without a header would keep the name for nothing.
            let _ = os::remove_file(&journal.path);
            return Err(error);
        }
        Ok(journal)
    }

    /// Takes over the journal at `path` if the process that kept it is gone. `None`: it is still
    /// kept, or has just been removed.
    pub fn take_over(path: &Path) -> Result<Option<Self>> {
        let file = match File::open(path, Access::Append) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed(path))?,
        };
        if !file.try_lock().map_err(failed(path))? {
            return Ok(None);
        }
        // The process that kept it may have removed or replaced it between open and lock.
        if !is_at(&file, path) {
            return Ok(None);
        }
        let path = path.to_owned();
        let mut journal = Self {
            file,
            path,
            is_torn: true,
        };
        // If the torn line cannot be cut off, the whole lines can still be undone.
        let _ = journal.cut_torn_line();
        Ok(Some(journal))
    }

    /// Cuts off a torn last line, so that the next entry does not continue it.
    fn cut_torn_line(&mut self) -> io::Result<()> {
        let bytes = self.file.read_whole()?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        let length = whole.map_or(0, |end| end + 1);
        if length < bytes.len() {
            self.file.cut(length as u64)?;
        }
        self.is_torn = false;
        Ok(())
    }

    fn append(&mut self, text: &str) -> Result<()> {
        self.try_append(text).map_err(failed(&self.path))
    }

    fn try_append(&mut self, text: &str) -> io::Result<()> {
        if self.is_torn {
            self.cut_torn_line()?;
        }
        let length = self.file.length()?;
        self.file.append(text).inspect_err(|_| {
            // Half a line, on a full disk, would spoil the lines after it.
            self.is_torn = self.file.cut(length).is_err();
        })
    }

    /// Writes entries and waits until they are on disk. Only then may the changes be made.
    ///
    /// # Errors
    /// When the disk is full or broken: then nothing may be changed, and none of the entries is in
    /// the journal.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
        let text = text::lines(entries).map_err(failed(&self.path))?;
        self.append(&text)?;
        self.file.sync().map_err(failed(&self.path))
    }

    /// Appends entries about completed changes without waiting for the disk: if they are lost, the
    /// changes are only undone again.
    ///
    /// # Errors
    /// When the disk is full or broken.
    pub fn note(&mut self, entries: &[Entry]) -> Result<()> {
        let text = text::lines(entries).map_err(failed(&self.path))?;
        self.append(&text)
    }

    /// Reads the header and all entries. A torn last line is ignored, because its change was never
    /// made.
    ///
    /// # Errors
    /// When the journal cannot be read, is damaged, or is of another version.
    pub fn read(&mut self) -> Result<(Option<Header>, Vec<Entry>)> {
        let parsed = self.read_valid()?;
        match parsed.damaged.first() {
            Some(problem) => Err(invalid(&self.path, problem)),
            None => Ok((parsed.header, parsed.entries)),
        }
    }

    /// Reads all valid lines, even if the journal is damaged.
    ///
    /// # Errors
    /// When the journal cannot be read at all, or is of another version.
    pub fn read_valid(&mut self) -> Result<Parsed> {
        let bytes = self.file.read_whole().map_err(failed(&self.path))?;
        text::parse(&bytes).map_err(|problem| invalid(&self.path, &problem))
    }

    /// Replaces all entries atomically: readers find either the old or the new file, and both are
    /// locked. Must not be called while a change is under way.
    ///
    /// # Errors
    /// When the journal cannot be read or written; then it stays as it was.
    pub(crate) fn rewrite(&mut self, entries: &[Entry]) -> Result<()> {
        let header = self.read()?.0;
        let error = failed(&self.path);
        let mut text = match &header {
            Some(header) => text::line(header).map_err(&error)?,
            None => return Err(invalid(&self.path, "it has no header")),
        };
        text.push_str(&text::lines(entries).map_err(&error)?);
        let new = temporary(&self.path);
        let replaced = self.replace(&new, &text);
        if replaced.is_err() {
            let _ = os::remove_file(&new);
        }
        self.file = replaced.map_err(error)?;
        Ok(())
    }

    fn replace(&self, new: &Path, text: &str) -> io::Result<File> {
        let mut file = File::open(new, Access::AppendAny)?;
        if !file.try_lock()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        file.cut(0)?;
        file.append(text)?;
        file.sync()?;
        os::rename(new, &self.path)?;
        Ok(file)
    }

    /// Renames a damaged journal, so that nothing looks for it again. Returns the new path.
    pub fn set_aside(self) -> Result<PathBuf> {
        let aside = set_aside(&self.path).map_err(failed(&self.path))?;
        self.remove_temporary();
        Ok(aside)
    }

    /// Removes the journal once everything is undone.
    pub fn finish(self) -> Result<()> {
        self.remove_temporary();
        match os::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&self.path)(error)),
            _ => Ok(()),
        }
    }

    /// Removes the file of a rewrite that was cut short.
    fn remove_temporary(&self) {
        // There seldom is one.
        let _ = os::remove_file(&temporary(&self.path));
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Waits until the previous owner has released all journals, before a new owner starts: the kernel
/// closes the files of an exiting process one by one, and may release its ownership of the tree
/// first.
///
/// # Errors
/// When a journal cannot be opened, or its lock cannot be checked.
pub fn wait_for_last_owner(folder: &Path) -> Result<()> {
    let deadline = os::now() + LET_GO_MAX;
    for path in list(folder)? {
        while is_kept(&path)? && os::now() < deadline {
            os::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Returns whether a running process keeps a journal in `folder`, as each owner does.
pub fn has_owner(folder: &Path) -> bool {
    let paths = list(folder).unwrap_or_default();
    paths.iter().any(|path| is_kept(path).unwrap_or(false))
}

fn is_kept(path: &Path) -> Result<bool> {
    let file = match File::open(path, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(failed(path))?,
    };
    Ok(!file.is_free().map_err(failed(path))?)
}

/// Lists the changes that ended owners have left, each by a name and its purpose: groups of our own,
/// foreign cgroups and settings of the machine. `Err`: the journal cannot be read.
///
/// # Errors
/// When the folder exists but cannot be read.
pub fn left_behind(folder: &Path) -> Result<Vec<Result<(String, String)>>> {
    let mut left = Vec::new();
    for path in list(folder)? {
        let Some(mut journal) = Journal::take_over(&path)? else {
            continue;
        };
        match journal.read() {
            Ok((header, entries)) => {
                let restores = Restores::of(entries);
                let subject = header.as_ref().map_or("", |header| &header.subject);
                let settings = restores.settings.iter().map(|it| &it.path);
                let paths = settings.chain(restores.held.keys());
                left.extend(paths.map(|path| Ok((text_of(path), subject.to_owned()))));
                let own = restores.own.into_iter();
                left.extend(own.map(|(name, own)| Ok((name, own.subject))));
            }
            Err(error) => left.push(Err(error)),
        }
    }
    Ok(left)
}

/// Lists the journals in `folder`, by path.
///
/// # Errors
/// When the folder exists but cannot be read.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = match os::list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed(folder))?,
    };
    let mut paths: Vec<PathBuf> = found
        .into_iter()
        .map(|found| found.path)
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "journal")
        })
        .collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests;
