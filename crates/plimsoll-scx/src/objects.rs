//! The scheduler's maps and programs as any process of the user reaches them:
//! through their pins in the BPF file system.

use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Program, libbpf_sys};
use plimsoll_engine::tasks::is_away;

use crate::bpf_intf::{
    plimsoll_change, plimsoll_cpu, plimsoll_decisions, plimsoll_group, plimsoll_group_cpu,
    plimsoll_look, plimsoll_machine, plimsoll_machine_change, plimsoll_task_rate, plimsoll_trace,
};
use crate::control_error::ControlError as Error;
use crate::shared::SharedData;
use crate::skel::BpfSkel;

/// Where the BPF file system is.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";
/// Where our pins are in it.
pub(crate) const PIN_FOLDER: &str = "/sys/fs/bpf/plimsoll";

/// The link of the scheduler itself: it schedules as long as this is pinned.
pub(crate) const LINK: &str = "link";
/// The link of the probe that tells which tasks are moved.
pub(crate) const LINK_ATTACHED: &str = "link_attached";
/// The links of the probes that tell who holds a lock that others wait for.
pub(crate) const LINK_CONTENDED: &str = "link_contended";
pub(crate) const LINK_ACQUIRED: &str = "link_acquired";
/// The link of the list of tasks that have waited for too long.
pub(crate) const LINK_OVERDUE: &str = "link_overdue";

/// A type of the interface that any bytes of its size are a value of.
///
/// # Safety
/// It consists of integers only.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ty),*) => { $(
        // SAFETY: integers, and structs and arrays of them; see intf.h.
        unsafe impl Plain for $name {}
    )* };
}
plain!(
    plimsoll_group,
    plimsoll_group_cpu,
    plimsoll_cpu,
    plimsoll_machine,
    plimsoll_decisions,
    plimsoll_trace,
    crate::bpf_intf::plimsoll_event
);

/// What a look begins with.
pub(crate) const NO_LOOK: plimsoll_look = plimsoll_look {
    tid: 0,
    on_cpu: 0,
    waited_ns: 0,
    known: 0,
    asleep: 0,
    any_cpu_idle: 0,
    pad: 0,
};

/// The value that bytes from the kernel stand for.
pub(crate) fn value_of<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are enough bytes, `Plain` says that any will do, and the
    // read does not need alignment.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The maps and programs of the scheduler that was loaded last.
#[derive(Debug)]
pub(crate) struct Objects {
    groups: MapHandle,
    group_cpus: MapHandle,
    cpus: MapHandle,
    machine: MapHandle,
    decisions: MapHandle,
    group_of_cgroup: MapHandle,
    /// Lines of the trace. One reads at a time.
    pub trace: MapHandle,
    apply: OwnedFd,
    set_machine: OwnedFd,
    look: OwnedFd,
    task_rate: OwnedFd,
    /// Its variables.
    pub shared: SharedData,
    /// The kernel's number of the map of groups: tells one load from the next.
    pub id: u32,
    /// One more than the highest number of a CPU.
    pub nr_cpu_ids: u32,
}

/// Pins what other processes need. `groups` comes last: whoever finds it
/// finds the others.
pub(crate) fn pin(skel: &mut BpfSkel<'static>, folder: &Path) -> Result<(), Error> {
    let failed = |name: &'static str| {
        let path = folder.join(name);
        move |source: libbpf_rs::Error| Error::Pin { path, source }
    };
    macro_rules! pin {
        ($($kind:ident . $name:ident),*) => { $({
            let name = stringify!($name);
            skel.$kind.$name.pin(folder.join(name)).map_err(failed(name))?;
        })* };
    }
    pin!(
        maps.group_cpus,
        maps.cpus,
        maps.machine,
        maps.decisions,
        maps.group_of_cgroup,
        maps.trace,
        maps.data,
        maps.data_uei_dump,
        maps.events,
        maps.holders,
        maps.late,
        // The kernel stops the timers of a map that no pin and no process has.
        maps.group_timers,
        maps.slice_timers,
        maps.machine_timers,
        progs.plimsoll_apply,
        progs.plimsoll_set_machine,
        progs.plimsoll_look,
        progs.plimsoll_task_rate,
        maps.groups
    );
    Ok(())
}

/// An error about the pin of that name.
fn failed(name: &str) -> impl FnOnce(libbpf_rs::Error) -> Error {
    let path = Path::new(PIN_FOLDER).join(name);
    move |source| Error::Pin { path, source }
}

/// A map that is pinned.
pub(crate) fn open_map(name: &str) -> Result<MapHandle, Error> {
    MapHandle::from_pinned_path(Path::new(PIN_FOLDER).join(name)).map_err(failed(name))
}

/// A map of such values that is pinned.
fn open_map_of<T: Plain>(name: &str) -> Result<MapHandle, Error> {
    let map = open_map(name)?;
    if map.value_size() as usize == size_of::<T>() {
        Ok(map)
    } else {
        Err(Error::OtherVersion)
    }
}

fn open_program(name: &str) -> Result<OwnedFd, Error> {
    Program::fd_from_pinned_path(Path::new(PIN_FOLDER).join(name)).map_err(failed(name))
}

/// A link that is pinned.
pub(crate) fn open_link(name: &str) -> Result<Link, Error> {
    Link::open(Path::new(PIN_FOLDER).join(name)).map_err(failed(name))
}

/// Takes the scheduler whose pins are in `folder` out of the kernel: when this
/// returns it has ended. Its maps stay pinned, and can be read. Where there is
/// nothing, nothing is done.
pub(crate) fn remove_links(folder: &Path) {
    let pin = folder.join(LINK);
    if pin.exists()
        && let Ok(link) = Link::open(&pin)
    {
        // If the kernel cannot, it does so once the pin is gone.
        let _ = link.detach();
    }
    let probes = [LINK_OVERDUE, LINK_ATTACHED, LINK_CONTENDED, LINK_ACQUIRED];
    for name in [LINK].into_iter().chain(probes) {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// The kernel's number of the map of groups that is pinned now.
pub(crate) fn pinned_id() -> Option<u32> {
    Some(open_map("groups").ok()?.info().ok()?.info.id)
}

impl Objects {
    /// Opens what is pinned.
    ///
    /// # Errors
    /// When there is nothing, or it is of another version of this program.
    pub fn open() -> Result<Self, Error> {
        let groups = open_map_of::<plimsoll_group>("groups")?;
        let cpus = open_map_of::<plimsoll_cpu>("cpus")?;
        Ok(Self {
            id: groups.info().map_err(failed("groups"))?.info.id,
            groups,
            nr_cpu_ids: cpus.max_entries(),
            cpus,
            group_cpus: open_map_of::<plimsoll_group_cpu>("group_cpus")?,
            machine: open_map_of::<plimsoll_machine>("machine")?,
            decisions: open_map_of::<plimsoll_decisions>("decisions")?,
            group_of_cgroup: open_map("group_of_cgroup")?,
            trace: open_map("trace")?,
            apply: open_program("plimsoll_apply")?,
            set_machine: open_program("plimsoll_set_machine")?,
            look: open_program("plimsoll_look")?,
            task_rate: open_program("plimsoll_task_rate")?,
            shared: SharedData::map(&open_map("data")?)?,
        })
    }

    /// A group; `None` beyond the last slot.
    pub fn group(&self, slot: u32) -> Option<plimsoll_group> {
        let bytes = self.groups.lookup(&slot.to_ne_bytes(), MapFlags::LOCK);
        value_of(&bytes.ok()??)
    }

    /// What a group did on one CPU.
    pub fn group_cpu(&self, slot: u32, cpu: u32) -> Option<plimsoll_group_cpu> {
        let key = slot * self.nr_cpu_ids + cpu;
        let bytes = self.group_cpus.lookup(&key.to_ne_bytes(), MapFlags::ANY);
        value_of(&bytes.ok()??)
    }

    /// One CPU.
    pub fn cpu(&self, cpu: u32) -> Option<plimsoll_cpu> {
        let bytes = self.cpus.lookup(&cpu.to_ne_bytes(), MapFlags::ANY);
        value_of(&bytes.ok()??)
    }

    /// The machine.
    pub fn machine(&self) -> Option<plimsoll_machine> {
        let bytes = self.machine.lookup(&0u32.to_ne_bytes(), MapFlags::LOCK);
        value_of(&bytes.ok()??)
    }

    /// The last decisions of a CPU, in no order.
    pub fn decisions(&self, cpu: u32) -> Option<plimsoll_decisions> {
        let bytes = self.decisions.lookup(&cpu.to_ne_bytes(), MapFlags::ANY);
        value_of(&bytes.ok()??)
    }

    /// The slot of a cgroup that is managed itself.
    pub fn slot_of(&self, cgroup_id: u64) -> Option<u32> {
        let bytes = self
            .group_of_cgroup
            .lookup(&cgroup_id.to_ne_bytes(), MapFlags::ANY);
        let bytes: [u8; 4] = bytes.ok()??.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    }

    /// Gives a cgroup a slot.
    pub fn set_slot(&self, cgroup_id: u64, slot: u32) -> Result<(), Error> {
        let key = cgroup_id.to_ne_bytes();
        let set = self
            .group_of_cgroup
            .update(&key, &slot.to_ne_bytes(), MapFlags::ANY);
        set.map_err(|source| Error::change("register a cgroup", source))
    }

    /// The cgroup has no slot any more. One that had none stays without.
    pub fn forget_slot(&self, cgroup_id: u64) {
        let _ = self.group_of_cgroup.delete(&cgroup_id.to_ne_bytes());
    }

    /// Makes, changes or frees a group.
    pub fn apply(&self, change: &mut plimsoll_change) -> Result<(), Error> {
        run_program(&self.apply, change).map_err(|source| Error::change("change a group", source))
    }

    /// Sets what holds for the whole machine.
    pub fn set_machine(&self, change: &mut plimsoll_machine_change) -> Result<(), Error> {
        run_program(&self.set_machine, change)
            .map_err(|source| Error::change("set the machine", source))
    }

    /// Whether the kernel's watchdog thinks of a task as one that has waited for
    /// long, though it was in another class. Put into ours while it waits, it would
    /// be taken for a stall; see `supervisor/rescue.rs`.
    pub fn is_late(&self, tid: i32) -> bool {
        const LATE_NS: u64 = 10_000_000_000;
        let is_late =
            |seen: plimsoll_look| seen.known != 0 && seen.on_cpu == 0 && seen.waited_ns >= LATE_NS;
        self.look(tid).is_some_and(is_late)
    }

    /// Whether a task of such a policy is one of this scheduler's that an owner has
    /// lent to the fair class or promoted, and not one that has that policy by itself.
    pub fn is_lent(&self, tid: i32, policy: i32) -> bool {
        is_away(tid, policy) && self.look(tid).is_some_and(|seen| seen.known != 0)
    }

    /// Whether a task is on a CPU now, and how long it has waited; `None`: there
    /// is no such task.
    pub fn look(&self, tid: i32) -> Option<plimsoll_look> {
        let mut look = plimsoll_look {
            tid: tid.cast_unsigned(),
            ..NO_LOOK
        };
        run_program(&self.look, &mut look).ok()?;
        Some(look)
    }

    /// The usage rate of a task of a capped group; `None`: it is none of this
    /// scheduler's.
    pub fn task_rate(&self, tid: i32) -> Option<plimsoll_task_rate> {
        let mut rate = plimsoll_task_rate {
            tid: tid.cast_unsigned(),
            background: 0,
            rate_ppm: 0,
        };
        run_program(&self.task_rate, &mut rate).ok()?;
        Some(rate)
    }
}

/// Runs a program of type `syscall` on `context`.
fn run_program<T>(program: &OwnedFd, context: &mut T) -> io::Result<()> {
    // SAFETY: all zeroes is a valid value of this plain struct.
    let mut options: libbpf_sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t;
    options.ctx_in = std::ptr::from_mut(context).cast();
    // No struct of the interface is that large.
    options.ctx_size_in = u32::try_from(size_of::<T>()).unwrap_or(0);
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the file is open, and the context is as large as it says and
    // lives until the call returns.
    let failed = unsafe { libbpf_sys::bpf_prog_test_run_opts(fd, &raw mut options) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    match options.retval.cast_signed() {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(()),
    }
}
