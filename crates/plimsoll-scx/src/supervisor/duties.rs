//! The supervisor's work while the scheduler runs.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use plimsoll_engine::EngineError;
use plimsoll_engine::host::Mode;
use plimsoll_engine::journal::{self, Journal};
use plimsoll_engine::policies::Policies;
use plimsoll_engine::tasks::{self, Policy, TaskId};

use super::Context;
use super::promote::Promoter;
use super::rescue::Rescuer;
use super::running::Running;
use super::servers::Servers;
use crate::bpf_intf::plimsoll_event;
use crate::ext_server::ExtServer;
use crate::members::policy_of_member;
use crate::objects::{Objects, value_of};
use crate::status::Status;
use crate::{ExitReport, slots};

/// How long an event of the scheduler is waited for. No event, and no exit of
/// the scheduler, is seen later than this.
const POLL: Duration = Duration::from_millis(50);
/// How often slots are taken back whose cgroup or group is gone …
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);
/// … and so much more seldom for each as many: all are looked at.
const COLLECT_SLOTS: u32 = 64;

/// The supervisor's work for the scheduler that is loaded.
pub(super) struct Duties<'a> {
    context: &'a Context,
    running: &'a Running,
    objects: &'a Objects,
    servers: Servers,
    collected: Instant,
}

impl<'a> Duties<'a> {
    pub fn of(context: &'a Context, running: &'a Running) -> Self {
        Self {
            context,
            running,
            objects: &running.objects,
            servers: Servers::of_this_host(context.mode),
            collected: Instant::now(),
        }
    }

    /// Does them until the scheduler is thrown out (its report) or `stop` is
    /// set (`None`).
    pub fn perform(
        self,
        status: &mut Status,
        journal: &mut Journal,
        stop: &AtomicBool,
    ) -> Option<ExitReport> {
        let (counts, ended) = (Counts::default(), AtomicBool::new(false));
        let running = self.running;
        let is_partial = self.context.mode == Mode::Partial;
        thread::scope(|scope| {
            if is_partial {
                scope.spawn(|| rescue_until(&ended, running, &counts));
                scope.spawn(|| promote_until(&ended, running, &counts));
            }
            let _ends = EndsThen(&ended);
            self.follow_all(status, journal, stop, &counts)
        })
    }

    /// All of them but the rescue.
    fn follow_all(
        mut self,
        status: &mut Status,
        journal: &mut Journal,
        stop: &AtomicBool,
        counts: &Counts,
    ) -> Option<ExitReport> {
        let arrived = RefCell::new(Vec::new());
        let ring = ring_of(&self.running.events, &arrived);
        while !stop.load(Ordering::Relaxed) {
            wait_for(&ring, POLL);
            if let Some(report) = self.running.exited() {
                return Some(report);
            }
            for event in arrived.take() {
                self.follow(event);
            }
            let now = Instant::now();
            let followed = self.servers.tick(self.objects, journal, now);
            if let Err(error) = followed {
                self.context.messages.tell(format!("tolerance: {error}"));
            }
            self.collect(now);
            let rescued = counts.rescued.swap(0, Ordering::Relaxed);
            let promoted = counts.promoted.swap(0, Ordering::Relaxed);
            if rescued + promoted > 0 {
                status.nr_rescues += rescued;
                status.nr_promotions += promoted;
                status.publish(&self.context.runtime);
            }
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
        let mut known = None;
        for task in tids.into_iter().filter_map(TaskId::of) {
            if let Err(error) = self.follow_one(task, &mut known) {
                self.context.messages.tell(error.to_string());
            }
        }
    }

    /// `known`: what tasks had before, once it was looked up.
    fn follow_one(&self, task: TaskId, known: &mut Option<Policies>) -> Result<(), EngineError> {
        let Some(policy) = tasks::policy_number(task.tid) else {
            return Ok(());
        };
        let slot = self.managed_in(task.tid);
        let is_managed = slot.is_some();
        let is_plain = policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_OTHER;
        // It may have become another since the event.
        if is_managed && is_plain && task.exists() {
            let wanted = policy_of_member(policy, self.objects.is_late(task.tid));
            return tasks::set_policy(task.tid, wanted);
        }
        if let Some(slot) = slot
            && Policy::of(policy) == Policy::Fair
        {
            // What it had has to be written down first: its keeper does that
            // and takes it.
            self.context.newcomers.note(slot);
        }
        let is_ours = Policy::of(policy) == Policy::Ext || self.objects.is_lent(task.tid, policy);
        if !is_managed && is_ours && task.exists() {
            let journals = self.context.runtime.path();
            let known = known.get_or_insert_with(|| {
                Policies::default().with(&journal::entries_of_all(journals))
            });
            return known.give_back(task.tid);
        }
        Ok(())
    }

    /// The slot of the nearest managed cgroup that a task is in.
    fn managed_in(&self, tid: i32) -> Option<u32> {
        let folders = self.context.hierarchy.folders_of(tid).ok()?;
        let root = self.context.hierarchy.mount_point();
        slots::nearest(self.objects, root, folders.first()?)
    }

    fn collect(&mut self, now: Instant) {
        let slowdown = 1 + self.objects.shared.nr_slots_used() / COLLECT_SLOTS;
        let is_settled = self.context.is_settled.load(Ordering::Acquire);
        if now < self.collected + COLLECT_INTERVAL * slowdown || !is_settled {
            return;
        }
        self.collected = now;
        let groups = self.context.groups.lock();
        let root = self.context.hierarchy.mount_point();
        let known = slots::cgroup_ids(&groups);
        if slots::collect(self.objects, &groups, root, Some(&known)) > 0 {
            // Groups that are gone ask for nothing any more.
            if let Err(error) = crate::machine::refresh(self.objects, &groups) {
                self.context.messages.tell(error.to_string());
            }
        }
    }
}

/// What the other threads have done since they were last asked, and tell each other.
#[derive(Default)]
struct Counts {
    rescued: AtomicU64,
    promoted: AtomicU64,
    seen_promoted: Mutex<Vec<i32>>,
}

/// A ring of events, whose polls leave what has come in `arrived`.
fn ring_of<'a>(
    map: &MapHandle,
    arrived: &'a RefCell<Vec<plimsoll_event>>,
) -> libbpf_rs::Result<RingBuffer<'a>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(map, move |bytes: &[u8]| {
        arrived
            .borrow_mut()
            .extend(value_of::<plimsoll_event>(bytes));
        0
    })?;
    builder.build()
}

/// Waits for an event. An error is an interruption; the next round waits again.
fn wait_for(ring: &libbpf_rs::Result<RingBuffer<'_>>, most: Duration) {
    match ring {
        Ok(ring) => drop(ring.poll(most)),
        Err(_) => thread::sleep(most),
    }
}

/// Tells the other threads to end, however this one does.
struct EndsThen<'a>(&'a AtomicBool);

impl Drop for EndsThen<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rescues tasks until it is told to end. In a thread of its own, and without the
/// files of cgroups: a task that waits may be inside a section that RCU waits for,
/// then whoever changes a cgroup waits for that task with the cgroups' lock, and
/// whoever reads them waits, too.
fn rescue_until(ended: &AtomicBool, running: &Running, counts: &Counts) {
    let mut rescuer = Rescuer::default();
    let servers = ExtServer::of_this_host();
    let look = |tid| running.objects.look(tid);
    let arrived = RefCell::new(Vec::new());
    let ring = ring_of(&running.late, &arrived);
    while !ended.load(Ordering::Relaxed) {
        let now = Instant::now();
        let late: Vec<plimsoll_event> = arrived.take();
        let late = late.iter().map(|event| event.tid.cast_signed());
        let count = rescuer.lend_late(late, now, look)
            + rescuer.tick(now, &running.overdue, servers.as_ref(), look);
        counts.rescued.fetch_add(count, Ordering::Relaxed);
        let seen = std::mem::take(&mut rescuer.seen_promoted);
        *counts
            .seen_promoted
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = seen;
        wait_for(&ring, rescuer.wait(POLL));
    }
}

/// Has holders of locks run at once until it is told to end. In a thread of its own:
/// changes of the deadline class take the lock of the cpusets, which a task that
/// waits may hold.
fn promote_until(ended: &AtomicBool, running: &Running, counts: &Counts) {
    let mut promoter = Promoter::new(Instant::now());
    let is_late = |tid| running.objects.is_late(tid);
    let arrived = RefCell::new(Vec::new());
    let ring = ring_of(&running.holders, &arrived);
    while !ended.load(Ordering::Relaxed) {
        let now = Instant::now();
        for event in arrived.take() {
            promoter.follow(event, is_late);
        }
        let promoted = promoter.tick(now, is_late);
        counts.promoted.fetch_add(promoted, Ordering::Relaxed);
        let seen = counts.seen_promoted.lock();
        let seen = std::mem::take(&mut *seen.unwrap_or_else(PoisonError::into_inner));
        promoter.adopt(&seen, is_late);
        wait_for(&ring, promoter.wait(POLL));
    }
}
