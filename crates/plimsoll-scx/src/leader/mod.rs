//! The leader: the one process that loads the scheduler, looks after it, and
//! does for the groups of all others what is done once.
//!
//! Whoever holds the lock leads. The scheduler outlives its leader, see
//! `hold.rs`: when one ends, or is killed, the kernel frees its lock, and the
//! next one goes on with the scheduler that is there.

mod duties;
mod hold;
mod promote;
mod rescue;
mod running;
mod servers;
mod stretch;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::host::Mode;
use plimsoll_engine::journal::{Entry, Journal};
use plimsoll_engine::plan::is_scheduled;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::scheduled::ScheduledGroup;

use crate::backoff::Backoff;
use crate::bpf_intf::plimsoll_limits_PLIMSOLL_GROUPS_MAX as GROUPS_MAX;
use crate::control_error::ControlError;
use crate::objects::{self, Objects, PIN_FOLDER};
use crate::skel::OpenBpfSkel;
use crate::status::{Activity, Status};
use crate::topology::CpuMap;
use crate::{ExitReport, Kernel, Scheduler, machine, slots, status};
use duties::Duties;
#[cfg(test)]
pub(crate) use hold::create as create_journal;
pub(crate) use hold::{Hold, is_kept, is_left_behind, undo_left_behind};
use running::Running;

/// While there is nothing to watch, the leader looks this often whether it
/// should end.
const IDLE: Duration = Duration::from_millis(50);
/// Late is too late for control, and it uses little.
const NICE: i32 = -20;

/// The flag of a scheduler for tasks of its own policy only
/// (kernel/sched/ext_internal.h, SCX_OPS_SWITCH_PARTIAL).
const SWITCH_PARTIAL: u64 = 1 << 3;

/// What people should be told, from any thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Messages(Arc<Mutex<Vec<String>>>);

impl Messages {
    pub fn tell(&self, message: impl Into<String>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message.into());
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The slots of groups into which tasks have come that only their keeper may
/// take: for the one that is in the leader's process, from any thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Newcomers(Arc<Mutex<BTreeSet<u32>>>);

impl Newcomers {
    pub fn note(&self, slot: u32) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(slot);
    }

    pub fn take(&self) -> BTreeSet<u32> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the leader works with.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub hierarchy: Arc<Hierarchy>,
    pub runtime: RuntimeFolder,
    pub mode: Mode,
    pub messages: Messages,
    pub newcomers: Newcomers,
}

/// The leader's thread. Dropping it leaves the scheduler to the next leader.
#[derive(Debug)]
pub(crate) struct Leader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Whether there is a scheduler, once it was taken over or loaded.
pub(crate) type FirstLoad = Receiver<Result<(), ControlError>>;

impl Leader {
    /// Leads, if nobody else does. Unless `keep_trying`, a first load that
    /// fails ends it.
    ///
    /// # Errors
    /// When the lock or the journal cannot be had.
    pub fn try_start(
        context: &Context,
        hold: &Hold,
        keep_trying: bool,
    ) -> Result<Option<(Self, FirstLoad)>, ControlError> {
        let Some(journal) = hold.journal()? else {
            return Ok(None);
        };
        let Some(lock) = try_lock(&context.runtime)? else {
            return Ok(None);
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, first_load) = channel();
        let mut term = Term {
            _lock: lock,
            journal,
            context: context.clone(),
            stop: Arc::clone(&stop),
            status: Status {
                mode: context.mode,
                leader_pid: std::process::id(),
                // Of the leader before, if there was one.
                ..Status::published(&context.runtime).unwrap_or_default()
            },
        };
        let thread = thread::spawn(move || {
            // SAFETY: takes integers only; who 0 is the calling thread. Not
            // needed enough to complain where it is not allowed.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
            term.serve(&sender, keep_trying);
        });
        let leader = Self {
            stop,
            thread: Some(thread),
        };
        Ok(Some((leader, first_load)))
    }

    /// Whether it has given up: its first load failed.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked, its lock is free all the same.
            let _ = thread.join();
        }
    }
}

/// The lock of whoever leads. `None`: somebody else does.
fn try_lock(runtime: &RuntimeFolder) -> Result<Option<File>, ControlError> {
    let path = runtime.path().join("sched-ext.lock");
    let failed = |source| plimsoll_engine::EngineError::Journal {
        path: path.clone(),
        source,
    };
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(&path);
    let file = file.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(failed(source).into()),
    }
}

/// One leader's time.
struct Term {
    _lock: File,
    journal: Journal,
    context: Context,
    stop: Arc<AtomicBool>,
    status: Status,
}

impl Term {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Looks after the scheduler, and loads it again and again if it must be.
    fn serve(&mut self, first_load: &Sender<Result<(), ControlError>>, keep_trying: bool) {
        let mut backoff = Backoff::new();
        let mut is_first = !keep_trying;
        while !self.is_over() {
            let failed = match self.adopt_or_load(is_first) {
                Ok(running) => {
                    is_first = false;
                    // Whoever asked may have stopped waiting.
                    let _ = first_load.send(Ok(()));
                    let started = Instant::now();
                    self.watch(&running);
                    Some(started)
                }
                Err(error) if is_first => {
                    let _ = first_load.send(Err(error));
                    return;
                }
                Err(error) => {
                    self.tell_failure(&error);
                    None
                }
            };
            let due = backoff.after_failure(failed, Instant::now());
            while !self.is_over() && Instant::now() < due {
                thread::sleep(IDLE);
            }
        }
    }

    /// Goes on with the scheduler that another leader has left, or loads one.
    /// Who has no group yet takes nothing from others.
    fn adopt_or_load(&mut self, has_no_group: bool) -> Result<Running, ControlError> {
        match Running::left_by_another(self.context.mode) {
            Ok(Some(running)) => {
                self.status.groups_id = running.objects.id;
                self.publish(Activity::Running);
                return Ok(running);
            }
            Ok(None) => (),
            Err(error) if has_no_group => return Err(error),
            Err(error) => {
                self.context.messages.tell(format!(
                    "the scheduler cannot be taken over, it is loaded anew: {error}"
                ));
                objects::remove_links(Path::new(PIN_FOLDER));
            }
        }
        self.load()
    }

    fn publish(&mut self, activity: Activity) {
        self.status.activity = activity;
        self.status.publish(&self.context.runtime);
    }

    /// A failure that repeats itself is told once.
    fn tell_failure(&mut self, error: &ControlError) {
        let reason = error.to_string();
        if self.status.last_exit.as_ref() != Some(&reason) {
            self.context.messages.tell(format!(
                "the scheduler cannot be loaded: {reason}; it is tried again, until then {}",
                status::loss_without(self.context.mode)
            ));
        }
        self.status.last_exit = Some(reason);
        self.publish(Activity::Down);
    }

    /// Brings the scheduler into the kernel and lets others find it.
    fn load(&mut self) -> Result<Running, ControlError> {
        let begun = Instant::now();
        let cpus = CpuMap::of_this_host()?;
        let mode = self.context.mode;
        if self.status.groups_id == 0 {
            self.publish(Activity::Loading);
        }
        let kernel = Kernel::host();
        kernel.wait_until_free()?;
        let mut scheduler = Scheduler::load(&kernel, |skel| configure(skel, &cpus, mode))?;
        let running = self.bring_in(&mut scheduler);
        // What is not looked after must not stay.
        let running = running.inspect_err(|_| objects::remove_links(Path::new(PIN_FOLDER)))?;
        self.status.dropped_ops = scheduler
            .dropped_ops()
            .iter()
            .map(|op| (*op).to_owned())
            .collect();
        if self.status.groups_id != 0 {
            self.status.nr_reloads += 1;
        }
        self.status.groups_id = running.objects.id;
        self.status.load_usec = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.publish(Activity::Running);
        Ok(running)
    }

    /// Lets the scheduler schedule, with all groups, and outlive this process.
    fn bring_in(&mut self, scheduler: &mut Scheduler) -> Result<Running, ControlError> {
        self.pin(scheduler)?;
        // Before it schedules anything, so that no task is without its group.
        self.register_known(&Objects::open()?)?;
        scheduler.attach()?;
        // Last: whoever finds the scheduler's link finds the rest.
        scheduler.pin_links(Path::new(PIN_FOLDER))?;
        let running = Running::open()?;
        machine::refresh(&running.objects, &self.context.runtime.lock()?)?;
        Ok(running)
    }

    /// Registers the groups of all living processes.
    fn register_known(&self, objects: &Objects) -> Result<(), ControlError> {
        let Context {
            hierarchy,
            runtime,
            mode,
            ..
        } = &self.context;
        let lock = runtime.lock()?;
        let mut groups = ScheduledGroup::all(runtime, &lock);
        groups.retain(|group| is_scheduled(&group.knobs, *mode));
        slots::register_known(objects, &lock, hierarchy.mount_point(), groups);
        Ok(())
    }

    /// Replaces the pins of whatever was loaded before.
    fn pin(&mut self, scheduler: &mut Scheduler) -> Result<(), ControlError> {
        let folder = Path::new(PIN_FOLDER);
        let failed = |source| ControlError::change("make room for pins", source);
        self.journal.record(&[Entry::Pin {
            folder: folder.to_owned(),
        }])?;
        fs::create_dir_all(folder).map_err(failed)?;
        for entry in fs::read_dir(folder).map_err(failed)?.flatten() {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
        objects::pin(scheduler.skel_mut(), folder)
    }

    /// Does the leader's duties until the scheduler is thrown out, or the
    /// term is over.
    fn watch(&mut self, running: &Running) {
        let duties = Duties::of(&self.context, running);
        let exit = duties.perform(&mut self.status, &mut self.journal, &self.stop);
        if let Some(report) = exit {
            // Frees what the kernel still has of it.
            objects::remove_links(Path::new(PIN_FOLDER));
            self.tell_exit(&report);
        }
    }

    fn tell_exit(&mut self, report: &ExitReport) {
        let dump = self.write_dump(report);
        let mut message = format!("the scheduler was thrown out: {report}");
        if let Some(path) = &dump {
            message.push_str(&format!("; dump: {}", path.display()));
        }
        let loss = status::loss_without(self.context.mode);
        message.push_str(&format!("; until it is loaded again {loss}"));
        self.context.messages.tell(message);
        self.status.last_exit = Some(report.to_string());
        self.status.dump = dump;
        self.publish(Activity::Down);
    }

    fn write_dump(&self, report: &ExitReport) -> Option<PathBuf> {
        if report.dump.is_empty() {
            return None;
        }
        let path = status::dump_file(&self.context.runtime);
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&path).ok()?;
        file.write_all(report.dump.as_bytes()).ok()?;
        Some(path)
    }
}

/// Fits the scheduler to this machine before it is loaded.
fn configure(skel: &mut OpenBpfSkel<'static>, cpus: &CpuMap, mode: Mode) -> libbpf_rs::Result<()> {
    let nr_cpu_ids = cpus.nr_cpu_ids;
    let maps = &mut skel.maps;
    maps.cpus.set_max_entries(nr_cpu_ids)?;
    maps.decisions.set_max_entries(nr_cpu_ids)?;
    maps.slice_timers.set_max_entries(nr_cpu_ids)?;
    maps.group_cpus.set_max_entries(GROUPS_MAX * nr_cpu_ids)?;
    let ops = skel.struct_ops.plimsoll_ops_mut();
    if mode == Mode::All {
        ops.flags &= !SWITCH_PARTIAL;
    }
    if let Some(rodata) = skel.maps.rodata_data.as_deref_mut() {
        rodata.nr_cpu_ids = nr_cpu_ids;
        rodata.nr_llcs = cpus.nr_llcs;
        rodata.mode_all = mode == Mode::All;
        for (place, llc) in rodata.cpu_llc.iter_mut().zip(&cpus.llcs) {
            *place = *llc;
        }
    }
    Ok(())
}
