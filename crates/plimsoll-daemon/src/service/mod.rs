//! The service: keeps what is in force equal to what is asked, as cgroups and
//! processes come and go.
//!
//! One thread reads events and requests, matches, and has the enforcer apply;
//! another, the control loop, does what falls due every few milliseconds and
//! never waits for the first.

mod answers;
mod apply;
mod book;
mod commands;
mod control_loop;
mod facts;
mod follow;
mod foreign;
mod handle;
mod pace;
mod planner;
mod regroup;
mod remembered;
mod report;
mod start;
mod wish;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::cgroup::BusyMeter;
use plimsoll_engine::enforcer::Enforcer;
use plimsoll_engine::host::{Mode, SchedExt};
use plimsoll_engine::knobs::{Demand, Knobs};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;

use crate::config::{Config, EnforcerWanted};
use crate::log::Log;
use crate::state::Counters;
use crate::watch::{CgroupWatch, ProcessWatch};
use book::Book;
pub use commands::forget;
pub use control_loop::Heartbeat;
use control_loop::{ControlLoop, Shared};
pub use handle::Handle;
use handle::{Inbox, Message};
use pace::Pace;
use planner::Planner;
use remembered::Remembered;

/// Processes may start a thousand times a second: they are looked at together.
const PROCESSES_INTERVAL: Duration = Duration::from_millis(10);
/// Without events, the service looks after itself this often.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// An owner without a configuration file ends this long after its last group: a script that
/// runs one command after another has one owner.
pub const LINGER: Duration = Duration::from_secs(2);

/// What enforces groups, freshly started.
pub struct Enforcing {
    /// The enforcer.
    pub enforcer: Box<dyn Enforcer>,
    /// The BPF scheduler behind it; `None`: stock knobs alone.
    pub scheduler: Option<SchedExt>,
    /// What earlier processes had left behind, and was undone.
    pub left_behind: UndoReport,
}

/// Starts what enforces groups: the one thing that differs between builds.
pub trait Starter: Send {
    /// Starts the enforcer that the operator wants, or the best that the host
    /// has.
    ///
    /// # Errors
    /// When what is wanted cannot be had on this host.
    fn start(&mut self, wanted: EnforcerWanted, mode: Mode) -> plimsoll_engine::Result<Enforcing>;

    /// Starts an enforcer that has the scheduler for groups that want it, and for no others.
    ///
    /// # Errors
    /// When there is no permission.
    fn start_for_any(&mut self) -> plimsoll_engine::Result<Enforcing>;

    /// What enforces a group that has these knobs; `None`: stock knobs alone.
    ///
    /// # Errors
    /// When what is wanted cannot be had on this host; it says why.
    fn choose(
        &self,
        knobs: &Knobs,
        wanted: EnforcerWanted,
        mode: Option<Mode>,
    ) -> plimsoll_engine::Result<Option<SchedExt>>;
}

/// What a service is started with.
pub struct Options {
    /// The configuration file; `None`: the owner has none, serves the clients that come, and
    /// ends [`LINGER`] after the last group.
    pub config: Option<PathBuf>,
    /// Where journals and the socket are.
    pub runtime: RuntimeFolder,
    /// The cgroups of the host.
    pub hierarchy: Arc<Hierarchy>,
    /// Starts enforcers.
    pub starter: Box<dyn Starter>,
    /// Called while control loop and service are alive.
    pub heartbeat: Heartbeat,
    /// Where lines go.
    pub log: Arc<Log>,
}

/// The service.
pub struct Service {
    /// Empty without a configuration file.
    config_path: PathBuf,
    runtime: RuntimeFolder,
    /// Which folder that was at the start.
    runtime_identity: Option<(u64, u64)>,
    hierarchy: Arc<Hierarchy>,
    starter: Box<dyn Starter>,
    log: Arc<Log>,
    config: Config,
    /// Other things that somebody should look at, by what they are about.
    problems: BTreeMap<&'static str, String>,
    planner: Planner,
    control: ControlLoop,
    cgroups: CgroupWatch,
    /// Events that the watch had lost when it was last asked.
    overflows: u64,
    /// Until then it is not asked: what it told last was no news.
    cgroups_rest_until: Instant,
    /// The cgroups that there are.
    known: BTreeSet<String>,
    /// What the owners of cgroups ask for, as far as they may.
    attributes: BTreeMap<String, Knobs>,
    /// What of it was ignored, as it was told last.
    attributes_refused: BTreeMap<String, Vec<String>>,
    /// How often those of one cgroup are read.
    attributes_pace: Pace,
    /// How often any were read.
    attributes_read: u64,
    /// Those to which somebody has written, with when they are looked at.
    written: BTreeMap<String, Instant>,
    /// Groups in which somebody has changed a file, and theirs was respected.
    changed_by_others: BTreeSet<String>,
    /// Groups of the file of which one claims what another has, as it was told.
    rivals_told: BTreeSet<(String, String)>,
    /// Groups of commands in which nothing runs any more.
    empty_since: BTreeMap<String, Instant>,
    /// Only if a group is made of processes.
    processes: Option<ProcessWatch>,
    processes_read: Instant,
    /// A group that is made of processes has come to be.
    processes_are_new: bool,
    book: Book,
    /// Of all groups.
    demand: Demand,
    remembered: Remembered,
    /// It could not be written: is tried again.
    remembered_is_stale: bool,
    busy: BusyMeter,
    busy_usec: u64,
    /// What each batch group had used when it was last asked.
    batch_seen: BTreeMap<String, u64>,
    batch_usec: u64,
    counters: Counters,
    started: Instant,
    housekept: Instant,
    inbox: Inbox,
    /// When there last was a group, or a request.
    last_used: Instant,
    stopping: bool,
    /// Groups are left as they are, for the next owner.
    leaves_groups: bool,
}

/// Device and inode of the runtime folder; `None`: it is not there.
fn folder_identity(runtime: &RuntimeFolder) -> Option<(u64, u64)> {
    let found = std::fs::metadata(runtime.path()).ok()?;
    Some((found.dev(), found.ino()))
}

impl Service {
    fn shared(&self) -> &Arc<Shared> {
        self.control.shared()
    }

    /// Where requests are sent.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.inbox.handle()
    }

    /// The configuration that holds.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Works until it is told to stop, and puts everything back.
    pub fn run(mut self) -> UndoReport {
        while !self.stopping {
            self.shared().service_is_alive();
            self.wait();
            self.follow_cgroups();
            self.follow_processes();
            self.answer_all();
            self.look_at_attributes();
            self.look_at_written();
            let now = Instant::now();
            if now.saturating_duration_since(self.housekept) >= HOUSEKEEPING {
                self.housekept = now;
                self.keep_house();
            }
            self.settle();
        }
        self.end()
    }

    /// Waits until there is something to do.
    fn wait(&self) {
        if self.book.has_unsettled() {
            return;
        }
        let now = Instant::now();
        let due = [
            Some(self.housekept + HOUSEKEEPING),
            self.book.due(),
            self.cgroups.due(),
            self.cgroups_again(now),
            self.attributes_pace.due(),
            self.processes.as_ref().and_then(ProcessWatch::due),
            self.processes_again(now),
            self.written.values().min().copied(),
        ];
        let due = due.into_iter().flatten().min().unwrap_or(now);
        let mut fds = vec![PollFd::new(self.inbox.as_fd(), PollFlags::POLLIN)];
        if self.cgroups_again(now).is_none() {
            fds.push(PollFd::new(self.cgroups.as_fd(), PollFlags::POLLIN));
        }
        if let (None, Some(processes)) = (self.processes_again(now), &self.processes)
            && let Some(fd) = processes.fd()
        {
            fds.push(PollFd::new(fd, PollFlags::POLLIN));
        }
        // One more, so that it is due when it is over.
        let wait = due.saturating_duration_since(now).as_millis() + 1;
        let wait = PollTimeout::try_from(wait.min(1_000)).unwrap_or(PollTimeout::ZERO);
        // Interrupted by a signal, there is nothing to do.
        let _ = poll(&mut fds, wait);
    }

    /// When the watch of cgroups is asked again, if it rests.
    fn cgroups_again(&self, now: Instant) -> Option<Instant> {
        let at = self.cgroups_rest_until;
        (now < at).then_some(at)
    }

    /// When processes are looked at again, if they were just now.
    fn processes_again(&self, now: Instant) -> Option<Instant> {
        let at = self.processes_read + PROCESSES_INTERVAL;
        (self.processes.is_some() && now < at).then_some(at)
    }

    fn answer_all(&mut self) {
        let messages = self.inbox.take();
        if !messages.is_empty() {
            self.last_used = Instant::now();
            // Who asks knows of what has happened before.
            self.follow_cgroups_now();
        }
        for message in messages {
            match message {
                Message::Ask {
                    peer,
                    request,
                    reply,
                } => {
                    self.counters.requests += 1;
                    let answer = self.answer(&peer, request);
                    // Who asked may have gone.
                    let _ = reply.send(answer);
                }
                Message::State { reply } => {
                    let state = self.state(None, false);
                    let _ = reply.send(state);
                }
                Message::Reload => {
                    // Told by the reload itself.
                    let _ = self.reload();
                }
                Message::Problem { about, problem } => self.note_problem(about, problem),
                Message::Reports(lines) => {
                    for line in lines {
                        self.log.warning("enforcer", &line);
                    }
                }
                Message::Stop => {
                    self.stopping = true;
                    self.leaves_groups = !self.is_configured();
                }
            }
        }
    }

    /// What has to be looked at from time to time.
    fn keep_house(&mut self) {
        if !self.control.is_running() {
            // What a loop did that is gone nobody does: the supervisor's
            // restart is the way out, and all is undone before.
            self.log
                .error("control", "the control thread has failed; stopping");
            self.stopping = true;
            return;
        }
        let problem = self.shared().problem();
        self.note_problem("control", problem);
        let unwatched = self.cgroups.unwatched();
        let problem = (unwatched > 0).then(|| {
            format!(
                "{unwatched} cgroups cannot be watched and are looked at once a second: the \
                 kernel's limit fs.inotify.max_user_watches is reached"
            )
        });
        self.note_problem("watches", problem);
        let problem = (folder_identity(&self.runtime) != self.runtime_identity).then(|| {
            format!(
                "{}: was removed, and with it what is written down of what was done: after a kill \
                 it could not be put back; restart the daemon",
                self.runtime.path().display()
            )
        });
        self.note_problem("runtime", problem);
        if let Ok(busy_ns) = self.busy.busy_ns() {
            self.busy_usec += busy_ns / 1_000;
        }
        self.note_folders();
        self.end_commands();
        self.end_unused();
        if self.remembered_is_stale {
            self.remember();
        }
    }

    /// Whether there is a configuration file, which decides for all groups.
    fn is_configured(&self) -> bool {
        !self.config_path.as_os_str().is_empty()
    }

    /// Without a configuration file, nothing is left to do after the last group.
    fn end_unused(&mut self) {
        let now = Instant::now();
        if self.book.len() > 0 || self.is_configured() {
            self.last_used = now;
        }
        self.stopping |= now.saturating_duration_since(self.last_used) >= LINGER;
    }

    /// Notes or clears what somebody should look at, and tells it once.
    fn note_problem(&mut self, about: &'static str, problem: Option<String>) {
        match problem {
            None => {
                if self.problems.remove(about).is_some() {
                    self.log
                        .info(about, &format!("{about}: as it should be again"));
                }
            }
            Some(problem) => {
                if self.problems.get(about) != Some(&problem) {
                    self.log.warning(about, &problem);
                    self.problems.insert(about, problem);
                }
            }
        }
    }

    /// Writes down what the next start has to know.
    fn remember(&mut self) {
        let written = self.remembered.write(&self.runtime);
        self.remembered_is_stale = written.is_err();
        let problem = written.err().map(|error| {
            format!("{error}; what is `set` does not outlive this daemon until it can be written")
        });
        self.note_problem("remembered", problem);
    }

    /// Puts everything back, or leaves it to the next owner. A service manager may end an owner
    /// that a client of one of its units has started: others' groups are not to be unlimited
    /// for that.
    fn end(mut self) -> UndoReport {
        self.remember_members();
        if self.leaves_groups && self.book.len() > 0 {
            // Dropped, the enforcer would undo. All else goes: who waits for an answer is told.
            let Self { control, .. } = self;
            std::mem::forget(control);
            return UndoReport::default();
        }
        let mut enforcer = self.shared().enforcer();
        let report = enforcer.undo();
        drop(enforcer);
        for problem in &report.problems {
            self.log.warning("undo", problem);
        }
        report
    }
}
