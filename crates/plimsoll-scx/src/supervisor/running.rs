//! The scheduler that is in the kernel, through its pins.

use std::path::Path;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::BUILD;
use crate::Error;
use crate::ExitReport;
use crate::objects::{self, Objects, PIN_FOLDER};

/// The scheduler that is in the kernel. It stays there when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    pub objects: Objects,
    dump: MapHandle,
}

impl Running {
    /// Opens the pinned scheduler.
    ///
    /// # Errors
    /// When something is missing, or of another version of this program.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            objects: Objects::open()?,
            dump: objects::open_map("data_uei_dump")?,
        })
    }

    /// The scheduler that an earlier owner has left in the kernel. `None`: there is none, or it is
    /// of another `build`, or was thrown out.
    pub fn left(build: Option<&str>) -> Option<Self> {
        if build != Some(BUILD) || !Path::new(PIN_FOLDER).join(objects::LINK).exists() {
            return None;
        }
        let running = Self::open().ok()?;
        running.exited().is_none().then_some(running)
    }

    /// Exit report, if the kernel has thrown the scheduler out; `None` while it runs. Cheap while
    /// it runs.
    pub fn exited(&self) -> Option<ExitReport> {
        let report = self.objects.shared.exited()?;
        let dump = self.dump.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        // A report without a dump is better than none.
        Some(report.with_dump(&dump.ok().flatten().unwrap_or_default()))
    }
}
