//! The guard of stock kernels.
//!
//! The fair class runs idle work before normal work at times, and looks again at the next tick only
//! (`policy/include/plimsoll/guard.h`). A BPF program notices this and wakes the thread that this
//! crate has on the CPU, in the class SCHED_FIFO: the thread does nothing, and when it sleeps the
//! kernel picks again. Where that does not help, it moves the idle work to a CPU with nothing else.
//! Where normal work waits for normal work, the thread of such a CPU moves a task to it. No
//! scheduler is replaced.
//!
//! The guard ends with the process that has attached it, because its threads do. Nothing of it
//! is pinned.

mod error;
mod moves;
mod program;
mod thread;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::sync::Arc;

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, MapType, Object, ProgramType};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::{Pid, SysconfVar, gettid, sysconf};

pub use error::GuardError;
use moves::Moves;
pub use moves::free_left_tasks;
use program::{PREPARE, load, map, run};
use thread::Threads;

/// Looks and wake-ups of a guard, on all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inversions that began; most end before a look.
    pub nr_begun: u64,
    /// Looks at which an inversion still stood.
    pub nr_inverted: u64,
    /// Wake-ups of threads, to have a CPU pick again.
    pub nr_woken: u64,
    /// Tasks that waited for normal work and were moved to a CPU with nothing but idle work.
    pub nr_pulled: u64,
    /// Tasks of idle work for which normal work waited and that were moved there.
    pub nr_pushed: u64,
}

/// An attached guard. Dropping it detaches it.
pub struct Guard {
    /// Dropped first, so that no thread is woken while the threads end.
    _links: Vec<Link>,
    _threads: Threads,
    moves: Option<Arc<Moves>>,
    object: Arc<Object>,
    cpus: CpuSet,
}

impl Guard {
    /// Attaches the guard to the CPUs that are online and on which the calling thread may run. The
    /// file `moves` records the moves under way, for [`free_left_tasks`].
    ///
    /// # Errors
    /// When the kernel refuses the program, or gives this process no real-time threads.
    pub fn attach(moves: &Path) -> Result<Self, GuardError> {
        let object = Arc::new(load()?);
        let set = sched_getaffinity(Pid::from_raw(0))
            .map_err(|errno| GuardError::Thread(errno.into()))?;
        let cpus = numbers_in(&set);
        let is_counted_alike = prepare(&object, &cpus).map_err(GuardError::Prepare)?;
        let rings = rings(&cpus).map_err(GuardError::Prepare)?;
        // In a PID namespace of its own this process would move other tasks than the kernel names.
        let may_move = is_counted_alike && !are_cpus_isolated();
        let moves = may_move.then(|| Arc::new(Moves::new(moves, Arc::clone(&object))));
        let (threads, bound) = Threads::start(&rings, moves.clone())?;
        let outer = map(&object, "rings").map_err(GuardError::Prepare)?;
        for cpu in bound {
            let descriptor = rings[&cpu].as_fd().as_raw_fd();
            outer
                .update(&cpu.to_ne_bytes(), &descriptor.to_ne_bytes(), MapFlags::ANY)
                .map_err(GuardError::Prepare)?;
        }
        let links = object
            .progs_mut()
            .filter(|program| program.prog_type() != ProgramType::Syscall)
            .map(|program| program.attach())
            .collect::<Result<_, _>>()
            .map_err(GuardError::Attach)?;
        Ok(Self {
            _links: links,
            _threads: threads,
            moves,
            object,
            cpus: set,
        })
    }

    /// Returns whether this process has the capabilities that the guard needs, in the first user
    /// namespace. Unlike [`Self::check`] it takes no time worth mentioning.
    #[must_use]
    pub fn is_permitted() -> bool {
        // The kernel takes a program of this type, like the guard's, of the privileged only.
        ProgramType::RawTracepoint.is_supported().unwrap_or(false) && thread::check().is_ok()
    }

    /// Checks that the guard could be attached, without attaching it.
    pub fn check() -> Result<(), GuardError> {
        load()?;
        thread::check()
    }

    /// Returns the CPUs that were online and allowed to the calling thread at the attachment.
    #[must_use]
    pub fn cpus(&self) -> CpuSet {
        self.cpus
    }

    /// Returns the looks and wake-ups since the guard was attached.
    pub fn counts(&self) -> Counts {
        let values = map(&self.object, "counts").and_then(|map| {
            let values = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
            Ok(values?.unwrap_or_default())
        });
        let add = |sum: Counts, value: Vec<u8>| {
            let (words, _) = value.as_chunks::<8>();
            let word = |index: usize| words.get(index).map_or(0, |word| u64::from_ne_bytes(*word));
            Counts {
                nr_begun: sum.nr_begun + word(0),
                nr_inverted: sum.nr_inverted + word(1),
                nr_woken: sum.nr_woken + word(2),
                ..sum
            }
        };
        // Reading a map of the program's own does not fail.
        let values = values.unwrap_or_default();
        let begin = Counts {
            nr_pulled: self.moves.as_ref().map_or(0, |moves| moves.nr_pulled()),
            nr_pushed: self.moves.as_ref().map_or(0, |moves| moves.nr_pushed()),
            ..Counts::default()
        };
        values.into_iter().fold(begin, add)
    }
}

/// Whether CPUs are kept from tasks that have not asked for them (`isolcpus=`): a task that was
/// moved could run there afterwards.
fn are_cpus_isolated() -> bool {
    let isolated = std::fs::read_to_string("/sys/devices/system/cpu/isolated");
    isolated.is_ok_and(|cpus| !cpus.trim().is_empty())
}

fn numbers_in(set: &CpuSet) -> Vec<u32> {
    let all = 0..CpuSet::count();
    let there = all.filter(|cpu| set.is_set(*cpu).unwrap_or(false));
    there.filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

/// Prepares the timers of these CPUs; the timers of other CPUs are never started. Returns whether
/// the kernel and this process number tasks alike.
fn prepare(object: &Object, cpus: &[u32]) -> libbpf_rs::Result<bool> {
    let mut is_counted_alike = true;
    let next = cpus.iter().cycle().skip(1);
    for (cpu, next) in cpus.iter().zip(next) {
        // Laid out as `plimsoll_guard_cpu` of intf.h.
        let mut argument = [*cpu, *next, 0].map(u32::to_ne_bytes).concat();
        run(object, PREPARE, &mut argument)?;
        is_counted_alike &= argument.ends_with(&gettid().as_raw().to_ne_bytes());
    }
    Ok(is_counted_alike)
}

fn rings(cpus: &[u32]) -> libbpf_rs::Result<BTreeMap<u32, Arc<MapHandle>>> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as u64,
        ..bpf_map_create_opts::default()
    };
    // The least that the kernel takes.
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let bytes = page.and_then(|page| u32::try_from(page).ok());
    let bytes = bytes.unwrap_or(4096);
    let ring = |cpu: &u32| {
        let name = Some("guard_ring");
        let ring = MapHandle::create(MapType::RingBuf, name, 0, 0, bytes, &options)?;
        Ok((*cpu, Arc::new(ring)))
    };
    cpus.iter().map(ring).collect()
}
