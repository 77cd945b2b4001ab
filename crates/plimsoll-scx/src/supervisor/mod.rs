//! The supervisor: a thread of the owner that loads the scheduler, watches it, and reloads it when
//! the kernel has thrown it out.

mod journal;
mod reserved;

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::journal::{Entry, Journal};
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::runtime::RuntimeFolder;

use crate::Error;
use crate::backoff::Backoff;
use crate::groups::Groups;
use crate::objects::{self, Objects, PIN_FOLDER};
use crate::room::Room;
use crate::shared::Shared;
use crate::skel::OpenBpfSkel;
use crate::status::{Activity, LOSS, Supervised};
use crate::topology::CpuMap;
use crate::{ExitReport, Kernel, Scheduler, machine, status};
pub(crate) use journal::{
    begin_journal, is_left_behind, left_behind, left_in_this_boot, undo_and_report, undo_journal,
};
use reserved::Reserved;

/// Delay until an exit of the scheduler, or the end of the owner, is seen.
const POLL: Duration = Duration::from_millis(50);
/// Build of the scheduler: the hash of its program.
pub(crate) const BUILD: &str = env!("PLIMSOLL_BPF_HASH");
/// Nice level of the supervisor, which must run in time and uses little.
const NICE: i32 = -20;

/// State shared by the enforcer and the supervisor.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub hierarchy: Arc<Hierarchy>,
    pub runtime: RuntimeFolder,
    /// Messages for the user.
    pub messages: Shared<Vec<String>>,
    pub groups: Shared<Groups>,
    /// `None`: the service has not set it yet, and a scheduler that an earlier owner has left keeps
    /// its own.
    pub machine: Shared<Option<MachinePolicy>>,
    pub status: Shared<Supervised>,
}

impl Context {
    pub fn report(&self, message: impl Into<String>) {
        self.messages.lock().push(message.into());
    }

    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.messages.lock())
    }
}

/// The supervisor's thread. Dropping it ends the thread, and leaves the scheduler in the kernel.
#[derive(Debug)]
pub(crate) struct Supervisor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Result of the first load or adoption of the scheduler.
pub(crate) type FirstLoad = Receiver<Result<Arc<Objects>, Error>>;

impl Supervisor {
    /// Starts to supervise the scheduler. Unless `keep_trying`, a failure of the first load ends
    /// the supervision.
    pub fn start(
        context: &Context,
        journal: &Journal,
        keep_trying: bool,
    ) -> Result<(Self, FirstLoad), Error> {
        let journal = journal.try_clone()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, first_load) = channel();
        let mut supervision = Supervision {
            journal,
            context: context.clone(),
            stop: Arc::clone(&stop),
        };
        let thread = thread::spawn(move || {
            // SAFETY: takes integers only; id 0 is the calling thread. A failure is ignored,
            // because control works without, if later.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
            supervision.serve(&sender, keep_trying);
        });
        let supervisor = Self {
            stop,
            thread: Some(thread),
        };
        Ok((supervisor, first_load))
    }

    /// Returns whether the thread has ended: its first load failed, or it has panicked.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}

struct Supervision {
    journal: Journal,
    context: Context,
    stop: Arc<AtomicBool>,
}

impl Supervision {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Loads and watches the scheduler, and reloads it after each exit.
    fn serve(&mut self, first_load: &Sender<Result<Arc<Objects>, Error>>, keep_trying: bool) {
        let mut backoff = Backoff::new();
        let mut is_first = !keep_trying;
        while !self.is_over() {
            let failed = match self.adopt_or_load() {
                Ok(running) => {
                    is_first = false;
                    // The receiver may be gone.
                    let _ = first_load.send(Ok(Arc::clone(&running)));
                    let started = Instant::now();
                    self.watch(&running);
                    Some(started)
                }
                Err(error) if is_first => {
                    let _ = first_load.send(Err(error));
                    return;
                }
                Err(error) => {
                    self.report_failure(&error);
                    None
                }
            };
            let due = backoff.after_failure(failed, Instant::now());
            while !self.is_over() && Instant::now() < due {
                thread::sleep(POLL);
            }
        }
    }

    /// Adopts the scheduler that an earlier owner of the same build has left, or loads one.
    fn adopt_or_load(&mut self) -> Result<Arc<Objects>, Error> {
        let build = self.context.status.lock().status.build.clone();
        match left_by_owner(build.as_deref()) {
            Some(left) => {
                self.publish(Activity::Running, |supervised| {
                    supervised.status.groups_id = left.id;
                    supervised.running = Some(Arc::clone(&left));
                });
                Ok(left)
            }
            None => {
                objects::remove_link(Path::new(PIN_FOLDER));
                self.load()
            }
        }
    }

    /// Changes the status, and tells it to the enforcer and to other processes.
    fn publish(&self, activity: Activity, change: impl FnOnce(&mut Supervised)) {
        let mut supervised = self.context.status.lock();
        supervised.running = None;
        change(&mut supervised);
        supervised.status.owner_pid = std::process::id();
        supervised.status.activity = activity;
        supervised.status.publish(&self.context.runtime);
    }

    /// Reports a failure to load, once if it repeats.
    fn report_failure(&self, error: &Error) {
        let reason = error.to_string();
        let mut before = None;
        self.publish(Activity::Down, |supervised| {
            before = supervised.status.last_exit.replace(reason.clone());
        });
        if before.as_ref() != Some(&reason) {
            self.context.report(format!(
                "the scheduler cannot be loaded: {reason}; loading is retried, until then {LOSS}"
            ));
        }
    }

    fn load(&mut self) -> Result<Arc<Objects>, Error> {
        let begun = Instant::now();
        let cpus = CpuMap::of_this_host()?;
        let is_reload = self.context.status.lock().status.groups_id != 0;
        if !is_reload {
            self.publish(Activity::Loading, |_| ());
        }
        let kernel = Kernel::host();
        kernel.wait_until_free()?;
        let room = Room::of_this_host(&self.context.hierarchy);
        let reserved = Reserved::where_cpus_are_busy();
        let mut scheduler = Scheduler::load(&kernel, |skel| configure(skel, &cpus, room))?;
        let running = self.bring_in(&mut scheduler);
        // A scheduler without supervision must not stay.
        let running = running.inspect_err(|_| objects::remove_link(Path::new(PIN_FOLDER)))?;
        drop(reserved);
        let dropped_ops = scheduler.dropped_ops.iter();
        let dropped_ops = dropped_ops.map(|op| (*op).to_owned()).collect();
        self.publish(Activity::Running, |supervised| {
            let status = &mut supervised.status;
            status.dropped_ops = dropped_ops;
            status.nr_reloads += u64::from(is_reload);
            status.groups_id = running.id;
            status.build = Some(BUILD.into());
            status.load_usec = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            supervised.running = Some(Arc::clone(&running));
        });
        Ok(running)
    }

    /// Attaches the scheduler with all groups, and pins it, so that it outlives this process.
    fn bring_in(&mut self, scheduler: &mut Scheduler) -> Result<Arc<Objects>, Error> {
        self.pin(scheduler)?;
        let objects = Objects::open()?;
        // Before it is attached, so that no task is without its group.
        self.context.groups.register_all(&objects);
        // Another may have come meanwhile.
        Kernel::host().require_free()?;
        scheduler.attach()?;
        if let Some(report) = objects.exited() {
            return Err(Error::ThrownOut(Box::new(report)));
        }
        // Last: a process that finds the scheduler's link finds the rest.
        scheduler.pin_links(Path::new(PIN_FOLDER))?;
        let policy = self.context.machine.lock();
        machine::set(&objects, &policy.unwrap_or_default())?;
        drop(policy);
        Ok(Arc::new(objects))
    }

    /// Replaces the pins of an earlier scheduler.
    fn pin(&mut self, scheduler: &mut Scheduler) -> Result<(), Error> {
        let folder = Path::new(PIN_FOLDER);
        let failed = |source| Error::change("replace the pins", source);
        self.journal.record(&[Entry::Pin {
            folder: folder.to_owned(),
        }])?;
        fs::create_dir_all(folder).map_err(failed)?;
        for entry in fs::read_dir(folder).map_err(failed)?.flatten() {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
        objects::pin(&mut scheduler.skel, folder)
    }

    /// Watches the scheduler until it is thrown out, or the owner ends.
    fn watch(&self, running: &Objects) {
        while !self.is_over() {
            thread::sleep(POLL);
            if let Some(report) = running.exited() {
                // Frees its objects in the kernel.
                objects::remove_link(Path::new(PIN_FOLDER));
                self.report_exit(&report);
                return;
            }
        }
    }

    fn report_exit(&self, report: &ExitReport) {
        let dump = self.write_dump(report);
        let mut message = format!("the scheduler was thrown out: {report}");
        if let Some(path) = &dump {
            message.push_str(&format!("; dump: {}", path.display()));
        }
        message.push_str(&format!("; until it is loaded again {LOSS}"));
        self.context.report(message);
        self.publish(Activity::Down, |supervised| {
            supervised.status.last_exit = Some(report.to_string());
            supervised.status.dump = dump;
        });
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

/// The scheduler that an earlier owner has left in the kernel. `None`: there is none, or it is of
/// another `build`, or was thrown out.
fn left_by_owner(build: Option<&str>) -> Option<Arc<Objects>> {
    if build != Some(BUILD) || !Path::new(PIN_FOLDER).join(objects::LINK).exists() {
        return None;
    }
    let left = Objects::open().ok()?;
    left.exited().is_none().then(|| Arc::new(left))
}

/// Configures the scheduler for this machine before it is loaded.
fn configure(skel: &mut OpenBpfSkel<'static>, cpus: &CpuMap, room: Room) -> libbpf_rs::Result<()> {
    let nr_cpu_ids = cpus.nr_cpu_ids;
    let maps = &mut skel.maps;
    maps.cpus.set_max_entries(nr_cpu_ids)?;
    maps.decisions.set_max_entries(nr_cpu_ids)?;
    maps.slice_timers.set_max_entries(nr_cpu_ids)?;
    maps.groups.set_max_entries(room.slots)?;
    maps.group_timers.set_max_entries(room.slots)?;
    maps.group_cpus.set_max_entries(room.slots * nr_cpu_ids)?;
    maps.cpu_max.set_max_entries(room.limits())?;
    maps.records.set_max_entries(room.records)?;
    maps.record_of_cgroup.set_max_entries(room.records)?;
    maps.cgroup_clocks
        .set_max_entries(room.records * cpus.nr_llcs)?;
    if let Some(rodata) = skel.maps.rodata_data.as_deref_mut() {
        rodata.nr_cpu_ids = nr_cpu_ids;
        rodata.nr_llcs = cpus.nr_llcs;
        rodata.nr_slots = room.slots;
        for (place, llc) in rodata.cpu_llc.iter_mut().zip(&cpus.llcs) {
            *place = *llc;
        }
    }
    Ok(())
}
