//! Finding the scheduler, and following it: it may be loaded by another
//! process, be thrown out and be loaded again.

use std::time::{Duration, Instant};

use plimsoll_engine::Result;
use plimsoll_engine::host::Mode;
use plimsoll_engine::knobs::Class;

use super::SchedExtEnforcer;
use crate::control_error::ControlError;
use crate::host::Host;
use crate::leader::{FirstLoad, Hold, Leader};
use crate::objects::{self, Objects};
use crate::sample::{Counts, MachineUse};
use crate::status::{Activity, Status};

/// How long a scheduler that somebody else loads is waited for.
const START_MAX: Duration = Duration::from_secs(30);
/// How often it is looked for meanwhile.
const START_INTERVAL: Duration = Duration::from_millis(20);

impl SchedExtEnforcer {
    /// Waits until there is a scheduler; loads it if nobody else does.
    pub(super) fn find_scheduler(&mut self) -> std::result::Result<(), ControlError> {
        let deadline = Instant::now() + START_MAX;
        self.hold = Some(Hold::take(&self.context)?);
        loop {
            if let Some((leader, first_load)) = self.try_lead(false)? {
                // The thread ends before it answers only if it panics.
                let gone = |_| ControlError::NotReady("the scheduler's thread has failed".into());
                first_load.recv().map_err(gone)??;
                self.leader = Some(leader);
            }
            if self.open_scheduler()? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let status = Status::published(&self.context.runtime);
                let why = status.and_then(|status| status.last_exit);
                return Err(ControlError::NotReady(format!(
                    "the scheduler is not there ({})",
                    why.as_deref().unwrap_or("it is being loaded")
                )));
            }
            std::thread::sleep(START_INTERVAL);
        }
    }

    /// Leads, if nobody else does.
    fn try_lead(
        &self,
        keep_trying: bool,
    ) -> std::result::Result<Option<(Leader, FirstLoad)>, ControlError> {
        match &self.hold {
            Some(hold) => Leader::try_start(&self.context, hold, keep_trying),
            None => Ok(None),
        }
    }

    /// Opens the scheduler that its leader says is running.
    fn open_scheduler(&mut self) -> std::result::Result<bool, ControlError> {
        let runtime = &self.context.runtime;
        let Some(status) = Status::published(runtime) else {
            return Ok(false);
        };
        if status.activity != Activity::Running || objects::pinned_id() != Some(status.groups_id) {
            return Ok(false);
        }
        let Some(loaded) = Host::loaded(runtime) else {
            // The kernel has just thrown it out.
            return Ok(false);
        };
        if loaded != self.context.mode {
            return Err(ControlError::OtherMode {
                loaded: loaded.to_string(),
            });
        }
        self.objects = Some(Objects::open()?);
        Ok(true)
    }

    /// Leads if nobody else does any more, follows the leader to another
    /// scheduler, and looks for tasks that have come.
    pub(super) fn look(&mut self, now: Instant) -> Result<()> {
        if self.leader.as_ref().is_some_and(Leader::has_ended) {
            self.leader = None;
        }
        if self.leader.is_none()
            && let Some((leader, _)) = self.try_lead(true)?
        {
            self.leader = Some(leader);
        }
        let known = self.objects.as_ref().map(|objects| objects.id);
        if let Some(pinned) = objects::pinned_id()
            && known != Some(pinned)
        {
            self.follow()?;
        }
        self.tell_whether_limits_hold();
        for index in 0..self.groups.len() {
            let scheduled = self.groups[index].scheduled.as_ref();
            if scheduled.is_some_and(|scheduled| scheduled.slot.is_none()) {
                // Its leader has registered it already, and it counts.
                self.register(index, false)?;
            }
            self.sweep(index)?;
        }
        if let Some(objects) = &self.objects {
            self.machine_use.observe(objects, now);
        }
        Ok(())
    }

    /// There is another scheduler: the groups are to go there. What the old one
    /// counted can still be read.
    fn follow(&mut self) -> Result<()> {
        if let Some(old) = self.objects.take() {
            let scheduled = self.groups.iter_mut().filter_map(|g| g.scheduled.as_mut());
            for scheduled in scheduled {
                if let Some(slot) = scheduled.slot.take() {
                    let counted = Counts::of(&old, slot);
                    scheduled.earlier = counted.after(&scheduled.earlier);
                }
            }
        }
        if self.open_scheduler()? {
            self.machine_use = MachineUse::default();
        }
        Ok(())
    }

    /// Batch groups are in the background without the scheduler too. Of a
    /// normal group in mode all, it is all that limits it.
    fn tell_whether_limits_hold(&mut self) {
        if self.context.mode == Mode::Partial {
            return;
        }
        let hold =
            Status::now(&self.context.runtime, self.context.mode).activity == Activity::Running;
        if std::mem::replace(&mut self.limits_hold, hold) == hold {
            return;
        }
        let normal = self
            .groups
            .iter()
            .filter(|group| group.scheduled.is_some() && group.knobs.class != Some(Class::Batch));
        for group in normal {
            let name = &group.name;
            self.context.messages.tell(if hold {
                format!("group {name}: its limits hold again")
            } else {
                format!("group {name}: its limits do not hold until the scheduler is loaded again")
            });
        }
    }
}
