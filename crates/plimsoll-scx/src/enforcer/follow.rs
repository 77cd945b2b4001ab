//! Keeps the scheduler loaded, which the kernel may throw out.

use std::time::Instant;

use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::knobs::Class;

use super::SchedExtEnforcer;
use super::link::LOSS;
use super::scheduled::{Scheduled, remove_others};
use crate::loading::{Loading, PolicyChange, left_by_owner};
use crate::objects::Objects;
use crate::sample::MachineUse;
use crate::{ExitReport, SchedExtError, SchedExtKernel, machine};

impl SchedExtEnforcer {
    /// Loads or adopts the scheduler, and waits until it runs.
    pub(super) fn find_scheduler(&mut self) -> Result<(), SchedExtError> {
        let left = self.is_left.then(|| left_by_owner(&self.pins)).flatten();
        let objects = left.map_or_else(|| self.load_first(), Ok)?;
        self.is_left = false;
        self.follow(objects)?;
        let exited = self.running().and_then(Objects::exited);
        exited.map_or(Ok(()), |report| {
            Err(SchedExtError::ThrownOut(Box::new(report)))
        })
    }

    /// Loads the scheduler, also in the place of one that an earlier owner has left.
    fn load_first(&mut self) -> Result<Objects, SchedExtError> {
        if !self.is_left {
            // The pins of a scheduler that is loaded are those of another living owner.
            SchedExtKernel::host().wait_until_free()?;
        }
        let loaded = self.begin_load().and_then(Loading::join);
        loaded.inspect_err(|error| {
            // The scheduler of an owner that was faster stays.
            if !self.is_left && !matches!(error, SchedExtError::OtherScheduler(_)) {
                self.messages.extend(self.pins.remove().problems);
            }
        })
    }

    /// Begins to load the scheduler with all groups.
    fn begin_load(&self) -> Result<Loading, SchedExtError> {
        let cgroups = self.scheduled.values().flat_map(Scheduled::cgroups);
        let groups = cgroups.map(|params| PolicyChange::Group(*params));
        Loading::begin(
            &self.pins,
            &self.hierarchy,
            groups.chain(self.machine.map(PolicyChange::Machine)),
        )
    }

    /// The scheduler, while it runs.
    fn running(&self) -> Option<&Objects> {
        let objects = self.link.objects.as_ref();
        objects.filter(|_| self.link.since.is_some())
    }

    /// Loads the scheduler again if the kernel has thrown it out. A failure is reported.
    pub(super) fn keep_loaded(&mut self, now: Instant) -> Result<(), SchedExtError> {
        if let Some(report) = self.running().and_then(Objects::exited) {
            // Frees its objects in the kernel.
            self.pins.remove_link();
            self.report_exit(&report);
            self.link.has_failed(now);
        }
        let done = match self.link.loading.take_if(|loading| loading.is_finished()) {
            Some(loading) => match loading.join() {
                Ok(loaded) => return self.follow(loaded),
                Err(error) => Err(error),
            },
            None if self.link.is_due(now) => self.begin_load().map(|loading| {
                self.link.loading = Some(loading);
            }),
            None => Ok(()),
        };
        if let Err(error) = done {
            self.report_failure(&error);
            self.link.has_failed(now);
        }
        Ok(())
    }

    /// Reports a failure to load, once if it repeats.
    pub(super) fn report_failure(&mut self, error: &SchedExtError) {
        let reason = error.to_string();
        let before = self.link.last_exit.replace(reason.clone());
        if before.as_ref() != Some(&reason) {
            self.messages.push(format!(
                "the scheduler cannot be loaded: {reason}; loading is retried, until then {LOSS}"
            ));
        }
    }

    fn report_exit(&mut self, report: &ExitReport) {
        let dump = report.write_dump(&self.runtime);
        let mut message = format!("the scheduler was thrown out: {report}");
        if let Some(path) = &dump {
            message.push_str(&format!("; dump: {}", path.display()));
        }
        message.push_str(&format!("; until it is loaded again {LOSS}"));
        self.messages.push(message);
        self.link.last_exit = Some(report.to_string());
        self.link.dump = dump;
    }

    /// Brings the machine's policy in the scheduler up to date, if there are a scheduler and a
    /// policy. After a failure the next look tries again.
    pub(super) fn follow_machine(&mut self) -> Result<(), SchedExtError> {
        let nr_cpus = nr_cpus_online();
        if self.policy_cpus == Some(nr_cpus) {
            return Ok(());
        }
        if let Some(policy) = self.machine {
            if let Some(loading) = &self.link.loading {
                loading.send(PolicyChange::Machine(policy));
            }
            if let Some(objects) = &self.link.objects {
                machine::set(objects, &policy)?;
            }
        }
        self.policy_cpus = Some(nr_cpus);
        Ok(())
    }

    /// Keeps up with the scheduler.
    pub(super) fn look(&mut self, now: Instant) -> plimsoll_engine::Result<()> {
        self.keep_loaded(now)?;
        if self.link.is_behind {
            self.follow_groups()?;
        }
        self.follow_machine()?;
        self.report_whether_limits_hold();
        if let Some(objects) = &self.link.objects {
            self.usage.observe(objects, now);
        }
        Ok(())
    }

    /// Goes on with a scheduler that was loaded or adopted. The counters of the old one can still
    /// be read.
    pub(super) fn follow(&mut self, running: Objects) -> Result<(), SchedExtError> {
        let old = self.link.objects.replace(running);
        for scheduled in self.scheduled.values_mut() {
            scheduled.earlier = scheduled.counts(old.as_ref());
        }
        self.link.nr_reloads += u64::from(old.is_some());
        self.link.since = Some(Instant::now());
        self.usage = MachineUse::default();
        self.policy_cpus = None;
        self.follow_groups().and(self.follow_machine())
    }

    /// Makes all changes of groups in the scheduler again: the thread that has loaded it has made all
    /// but those of the last moment, and an earlier owner may have left others. After a failure the
    /// next look tries again.
    pub(super) fn follow_groups(&mut self) -> Result<(), SchedExtError> {
        let Some(running) = &self.link.objects else {
            return Ok(());
        };
        // Before adoption has finished, other groups are an earlier owner's.
        let others = match self.has_adopted {
            true => remove_others(&self.scheduled, running),
            false => Ok(()),
        };
        let cgroups = self.scheduled.values().flat_map(Scheduled::cgroups);
        // A problem of one group does not affect the others.
        let done = cgroups.fold(others, |done, params| done.and(running.apply(*params)));
        self.link.is_behind = done.is_err();
        done
    }

    /// Reports whether limits of normal groups hold, which depend on the scheduler
    /// alone. Batch groups stay in the background without it.
    fn report_whether_limits_hold(&mut self) {
        let hold = self.running().is_some();
        if std::mem::replace(&mut self.looks.limits_hold, hold) == hold {
            return;
        }
        let normal = self
            .scheduled
            .iter()
            .filter(|(_, scheduled)| scheduled.knobs.class != Some(Class::Batch));
        for (name, _) in normal {
            self.messages.push(if hold {
                format!("group {name}: its limits hold again")
            } else {
                format!(
                    "group {name}: its limits, but for a quota in cpu.max, do not hold until the \
                     scheduler is loaded again"
                )
            });
        }
    }
}
