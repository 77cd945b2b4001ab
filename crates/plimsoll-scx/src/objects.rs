//! The scheduler's maps and programs, which any process of the user opens through their pins in the
//! BPF file system.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Program, libbpf_sys};

use crate::bpf_intf::{
    plimsoll_cpu, plimsoll_decisions, plimsoll_group, plimsoll_group_cpu,
    plimsoll_limits_PLIMSOLL_CGROUP_DEPTH_MAX as LEVELS,
    plimsoll_limits_PLIMSOLL_GROUPS_MAX as GROUPS_MAX, plimsoll_machine, plimsoll_machine_change,
    plimsoll_params, plimsoll_task_rate, plimsoll_trace, plimsoll_trace_request,
};
use crate::pins::PIN_FOLDER;
use crate::skel::{BpfSkel, types};
use crate::{ExitReport, SchedExtError};

/// Mount point of the BPF file system.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";
/// Most groups that the scheduler can have.
pub(crate) const NR_SLOTS: u32 = GROUPS_MAX - 1;

/// A type of the interface for which any bytes of its size are a valid value.
///
/// # Safety
/// It consists of integers only.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ty),*) => { $(
        // SAFETY: integers, and structs and arrays of them.
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
    types::data
);

/// Converts bytes from the kernel to a value.
pub(crate) fn value_of<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are enough bytes, `Plain` says that any will do, and the
    // read does not need alignment.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The maps and programs of a scheduler, which may have been thrown out.
#[derive(Debug)]
pub(crate) struct Objects {
    groups: MapHandle,
    group_cpus: MapHandle,
    cpus: MapHandle,
    machine: MapHandle,
    decisions: MapHandle,
    group_of_cgroup: MapHandle,
    /// The initialised variables.
    data: MapHandle,
    dump: MapHandle,
    /// Lines of the trace, for one reader at a time.
    pub trace: MapHandle,
    apply: OwnedFd,
    set_machine: OwnedFd,
    task_rate: OwnedFd,
    set_trace: OwnedFd,
    /// The kernel's id of the map of groups, which differs between loads.
    pub id: u32,
    /// One more than the highest number of a CPU.
    pub nr_cpu_ids: u32,
}

/// Pins the maps and programs for other processes. `groups` comes last: a process that finds it
/// finds the others.
pub(crate) fn pin(skel: &mut BpfSkel<'static>, folder: &Path) -> Result<(), SchedExtError> {
    let failed = |name: &'static str| {
        let path = folder.join(name);
        move |source: libbpf_rs::Error| SchedExtError::Pin { path, source }
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
        // The kernel stops the timers of a map that no pin and no process has.
        maps.group_timers,
        maps.slice_timers,
        maps.machine_timers,
        progs.plimsoll_apply,
        progs.plimsoll_set_machine,
        progs.plimsoll_task_rate,
        progs.plimsoll_set_trace,
        maps.groups
    );
    Ok(())
}

fn failed(name: &str) -> impl FnOnce(libbpf_rs::Error) -> SchedExtError {
    let path = Path::new(PIN_FOLDER).join(name);
    move |source| SchedExtError::Pin { path, source }
}

fn open_map(name: &str) -> Result<MapHandle, SchedExtError> {
    MapHandle::from_pinned_path(Path::new(PIN_FOLDER).join(name)).map_err(failed(name))
}

/// Opens a pinned map whose values are of this build's `T`.
fn open_map_of<T: Plain>(name: &str) -> Result<MapHandle, SchedExtError> {
    let map = open_map(name)?;
    if map.value_size() as usize == size_of::<T>() {
        Ok(map)
    } else {
        Err(SchedExtError::OtherVersion)
    }
}

/// Reads a value; `None` beyond the map's last key.
fn read<T: Plain>(map: &MapHandle, key: u32, flags: MapFlags) -> Option<T> {
    let bytes = map.lookup(&key.to_ne_bytes(), flags);
    value_of(&bytes.ok()??)
}

fn open_program(name: &str) -> Result<OwnedFd, SchedExtError> {
    Program::fd_from_pinned_path(Path::new(PIN_FOLDER).join(name)).map_err(failed(name))
}

impl Objects {
    /// Opens the pinned maps and programs.
    ///
    /// # Errors
    /// When nothing is pinned, or it is of another version of this program.
    pub fn open() -> Result<Self, SchedExtError> {
        let groups = open_map_of::<plimsoll_group>("groups")?;
        let cpus = open_map_of::<plimsoll_cpu>("cpus")?;
        let data = open_map("data")?;
        // Variables without a type follow.
        if (data.value_size() as usize) < size_of::<types::data>() {
            return Err(SchedExtError::OtherVersion);
        }
        Ok(Self {
            id: groups.info().map_err(failed("groups"))?.info.id,
            groups,
            nr_cpu_ids: cpus.max_entries(),
            cpus,
            group_cpus: open_map_of::<plimsoll_group_cpu>("group_cpus")?,
            machine: open_map_of::<plimsoll_machine>("machine")?,
            decisions: open_map_of::<plimsoll_decisions>("decisions")?,
            group_of_cgroup: open_map("group_of_cgroup")?,
            data,
            dump: open_map("data_uei_dump")?,
            trace: open_map("trace")?,
            apply: open_program("plimsoll_apply")?,
            set_machine: open_program("plimsoll_set_machine")?,
            task_rate: open_program("plimsoll_task_rate")?,
            set_trace: open_program("plimsoll_set_trace")?,
        })
    }

    /// Exit report, if the kernel has thrown the scheduler out; `None` while it runs. Cheap while
    /// it runs.
    pub fn exited(&self) -> Option<ExitReport> {
        self.data().filter(|data| data.uei.kind != 0)?;
        // The kernel writes the kind last, so now it has written all.
        let uei = self.data()?.uei;
        let dump = self.dump.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        // A report without a dump is better than none.
        let dump = dump.ok().flatten().unwrap_or_default();
        Some(ExitReport::new(&uei.reason, &uei.msg, &dump))
    }

    fn data(&self) -> Option<types::data> {
        read(&self.data, 0, MapFlags::ANY)
    }

    /// Runtime that a CPU takes from a pool at a time.
    pub fn bandwidth_slice_ns(&self) -> u64 {
        self.data().map_or(0, |data| data.bandwidth_slice_ns)
    }

    /// A group; `None` beyond the last slot.
    pub fn group(&self, slot: u32) -> Option<plimsoll_group> {
        read(&self.groups, slot, MapFlags::LOCK)
    }

    pub fn group_cpu(&self, slot: u32, cpu: u32) -> Option<plimsoll_group_cpu> {
        let key = slot * self.nr_cpu_ids + cpu;
        read(&self.group_cpus, key, MapFlags::ANY)
    }

    pub fn cpu(&self, cpu: u32) -> Option<plimsoll_cpu> {
        read(&self.cpus, cpu, MapFlags::ANY)
    }

    pub fn machine(&self) -> Option<plimsoll_machine> {
        read(&self.machine, 0, MapFlags::LOCK)
    }

    /// The last decisions of a CPU, in no order.
    pub fn decisions(&self, cpu: u32) -> Option<plimsoll_decisions> {
        read(&self.decisions, cpu, MapFlags::ANY)
    }

    /// The slot of the group of this very cgroup.
    pub fn slot_of(&self, cgroup_id: u64) -> Option<u32> {
        let bytes = self
            .group_of_cgroup
            .lookup(&cgroup_id.to_ne_bytes(), MapFlags::ANY);
        let bytes: [u8; 4] = bytes.ok()??.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    }

    /// The cgroups that have a group.
    pub fn cgroup_ids(&self) -> Vec<u64> {
        let keys = self.group_of_cgroup.keys();
        keys.flat_map(|key| key.try_into().map(u64::from_ne_bytes))
            .collect()
    }

    /// Creates, changes or ends the group of a cgroup.
    ///
    /// # Errors
    /// [`SchedExtError::TooManyGroups`] if it would be one too many, [`SchedExtError::TooDeep`].
    pub fn apply(&self, mut params: plimsoll_params) -> Result<(), SchedExtError> {
        run_program(&self.apply, &mut params).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSPC) => SchedExtError::TooManyGroups(NR_SLOTS),
            Some(libc::E2BIG) => SchedExtError::TooDeep(LEVELS - 1),
            _ => SchedExtError::change("change a group", source),
        })
    }

    pub fn set_machine(&self, change: &mut plimsoll_machine_change) -> Result<(), SchedExtError> {
        run_program(&self.set_machine, change)
            .map_err(|source| SchedExtError::change("set the machine", source))
    }

    /// Has the bandwidth of the group in `slot` traced until the scheduler's clock shows
    /// `until_ns`. Nothing is traced after a failure.
    pub fn set_trace(&self, slot: u32, until_ns: u64) {
        let _ = run_program(
            &self.set_trace,
            &mut plimsoll_trace_request { slot, until_ns },
        );
    }

    /// The usage rate of a task of a capped group; `None`: it is not a task of this scheduler.
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
