//! Disk of the simulated kernel; open files survive the removal of their names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{KERNEL, Write, ask, error};
use crate::entry::{Access, Found, Listed};

/// Device number of the disk; differs from that of cgroups.
const DEVICE: u64 = 1;

/// Counter that gives each open file a number of its own.
static NR_OPENED: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Default)]
pub struct Disk {
    names: BTreeMap<PathBuf, u64>,
    folders: BTreeSet<PathBuf>,
    texts: HashMap<u64, Vec<u8>>,
    /// Numbers of the open files that hold a lock, by the inode of the locked file.
    locks: HashMap<u64, u64>,
    nr_files: u64,
}

#[derive(Debug, Clone)]
pub struct OpenFile {
    at: At,
    lock: Arc<Opened>,
}

#[derive(Debug, Clone)]
enum At {
    Disk(u64),
    /// File of the cgroup with this inode number.
    Kernel(PathBuf, u64),
}

/// Number of an open file, which releases the file's lock when the last copy is dropped.
#[derive(Debug)]
struct Opened(u64);

impl Opened {
    fn new() -> Arc<Self> {
        Arc::new(Self(NR_OPENED.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // The thread may be ending without a kernel.
        let _ = KERNEL.try_with(|kernel| {
            if let Ok(mut kernel) = kernel.try_borrow_mut()
                && let Some(kernel) = kernel.as_mut()
            {
                kernel.disk.locks.retain(|_, holder| *holder != self.0);
            }
        });
    }
}

impl Disk {
    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let inode = self.names.get(path).ok_or(error(libc::ENOENT))?;
        Ok(self.texts[inode].clone())
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.names.keys().map(PathBuf::as_path)
    }

    /// Reads a file as another program; `None`: there is no such file, or it is no text.
    #[must_use]
    pub fn text(&self, path: &Path) -> Option<String> {
        String::from_utf8(self.read(path).ok()?).ok()
    }

    /// Replaces a file as another program.
    pub fn others_write(&mut self, path: &Path, text: &str) {
        self.create_folders(path.parent().unwrap_or(path));
        self.nr_files += 1;
        self.names.insert(path.to_owned(), self.nr_files);
        self.texts.insert(self.nr_files, text.into());
    }

    /// Removes a file, if it is there, as another program.
    pub fn forget(&mut self, path: &Path) {
        self.names.remove(path);
    }

    pub(super) fn look(&self, path: &Path) -> io::Result<Found> {
        let is_folder = self.folders.contains(path);
        let inode = self.names.get(path).copied();
        let inode = inode.or(is_folder.then_some(0));
        Ok(found(is_folder, inode.ok_or(error(libc::ENOENT))?))
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<Listed>> {
        if !self.folders.contains(path) {
            return Err(error(libc::ENOENT));
        }
        let listed = |path: &PathBuf, is_folder| Listed {
            path: path.clone(),
            is_folder,
            inode: self.names.get(path).copied().unwrap_or_default(),
        };
        let inside = |found: &&PathBuf| found.parent() == Some(path);
        let files = self.names.keys().filter(inside).map(|p| listed(p, false));
        let folders = self.folders.iter().filter(inside).map(|p| listed(p, true));
        Ok(files.chain(folders).collect())
    }

    pub(super) fn create_folders(&mut self, path: &Path) {
        self.folders.extend(path.ancestors().map(Path::to_owned));
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.names.remove(path).ok_or(error(libc::ENOENT))?;
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.names.remove(from).ok_or(error(libc::ENOENT))?;
        self.names.insert(to.to_owned(), inode);
        Ok(())
    }

    pub(super) fn open(&mut self, path: &Path, access: Access) -> io::Result<OpenFile> {
        let inode = match (self.names.get(path), access) {
            (Some(_), Access::AppendNew) => return Err(error(libc::EEXIST)),
            (Some(inode), _) => *inode,
            (None, Access::AppendNew | Access::AppendAny) => {
                let folder = path.parent();
                if !folder.is_some_and(|folder| self.folders.contains(folder)) {
                    return Err(error(libc::ENOENT));
                }
                self.nr_files += 1;
                self.names.insert(path.to_owned(), self.nr_files);
                self.texts.insert(self.nr_files, Vec::new());
                self.nr_files
            }
            (None, _) => return Err(error(libc::ENOENT)),
        };
        Ok(OpenFile {
            at: At::Disk(inode),
            lock: Opened::new(),
        })
    }

    /// Frees the texts of files without names. Must not be called while a file is open.
    pub fn tidy(&mut self) {
        let names = &self.names;
        let is_named = |inode: &u64| names.values().any(|named| named == inode);
        self.texts.retain(|inode, _| is_named(inode));
    }
}

fn found(is_folder: bool, inode: u64) -> Found {
    Found {
        is_folder,
        is_regular: !is_folder,
        device: DEVICE,
        inode,
        nr_links: 1,
        uid: nix::unistd::geteuid().as_raw(),
        mode: if is_folder { 0o700 } else { 0o600 },
    }
}

/// Calls the kernel of this thread, which opened the file.
fn asked<R>(act: impl FnOnce(&mut super::Kernel) -> io::Result<R>) -> io::Result<R> {
    ask(act).unwrap_or_else(|| Err(error(libc::EBADF)))
}

impl OpenFile {
    pub(super) fn of_kernel(path: &Path, inode: u64) -> Self {
        Self {
            at: At::Kernel(path.to_owned(), inode),
            lock: Opened::new(),
        }
    }

    /// Inode number on the disk; an error for a file of a cgroup.
    fn inode(&self) -> io::Result<u64> {
        match &self.at {
            At::Disk(inode) => Ok(*inode),
            At::Kernel(..) => Err(error(libc::EINVAL)),
        }
    }

    pub(crate) fn look(&self) -> io::Result<Found> {
        Ok(found(false, self.inode()?))
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        asked(|kernel| match &self.at {
            At::Disk(inode) => {
                kernel.alive()?;
                Ok(kernel.disk.texts[inode].clone())
            }
            At::Kernel(path, inode) => {
                kernel.still_there(path, *inode)?;
                kernel.read(path)
            }
        })
    }

    pub(crate) fn length(&self) -> io::Result<u64> {
        Ok(self.read()?.len() as u64)
    }

    pub(crate) fn read_start(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.read()?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    pub(crate) fn cut(&self, length: u64) -> io::Result<()> {
        let inode = self.inode()?;
        asked(|kernel| {
            // Truncation succeeds on a full disk.
            let is_full = std::mem::take(&mut kernel.faults.disk_is_full);
            let begun = kernel.begin(Write::Disk, || format!("cut file {inode} to {length}"));
            kernel.faults.disk_is_full = is_full;
            begun?;
            let text = kernel.disk.texts.entry(inode).or_default();
            text.truncate(usize::try_from(length).unwrap_or(usize::MAX));
            Ok(())
        })
    }

    pub(crate) fn append(&self, text: &str) -> io::Result<()> {
        let inode = self.inode()?;
        asked(|kernel| {
            let begun = kernel.begin(Write::Disk, || format!("file {inode} << {text}"));
            let whole = kernel.disk.texts.entry(inode).or_default();
            // A death or a full disk writes half of the text.
            let length = match &begun {
                Ok(()) => text.len(),
                Err(_) if kernel.dies || kernel.faults.disk_is_full => text.len() / 2,
                Err(_) => 0,
            };
            whole.extend(&text.as_bytes()[..length]);
            begun
        })
    }

    pub(crate) fn write_start(&self, text: &str) -> io::Result<()> {
        asked(|kernel| match &self.at {
            At::Disk(_) => Err(error(libc::EINVAL)),
            At::Kernel(path, inode) => {
                kernel.still_there(path, *inode)?;
                kernel.write(path, text)
            }
        })
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        asked(|kernel| kernel.alive())
    }

    pub(crate) fn try_lock(&self) -> bool {
        let Ok(inode) = self.inode() else {
            return false;
        };
        let locked = asked(|kernel| {
            let holder = *kernel.disk.locks.entry(inode).or_insert(self.lock.0);
            Ok(holder == self.lock.0)
        });
        locked.unwrap_or(false)
    }

    pub(crate) fn is_free(&self) -> bool {
        let Ok(inode) = self.inode() else {
            return true;
        };
        asked(|kernel| Ok(!kernel.disk.locks.contains_key(&inode))).unwrap_or(true)
    }
}
