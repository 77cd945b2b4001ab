//! The scheduler that is in the kernel, through its pins.

use std::path::Path;

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle};
use plimsoll_engine::host::Mode;

use super::BUILD;
use crate::control_error::ControlError;
use crate::objects::{self, Objects, PIN_FOLDER};
use crate::{ExitReport, Kernel};

/// The scheduler that is in the kernel. It stays there when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    /// Its maps and programs.
    pub objects: Objects,
    /// The list of tasks that have waited for too long.
    pub overdue: Link,
    /// Its events.
    pub events: MapHandle,
    /// Events of tasks that hold a lock that normal work waits for.
    pub holders: MapHandle,
    /// Events of tasks that wake and are late for the watchdog.
    pub late: MapHandle,
    dump: MapHandle,
}

impl Running {
    /// Opens the pinned scheduler.
    ///
    /// # Errors
    /// When something is missing, or of another version of this program.
    pub fn open() -> Result<Self, ControlError> {
        Ok(Self {
            objects: Objects::open()?,
            overdue: objects::open_link(objects::LINK_OVERDUE)?,
            events: objects::open_map("events")?,
            holders: objects::open_map("holders")?,
            late: objects::open_map("late")?,
            dump: objects::open_map("data_uei_dump")?,
        })
    }

    /// The scheduler that an earlier owner has left in the kernel. `None`: there is none, or it is
    /// of another `build` or mode, or was thrown out.
    pub fn left(mode: Mode, build: Option<&str>) -> Option<Self> {
        if build != Some(BUILD) || !Path::new(PIN_FOLDER).join(objects::LINK).exists() {
            return None;
        }
        let running = Self::open().ok()?;
        let is_same = Kernel::host().mode() == Some(mode) && running.exited().is_none();
        is_same.then_some(running)
    }

    /// Its exit report, if the kernel has thrown it out; `None` while it runs. Cheap while it runs.
    pub fn exited(&self) -> Option<ExitReport> {
        let report = self.objects.shared.exited()?;
        let dump = self.dump.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        // A report without a dump is better than none.
        Some(report.with_dump(&dump.ok().flatten().unwrap_or_default()))
    }
}
