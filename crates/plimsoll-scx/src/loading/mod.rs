//! The thread that loads the scheduler. The kernel verifies the programs for seconds, in which the
//! owner goes on: it sends the changes of groups after the thread.

mod reserved;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::tasks;

use crate::bpf_intf::plimsoll_params;
use crate::kernel::is_ours;
use crate::objects::{self, Objects};
use crate::pins::Pins;
use crate::room::Room;
use crate::skel::OpenBpfSkel;
use crate::topology::CpuMap;
use crate::{SchedExtError, SchedExtKernel, Scheduler, machine};

/// Nice level of the thread: no limit holds until it has loaded the scheduler.
const NICE: i32 = -20;

/// A change of the scheduler.
#[derive(Debug)]
pub(crate) enum PolicyChange {
    Group(plimsoll_params),
    Machine(MachinePolicy),
}

/// The thread. It is to be joined: when it ends, the scheduler is in the kernel, and stays there.
#[derive(Debug)]
pub(crate) struct Loading {
    thread: JoinHandle<Result<Objects, SchedExtError>>,
    changes: Sender<PolicyChange>,
}

impl Loading {
    /// Begins to load a scheduler with these groups and policy, and to pin it.
    pub fn begin(
        pins: &Pins,
        hierarchy: &Arc<Hierarchy>,
        wanted: impl Iterator<Item = PolicyChange>,
    ) -> Result<Self, SchedExtError> {
        let (changes, receiver) = channel();
        wanted.for_each(|change| drop(changes.send(change)));
        let mut load = Load {
            pins: pins.clone(),
            hierarchy: Arc::clone(hierarchy),
            changes: receiver,
            machine: MachinePolicy::default(),
        };
        let thread = thread::Builder::new().name("load".into());
        let thread = thread.spawn(move || load.load());
        let thread =
            thread.map_err(|source| SchedExtError::change("load the scheduler", source))?;
        Ok(Self { thread, changes })
    }

    /// Has the scheduler make a change before it is handed over.
    pub fn send(&self, change: PolicyChange) {
        // One that has ended needs none: all are made again when it is joined.
        let _ = self.changes.send(change);
    }

    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread's end.
    pub fn join(self) -> Result<Objects, SchedExtError> {
        // A panic has been printed, and ends the owner's process.
        let failed = |_| {
            Err(SchedExtError::NotReady(
                "the scheduler's thread has failed".into(),
            ))
        };
        self.thread.join().unwrap_or_else(failed)
    }
}

/// The thread's side.
struct Load {
    pins: Pins,
    hierarchy: Arc<Hierarchy>,
    changes: Receiver<PolicyChange>,
    machine: MachinePolicy,
}

impl Load {
    /// Has the kernel verify this build's scheduler while another build's, if there is one, goes on
    /// with its limits; then this one takes its place.
    fn load(&mut self) -> Result<Objects, SchedExtError> {
        // A failure is ignored, because loading works without, if later. 0: this thread.
        let _ = tasks::set_nice(0, NICE);
        let cpus = CpuMap::of_this_host()?;
        let kernel = SchedExtKernel::host();
        let present = kernel.scheduler()?;
        let is_own = |name: &String| is_ours(name) && self.pins.are_own();
        if let Some(name) = present.as_ref().filter(|name| !is_own(name)) {
            return Err(SchedExtError::OtherScheduler(name.clone()));
        }
        self.pins.claim()?;
        let room = Room::of_this_host(&self.hierarchy);
        reserved::where_cpus_are_busy();
        let mut scheduler = Scheduler::load(&kernel, |skel| configure(skel, &cpus, room))?;
        // One that has come since is of an owner that was faster.
        if present.is_some() {
            self.pins.remove_link();
        }
        kernel.wait_until_free()?;
        let objects = self.bring_in(&mut scheduler);
        // A scheduler without an owner must not stay.
        objects.inspect_err(|_| self.pins.remove_link())
    }

    /// Attaches the scheduler with all groups, and pins it, so that it outlives this process.
    fn bring_in(&mut self, scheduler: &mut Scheduler) -> Result<Objects, SchedExtError> {
        self.pins.renew()?;
        objects::pin(&mut scheduler.skel, self.pins.folder())?;
        let objects = Objects::open()?;
        // Before it is attached, so that no task is without its group.
        self.follow_changes(&objects);
        // Another may have come meanwhile.
        SchedExtKernel::host().require_free()?;
        scheduler.attach()?;
        if let Some(report) = objects.exited() {
            return Err(SchedExtError::ThrownOut(Box::new(report)));
        }
        // An owner that looked before the scheduler was attached has claimed the pins by now.
        if !self.pins.are_own() {
            return Err(SchedExtError::OtherOwner);
        }
        // Last: a process that finds the scheduler's link finds the rest.
        scheduler.pin_links(self.pins.folder())?;
        self.follow_changes(&objects);
        machine::set(&objects, &self.machine)?;
        Ok(objects)
    }

    /// Makes the changes so far. A group that is refused is left to the enforcer, which reports it.
    fn follow_changes(&mut self, objects: &Objects) {
        for change in self.changes.try_iter() {
            match change {
                PolicyChange::Group(params) => drop(objects.apply(params)),
                // Needs a scheduler that is attached.
                PolicyChange::Machine(policy) => self.machine = policy,
            }
        }
    }
}

/// The scheduler that an earlier owner has left in the kernel. `None`: there is none, or it is of
/// another build, or was thrown out.
pub(crate) fn left_by_owner(pins: &Pins) -> Option<Objects> {
    let is_ours = pins.are_own() && pins.are_of_this_build();
    let objects = is_ours.then(Objects::open)?.ok()?;
    objects.exited().is_none().then_some(objects)
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
        rodata.nr_records = room.records;
        for (cpu, llc) in cpus.llcs.iter().enumerate() {
            rodata.cpu_llc[cpu] = *llc;
            rodata.llc_cpus[*llc as usize][cpu / 64] |= 1 << (cpu % 64);
        }
    }
    Ok(())
}
