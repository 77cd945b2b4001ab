//! What the leader does while the scheduler runs.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::RingBufferBuilder;
use plimsoll_engine::host::{Mode, nr_cpus_online};
use plimsoll_engine::journal::Journal;
use plimsoll_engine::tasks::{self, Policy, SCHED_EXT};

use super::Context;
use super::rescue::Rescuer;
use crate::bpf_intf::plimsoll_event;
use crate::control_error::ControlError;
use crate::ext_server::{ExtServer, Setting};
use crate::machine::Demand;
use crate::objects::{Objects, value_of};
use crate::status::Status;
use crate::{ExitReport, Scheduler, slots};

/// How long an event of the scheduler is waited for. No event, and no exit of
/// the scheduler, is seen later than this.
const POLL: Duration = Duration::from_millis(50);
/// How often slots are taken back whose cgroup is gone.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

/// The duties of the leader towards one loaded scheduler.
pub(super) struct Duties<'a> {
    context: &'a Context,
    scheduler: &'a Scheduler,
    objects: Objects,
    servers: Option<ExtServer>,
    groups_seen: Option<u32>,
    collected: Instant,
    rescuer: Rescuer,
}

impl<'a> Duties<'a> {
    pub fn begin(context: &'a Context, scheduler: &'a Scheduler) -> Result<Self, ControlError> {
        Ok(Self {
            context,
            scheduler,
            objects: Objects::open()?,
            servers: ExtServer::of_this_host(),
            groups_seen: None,
            collected: Instant::now(),
            rescuer: Rescuer::default(),
        })
    }

    /// Does them until the scheduler is thrown out (its report) or `stop` is
    /// set (`None`).
    pub fn perform(
        mut self,
        status: &mut Status,
        mut journal: Option<&mut Journal>,
        stop: &AtomicBool,
    ) -> Option<ExitReport> {
        let arrived = RefCell::new(Vec::new());
        let mut events = RingBufferBuilder::new();
        let maps = &self.scheduler.skel().maps;
        let note = |bytes: &[u8]| {
            arrived
                .borrow_mut()
                .extend(value_of::<plimsoll_event>(bytes));
            0
        };
        let added = events.add(&maps.events, note).map(drop);
        let ring = added.and_then(|()| events.build());
        while !stop.load(Ordering::Relaxed) {
            match &ring {
                // An error is an interruption; the next round polls again.
                Ok(ring) => drop(ring.poll(self.rescuer.wait(POLL))),
                Err(_) => std::thread::sleep(POLL),
            }
            if let Some(report) = self.scheduler.exited() {
                return Some(report);
            }
            for event in arrived.take() {
                self.follow(event);
            }
            if let Some(journal) = journal.as_deref_mut() {
                self.set_servers(journal);
            }
            let now = Instant::now();
            self.collect(now);
            self.rescue(now, status);
        }
        None
    }

    /// A task came into a managed cgroup, or left one: it gets the policy
    /// that goes with where it is now, which is not always what the event
    /// says.
    fn follow(&self, event: plimsoll_event) {
        if self.context.mode == Mode::All {
            return;
        }
        let tid = event.tid.cast_signed();
        let tids = if event.threadgroup != 0 {
            tasks::threads(tid)
        } else {
            vec![tid]
        };
        for tid in tids {
            let policy = match (self.is_managed(tid), tasks::policy(tid)) {
                (true, Some(Policy::Fair)) => SCHED_EXT,
                (false, Some(Policy::Ext)) => libc::SCHED_OTHER,
                _ => continue,
            };
            if let Err(error) = tasks::set_policy(tid, policy) {
                self.context.messages.tell(error.to_string());
            }
        }
    }

    fn is_managed(&self, tid: i32) -> bool {
        let folders = self.context.hierarchy.folders_of(tid);
        let root = self.context.hierarchy.mount_point();
        folders.is_ok_and(|folders| {
            let cpu_folder = folders.first();
            cpu_folder.is_some_and(|folder| slots::nearest(&self.objects, root, folder).is_some())
        })
    }

    /// The ext servers follow the tolerance that the groups ask for.
    fn set_servers(&mut self, journal: &mut Journal) {
        let changed = self.objects.shared.groups_changed();
        let Some(servers) = &self.servers else { return };
        if self.context.mode == Mode::All || self.groups_seen == Some(changed) {
            return;
        }
        self.groups_seen = Some(changed);
        let tolerance = Demand::now(&self.objects).tolerance;
        let setting = Setting::of(tolerance, nr_cpus_online());
        if let Err(error) = servers.set(setting, journal) {
            self.context.messages.tell(format!("tolerance: {error}"));
        }
    }

    fn collect(&mut self, now: Instant) {
        if now < self.collected + COLLECT_INTERVAL {
            return;
        }
        self.collected = now;
        let Ok(lock) = self.context.runtime.lock() else {
            return;
        };
        let root = self.context.hierarchy.mount_point();
        if slots::collect(&self.objects, &lock, root) > 0 {
            // What is gone asks for nothing any more.
            if let Err(error) = crate::machine::refresh(&self.objects, &lock) {
                self.context.messages.tell(error.to_string());
            }
        }
    }

    fn rescue(&mut self, now: Instant, status: &mut Status) {
        if self.context.mode == Mode::All {
            return;
        }
        let link = self.scheduler.skel().links.plimsoll_overdue.as_ref();
        let rescued = self.rescuer.tick(now, link, self.servers.as_ref());
        if rescued > 0 {
            status.nr_rescues += rescued;
            status.publish(&self.context.runtime);
        }
    }
}
