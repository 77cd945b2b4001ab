//! Connection to the scheduler, which may be thrown out and reloaded.

use std::sync::Arc;
use std::time::Instant;

use plimsoll_engine::Result;
use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::knobs::Class;

use super::SchedExtEnforcer;
use crate::Error;
use crate::machine;
use crate::objects::Objects;
use crate::sample::MachineUse;
use crate::status::{Status, Supervised};
use crate::supervisor::{self, Supervisor};

impl SchedExtEnforcer {
    /// Loads or adopts the scheduler, and waits until it runs.
    pub(super) fn find_scheduler(&mut self) -> std::result::Result<(), Error> {
        let journal = match self.link.left.take() {
            // Its scheduler is adopted.
            Some(left) => left,
            None => supervisor::begin_journal(&self.context)?,
        };
        // Continues the status of an earlier owner, whose scheduler may be adopted.
        *self.context.status.lock() = Supervised {
            status: Status::published(&self.context.runtime).unwrap_or_default(),
            running: None,
        };
        let journal = self.link.journal.insert(journal);
        let (supervisor, first_load) = Supervisor::start(&self.context, journal, false)?;
        // The thread ends before its answer only if it panics.
        let gone = |_| Error::NotReady("the scheduler's thread has failed".into());
        let running = first_load.recv().map_err(gone)??;
        self.link.supervisor = Some(supervisor);
        let exited = running.exited();
        self.follow(running)?;
        exited.map_or(Ok(()), |report| Err(Error::ThrownOut(Box::new(report))))
    }

    /// Brings the machine's policy in the scheduler up to date, if there are a scheduler and a
    /// policy. After a failure the next look tries again.
    pub(super) fn follow_machine(&mut self) -> std::result::Result<(), Error> {
        let nr_cpus = nr_cpus_online();
        if self.policy_cpus == Some(nr_cpus) {
            return Ok(());
        }
        let _groups = self.context.groups.lock();
        let policy = self.context.machine.lock();
        if let (Some(objects), Some(policy)) = (&self.link.objects, *policy) {
            machine::set(objects, &policy)?;
        }
        self.policy_cpus = Some(nr_cpus);
        Ok(())
    }

    /// Keeps up with the supervisor.
    pub(super) fn look(&mut self, now: Instant) -> Result<()> {
        let Some(journal) = &self.link.journal else {
            return Ok(());
        };
        let supervisor = self.link.supervisor.as_ref();
        if supervisor.is_none_or(Supervisor::has_ended) {
            let (supervisor, _) = Supervisor::start(&self.context, journal, true)?;
            self.link.supervisor = Some(supervisor);
        }
        self.follow_reload()?;
        self.follow_machine()?;
        self.report_whether_limits_hold();
        if let Some(objects) = &self.link.objects {
            self.usage.observe(objects, now);
        }
        Ok(())
    }

    /// Follows the supervisor to a scheduler that it has reloaded, if it has.
    pub(super) fn follow_reload(&mut self) -> std::result::Result<(), Error> {
        let known = self.link.objects.as_ref().map(|objects| objects.id);
        let running = self.context.status.lock().running.clone();
        match running.filter(|running| known != Some(running.id)) {
            Some(running) => self.follow(running),
            None => Ok(()),
        }
    }

    /// Follows a load. The counters of the old scheduler can still be read.
    fn follow(&mut self, running: Arc<Objects>) -> std::result::Result<(), Error> {
        let old = self.link.objects.take();
        // The supervisor has registered what it knew. Since then a group may have ended; before
        // adoption has finished, the others are an earlier owner's.
        let mut first_error = match self.has_adopted {
            true => self.context.groups.remove_others(&running),
            false => Ok(()),
        };
        // Or it may have come or changed.
        for scheduled in self.scheduled.values_mut() {
            scheduled.earlier = scheduled.counts(old.as_deref());
            // A problem of one group does not affect the others.
            first_error = first_error.and(scheduled.apply(&self.context, Some(&running)));
        }
        self.link.objects = Some(running);
        self.usage = MachineUse::default();
        self.policy_cpus = None;
        first_error.and(self.follow_machine())
    }

    /// Reports whether limits of normal groups hold, which depend on the scheduler
    /// alone. Batch groups stay in the background without it.
    fn report_whether_limits_hold(&mut self) {
        let hold = self.context.status.lock().running.is_some();
        if std::mem::replace(&mut self.looks.limits_hold, hold) == hold {
            return;
        }
        let normal = self
            .scheduled
            .iter()
            .filter(|(_, scheduled)| scheduled.knobs.class != Some(Class::Batch));
        for (name, _) in normal {
            self.context.report(if hold {
                format!("group {name}: its limits hold again")
            } else {
                format!("group {name}: its limits do not hold until the scheduler is loaded again")
            });
        }
    }
}
