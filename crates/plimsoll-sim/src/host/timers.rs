//! Timers: at most one for each of a fixed set of owners.
//!
//! A 4-ary heap with an index from owner to position, so that a timer is moved
//! or cancelled in logarithmic time and no entry is ever stale. Timers of the
//! same time expire in the order of their owners' numbers, which makes the
//! order of events deterministic.

/// Not in the heap.
const NOWHERE: u32 = u32::MAX;
const CHILDREN: usize = 4;

/// Time in the high half, owner in the low half: one comparison orders by both.
type Entry = u128;

fn entry(at: u64, owner: u32) -> Entry {
    Entry::from(at) << 32 | Entry::from(owner)
}

fn owner_of(entry: Entry) -> u32 {
    entry as u32
}

/// Timers of owners `0 .. owners`. The unit of time is the caller's.
#[derive(Debug)]
pub(super) struct Timers {
    heap: Vec<Entry>,
    /// Heap position of the timer of each owner.
    positions: Vec<u32>,
}

impl Timers {
    pub(super) fn new(owners: usize) -> Self {
        Self {
            heap: Vec::with_capacity(owners),
            positions: vec![NOWHERE; owners],
        }
    }

    /// The first timer to expire: its time and its owner.
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        let first = *self.heap.first()?;
        Some(((first >> 32) as u64, owner_of(first)))
    }

    /// Sets the owner's timer, or moves it.
    pub(super) fn set(&mut self, owner: u32, at: u64) {
        let entry = entry(at, owner);
        let position = self.positions[owner as usize];
        if position == NOWHERE {
            self.heap.push(entry);
            self.rise(self.heap.len() - 1, entry);
            return;
        }
        let position = position as usize;
        if entry < self.heap[position] {
            self.rise(position, entry);
        } else {
            self.sink(position, entry);
        }
    }

    /// Sets the owner's timer, unless it is set to an earlier time already.
    pub(super) fn set_no_later(&mut self, owner: u32, at: u64) {
        let position = self.positions[owner as usize];
        let is_sooner = |entry: &Entry| (entry >> 32) as u64 <= at;
        if !self.heap.get(position as usize).is_some_and(is_sooner) {
            self.set(owner, at);
        }
    }

    pub(super) fn is_set(&self, owner: u32) -> bool {
        self.positions[owner as usize] != NOWHERE
    }

    /// Cancels the owner's timer, if it is set.
    pub(super) fn cancel(&mut self, owner: u32) {
        let position = self.positions[owner as usize];
        if position == NOWHERE {
            return;
        }
        let position = position as usize;
        self.positions[owner as usize] = NOWHERE;
        let Some(last) = self.heap.pop() else { return };
        if position == self.heap.len() {
            return;
        }
        if last < self.heap[position] {
            self.rise(position, last);
        } else {
            self.sink(position, last);
        }
    }

    fn put(&mut self, position: usize, entry: Entry) {
        self.heap[position] = entry;
        self.positions[owner_of(entry) as usize] = position as u32;
    }

    fn rise(&mut self, mut position: usize, entry: Entry) {
        while position > 0 {
            let parent = (position - 1) / CHILDREN;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(position, self.heap[parent]);
            position = parent;
        }
        self.put(position, entry);
    }

    fn sink(&mut self, mut position: usize, entry: Entry) {
        loop {
            let first = position * CHILDREN + 1;
            let end = (first + CHILDREN).min(self.heap.len());
            let Some((&head, others)) = self.heap.get(first..end).and_then(<[_]>::split_first)
            else {
                break;
            };
            let (mut child, mut least) = (first, head);
            for (step, &other) in others.iter().enumerate() {
                if other < least {
                    (child, least) = (first + 1 + step, other);
                }
            }
            if entry <= least {
                break;
            }
            self.put(position, least);
            position = child;
        }
        self.put(position, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    #[test]
    fn timers_expire_in_order_after_set_move_and_cancel() {
        let mut random = Pcg64::seed_from_u64(1);
        let mut timers = Timers::new(100);
        let mut model = BTreeMap::new();
        for _ in 0..20_000 {
            let owner = random.next_u32() % 100;
            let at = u64::from(random.next_u32() % 1_000);
            if random.next_u32() % 3 == 0 {
                timers.cancel(owner);
                model.remove(&owner);
            } else {
                timers.set(owner, at);
                model.insert(owner, at);
            }
            let first = model.iter().map(|(&owner, &at)| (at, owner)).min();
            assert_eq!(timers.first(), first);
        }
    }

    #[test]
    fn set_no_later_keeps_the_earliest_time() {
        let mut timers = Timers::new(2);
        for (at, first) in [(10, 10), (20, 10), (5, 5)] {
            timers.set_no_later(1, at);
            assert_eq!(timers.first(), Some((first, 1)));
        }
    }

    #[test]
    fn equal_times_expire_in_order_of_owners() {
        let mut timers = Timers::new(8);
        for owner in [5, 2, 7, 3] {
            timers.set(owner, 10);
        }
        let mut order = Vec::new();
        while let Some((_, owner)) = timers.first() {
            order.push(owner);
            timers.cancel(owner);
        }
        assert_eq!(order, [2, 3, 5, 7]);
    }
}
