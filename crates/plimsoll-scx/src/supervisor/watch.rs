//! Watch of the loaded scheduler: its events, ext servers, slots and exit.

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
use super::boost::Booster;
use super::fallback::FairFallback;
use super::running::Running;
use super::servers::Servers;
use crate::bpf_intf::plimsoll_event;
use crate::ext_server::ExtServer;
use crate::members::policy_of_member;
use crate::objects::{Objects, value_of};
use crate::status::Status;
use crate::{ExitReport, slots};

/// Longest wait for an event of the scheduler, and delay until its exit is seen.
const POLL: Duration = Duration::from_millis(50);
/// Interval of collections of slots whose cgroup or group is gone …
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);
/// … which grows by itself for each such number of slots, because all are checked.
const COLLECT_SLOTS: u32 = 64;

/// Watch of one load of the scheduler.
pub(super) struct Watch<'a> {
    context: &'a Context,
    running: &'a Running,
    objects: &'a Objects,
    servers: Servers,
    collected: Instant,
}

impl<'a> Watch<'a> {
    pub fn new(context: &'a Context, running: &'a Running) -> Self {
        Self {
            context,
            running,
            objects: &running.objects,
            servers: Servers::of_this_host(context.mode),
            collected: Instant::now(),
        }
    }

    /// Watches until the scheduler is thrown out (returns its report) or `stop` is set (`None`).
    pub fn run(
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
                scope.spawn(|| run_fallback(&ended, running, &counts));
                scope.spawn(|| run_boosts(&ended, running, &counts));
            }
            let _ends = EndsThen(&ended);
            self.follow_all(status, journal, stop, &counts)
        })
    }

    /// The loop of this thread: events, ext servers and slots.
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
                self.context.messages.report(format!("tolerance: {error}"));
            }
            self.collect(now);
            let fallbacks = counts.fallbacks.swap(0, Ordering::Relaxed);
            let boosts = counts.boosts.swap(0, Ordering::Relaxed);
            if fallbacks + boosts > 0 {
                status.nr_rescues += fallbacks;
                status.nr_promotions += boosts;
                status.publish(&self.context.runtime);
            }
        }
        None
    }

    /// Handles a task that was moved into or out of the cgroup of a group: sets the policy for its
    /// present cgroup, which may not be that of the event any more.
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
                self.context.messages.report(error.to_string());
            }
        }
    }

    /// `known`: the former policies of tasks, read on the first use.
    fn follow_one(&self, task: TaskId, known: &mut Option<Policies>) -> Result<(), EngineError> {
        let Some(policy) = tasks::policy_number(task.tid) else {
            return Ok(());
        };
        let slot = self.scheduled_in(task.tid);
        let is_scheduled = slot.is_some();
        let is_plain = policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_OTHER;
        // The thread id may belong to another task since the event.
        if is_scheduled && is_plain && task.exists() {
            let wanted = policy_of_member(policy, self.objects.is_late(task.tid));
            return tasks::set_policy(task.tid, wanted);
        }
        if let Some(slot) = slot
            && Policy::of(policy) == Policy::Fair
        {
            // Its policy has to be recorded first: the enforcer does that and takes it.
            self.context.groups_to_scan.note(slot);
        }
        let is_ours = Policy::of(policy) == Policy::Ext || self.objects.is_moved(task.tid, policy);
        if !is_scheduled && is_ours && task.exists() {
            let journals = self.context.runtime.path();
            let known = known.get_or_insert_with(|| {
                Policies::default().with(&journal::entries_of_all(journals))
            });
            return known.give_back(task.tid);
        }
        Ok(())
    }

    /// The slot of the nearest cgroup of a group that a task is in.
    fn scheduled_in(&self, tid: i32) -> Option<u32> {
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
            // Groups that are gone demand nothing any more.
            if let Err(error) = crate::machine::refresh(self.objects, &groups) {
                self.context.messages.report(error.to_string());
            }
        }
    }
}

/// Counts of the other threads since the last read, and values that they share.
#[derive(Default)]
struct Counts {
    fallbacks: AtomicU64,
    boosts: AtomicU64,
    seen_boosted: Mutex<Vec<i32>>,
}

/// A ring buffer of events, whose polls append to `arrived`.
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

/// Ends the other threads when it is dropped, even by a panic.
struct EndsThen<'a>(&'a AtomicBool);

impl Drop for EndsThen<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the fair-class fallback until `ended`. In a thread of its own, and without access to files
/// of cgroups: a waiting task may be inside a section that RCU waits for. Then a process that
/// changes a cgroup waits for that task with the lock of cgroups held, and readers wait, too.
fn run_fallback(ended: &AtomicBool, running: &Running, counts: &Counts) {
    let mut fallback = FairFallback::default();
    let servers = ExtServer::of_this_host();
    let look = |tid| running.objects.look(tid);
    let arrived = RefCell::new(Vec::new());
    let ring = ring_of(&running.late, &arrived);
    while !ended.load(Ordering::Relaxed) {
        let now = Instant::now();
        let late: Vec<plimsoll_event> = arrived.take();
        let late = late.iter().map(|event| event.tid.cast_signed());
        let count = fallback.move_late(late, now, look)
            + fallback.tick(now, &running.overdue, servers.as_ref(), look);
        counts.fallbacks.fetch_add(count, Ordering::Relaxed);
        let seen = std::mem::take(&mut fallback.seen_boosted);
        *counts
            .seen_boosted
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = seen;
        wait_for(&ring, fallback.wait(POLL));
    }
}

/// Runs the boosts until `ended`. In a thread of its own: changes of the deadline class take the
/// lock of cpusets, which a waiting task may hold.
fn run_boosts(ended: &AtomicBool, running: &Running, counts: &Counts) {
    let mut booster = Booster::new(Instant::now());
    let is_late = |tid| running.objects.is_late(tid);
    let arrived = RefCell::new(Vec::new());
    let ring = ring_of(&running.holders, &arrived);
    while !ended.load(Ordering::Relaxed) {
        let now = Instant::now();
        for event in arrived.take() {
            booster.follow(event, is_late);
        }
        let boosts = booster.tick(now, is_late);
        counts.boosts.fetch_add(boosts, Ordering::Relaxed);
        let seen = counts.seen_boosted.lock();
        let seen = std::mem::take(&mut *seen.unwrap_or_else(PoisonError::into_inner));
        booster.adopt(&seen, is_late);
        wait_for(&ring, booster.wait(POLL));
    }
}
