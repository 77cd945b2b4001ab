//! The kernel's events of folders: entries that come and go, and files that are written to; and of
//! single files that change.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use inotify::{EventMask, Inotify, WatchMask};

use crate::entry::Id;
pub use crate::entry::{Interest, WatchEvent, WatchId};

#[cfg(feature = "simulated")]
use crate::simulated;

/// Room for some thousand events at once.
const BUFFER_BYTES: usize = 64 * 1024;
const COMES: EventMask = EventMask::CREATE.union(EventMask::MOVED_TO);
const GOES: EventMask = EventMask::DELETE.union(EventMask::MOVED_FROM);

/// Queue of events, of one interest in any number of folders, and of any number of files.
#[derive(Debug)]
pub struct EventQueue {
    interest: Interest,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Real {
        inotify: Inotify,
        buffer: Vec<u8>,
    },
    #[cfg(feature = "simulated")]
    Simulated(usize),
}

impl EventQueue {
    /// # Errors
    /// When the kernel refuses an inotify instance.
    pub fn new(interest: Interest) -> io::Result<Self> {
        #[cfg(feature = "simulated")]
        if let Some(number) = simulated::ask(|kernel| kernel.events().begin_queue(interest)) {
            let inner = Inner::Simulated(number);
            return Ok(Self { interest, inner });
        }
        let inner = Inner::Real {
            inotify: Inotify::init()?,
            buffer: vec![0; BUFFER_BYTES],
        };
        Ok(Self { interest, inner })
    }

    /// Watches a folder. A folder that is watched already keeps its watch.
    ///
    /// # Errors
    /// When there is no such folder, or the kernel has no watch left.
    pub fn watch(&mut self, folder: &Path) -> io::Result<WatchId> {
        let id = match &mut self.inner {
            Inner::Real { inotify, .. } => {
                let mask = mask_of(self.interest);
                Id::Real(inotify.watches().add(folder, mask)?)
            }
            #[cfg(feature = "simulated")]
            Inner::Simulated(number) => {
                return simulated::with(|kernel| kernel.watch_folder(*number, folder));
            }
        };
        Ok(WatchId(id))
    }

    /// Watches a file. A file that is watched already keeps its watch.
    ///
    /// # Errors
    /// When there is no such file, or the kernel has no watch left.
    pub fn watch_file(&mut self, file: &Path) -> io::Result<WatchId> {
        match &mut self.inner {
            Inner::Real { inotify, .. } => {
                let watch = inotify.watches().add(file, WatchMask::MODIFY)?;
                Ok(WatchId(Id::Real(watch)))
            }
            #[cfg(feature = "simulated")]
            Inner::Simulated(number) => simulated::with(|kernel| kernel.watch_file(*number, file)),
        }
    }

    /// Ends a watch. Does nothing if the kernel has ended it with its folder.
    pub fn forget(&mut self, watch: WatchId) {
        match (&mut self.inner, watch.0) {
            (Inner::Real { inotify, .. }, Id::Real(watch)) => {
                let _ = inotify.watches().remove(watch);
            }
            #[cfg(feature = "simulated")]
            (Inner::Simulated(number), Id::Simulated(watch)) => {
                simulated::with(|kernel| kernel.events().forget(*number, watch));
            }
            #[cfg(feature = "simulated")]
            _ => (),
        }
    }

    /// Reads some thousand events, without waiting; none: the queue is empty.
    pub fn read(&mut self) -> io::Result<Vec<WatchEvent>> {
        match &mut self.inner {
            Inner::Real { inotify, buffer } => match inotify.read_events(buffer) {
                Ok(events) => Ok(events.map(event_of).collect()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Vec::new()),
                Err(error) => Err(error),
            },
            #[cfg(feature = "simulated")]
            Inner::Simulated(number) => Ok(simulated::with(|kernel| kernel.events().take(*number))),
        }
    }

    /// Readable when there are events; `None`: the queue is simulated.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.inner {
            Inner::Real { inotify, .. } => Some(inotify.as_fd()),
            #[cfg(feature = "simulated")]
            Inner::Simulated(_) => None,
        }
    }
}

#[cfg(feature = "simulated")]
impl Drop for EventQueue {
    fn drop(&mut self) {
        if let Inner::Simulated(number) = self.inner {
            simulated::end_queue(number);
        }
    }
}

fn mask_of(interest: Interest) -> WatchMask {
    let mask = match interest {
        Interest::Folders => WatchMask::CREATE
            .union(WatchMask::DELETE)
            .union(WatchMask::MOVED_FROM)
            .union(WatchMask::MOVED_TO),
        Interest::Writes => WatchMask::MODIFY,
    };
    mask.union(WatchMask::ONLYDIR)
}

fn event_of(event: inotify::Event<&std::ffi::OsStr>) -> WatchEvent {
    let mask = event.mask;
    let watch = WatchId(Id::Real(event.wd));
    let name = event.name.map(OsString::from);
    match name {
        _ if mask.contains(EventMask::Q_OVERFLOW) => WatchEvent::Lost,
        _ if mask.contains(EventMask::IGNORED) => WatchEvent::Ended(watch),
        Some(name) if mask.contains(EventMask::MODIFY) => WatchEvent::Written(watch, name),
        None if mask.contains(EventMask::MODIFY) => WatchEvent::Changed(watch),
        Some(name) if mask.contains(EventMask::ISDIR) && mask.intersects(COMES) => {
            WatchEvent::Came(watch, name)
        }
        Some(name) if mask.contains(EventMask::ISDIR) && mask.intersects(GOES) => {
            WatchEvent::Went(watch, name)
        }
        _ => WatchEvent::Other,
    }
}
