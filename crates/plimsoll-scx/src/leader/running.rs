//! The scheduler that is in the kernel, as whoever leads has it: through its
//! pins, no matter which process has loaded it.

use std::path::Path;

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle};
use plimsoll_engine::host::Mode;

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
    /// What it tells as it happens.
    pub events: MapHandle,
    /// Who holds a lock that normal work waits for, as it happens.
    pub holders: MapHandle,
    /// Who wakes and is late for the watchdog at once.
    pub late: MapHandle,
    dump: MapHandle,
}

impl Running {
    /// Opens what is pinned.
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

    /// The scheduler that another leader has left in the kernel. If the
    /// kernel has thrown it out since, [`Running::exited`] says so. `None`:
    /// there is none.
    ///
    /// # Errors
    /// When it is of another version, or in another mode than `mode`.
    pub fn left_by_another(mode: Mode) -> Result<Option<Self>, ControlError> {
        if !Path::new(PIN_FOLDER).join(objects::LINK).exists() {
            return Ok(None);
        }
        let running = Self::open()?;
        let loaded = Kernel::host().mode();
        match loaded {
            Some(loaded) if loaded != mode && running.exited().is_none() => {
                Err(ControlError::OtherMode {
                    loaded: loaded.to_string(),
                })
            }
            _ => Ok(Some(running)),
        }
    }

    /// What it has left behind, if the kernel has thrown it out; `None` while
    /// it runs. Cheap while it runs.
    pub fn exited(&self) -> Option<ExitReport> {
        let report = self.objects.shared.exited()?;
        let dump = self.dump.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        // A report without a dump is better than none.
        Some(report.with_dump(&dump.ok().flatten().unwrap_or_default()))
    }
}
