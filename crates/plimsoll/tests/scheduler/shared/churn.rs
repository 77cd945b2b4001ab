//! Random knobs, tasks and changes by others, at once: nothing stands still and nothing is left.
//!
//! `PLIMSOLL_ROUNDS` says how many changes are made, `PLIMSOLL_SEED` repeats them; not their
//! timing, which is the machine's.

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks;

use crate::common::chance::Chance;
use crate::common::{
    Offline, Running, bind, chance, has_processes, max, nr_cpus, tasks_below, wait_until,
};
use crate::daemon_rig::{kill_all, remove_group, shown};
use crate::rig::{Rig, all_cpus};
use crate::shared::with_command;

const ROUNDS_VARIABLE: &str = "PLIMSOLL_ROUNDS";
/// Changes in the gate.
const ROUNDS: u64 = 30;
/// Groups at a time, and loads in each.
const GROUPS: u64 = 5;
const LOADS_MAX: usize = 2;

/// The smallest and the largest that each knob takes, and what they do together.
const KNOBS: [&str; 16] = [
    "--class batch",
    "--class batch --weight 1",
    "--class batch --weight 10000 --nice 19",
    "--class batch --quota 1ms/1s",
    "--class batch --quota 2s/1s --burst 2s",
    "--class batch --quota 1ms/1ms --cap 1% --soft-cap 0%",
    "--class batch --headroom 100% --tolerance 0",
    "--class batch --headroom 1cpus --tolerance 1s/1s",
    "--quota 1ms/1s --burst 1s",
    "--quota 1ms/10ms --weight 1",
    "--cap 1%",
    "--cap 1% --per-task",
    "--cap 10000% --nice -20",
    "--class batch --cpu-limit 1%",
    "--soft-cap 0% --half-life 50ms",
    "--soft-cap 1% --half-life 60s --per-task",
];
const LOADS: [&str; 4] = [
    "burn --threads 1 --duration 80000s",
    "burn --threads 5 --duration 80000s",
    "storm --processes 1000000 --parallel 4 --cpu-each 500us",
    "steady --percent 20 --duration 80000s",
];
const POLICIES: [i32; 3] = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
/// Quotas that others set on a cgroup below a group.
const QUOTAS: [&str; 4] = ["max", "1ms/100ms", "1ms/1s", "500ms/100ms"];

/// A cgroup that is limited, with what runs there.
struct Group {
    cgroup: CpuGroup,
    below: CpuGroup,
    loads: Vec<Running>,
}

struct Churn<'r> {
    rig: &'r Rig,
    chance: Chance,
    groups: Vec<Option<Group>>,
    offline: Option<Offline>,
}

impl Churn<'_> {
    fn set(&mut self, cgroup: &CpuGroup) {
        let knobs = self.chance.pick(&KNOBS).unwrap();
        let path = shown(cgroup);
        let mut words = vec!["set", &path, "--enforcer", "sched-ext"];
        words.extend(knobs.split_whitespace());
        self.rig.host.run(words).good();
    }

    fn begin(&mut self, index: usize) {
        let cgroup = self.rig.host.base().child(format!("churn-{index}"));
        cgroup.create().unwrap();
        self.set(&cgroup);
        self.groups[index] = Some(Group {
            below: cgroup.child("below"),
            cgroup,
            loads: Vec::new(),
        });
    }

    fn end(&mut self, index: usize) {
        let Some(group) = self.groups[index].take() else {
            return;
        };
        // The owner would set the next cgroup of that name, too.
        self.rig.reset(&group.cgroup);
        // Also those that a storm has just started.
        wait_until("the group is empty", || {
            kill_all(&group.cgroup.all_processes().unwrap());
            !has_processes(&group.cgroup)
        });
        group.loads.into_iter().for_each(Running::kill_hard);
        if group.below.exists() {
            remove_group(&group.below);
        }
        remove_group(&group.cgroup);
    }

    fn start_load(&mut self, index: usize) {
        let load = self.chance.pick(&LOADS).unwrap();
        let cpus = 1 + self.chance.below(all_cpus());
        let Some(group) = &mut self.groups[index] else {
            return;
        };
        if group.loads.len() < LOADS_MAX {
            let place = match group.below.exists() {
                true => &group.below,
                false => &group.cgroup,
            };
            let load = self.rig.fair_load(place, cpus, load);
            group.loads.push(load);
        }
    }

    /// Changes a task from outside, or stops and continues it. It may end meanwhile.
    fn disturb(&mut self, index: usize) {
        let Some(group) = &self.groups[index] else {
            return;
        };
        let tids = tasks_below(&group.cgroup);
        if tids.is_empty() {
            return;
        }
        let tid = self.chance.pick(&tids).unwrap();
        match self.chance.below(4) {
            0 => drop(bind(tid, [self.chance.below(nr_cpus() as u64) as usize])),
            1 => drop(tasks::set_nice(tid, self.chance.below(40) as i32 - 20)),
            2 => drop(tasks::set_policy(tid, self.chance.pick(&POLICIES).unwrap())),
            _ => {
                for load in &group.loads {
                    load.send(Signal::SIGSTOP);
                    load.send(Signal::SIGCONT);
                }
            }
        }
    }

    /// Has others make a cgroup with limits of its own below a group and move all tasks there, or
    /// take that cgroup away again.
    fn nest(&mut self, index: usize) {
        let quota = self.chance.pick(&QUOTAS).unwrap();
        let weight = self.chance.pick(&[1, 100, 10_000]).unwrap();
        let is_idle = self.chance.below(100) < 30;
        let Some(Group { cgroup, below, .. }) = &self.groups[index] else {
            return;
        };
        if below.exists() {
            cgroup.disable_children().unwrap();
            move_all(below, cgroup);
            remove_group(below);
            return;
        }
        below.create().unwrap();
        // A load that has just been started may come between.
        wait_until("no process is left above", || {
            move_all(cgroup, below);
            cgroup.enable_children().is_ok()
        });
        below.write_cpu_max(&max(quota)).unwrap();
        below.write_weight(weight).unwrap();
        below.write_idle(is_idle).unwrap();
    }

    fn toggle_cpu(&mut self) {
        let cpu = nr_cpus() - 1;
        match self.offline.take() {
            Some(offline) => drop(offline),
            None if cpu > 0 => {
                self.offline = Some(Offline::take(cpu));
            }
            None => (),
        }
    }

    fn change_something(&mut self) {
        let index = self.chance.below(GROUPS) as usize;
        if self.groups[index].is_none() {
            return self.begin(index);
        }
        match self.chance.below(100) {
            0..35 => self.start_load(index),
            35..65 => self.disturb(index),
            65..80 => self.nest(index),
            80..90 => {
                let cgroup = self.groups[index]
                    .as_ref()
                    .map(|group| group.cgroup.clone());
                cgroup.iter().for_each(|cgroup| self.set(cgroup));
            }
            90..93 => self.toggle_cpu(),
            _ => self.end(index),
        }
    }
}

/// Moves all processes, those that start meanwhile included.
fn move_all(from: &CpuGroup, to: &CpuGroup) {
    wait_until("all have moved", || {
        let left = from.processes().unwrap();
        // One may have ended.
        left.iter().for_each(|pid| drop(to.add_process(*pid)));
        left.is_empty()
    });
}

#[test]
fn nothing_is_lost_or_left_under_random_knobs_tasks_and_changes() {
    let rig = with_command();
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |text| text.parse().unwrap());
    let mut churn = Churn {
        rig: &rig,
        chance: chance("churn"),
        groups: (0..GROUPS).map(|_| None).collect(),
        offline: None,
    };
    for _ in 0..rounds {
        churn.change_something();
        rig.assert_never_ejected();
    }
    for index in 0..churn.groups.len() {
        churn.end(index);
    }
    churn.offline.take();
}
