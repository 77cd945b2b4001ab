//! Usage rates and soft caps.
//!
//! The rate of a task is compared while it runs. The rate of a task that does
//! not run can only fall, so the time at which it drops below the soft cap is
//! computed in advance.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_policy::NSEC_PER_MSEC;
use plimsoll_policy::ratecap::Bucket;

use super::engine::Host;
use super::observe::Observer;
use super::task::{OwnCap, State};

/// Interval at which usage rates are compared with soft caps.
pub(super) const RATES_EVERY_NS: u64 = 10 * NSEC_PER_MSEC;

/// Groups and tasks whose rates are compared.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Groups whose tasks share a soft cap.
    pub(super) groups: Vec<u32>,
    /// Tasks with a soft cap of their own that have run since the last
    /// comparison.
    ran: Vec<u32>,
    /// Tasks that stopped running above their cap, by the time at which they
    /// drop below it. An entry that differs from the task's own time is stale.
    decays: BinaryHeap<Reverse<(u64, u32)>>,
    last_ns: u64,
}

/// Comparison time at which the rate of a bucket will first be at or below its
/// soft cap; never if the cap is 0.
fn decayed_ns(bucket: &Bucket, now_ns: u64) -> Option<u64> {
    let at_ns = |step: u64| now_ns + step * RATES_EVERY_NS;
    let is_over = |step: u64| {
        let mut probe = *bucket;
        probe.rate_update(0, at_ns(step));
        probe.is_background()
    };
    let half_life_steps = bucket.params().half_life_ns / RATES_EVERY_NS + 1;
    let mut over = 0;
    // After this many half-lives the rate is 0.
    let mut under = 32 * half_life_steps;
    if is_over(under) {
        return None;
    }
    while under - over > 1 {
        let middle = over.midpoint(under);
        if is_over(middle) {
            over = middle;
        } else {
            under = middle;
        }
    }
    Some(at_ns(under))
}

impl OwnCap {
    /// Whether the class of the task depends on its rate.
    fn has_rate(&self) -> bool {
        let soft = self.bucket.params().soft_permille;
        soft.is_some_and(|permille| permille > 0)
    }
}

impl<O: Observer> Host<O> {
    /// Adds a task that begins to run to the next comparison.
    pub(super) fn rate_from_now(&mut self, task: u32) {
        let Some(own) = &mut self.tasks[task as usize].own else {
            return;
        };
        if own.is_rated || !own.has_rate() {
            return;
        }
        own.is_rated = true;
        own.bucket.rate_update(0, self.rates.last_ns);
        self.rates.ran.push(task);
    }

    /// Compares the usage rates of groups and tasks with their soft caps.
    pub(super) fn compare_rates(&mut self) {
        let now_ns = self.clock.now_ns;
        self.rates.last_ns = now_ns;
        self.timers
            .set(self.owners.rates(), now_ns + RATES_EVERY_NS);
        for position in 0..self.rates.groups.len() {
            self.rate_group(self.rates.groups[position]);
        }
        for task in std::mem::take(&mut self.rates.ran) {
            self.rate_task(task);
        }
        while let Some(&Reverse((at_ns, task))) = self.rates.decays.peek()
            && at_ns <= now_ns
        {
            self.rates.decays.pop();
            let own = self.tasks[task as usize].own.as_ref();
            if own.is_some_and(|own| own.decayed_ns == at_ns && !own.is_rated) {
                self.rate_task(task);
            }
        }
    }

    /// Compares a group's rate. A change of its class moves all its tasks, at a
    /// cost proportional to their number.
    fn rate_group(&mut self, index: u32) {
        for position in 0..self.groups[index as usize].running.len() {
            let cpu = self.groups[index as usize].running[position];
            self.charge(cpu, false);
        }
        let own = &mut self.groups[index as usize];
        let was = own.background;
        if let Some(bucket) = &mut own.bucket {
            bucket.rate_update(own.rate_ran_ns, self.clock.now_ns);
            own.rate_ran_ns = 0;
            own.background = bucket.is_background();
        }
        if own.background != was {
            for task in own.tasks.clone() {
                self.change_class(task);
            }
        }
    }

    /// Compares a task's rate.
    fn rate_task(&mut self, task: u32) {
        let now_ns = self.clock.now_ns;
        let runs = self.tasks[task as usize].state == State::Running;
        if runs {
            self.charge(self.tasks[task as usize].cpu, false);
        }
        let shown = &mut self.tasks[task as usize];
        let Some(own) = &mut shown.own else { return };
        own.bucket.rate_update(own.rate_ran_ns, now_ns);
        own.rate_ran_ns = 0;
        own.is_rated = runs;
        let background = own.bucket.is_background();
        let changes = background != shown.background;
        shown.background = background;
        if runs {
            self.rates.ran.push(task);
        } else if background && let Some(at_ns) = decayed_ns(&own.bucket, now_ns) {
            own.decayed_ns = at_ns;
            self.rates.decays.push(Reverse((at_ns, task)));
        }
        if changes {
            self.change_class(task);
        }
    }
}
