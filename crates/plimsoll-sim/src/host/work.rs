//! Next steps of the tasks of a workload.

use super::clock::work_of_ns;
use super::engine::Host;
use super::observe::Observer;
use super::task::{OwnCap, Role};
use super::workload::{Kind, WAKE_NS};

/// The next step of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It has work.
    Work,
    SleepUntil(u64),
    /// It waits to be woken.
    Block,
    /// It has ended.
    End,
}

impl<O: Observer> Host<O> {
    /// First step of a task.
    pub(super) fn first_step(&mut self, task: u32) -> Step {
        let work = self.tasks[task as usize].workload as usize;
        match (self.tasks[task as usize].role, &mut self.works[work].kind) {
            (Role::Worker { .. }, Kind::Service(service)) => {
                service.free.push(task);
                Step::Block
            }
            (Role::Steady { .. }, _) => self.steady_step(task),
            (Role::Sleeper { due_ns }, _) => Step::SleepUntil(due_ns),
            _ => Step::Work,
        }
    }

    /// Next step of a task whose sleep is over.
    pub(super) fn due_step(&mut self, task: u32) -> Step {
        match self.tasks[task as usize].role {
            Role::Worker { .. } => self.serve_next(task),
            Role::Steady { .. } => self.steady_step(task),
            _ => Step::Work,
        }
    }

    /// Next step of a task that has done its work.
    pub(super) fn next_step(&mut self, task: u32) -> Step {
        let now_ns = self.clock.now_ns;
        let work = self.tasks[task as usize].workload as usize;
        match (self.tasks[task as usize].role, &mut self.works[work].kind) {
            (Role::Worker { arrived_ns }, Kind::Service(service)) => {
                service.answer(arrived_ns, now_ns);
                let step = self.serve_next(task);
                if step == Step::Block
                    && let Kind::Service(service) = &mut self.works[work].kind
                {
                    service.free.push(task);
                }
                step
            }
            (Role::Process, Kind::Storm { .. }) => self.process_ends(task),
            (
                Role::Need,
                Kind::Need {
                    unfinished,
                    ended_ns,
                },
            ) => {
                *unfinished -= 1;
                *ended_ns = now_ns;
                Step::End
            }
            (Role::Steady { .. }, _) => self.steady_step(task),
            (Role::Sleeper { due_ns }, Kind::Wake { .. }) => self.sleeper_step(task, due_ns),
            _ => Step::End,
        }
    }

    /// The worker takes the request that has waited longest.
    fn serve_next(&mut self, task: u32) -> Step {
        let own = &mut self.tasks[task as usize];
        let Kind::Service(service) = &mut self.works[own.workload as usize].kind else {
            return Step::End;
        };
        let Some(request) = service.queue.pop_front() else {
            return Step::Block;
        };
        own.role = Role::Worker {
            arrived_ns: request.intended_ns,
        };
        own.left = work_of_ns(request.demand_ns);
        Step::Work
    }

    /// A thread of a steady load continues with its next grain.
    fn steady_step(&mut self, task: u32) -> Step {
        let now_ns = self.clock.now_ns;
        let own = &mut self.tasks[task as usize];
        let Role::Steady { lane, given_ns } = &mut own.role else {
            return Step::End;
        };
        let Kind::Steady { paces } = &mut self.works[own.workload as usize].kind else {
            return Step::End;
        };
        let Some(step) = paces[*lane as usize].next_step(now_ns, *given_ns) else {
            return Step::End;
        };
        if step.target_ns > *given_ns {
            own.left = work_of_ns(step.target_ns - *given_ns);
            *given_ns = step.target_ns;
            return Step::Work;
        }
        Step::SleepUntil(step.until_ns)
    }

    /// Replaces a process of a storm that has ended by a new one, with a bucket
    /// of its own if caps are per task.
    fn process_ends(&mut self, task: u32) -> Step {
        let now_ns = self.clock.now_ns;
        let own = &mut self.tasks[task as usize];
        let Kind::Storm {
            left,
            each_ns,
            nr_ended,
            ended_ns,
            unfinished,
        } = &mut self.works[own.workload as usize].kind
        else {
            return Step::End;
        };
        *ended_ns = now_ns;
        *nr_ended += 1;
        if *left == 0 {
            *unfinished -= 1;
            return Step::End;
        }
        *left -= 1;
        own.left = work_of_ns(*each_ns);
        own.number = self.next_number;
        self.next_number += 1;
        let caps = self.groups[own.group as usize].task_caps;
        let is_rated = own.own.as_ref().is_some_and(|cap| cap.is_rated);
        own.own = caps.and_then(|params| OwnCap::new(params, now_ns));
        if let Some(cap) = &mut own.own {
            cap.is_rated = is_rated;
        }
        own.background = own
            .own
            .as_ref()
            .is_some_and(|cap| cap.bucket.is_background());
        // The new process starts on the CPU and at the virtual runtime of its
        // parent, which forked it there.
        Step::Work
    }

    fn sleeper_step(&mut self, task: u32, due_ns: u64) -> Step {
        let now_ns = self.clock.now_ns;
        let own = &mut self.tasks[task as usize];
        let Kind::Wake {
            every_ns,
            late,
            from_ns,
        } = &mut self.works[own.workload as usize].kind
        else {
            return Step::End;
        };
        if due_ns >= *from_ns {
            late.add((now_ns - due_ns).saturating_sub(WAKE_NS));
        }
        let next_ns = due_ns + *every_ns;
        own.role = Role::Sleeper { due_ns: next_ns };
        own.left = work_of_ns(WAKE_NS);
        if next_ns <= now_ns {
            return Step::Work;
        }
        Step::SleepUntil(next_ns)
    }
}
