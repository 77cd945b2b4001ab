//! What the processes of a host tell each other about their side groups, and
//! who of them runs the one headroom controller.
//!
//! Each process leaves one file with all its side groups in the runtime
//! folder. Whoever holds the controller's lock controls them all, so that the
//! largest headroom wins and the allowance is shared by weight. The kernel
//! frees the lock of a process that dies, and the next one takes over; what
//! the dead process announced is controlled further until its journal is
//! undone.
//!
//! A quota that is put back must stay as it was. So a side is withdrawn
//! before its quota is, and a controller writes a quota of another process's
//! side only while it holds the lock of the announcements, under which it has
//! seen that the side is still announced.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_cgroupfs::Version;
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};
use crate::journal::is_at;
use crate::knobs::{Headroom, Tolerance};
use crate::lock_holder::LockBusy;
use crate::runtime::{RuntimeFolder, temporary};

/// How long the lock of the announcements is waited for. It is held for
/// microseconds, unless its holder was stopped amid them.
const LOCK_MAX: Duration = Duration::from_secs(1);
/// A file that has vanished may be on its way back, without the sides that
/// were withdrawn.
const RETURN_MAX: Duration = Duration::from_secs(1);
/// No kernel's tick is longer.
const TICK_MAX: Duration = Duration::from_millis(20);
/// What the files of announcements end with.
const EXTENSION: &str = "sides";

/// A side group, as its keeper describes it to the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SideDescription {
    pub name: String,
    /// Against the other side groups.
    pub weight: u32,
    /// What it asks for.
    pub headroom: Headroom,
    /// `None`: the default.
    pub tolerance: Option<Tolerance>,
    pub version: Version,
    /// The cgroup whose quota the controller writes, below the mount point.
    pub group: PathBuf,
    /// Which cgroup of that path it is, where somebody else may make another.
    #[serde(default)]
    pub identity: Option<u64>,
    /// The most that its quota may be: v1 refuses more than its parents'.
    pub quota_max_ns: u64,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> EngineError + '_ {
    move |source| EngineError::Journal {
        path: path.to_owned(),
        source,
    }
}

fn open_lock(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path);
    file.map_err(failed(path))
}

/// Takes a lock file if nobody has it.
fn try_lock(path: &Path) -> Result<Option<File>> {
    let file = open_lock(path)?;
    match file.try_lock() {
        // It may have been replaced between open and lock.
        Ok(()) => Ok(is_at(&file, path).then_some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(failed(path)(source)),
    }
}

/// Held by the one process that runs the controller.
///
/// One that is stopped while it holds it would keep everybody's side work at
/// the last quota. Its file is replaced by another, and it is no controller any
/// more when it goes on.
#[derive(Debug)]
pub(super) struct ControllerLock {
    file: File,
    path: PathBuf,
}

impl ControllerLock {
    fn path(runtime: &RuntimeFolder) -> PathBuf {
        runtime.path().join("headroom.lock")
    }

    /// Takes the lock if nobody has it.
    pub fn try_take(runtime: &RuntimeFolder) -> Result<Option<Self>> {
        let path = Self::path(runtime);
        let file = try_lock(&path)?;
        Ok(file.map(|file| Self { file, path }))
    }

    /// Whether it is held by a process that is stopped.
    pub fn is_stuck(runtime: &RuntimeFolder) -> bool {
        let path = Self::path(runtime);
        File::open(&path).is_ok_and(|file| LockBusy::of(&file, &path).is_holder_stopped())
    }

    /// Takes it from a process that is stopped. `None`: it goes on, or another
    /// was faster; or it was stopped while it wrote quotas of others, and may
    /// go on with that.
    pub fn take_from_stuck(runtime: &RuntimeFolder) -> Result<Option<Self>> {
        let Some(_sides) = SidesLock::try_take(runtime)? else {
            return Ok(None);
        };
        if !Self::is_stuck(runtime) {
            return Ok(None);
        }
        let path = Self::path(runtime);
        let new = temporary(&path);
        let file = open_lock(&new)?;
        let replaced = file.try_lock().map_err(io::Error::from);
        let replaced = replaced.and_then(|()| fs::rename(&new, &path));
        replaced.map_err(failed(&path))?;
        Ok(Some(Self { file, path }))
    }

    /// Whether nobody has taken it over. Without the runtime folder nobody can.
    pub fn is_mine(&self) -> bool {
        is_at(&self.file, &self.path) || !self.path.exists()
    }
}

/// Held while announcements change, and while a controller writes quotas of
/// other processes' sides.
#[derive(Debug)]
pub(super) struct SidesLock {
    _file: File,
}

impl SidesLock {
    fn path(runtime: &RuntimeFolder) -> PathBuf {
        runtime.path().join("sides.lock")
    }

    /// Takes the lock if nobody has it.
    pub fn try_take(runtime: &RuntimeFolder) -> Result<Option<Self>> {
        let file = try_lock(&Self::path(runtime))?;
        Ok(file.map(|file| Self { _file: file }))
    }

    /// Waits for the lock, but not for ever.
    fn take(runtime: &RuntimeFolder) -> Result<Self> {
        let start = Instant::now();
        loop {
            if let Some(lock) = Self::try_take(runtime)? {
                return Ok(lock);
            }
            if start.elapsed() >= LOCK_MAX {
                let path = Self::path(runtime);
                let busy = LockBusy::of(&open_lock(&path)?, &path);
                return Err(EngineError::LockBusy(busy));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Where the announcements of a user's processes are.
fn folder(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join("sides")
}

/// Where the controller publishes its state.
pub(super) fn state_file(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join("headroom.json")
}

/// What one process announces.
#[derive(Debug)]
pub(super) struct Announcement {
    runtime: RuntimeFolder,
    path: PathBuf,
    /// Locked for as long as its keeper lives; `None`: there is none.
    file: Option<File>,
}

impl Announcement {
    pub fn new(runtime: &RuntimeFolder) -> Self {
        Self {
            runtime: runtime.clone(),
            path: PathBuf::new(),
            file: None,
        }
    }

    /// Where it is; of no use before the first `write`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name that nobody has, not even one who died with our process id.
    fn name(folder: &Path) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{}-{number}.{EXTENSION}", std::process::id()));
            if !path.exists() {
                return path;
            }
        }
    }

    /// Announces these sides and no others.
    ///
    /// # Errors
    /// When the runtime folder is not writable, or full.
    pub fn write<'a>(&mut self, sides: impl Iterator<Item = &'a SideDescription>) -> Result<()> {
        let sides: Vec<_> = sides.collect();
        let folder = folder(&self.runtime);
        let _lock = SidesLock::take(&self.runtime)?;
        let made = DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&folder);
        made.map_err(failed(&folder))?;
        if self.path.as_os_str().is_empty() {
            self.path = Self::name(&folder);
        }
        let new = temporary(&self.path);
        let written = write_locked(&new, &sides).and_then(|file| {
            fs::rename(&new, &self.path)?;
            Ok(file)
        });
        match written {
            Ok(file) => {
                self.file = Some(file);
                Ok(())
            }
            Err(error) => {
                let _ = fs::remove_file(&new);
                Err(failed(&self.path)(error))
            }
        }
    }

    /// Takes all of it back: once this returns, no other process writes a
    /// quota of ours. Costs one `unlink`, however many sides there are.
    pub fn withdraw(&mut self) {
        if self.file.take().is_none() {
            return;
        }
        // Where the lock is not to be had, its holder hangs: then all that can
        // be done is that it finds nothing when it goes on.
        let _lock = SidesLock::take(&self.runtime);
        let _ = fs::remove_file(&self.path);
        // Once the last one has left.
        let _ = fs::remove_dir(folder(&self.runtime));
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Writes a file that is locked before anybody can see it whole.
fn write_locked(path: &Path, sides: &[&SideDescription]) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.try_lock()?;
    let mut writer = BufWriter::new(&file);
    serde_json::to_writer(&mut writer, sides)?;
    writer.flush()?;
    drop(writer);
    Ok(file)
}

/// Takes back what processes have announced that are gone. To be called
/// before their journals are undone: then no controller writes a quota that
/// has just been put back.
pub(crate) fn forget_dead(runtime: &RuntimeFolder) {
    let folder = folder(runtime);
    let Ok(entries) = fs::read_dir(&folder) else {
        return;
    };
    let _lock = SidesLock::take(runtime);
    for path in entries.flatten().map(|entry| entry.path()) {
        if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(&path);
        }
    }
    let _ = fs::remove_dir(&folder);
}

/// Tells a file from another that has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    inode: u64,
    length: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl FileId {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self {
            inode: file.ino(),
            length: file.len(),
            changed_s: file.ctime(),
            changed_ns: file.ctime_nsec(),
        })
    }
}

/// What one other process announced, as it was read last.
#[derive(Debug)]
struct Read {
    /// `None`: it could not be read.
    id: Option<FileId>,
    sides: Vec<SideDescription>,
    vanished: Option<Instant>,
}

impl Read {
    fn from(path: &Path) -> Self {
        // First: if it changes between the two, it is read again.
        let id = FileId::of(path);
        let sides = fs::read(path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self {
            id,
            // The sides of an unreadable one stay at the quota that they have.
            sides: sides.unwrap_or_default(),
            vanished: None,
        }
    }
}

/// What other processes announce.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// When the folder had changed last, as of the last scan.
    changed: Option<SystemTime>,
    files: BTreeMap<PathBuf, Read>,
}

impl Others {
    /// Reads again what has changed. Returns whether anything has.
    pub fn scan(&mut self, runtime: &RuntimeFolder, own: &Path, now: Instant) -> bool {
        let folder = folder(runtime);
        let changed = fs::metadata(&folder).and_then(|folder| folder.modified());
        let changed = changed.ok();
        let waiting = self.files.values().any(|file| file.vanished.is_some());
        let same = changed.is_none() && self.files.is_empty() || changed == self.changed;
        if same && !waiting {
            return false;
        }
        // Folders count time in ticks: within one, there may be more to come.
        let settled = |changed: &SystemTime| changed.elapsed().is_ok_and(|age| age > TICK_MAX);
        self.changed = changed.filter(settled);
        let before = self.files.len();
        self.files.retain(|_, file| {
            file.vanished
                .is_none_or(|vanished| now.saturating_duration_since(vanished) < RETURN_MAX)
        });
        let mut news = self.files.len() != before;
        for (path, file) in &mut self.files {
            if file.vanished.is_none() && !path.exists() {
                file.vanished = Some(now);
            }
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_one = path.extension().is_some_and(|end| end == EXTENSION);
            if is_one && path != own && !self.is_current(&path) {
                self.files.insert(path.clone(), Read::from(&path));
                news = true;
            }
        }
        news
    }

    /// Whether what was read from `path` is still what is there.
    pub fn is_current(&self, path: &Path) -> bool {
        let known = self.files.get(path);
        known.is_some_and(|file| {
            file.vanished.is_none() && file.id.is_some() && file.id == FileId::of(path)
        })
    }

    /// All sides that other processes have announced, with the file.
    pub fn sides(&self) -> impl Iterator<Item = (&Path, &SideDescription)> {
        self.files
            .iter()
            .flat_map(|(path, file)| file.sides.iter().map(move |side| (path.as_path(), side)))
    }

    /// Whether any other process has announced anything.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}
