//! Property tests of the order of tasks, against the promises of SPEC and an
//! exact account of service.

mod calls;

use std::mem;

use proptest::prelude::*;

use self::calls::{PART_WHOLE, REQUEST_MAX_NS, Task, WEIGHT_UNIT};
use crate::NSEC_PER_MSEC as MS;

/// How far the clock of a CPU may be behind that of its LLC, as in order.bpf.h.
const BEHIND_MAX_NS: u64 = 4 * REQUEST_MAX_NS;
const NR_TIERS: usize = 2;
/// A stay until a run ends.
const RUN: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep { until_ns: u64, since_ns: u64 },
    Waits { since_ns: u64, bound_ns: u64 },
    Runs,
}

/// One task: `burst_ns` of run time, then a sleep of `sleep_ns` (0: never).
#[derive(Clone, Debug)]
struct Demand {
    nice: i32,
    burst_ns: u64,
    sleep_ns: u64,
    /// Places, at each of which it stays for `stay_ns`, in turn.
    route: Vec<usize>,
    stay_ns: u64,
}

/// A task that stays at the first place.
fn demand(nice: i32, burst_ns: u64, sleep_ns: u64) -> Demand {
    Demand {
        nice,
        burst_ns,
        sleep_ns,
        route: vec![0],
        stay_ns: RUN,
    }
}

fn any_demand() -> impl Strategy<Value = Demand> {
    let burst_ns = (1..400u64).prop_map(|tens| tens * 10_000);
    let sleep_ns = prop_oneof![Just(0), (1..2_000u64).prop_map(|tens| tens * 10_000)];
    let nice = prop_oneof![-20..20, -3..4];
    (nice, burst_ns, sleep_ns).prop_map(|(nice, burst, sleep)| demand(nice, burst, sleep))
}

/// Tasks of up to `most` places, more often those of LLCs; the LLCs; and all CPUs.
fn any_machine(
    per_llc: usize,
    nr_tiers: usize,
    most: usize,
) -> impl Strategy<Value = (Vec<Demand>, usize, usize)> {
    (1..4usize, 1..=per_llc).prop_flat_map(move |(nr_llcs, per_llc)| {
        let nr_cpus = nr_llcs * per_llc;
        let place = prop_oneof![0..nr_llcs, 0..nr_tiers * (nr_llcs + nr_cpus)];
        let stay_ns = prop_oneof![Just(RUN), 10_000..20 * MS];
        let demand = (
            any_demand(),
            prop::collection::vec(place, 1..=most),
            stay_ns,
        );
        let demand = demand.prop_map(|(demand, route, stay_ns)| Demand {
            route,
            stay_ns,
            ..demand
        });
        (
            prop::collection::vec(demand, 4..16),
            Just(nr_llcs),
            Just(nr_cpus),
        )
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
    /// Since a move cost it a request.
    has_run: bool,
    /// Place by whose clock its order is.
    place: usize,
    nr_moves: usize,
    moves_at_ns: u64,
    /// Virtual time that has passed by the clocks of its places while it was there: its part.
    passed: u128,
}

impl Member {
    /// The place at which it may run now.
    fn home(&self) -> usize {
        self.demand.route[self.nr_moves % self.demand.route.len()]
    }
}

/// LLCs of as many CPUs each. In each tier there is a place for each LLC, and behind them one for
/// each CPU, of the tasks that are bound to it.
struct Machine {
    now_ns: u64,
    nr_llcs: usize,
    clocks: Vec<u64>,
    /// From the clock of each place to that of its LLC.
    shifts: Vec<u64>,
    members: Vec<Member>,
    running: Vec<Option<usize>>,
}

impl Machine {
    /// All are in one group, and never out of its load.
    fn new(demands: &[Demand], nr_llcs: usize, nr_cpus: usize) -> Self {
        let clock = u64::MAX - 1_000;
        let weights = demands.iter().map(|demand| calls::nice_weight(demand.nice));
        let load: u64 = weights.map(u64::from).sum();
        let part_of = |weight| calls::part(PART_WHOLE, weight, demands.len() as u32, load);
        let member = |demand: &Demand| Member {
            demand: demand.clone(),
            effective: u64::from(calls::nice_weight(demand.nice)) * (WEIGHT_UNIT / 1024),
            part: part_of(calls::nice_weight(demand.nice)),
            order: Task::new(clock),
            state: State::Asleep {
                until_ns: 0,
                since_ns: 0,
            },
            left_of_burst_ns: demand.burst_ns,
            ran_ns: 0,
            has_run: false,
            place: demand.route[0],
            nr_moves: 0,
            moves_at_ns: demand.stay_ns,
            passed: 0,
        };
        let nr_places = NR_TIERS * (nr_llcs + nr_cpus);
        Self {
            now_ns: 0,
            nr_llcs,
            clocks: vec![clock; nr_places],
            shifts: vec![0; nr_places],
            members: demands.iter().map(member).collect(),
            running: vec![None; nr_cpus],
        }
    }

    fn tier_of(&self, place: usize) -> usize {
        place / (self.nr_llcs + self.running.len())
    }

    /// The places of a CPU and of its LLC, in a tier.
    fn places_of(&self, cpu: usize, tier: usize) -> [usize; 2] {
        let first = tier * (self.nr_llcs + self.running.len());
        let llc = cpu * self.nr_llcs / self.running.len();
        [first + self.nr_llcs + cpu, first + llc]
    }

    /// The CPUs that serve a place.
    fn cpus_of(&self, place: usize) -> Vec<usize> {
        let serves = |cpu: &usize| self.places_of(*cpu, self.tier_of(place)).contains(&place);
        (0..self.running.len()).filter(serves).collect()
    }

    /// The order of a task as its LLC compares it.
    fn shared(&self, task: usize) -> Task {
        let mut order = self.members[task].order;
        order.move_to(0, self.shifts[self.members[task].place]);
        order
    }

    /// Whether a task comes before another one.
    fn precedes(&self, a: usize, b: usize) -> bool {
        let [tier, other] = [a, b].map(|task| self.tier_of(self.members[task].place));
        let [of_a, of_b] = [a, b].map(|task| self.shared(task).deadline());
        tier < other || (tier == other && calls::before(of_a, of_b))
    }

    /// Tasks that wait at a place.
    fn waiting(&self, place: usize) -> impl Iterator<Item = usize> {
        let waits = move |task: &usize| {
            let member = &self.members[*task];
            member.place == place && matches!(member.state, State::Waits { .. })
        };
        (0..self.members.len()).filter(waits)
    }

    /// The clock of a place goes forward to a virtual time, unless it is there already.
    fn passes(&mut self, place: usize, until: u64) {
        let clock = calls::picked(self.clocks[place], until);
        let passed = clock.wrapping_sub(self.clocks[place]);
        self.clocks[place] = clock;
        for member in &mut self.members {
            member.passed += u128::from(if member.place == place { passed } else { 0 });
        }
    }

    /// SPEC 2, "Order inside": the longest wait of a task of the first tier without debt, in time of
    /// its CPUs, among tasks that do not move. One with debt waits until the others have had as much,
    /// too. Those of a place with an earlier clock have that much more before them, and one more of
    /// their requests may begin before the shift follows.
    fn bound_ns(&self, task: usize) -> u64 {
        let (order, place) = (&self.members[task].order, self.members[task].place);
        let cpus = self.cpus_of(place);
        let is_near = |at: &usize| cpus.iter().any(|cpu| self.places_of(*cpu, 0).contains(at));
        let is_other = |other: &&Member| other.demand.route.iter().any(is_near);
        let others: Vec<_> = self.members.iter().filter(is_other).collect();
        if self.tier_of(place) > 0 || others.iter().any(|other| other.demand.route.len() > 1) {
            return u64::MAX;
        }
        let shared_clock = |at: usize| self.clocks[at].wrapping_add(self.shifts[at]);
        let most_ns = (place < self.nr_llcs).then_some(BEHIND_MAX_NS);
        let of_share = |other: &&Member| {
            let clock = shared_clock(other.place);
            let apart_ns = calls::picked(clock, shared_clock(place)).wrapping_sub(clock);
            let ahead_ns = order.deadline().wrapping_sub(self.clocks[place]);
            u128::from(ahead_ns + apart_ns.min(most_ns.unwrap_or(apart_ns)))
                * u128::from(other.effective)
        };
        let of_share: u128 = others.iter().map(of_share).sum();
        let of_share = u64::try_from(of_share / u128::from(WEIGHT_UNIT)).unwrap_or(u64::MAX / 2);
        let requests = others.len() as u64 * REQUEST_MAX_NS;
        let any_apart = others.iter().any(|other| other.place != place);
        (of_share + requests) / cpus.len() as u64 + REQUEST_MAX_NS * (1 + u64::from(any_apart))
    }

    fn begin_to_wait(&mut self, task: usize) {
        let bound_ns = self.bound_ns(task);
        self.members[task].state = State::Waits {
            since_ns: self.now_ns,
            bound_ns,
        };
    }

    /// Brings a task to the clock of the place that it joins. Returns the clock.
    fn joins(&mut self, task: usize) -> u64 {
        let member = &self.members[task];
        let (from, to) = (member.place, member.home());
        let comes = from != to || matches!(member.state, State::Asleep { .. });
        let [own, llc] = self.places_of(self.cpus_of(to)[0], self.tier_of(to));
        let is_there = |of: &usize| self.members[*of].place == own;
        let is_empty = !self.running.iter().flatten().any(is_there);
        if to == own && comes && is_empty && self.waiting(own).next().is_none() {
            // Without bound tasks a CPU has been left behind by its LLC.
            self.passes(own, self.clocks[llc].wrapping_sub(self.shifts[own]));
        }
        let [from_clock, clock] = [from, to].map(|place| self.clocks[place]);
        let (service, changes_tier) = (self.service(task), self.tier_of(from) != self.tier_of(to));
        let member = &mut self.members[task];
        member.order.move_to(from_clock, clock);
        if from != to && !changes_tier && mem::take(&mut member.has_run) {
            member.order.leave(clock, member.effective);
        }
        member.place = to;
        if changes_tier {
            // Nor does it count here what has passed there.
            member.order.forfeit(clock);
            member.passed = member.passed.min(service);
        }
        clock
    }

    fn wake(&mut self) {
        for task in 0..self.members.len() {
            let now_ns = self.now_ns;
            let State::Asleep { until_ns, since_ns } = self.members[task].state else {
                continue;
            };
            if until_ns > now_ns {
                continue;
            }
            let clock = self.joins(task);
            let member = &mut self.members[task];
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

    /// Tasks that have stayed at a place for long enough move on.
    fn move_on(&mut self) {
        for task in 0..self.members.len() {
            let member = &mut self.members[task];
            if member.moves_at_ns > self.now_ns {
                continue;
            }
            member.moves_at_ns += member.demand.stay_ns;
            member.nr_moves += 1;
            let comes = member.home() != member.place;
            match member.state {
                State::Waits { .. } if comes => {
                    self.joins(task);
                    self.begin_to_wait(task);
                }
                State::Runs if comes => self.stop(task),
                _ => {}
            }
        }
    }

    /// Preempts as the scheduler does: of the running tasks, the last in order.
    fn preempt_for(&mut self, task: usize) {
        let cpus = self.cpus_of(self.members[task].place);
        let running: Option<Vec<_>> = cpus.iter().map(|cpu| self.running[*cpu]).collect();
        let later = |a, b| if self.precedes(a, b) { b } else { a };
        let Some(last) = running.and_then(|tasks| tasks.into_iter().reduce(later)) else {
            return;
        };
        let [tier, of_last] = [task, last].map(|task| self.tier_of(self.members[task].place));
        if tier < of_last
            || (tier == of_last && calls::preempts(&self.shared(task), &self.shared(last)))
        {
            self.stop(last);
        }
    }

    /// Takes a task off its CPU, back into the queue.
    fn stop(&mut self, task: usize) {
        let cpu = self.running.iter().position(|of| *of == Some(task));
        self.running[cpu.expect("it runs")] = None;
        let clock = self.joins(task);
        let member = &mut self.members[task];
        member.order.requeue(clock, member.effective, member.part);
        self.begin_to_wait(task);
    }

    fn first(&self, cpu: usize) -> Option<usize> {
        let places = (0..NR_TIERS).flat_map(|tier| self.places_of(cpu, tier));
        let waiting = places.flat_map(|place| self.waiting(place));
        waiting.reduce(|a, b| if self.precedes(b, a) { b } else { a })
    }

    /// A task begins to run: the clocks of its CPU and of its LLC follow.
    fn clocks_follow(&mut self, task: usize, cpu: usize) {
        let (place, start) = (self.members[task].place, self.shared(task).start());
        let [own, llc] = self.places_of(cpu, self.tier_of(place));
        self.passes(own, start.wrapping_sub(self.shifts[own]));
        let clock = self.clocks[own].wrapping_add(self.shifts[own]);
        let behind = self.clocks[llc].wrapping_sub(clock);
        if behind.cast_signed() > BEHIND_MAX_NS.cast_signed() {
            self.shifts[own] += behind - BEHIND_MAX_NS;
        }
        // While others wait for the LLC, a bound task says nothing about their turn.
        if place == llc || self.waiting(llc).next().is_none() {
            self.passes(llc, start);
        }
    }

    fn pick(&mut self) {
        for cpu in 0..self.running.len() {
            if self.running[cpu].is_some() {
                continue;
            }
            let Some(task) = self.first(cpu) else {
                continue;
            };
            self.members[task].state = State::Runs;
            self.running[cpu] = Some(task);
            self.clocks_follow(task, cpu);
        }
    }

    /// Checks the bounds, which hold at any time.
    fn check(&self) -> Result<(), TestCaseError> {
        for (task, member) in self.members.iter().enumerate() {
            let (clock, order) = (self.clocks[member.place], &member.order);
            let most_of = |run_ns| calls::delta(run_ns, member.effective);
            if let State::Waits { since_ns, bound_ns } = member.state {
                let waited_ns = self.now_ns - since_ns;
                prop_assert!(waited_ns <= bound_ns, "waited {waited_ns}, {bound_ns}");
                let least = clock.wrapping_sub(most_of(REQUEST_MAX_NS));
                let is_late = calls::before(order.deadline(), clock);
                let is_owed_more = calls::before(order.start(), least);
                prop_assert!(!is_late && !is_owed_more, "{order:?} at {clock}");
            }
            // A request ahead, which may end a nanosecond late.
            let most = member.passed + u128::from(most_of(REQUEST_MAX_NS + 1));
            let (had, demand) = (self.service(task), &member.demand);
            prop_assert!(had <= most, "{demand:?} had {had} of {most}");
        }
        Ok(())
    }

    /// Lets time pass up to the next event: a wake-up, a move, or the end of a burst or request.
    fn run(&mut self) {
        let mut step_ns = u64::MAX;
        for member in &self.members {
            step_ns = step_ns.min(member.moves_at_ns - self.now_ns);
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
            let now_ns = self.now_ns;
            let member = &mut self.members[task];
            member.order.charge(step_ns, member.effective);
            member.ran_ns += step_ns;
            member.has_run = true;
            member.left_of_burst_ns -= step_ns;
            let is_over = member.left_of_burst_ns == 0;
            if is_over {
                member.left_of_burst_ns = member.demand.burst_ns;
            }
            let sleeps = is_over && member.demand.sleep_ns > 0;
            let stops = sleeps || member.order.left_ns(member.effective) == 0;
            member.nr_moves += usize::from(stops && member.demand.stay_ns == RUN);
            if sleeps {
                self.running[cpu] = None;
                member.order.block(self.clocks[member.place]);
                member.state = State::Asleep {
                    until_ns: now_ns + member.demand.sleep_ns,
                    since_ns: now_ns,
                };
            } else if stops {
                self.stop(task);
            }
        }
    }

    fn run_for(&mut self, until_ns: u64) -> Result<(), TestCaseError> {
        while self.now_ns < until_ns {
            self.move_on();
            self.wake();
            self.check()?;
            self.pick();
            self.check()?;
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
        let mut machine = Machine::new(&demands, 1, nr_cpus);
        machine.run_for(500 * MS)?;
    }

    #[test]
    fn no_task_waits_longer_for_tasks_that_are_bound_or_move_elsewhere(
        (demands, nr_llcs, nr_cpus) in any_machine(3, NR_TIERS, 1),
    ) {
        Machine::new(&demands, nr_llcs, nr_cpus).run_for(300 * MS)?;
    }

    #[test]
    fn no_service_comes_from_moves(
        (demands, nr_llcs, nr_cpus) in any_machine(3, NR_TIERS, 3),
    ) {
        Machine::new(&demands, nr_llcs, nr_cpus).run_for(300 * MS)?;
    }

    /// On LLCs of one CPU each, where every weight is feasible, tasks that never sleep share exactly
    /// by weight, and others get no more. Those that move may have their part at each of their
    /// places: each clock goes forward at once, by all that has been had since the last time.
    #[test]
    fn service_is_by_weight_within_two_requests(
        (mut demands, nr_llcs, _) in any_machine(1, 1, 3),
    ) {
        for (llc, demand) in demands.iter_mut().take(nr_llcs).enumerate() {
            (demand.sleep_ns, demand.route) = (0, vec![llc]);
        }
        let mut machine = Machine::new(&demands, nr_llcs, nr_llcs);
        machine.run_for(500 * MS)?;
        let within = |task: usize| machine.service(task) + 2 * machine.request(task);
        let least_at = |place: usize| {
            let stays = |task: &usize| {
                let Demand { sleep_ns, route, .. } = &demands[*task];
                *sleep_ns == 0 && route.len() == 1 && route[0] % nr_llcs == place % nr_llcs
            };
            (0..demands.len()).filter(stays).map(within).min()
        };
        for (task, demand) in demands.iter().enumerate() {
            let places = (0..2 * nr_llcs).filter(|place| demand.route.contains(place));
            let most = places.filter_map(least_at).sum::<u128>() + 2 * machine.request(task);
            let had = machine.service(task);
            prop_assert!(had <= most, "{demand:?} got {had}, its parts are {most}");
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
    let demands = [demand(0, 300_000, 2 * MS), demand(0, MS, 0)];
    let mut machine = Machine::new(&demands, 1, 1);
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

/// The first of some burners of nice 0 takes its places in turn, a run at each.
#[test]
fn a_task_gets_no_more_by_moves() {
    for (route, others, nr_llcs, nr_cpus) in [
        // Binds itself to the CPU, and not, beside nine others.
        ([0, 1], &[0; 9][..], 1, 1),
        // Binds itself to CPUs of an LLC, to each of which two others are bound.
        ([1, 2], &[1, 1, 2, 2], 1, 2),
        // Goes to LLCs of a CPU, in each of which are two others.
        ([0, 1], &[0, 0, 1, 1], 2, 2),
    ] {
        let mut demands = vec![demand(0, 100 * MS, 0); 1 + others.len()];
        demands[0].route = route.to_vec();
        for (demand, place) in demands[1..].iter_mut().zip(others) {
            demand.route = vec![*place];
        }
        let mut machine = Machine::new(&demands, nr_llcs, nr_cpus);
        machine.run_for(10_000 * MS).expect("the bounds hold");
        let (first, others) = machine.members.split_first().expect("a task");
        let of_others_ns = others.iter().map(|other| other.ran_ns).max().unwrap_or(0);
        let most_ns = of_others_ns + BEHIND_MAX_NS;
        assert!(first.ran_ns <= most_ns, "{} of {most_ns}", first.ran_ns);
    }
}
