//! Property tests of the order of tasks, against the promises of SPEC and an
//! exact account of service.

mod calls;

use proptest::prelude::*;

use self::calls::{PART_WHOLE, REQUEST_MAX_NS, Task, WEIGHT_UNIT};
use crate::NSEC_PER_MSEC as MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep { until_ns: u64, since_ns: u64 },
    Waits { since_ns: u64, bound_ns: u64 },
    Runs,
}

/// One task: `burst_ns` of run time, then a sleep of `sleep_ns` (0: never).
#[derive(Clone, Copy, Debug)]
struct Demand {
    nice: i32,
    burst_ns: u64,
    sleep_ns: u64,
}

fn any_demand() -> impl Strategy<Value = Demand> {
    let burst_ns = (1..400u64).prop_map(|tens| tens * 10_000);
    let sleep_ns = prop_oneof![Just(0), (1..2_000u64).prop_map(|tens| tens * 10_000)];
    (-20..20, burst_ns, sleep_ns).prop_map(|(nice, burst_ns, sleep_ns)| Demand {
        nice,
        burst_ns,
        sleep_ns,
    })
}

struct Member {
    demand: Demand,
    effective: u64,
    part: u32,
    order: Task,
    state: State,
    left_of_burst_ns: u64,
    ran_ns: u64,
}

/// One queue and the CPUs that serve it.
struct Machine {
    now_ns: u64,
    clock: u64,
    members: Vec<Member>,
    running: Vec<Option<usize>>,
}

impl Machine {
    /// All are in one group, and never out of its load.
    fn new(demands: &[Demand], nr_cpus: usize) -> Self {
        let clock = u64::MAX - 1_000;
        let weights = demands.iter().map(|demand| calls::nice_weight(demand.nice));
        let load: u64 = weights.map(u64::from).sum();
        let part_of = |weight| calls::part(PART_WHOLE, weight, demands.len() as u32, load);
        let member = |demand: &Demand| Member {
            demand: *demand,
            effective: u64::from(calls::nice_weight(demand.nice)) * (WEIGHT_UNIT / 1024),
            part: part_of(calls::nice_weight(demand.nice)),
            order: Task::new(clock),
            state: State::Asleep {
                until_ns: 0,
                since_ns: 0,
            },
            left_of_burst_ns: demand.burst_ns,
            ran_ns: 0,
        };
        Self {
            now_ns: 0,
            clock,
            members: demands.iter().map(member).collect(),
            running: vec![None; nr_cpus],
        }
    }

    /// SPEC 2, "Order inside": the longest wait of a task without debt, in time of the queue's
    /// CPUs. A task with debt waits until the others have had as much, too.
    fn bound_ns(&self, task: usize) -> u64 {
        let member = &self.members[task];
        let all: u64 = self.members.iter().map(|other| other.effective).sum();
        let requests = self.members.len() as u64 * REQUEST_MAX_NS;
        let virtual_ns = member.order.deadline().wrapping_sub(self.clock);
        let of_share = u128::from(virtual_ns) * u128::from(all) / u128::from(WEIGHT_UNIT);
        let of_share = u64::try_from(of_share).unwrap_or(u64::MAX / 2);
        (of_share + requests) / self.running.len() as u64 + REQUEST_MAX_NS
    }

    fn begin_to_wait(&mut self, task: usize) {
        let bound_ns = self.bound_ns(task);
        self.members[task].state = State::Waits {
            since_ns: self.now_ns,
            bound_ns,
        };
    }

    fn wake(&mut self) {
        for task in 0..self.members.len() {
            let (now_ns, clock) = (self.now_ns, self.clock);
            let member = &mut self.members[task];
            let State::Asleep { until_ns, since_ns } = member.state else {
                continue;
            };
            if until_ns > now_ns {
                continue;
            }
            let floor = clock.wrapping_sub(1 << 58);
            member.order.wake(
                clock,
                floor,
                now_ns - since_ns,
                member.effective,
                member.part,
            );
            self.begin_to_wait(task);
            self.preempt_for(task);
        }
    }

    /// Preempts as the scheduler does: of the running tasks, the one with the latest deadline.
    fn preempt_for(&mut self, task: usize) {
        if self.running.contains(&None) {
            return;
        }
        let running = self.running.iter().flatten().copied();
        let latest = running.reduce(|a, b| {
            let (of_a, of_b) = (&self.members[a].order, &self.members[b].order);
            if calls::before(of_a.deadline(), of_b.deadline()) {
                b
            } else {
                a
            }
        });
        let Some(victim) = latest else { return };
        if calls::preempts(&self.members[task].order, &self.members[victim].order) {
            self.stop(victim);
        }
    }

    /// Takes a task off its CPU, back into the queue.
    fn stop(&mut self, task: usize) {
        let cpu = self.running.iter().position(|of| *of == Some(task));
        self.running[cpu.expect("it runs")] = None;
        let (clock, member) = (self.clock, &mut self.members[task]);
        member.order.requeue(clock, member.effective, member.part);
        self.begin_to_wait(task);
    }

    fn first(&self) -> Option<usize> {
        let waits = |task: &usize| matches!(self.members[*task].state, State::Waits { .. });
        (0..self.members.len()).filter(waits).reduce(|a, b| {
            let (of_a, of_b) = (&self.members[a].order, &self.members[b].order);
            if calls::before(of_b.deadline(), of_a.deadline()) {
                b
            } else {
                a
            }
        })
    }

    fn pick(&mut self) -> Result<(), TestCaseError> {
        for cpu in 0..self.running.len() {
            if self.running[cpu].is_some() {
                continue;
            }
            let Some(task) = self.first() else { break };
            let member = &mut self.members[task];
            if let State::Waits { since_ns, bound_ns } = member.state {
                let waited_ns = self.now_ns - since_ns;
                prop_assert!(waited_ns <= bound_ns, "waited {waited_ns}, {bound_ns}");
            }
            self.clock = calls::picked(self.clock, member.order.start());
            member.state = State::Runs;
            self.running[cpu] = Some(task);
        }
        Ok(())
    }

    /// Lets time pass up to the next event: a wake-up, or the end of a burst or request.
    fn run(&mut self) {
        let mut step_ns = u64::MAX;
        for member in &self.members {
            step_ns = step_ns.min(match member.state {
                State::Asleep { until_ns, .. } => until_ns - self.now_ns,
                State::Waits { .. } => u64::MAX,
                State::Runs => member
                    .left_of_burst_ns
                    .min(member.order.left_ns(member.effective).max(1)),
            });
        }
        self.now_ns += step_ns;
        for cpu in 0..self.running.len() {
            let Some(task) = self.running[cpu] else {
                continue;
            };
            let (now_ns, clock) = (self.now_ns, self.clock);
            let member = &mut self.members[task];
            member.order.charge(step_ns, member.effective);
            member.ran_ns += step_ns;
            member.left_of_burst_ns -= step_ns;
            let is_over = member.left_of_burst_ns == 0;
            if is_over {
                member.left_of_burst_ns = member.demand.burst_ns;
            }
            if is_over && member.demand.sleep_ns > 0 {
                self.running[cpu] = None;
                member.order.block(clock);
                member.state = State::Asleep {
                    until_ns: now_ns + member.demand.sleep_ns,
                    since_ns: now_ns,
                };
            } else if member.order.left_ns(member.effective) == 0 {
                self.stop(task);
            }
        }
    }

    fn run_for(&mut self, until_ns: u64) -> Result<(), TestCaseError> {
        while self.now_ns < until_ns {
            self.wake();
            self.pick()?;
            self.run();
        }
        Ok(())
    }

    /// Service so far, of a task of the unit's weight.
    fn service(&self, task: usize) -> u128 {
        let member = &self.members[task];
        u128::from(member.ran_ns) * u128::from(WEIGHT_UNIT) / u128::from(member.effective)
    }

    /// A request of this task, as virtual time.
    fn request(&self, task: usize) -> u128 {
        u128::from(calls::delta(REQUEST_MAX_NS, self.members[task].effective))
    }
}

proptest! {
    #[test]
    fn no_task_waits_longer_than_promised(
        demands in prop::collection::vec(any_demand(), 2..12),
        nr_cpus in 1..4usize,
    ) {
        let mut machine = Machine::new(&demands, nr_cpus);
        machine.run_for(500 * MS)?;
    }

    /// On one CPU, where every weight is feasible, tasks that never sleep share exactly by
    /// weight, and a task that sleeps gets no more than they do.
    #[test]
    fn service_is_by_weight_within_two_requests(
        demands in prop::collection::vec(any_demand(), 2..12),
    ) {
        let mut machine = Machine::new(&demands, 1);
        machine.run_for(1_000 * MS)?;
        for one in 0..demands.len() {
            for other in 0..demands.len() {
                let (of_one, of_other) = (machine.service(one), machine.service(other));
                let slack = 2 * (machine.request(one) + machine.request(other));
                if demands[one].sleep_ns == 0 {
                    prop_assert!(
                        of_other <= of_one + slack,
                        "{:?} got {of_other}, {:?} only {of_one}", demands[other], demands[one]
                    );
                }
            }
        }
    }

    #[test]
    fn virtual_time_is_the_exact_quotient_rounded_up(ran_ns: u32, effective in 1..1u64 << 27) {
        let exact = (u128::from(ran_ns) << 20).div_ceil(u128::from(effective));
        prop_assert_eq!(u128::from(calls::delta(ran_ns.into(), effective)), exact);
    }
}

#[test]
fn a_service_preempts_a_burner_and_equals_do_not() {
    let mut machine = Machine::new(
        &[
            Demand {
                nice: 0,
                burst_ns: 300_000,
                sleep_ns: 2 * MS,
            },
            Demand {
                nice: 0,
                burst_ns: MS,
                sleep_ns: 0,
            },
        ],
        1,
    );
    machine.run_for(100 * MS).expect("the bound holds");
    let [service, burner] = [0, 1].map(|task| machine.members[task].order.request_ns());
    assert!(service <= 400_000, "{service}");
    assert_eq!(burner, REQUEST_MAX_NS);
    // Woken every 2.3 ms or so, it has all that it asked for: 300 µs each time.
    let ran_ns = machine.members[0].ran_ns;
    assert!(ran_ns >= 12 * MS, "{ran_ns}");
}

/// One CPU, a task that never sleeps, and a group of the same weight of which one task
/// runs `burst_ns`, wakes the next and sleeps. Returns the time of each after `total_ns`.
fn ran_beside_tasks_in_turn(nr_tasks: usize, burst_ns: u64, total_ns: u64) -> [u64; 2] {
    let (mut clock, mut group_clock) = (0, 0);
    let mut alone = Task::new(clock);
    let mut tasks = vec![Task::new(clock); nr_tasks];
    let (mut ran_ns, mut of_group_ns, mut turn) = (0, 0, 0);
    alone.wake(clock, clock, 0, WEIGHT_UNIT, PART_WHOLE);
    tasks[turn].wake(clock, clock, 0, WEIGHT_UNIT, PART_WHOLE);
    while ran_ns + of_group_ns < total_ns {
        if calls::before(alone.deadline(), tasks[turn].deadline()) {
            clock = calls::picked(clock, alone.start());
            let run_ns = alone.left_ns(WEIGHT_UNIT);
            alone.charge(run_ns, WEIGHT_UNIT);
            alone.requeue(clock, WEIGHT_UNIT, PART_WHOLE);
            ran_ns += run_ns;
            continue;
        }
        clock = calls::picked(clock, tasks[turn].start());
        tasks[turn].charge(burst_ns, WEIGHT_UNIT);
        group_clock = calls::group_clock(group_clock, clock)
            .wrapping_add(calls::delta(burst_ns, WEIGHT_UNIT));
        tasks[turn].block(clock);
        of_group_ns += burst_ns;
        turn = (turn + 1) % nr_tasks;
        let floor = tasks[turn].group_floor(group_clock, WEIGHT_UNIT);
        tasks[turn].wake(clock, floor, MS, WEIGHT_UNIT, PART_WHOLE);
    }
    [ran_ns, of_group_ns]
}

proptest! {
    #[test]
    fn tasks_that_wake_in_turn_have_the_share_of_their_group(
        nr_tasks in 1..100usize,
        burst_ns in 1_000..3 * MS,
    ) {
        let [alone_ns, of_group_ns] = ran_beside_tasks_in_turn(nr_tasks, burst_ns, 2_000 * MS);
        // A request of each, and one that had begun.
        let most_ns = 3 * REQUEST_MAX_NS + burst_ns;
        prop_assert!(alone_ns.abs_diff(of_group_ns) <= most_ns, "{alone_ns} {of_group_ns}");
    }
}

/// One CPU, a task that never sleeps, and a group of the same weight, in which are a light task
/// and one that weighs `heavier` times as much and is throttled for a half of each period. Returns
/// the run time of the light one, and that of an exact division by weights.
fn ran_beside_a_throttled_one(heavier: u32, period_ns: u64, total_ns: u64) -> [u64; 2] {
    let (mut clock, mut now_ns, mut is_throttled) = (0, 0, true);
    let mut tasks = [Task::new(clock); 3];
    let (mut light_ns, mut exact_ns) = (0, 0);
    let effective_of = |task: usize, is_throttled: bool| match task {
        0 => WEIGHT_UNIT,
        1 if is_throttled => WEIGHT_UNIT,
        1 => WEIGHT_UNIT / u64::from(1 + heavier),
        _ => WEIGHT_UNIT * u64::from(heavier) / u64::from(1 + heavier),
    };
    let part_of = |task: usize, is_throttled: bool| match task {
        1 if !is_throttled => calls::part(PART_WHOLE, 1, 2, u64::from(1 + heavier)),
        _ => PART_WHOLE,
    };
    for task in &mut tasks {
        task.wake(clock, clock, 0, WEIGHT_UNIT, PART_WHOLE);
    }
    while now_ns < total_ns {
        if is_throttled != ((now_ns / (period_ns / 2)) % 2 == 1) {
            is_throttled = !is_throttled;
            if is_throttled {
                tasks[2].block(clock);
            } else {
                let part = part_of(2, false);
                tasks[2].wake(
                    clock,
                    clock.wrapping_sub(1 << 58),
                    MS,
                    effective_of(2, false),
                    part,
                );
            }
        }
        let nr_tasks = if is_throttled { 2 } else { 3 };
        let first = (0..nr_tasks).reduce(|a, b| {
            match calls::before(tasks[b].deadline(), tasks[a].deadline()) {
                true => b,
                false => a,
            }
        });
        let task = first.expect("two at least");
        let effective = effective_of(task, is_throttled);
        clock = calls::picked(clock, tasks[task].start());
        let run_ns = tasks[task].left_ns(effective).max(1);
        tasks[task].charge(run_ns, effective);
        tasks[task].requeue(clock, effective, part_of(task, is_throttled));
        let half = effective_of(1, is_throttled) * run_ns / WEIGHT_UNIT / 2;
        (now_ns, exact_ns) = (now_ns + run_ns, exact_ns + half);
        light_ns += if task == 1 { run_ns } else { 0 };
    }
    [light_ns, exact_ns]
}

#[test]
fn a_light_task_has_the_share_that_a_throttled_one_leaves() {
    for heavier in [1, 2, 5, 10, 20, 50, 100] {
        for period_ns in [50 * MS, 100 * MS, 200 * MS] {
            let [light_ns, exact_ns] = ran_beside_a_throttled_one(heavier, period_ns, 10_000 * MS);
            // A request in each period. With whole requests it gets a tenth to a quarter of its
            // share where the other weighs 50 times as much.
            let most_ns = 10_000 * MS / period_ns * REQUEST_MAX_NS;
            assert!(
                light_ns.abs_diff(exact_ns) <= most_ns,
                "{heavier} times as heavy, {period_ns} ns: {light_ns}, of {exact_ns}"
            );
        }
    }
}
