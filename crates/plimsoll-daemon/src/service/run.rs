//! Event loop of the service, and its end.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::sched_getaffinity;
use nix::unistd::Pid;
use plimsoll_cgroupfs::os;
use plimsoll_engine::undo::UndoReport;

use super::Service;
use super::handle::Message;
use super::parts::{ConfigFile, GuardSwitch};
use super::report::Detail;

/// Longest sleep without an event: the loop is alive, and its folder is there.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// Time for which the end waits for a guard that is being attached.
const ATTACH_MAX: Duration = Duration::from_secs(5);

impl Service {
    /// Runs until the service is stopped, and restores all groups, or leaves them to the next
    /// owner.
    pub fn run(mut self) -> UndoReport {
        while !self.is_ending() {
            self.enforcement.shared.service_is_alive();
            self.wait();
            self.turn();
        }
        self.end()
    }

    /// Does all that is due: follows events, answers requests and reconciles.
    pub fn turn(&mut self) {
        if self.is_in_use() {
            self.lifetime.note_use(os::now());
        }
        self.enforcement
            .control_without_a_thread(&self.inbox.handle());
        self.follow_cgroups();
        self.answer_all();
        self.audit_due();
        self.look_at_commands();
        self.notices
            .note_problem("runtime", self.requests.folder_problem());
        let now = os::now();
        if self.requests.save_due().is_some_and(|due| due <= now) {
            self.save_requests();
        }
        self.reconcile();
        self.follow_fair_class();
        if !self.is_in_use() {
            self.lifetime.end_if_unused(now);
        }
    }

    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.lifetime.is_ending()
    }

    /// Returns when the next [`Self::turn`] is due without an event; `None`: never.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let due = [
            self.table.has_pending().then_some(now),
            (!self.is_in_use()).then(|| self.lifetime.unused_due()),
            self.table.due(),
            self.cgroups.due(now),
            self.external.due(),
            self.requests.look_due(),
            self.requests.save_due(),
            self.fair.guard.due(self.table.has_batch(), now),
        ];
        due.into_iter().flatten().min()
    }

    fn wait(&self) {
        let now = os::now();
        let latest = now + SLEEP_MAX;
        let due = self.due(now).map_or(latest, |due| due.min(latest));
        if due <= now {
            return;
        }
        let mut fds = vec![PollFd::new(self.inbox.as_fd(), PollFlags::POLLIN)];
        let queues = self.cgroups.awake(now);
        fds.extend(queues.map(|queue| PollFd::new(queue, PollFlags::POLLIN)));
        // Rounded up: woken earlier, the loop would find nothing due and wait again.
        let wait = due.saturating_duration_since(now).as_millis() + 1;
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        // A signal interrupts the wait; the loop goes round once more.
        let _ = poll(&mut fds, wait);
        self.enforcement.shared.service_is_alive();
    }

    fn answer_all(&mut self) {
        let messages = self.inbox.take();
        if !messages.is_empty() {
            self.lifetime.note_use(os::now());
            // A client may ask about a cgroup that it has just made.
            self.follow_cgroups_now();
        }
        for message in messages {
            match message {
                Message::Ask {
                    request,
                    handle,
                    reply,
                } => {
                    self.notices.counters.requests += 1;
                    let answer = self.answer(&request, handle.as_ref().map(AsFd::as_fd));
                    // The client may have gone.
                    let _ = reply.send(answer);
                }
                Message::State { reply } => {
                    let state = self.state(None, Detail::Brief);
                    let _ = reply.send(state);
                }
                Message::Reload => {
                    // The reload logs its own failure.
                    let _ = self.reload();
                }
                Message::Problem { about, problem } => self.notices.note_problem(about, problem),
                Message::Reports(lines) => {
                    for line in lines {
                        self.notices.log.warning("enforcer", &line);
                    }
                }
                Message::Guard(attached) => self.fair.guard.attached(attached, &self.notices.log),
                Message::Stop { leaves_groups } => {
                    let leaves_groups = leaves_groups || self.lifetime.is_on_demand();
                    self.lifetime.end(leaves_groups);
                }
            }
        }
    }

    /// Attaches the guard while the fair class runs batch work, and has the host tuned if a group
    /// asks for it.
    pub(super) fn follow_fair_class(&mut self) {
        let is_of_fair_class = !self.enforcement.has_all_tasks();
        let is_needed = self.table.has_batch() && is_of_fair_class;
        if !is_of_fair_class && !self.fair.guard.is_attaching() {
            self.fair.guard = GuardSwitch::default();
        }
        let guard = &mut self.fair.guard;
        // It cannot fail for the calling thread, but on a host of more CPUs than the set has.
        let cpus = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        if guard.follow(is_needed, cpus, os::now()) {
            let take = self.inbox.handle().take_guard();
            self.enforcement.starter.attach_guard(take);
        }
        // The plan of a group of the scheduler does not check that the host allows the tuning.
        let is_wanted = is_of_fair_class
            && self.table.wants_tuning()
            && self.enforcement.planner.may_tune_host();
        let (tuning, enforcement) = (&mut self.fair.tuning, &self.enforcement);
        tuning.follow(is_wanted, enforcement, &mut self.notices);
    }

    /// Detaches the guard, also one that is just being attached: it may have moved a task, and the
    /// process must not end before the task is free again. If that takes too long, the task is on
    /// record for the next owner.
    fn detach_guard(&mut self) {
        while self.fair.guard.is_attaching()
            && let Some(message) = self.inbox.next_within(ATTACH_MAX)
        {
            // Clients learn of the end: nobody answers them.
            if let Message::Guard(attached) = message {
                self.fair.guard.attached(attached, &self.notices.log);
            }
        }
        self.fair.guard = GuardSwitch::default();
    }

    /// Restores all groups, or leaves them to the next owner: a service manager may end an
    /// owner that a client of one of its units has started, and the groups of other clients
    /// have to stay limited.
    pub fn end(mut self) -> UndoReport {
        self.save_members();
        self.detach_guard();
        // Preemption outlives the groups, and the next owner may come late, or never.
        let tuning = self.fair.tuning.put_back(&self.enforcement);
        self.notices.log_undo(&tuning, "as it was before");
        if self.lifetime.leaves_groups() && self.table.len() > 0 {
            return tuning;
        }
        if !self.lifetime.leaves_groups() {
            self.file = ConfigFile::none();
            self.note_file();
        }
        let mut report = self.enforcement.undo_all();
        self.notices.log_undo_problems(&report);
        report.extend(tuning);
        report
    }
}
