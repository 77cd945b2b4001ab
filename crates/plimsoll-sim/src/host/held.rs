//! Tasks that wait off the queues for their group's quota or for its limit of a
//! CPU.
//!
//! When a group may run again, one of the tasks that it holds at a place is let
//! into the queue, and the next whenever that one leaves it. The first to run is
//! always among those in the queue, so that the order is that of letting all of
//! them in at once; but a group of many tasks costs no more than those that run.

use super::engine::Host;
use super::group::Group;
use super::observe::Observer;
use super::runqueue::{RunQueue, Waiting};
use super::task::{NONE, State};

/// What tasks of a group wait for, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Runtime of the group on a CPU.
    Quota(u32),
    /// Room in the limit of a CPU, which they are bound to.
    Limit(u32),
    /// Room in the limit of a CPU that shares a cache.
    Cache(u32),
}

/// The tasks of a group that wait at one place, by virtual runtime.
#[derive(Debug, Clone)]
pub(super) struct Held {
    tasks: RunQueue,
    /// The one that was let into the queue and is still in it.
    let_in: u32,
    /// How many of them count in the length of a queue, and in which.
    counted: u32,
    home: u32,
}

impl Held {
    pub(super) fn new() -> Self {
        Self {
            tasks: RunQueue::default(),
            let_in: NONE,
            counted: 0,
            home: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

impl Group {
    pub(super) fn held(&mut self, place: Place) -> &mut Held {
        match place {
            Place::Quota(cpu) => &mut self.on_cpu[cpu as usize].throttled,
            Place::Limit(cpu) => &mut self.on_cpu[cpu as usize].limited,
            Place::Cache(llc) => &mut self.limited[llc as usize],
        }
    }

    /// Whether tasks that wait at a place may run there now.
    fn is_open(&self, place: Place, cpus_per_llc: u32) -> bool {
        match place {
            Place::Quota(cpu) => !self.lanes[cpu as usize].is_throttled(),
            Place::Limit(cpu) => self.has_room_on(cpu),
            Place::Cache(llc) => {
                let start = llc * cpus_per_llc;
                let room = self.room.as_ref();
                room.is_some_and(|room| {
                    room.next_within(start, start, start + cpus_per_llc)
                        .is_some()
                })
            }
        }
    }
}

impl<O: Observer> Host<O> {
    /// A task just taken from a queue waits at a place.
    pub(super) fn hold(&mut self, task: u32, place: Place) {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        let own = &self.tasks[task as usize];
        let (group, vruntime) = (own.group, own.vruntime);
        let held = self.groups[group as usize].held(place);
        held.tasks.push(Waiting {
            vruntime,
            task,
            ticket,
        });
        if let Place::Cache(llc) = place {
            self.groups[group as usize].limited_llcs.set(llc, true);
        }
        self.place_changes(group, place);
    }

    /// A place has opened or closed, or a task has come to it: if one may be
    /// let in, that is done once the CPU that chooses now has chosen. It may
    /// just have been refused there.
    pub(super) fn place_changes(&mut self, group: u32, place: Place) {
        self.count_held(group, place);
        self.openings.push((group, place));
    }

    /// Tasks that could be let in count in the length of the queue.
    pub(super) fn count_held(&mut self, group: u32, place: Place) {
        let own = &mut self.groups[group as usize];
        let is_open = own.is_open(place, self.machine.cpus_per_llc);
        let held = own.held(place);
        if held.counted == 0
            && let Some(first) = held.tasks.first()
        {
            held.home = self.tasks[first.task as usize].home;
        }
        let counts = if is_open { held.tasks.len() as u32 } else { 0 };
        let nr_held = &mut self.nr_held[held.home as usize];
        *nr_held = *nr_held + counts - held.counted;
        held.counted = counts;
    }

    /// Idle CPUs of other caches take tasks while no CPU of their own is idle and
    /// has room for them.
    fn move_held(&mut self, group: u32, llc: u32) {
        loop {
            let own = &mut self.groups[group as usize];
            let first = own.held(Place::Cache(llc)).tasks.first();
            let Some(task) = first.map(|waiting| waiting.task) else {
                return;
            };
            let near = self.tasks[task as usize].cpu;
            let size = self.machine.cpus_per_llc;
            let (start, end) = (llc * size, (llc + 1) * size);
            if self.best_idle(task, near, start, end).is_some() {
                return;
            }
            let Some(cpu) = self.best_idle(task, near, 0, self.machine.cpus) else {
                return;
            };
            if !self.side.has_room(self.idle.count() - 1, self.clock.now_ns) {
                return;
            }
            self.take_held(group, Place::Cache(llc));
            self.rejoin(task);
            self.queue(task, cpu);
            self.tell_cpu(task, cpu);
        }
    }

    /// A CPU with nothing to do takes a task that its limit has room for and
    /// that waits for room in another cache: of a few groups, others each time.
    pub(super) fn pull_held(&mut self, cpu: u32) -> Option<u32> {
        const GROUPS_MAX: usize = 4;
        let nr_groups = self.limited_groups.len();
        for step in 0..nr_groups.min(GROUPS_MAX) {
            let place = (self.rotation as usize).wrapping_add(step) % nr_groups;
            let index = self.limited_groups[place];
            let group = &self.groups[index as usize];
            if !group.has_room_on(cpu) {
                continue;
            }
            let llc = self.llc_of(cpu);
            if let Some(other) = group.limited_llcs.next_from(llc)
                && let Some(task) = self.take_held(index, Place::Cache(other))
            {
                self.rejoin(task);
                self.queue(task, cpu);
                return self.take_batch(cpu);
            }
        }
        if nr_groups > GROUPS_MAX {
            self.rotation = self.rotation.wrapping_add(1);
        }
        None
    }

    /// Lets tasks in wherever they may run now and none is in the queue.
    pub(super) fn open_places(&mut self) {
        while let Some((group, place)) = self.openings.pop() {
            self.let_in(group, place);
        }
    }

    /// Lets a task in, where it may run now and none is in the queue.
    pub(super) fn let_in(&mut self, group: u32, place: Place) {
        let own = &mut self.groups[group as usize];
        if own.held(place).let_in != NONE {
            return;
        }
        let is_open = own.is_open(place, self.machine.cpus_per_llc);
        if let Place::Cache(llc) = place {
            self.move_held(group, llc);
        }
        if !is_open {
            return;
        }
        let Some(task) = self.take_held(group, place) else {
            return;
        };
        self.groups[group as usize].held(place).let_in = task;
        let cpu = match place {
            Place::Quota(cpu) | Place::Limit(cpu) => cpu,
            Place::Cache(_) => self.tasks[task as usize].cpu,
        };
        self.rejoin(task);
        self.queue(task, cpu);
        self.tell_cpu(task, cpu);
    }

    /// Takes the first task that waits at a place away from there.
    pub(super) fn take_held(&mut self, group: u32, place: Place) -> Option<u32> {
        let held = self.groups[group as usize].held(place);
        let task = held.tasks.pop()?.task;
        let is_last = held.tasks.is_empty();
        if is_last && let Place::Cache(llc) = place {
            self.groups[group as usize].limited_llcs.set(llc, false);
        }
        self.count_held(group, place);
        debug_assert_eq!(self.tasks[task as usize].state, State::Parked);
        Some(task)
    }

    /// A task has left its queue: if it was let into it, the next one is.
    pub(super) fn dequeued(&mut self, task: u32) {
        let own = &self.tasks[task as usize];
        let (index, cpu) = (own.group, own.cpu);
        let group = &mut self.groups[index as usize];
        let Some(part) = group.on_cpu.get_mut(cpu as usize) else {
            return;
        };
        if own.home < self.machine.cpus {
            part.nr_queued -= 1;
        }
        let llc = cpu / self.machine.cpus_per_llc;
        let nr_places = if group.limit_ppm.is_some() { 3 } else { 1 };
        for place in [Place::Quota(cpu), Place::Limit(cpu), Place::Cache(llc)]
            .into_iter()
            .take(nr_places)
        {
            let held = self.groups[index as usize].held(place);
            if held.let_in == task {
                held.let_in = NONE;
                self.openings.push((index, place));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_engine::knobs::Knobs;
    use plimsoll_load::BurnConfig;

    use crate::scenario::{Group, Machine, Scenario, Workload};

    use super::*;

    /// How often a task was queued or held for an event, of 4,000 burners on
    /// eight CPUs, when all of them have been held once.
    fn moves_per_event(knobs: &str) -> f64 {
        let burn = Workload::Burn(BurnConfig {
            burners: 4_000,
            ..BurnConfig::default()
        });
        let group = Group {
            name: "g".into(),
            knobs: serde_json::from_str::<Knobs>(knobs).unwrap(),
            workloads: vec![burn],
        };
        let scenario = Scenario {
            about: String::new(),
            machine: Machine {
                cpus_per_llc: 4,
                ..Machine::of_cpus(8)
            },
            groups: vec![group],
            duration_ns: 3_000_000_000,
            warmup_ns: 0,
            seed: 1,
        };
        let mut host = Host::new(&scenario).unwrap();
        host.run_until(500_000_000);
        let (events, tickets) = (host.events(), host.next_ticket);
        host.run_until(u64::MAX);
        let events = host.events() - events;
        assert!(events > 1_000, "{events}");
        f64::from(host.next_ticket - tickets) / events as f64
    }

    #[test]
    fn a_group_of_many_tasks_costs_no_more_than_those_that_run() {
        for knobs in [
            r#"{"quota": "2cpus"}"#,
            r#"{"quota": "20ms/10ms", "class": "batch"}"#,
            r#"{"class": "batch", "cpu-limit": "30%"}"#,
            r#"{"cap": "200%"}"#,
        ] {
            let moves = moves_per_event(knobs);
            assert!(moves < 4.0, "{knobs}: {moves} moves for an event");
        }
    }
}
