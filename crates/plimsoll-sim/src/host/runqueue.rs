//! Run queue: tasks by virtual runtime, first in first out among equals.

use plimsoll_policy::batch::before;

#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) vruntime: u64,
    pub(super) task: u32,
    /// Number of the task's stay in a queue. An entry whose ticket is not the
    /// task's current one is stale: the task was removed from the middle of the
    /// queue.
    pub(super) ticket: u32,
}

impl Waiting {
    pub(super) fn precedes(&self, other: &Self) -> bool {
        if self.vruntime == other.vruntime {
            return (self.ticket.wrapping_sub(other.ticket) as i32) < 0;
        }
        before(self.vruntime, other.vruntime)
    }
}

/// Binary heap in the core's order, which handles a wrap of virtual runtime.
#[derive(Debug, Default, Clone)]
pub(super) struct RunQueue {
    heap: Vec<Waiting>,
}

impl RunQueue {
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(super) fn first(&self) -> Option<&Waiting> {
        self.heap.first()
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.heap.push(waiting);
        let mut position = self.heap.len() - 1;
        while position > 0 {
            let parent = (position - 1) / 2;
            if !waiting.precedes(&self.heap[parent]) {
                break;
            }
            self.heap[position] = self.heap[parent];
            position = parent;
        }
        self.heap[position] = waiting;
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let last = self.heap.pop()?;
        let Some(first) = self.heap.first().copied() else {
            return Some(last);
        };
        self.sink(0, last);
        Some(first)
    }

    /// Removes one of the last few entries of the heap for which `may_go`
    /// holds. These are not among the first to run, and the cost is bounded, as
    /// the kernel detaches at most 32 tasks from the end of its list. Stale
    /// entries at the end are dropped.
    pub(super) fn take_late(
        &mut self,
        counts: impl Fn(&Waiting) -> bool,
        may_go: impl Fn(&Waiting) -> bool,
    ) -> Option<Waiting> {
        const LOOKED_AT: usize = 8;
        while self.heap.pop_if(|last| !counts(last)).is_some() {}
        let len = self.heap.len();
        let position = (len.saturating_sub(LOOKED_AT)..len)
            .rev()
            .find(|&position| counts(&self.heap[position]) && may_go(&self.heap[position]))?;
        let taken = self.heap[position];
        let last = self.heap.pop()?;
        if position < self.heap.len() {
            // The entry that fills the gap may have to move up or down.
            let mut position = position;
            while position > 0 && last.precedes(&self.heap[(position - 1) / 2]) {
                self.heap[position] = self.heap[(position - 1) / 2];
                position = (position - 1) / 2;
            }
            self.sink(position, last);
        }
        Some(taken)
    }

    fn sink(&mut self, mut position: usize, waiting: Waiting) {
        let len = self.heap.len();
        loop {
            let mut child = 2 * position + 1;
            if child >= len {
                break;
            }
            if child + 1 < len && self.heap[child + 1].precedes(&self.heap[child]) {
                child += 1;
            }
            if !self.heap[child].precedes(&waiting) {
                break;
            }
            self.heap[position] = self.heap[child];
            position = child;
        }
        self.heap[position] = waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    fn waiting(vruntime: u64, ticket: u32) -> Waiting {
        Waiting {
            vruntime,
            task: ticket,
            ticket,
        }
    }

    #[test]
    fn order_by_vruntime_survives_a_wrap_and_removals() {
        let mut random = Pcg64::seed_from_u64(2);
        let mut queue = RunQueue::default();
        let base = u64::MAX - 500;
        let mut model = Vec::new();
        for ticket in 0..2_000 {
            let ahead = u64::from(random.next_u32() % 1_000);
            queue.push(waiting(base.wrapping_add(ahead), ticket));
            model.push((ahead, ticket));
            if ticket % 3 == 0 {
                let taken = queue.take_late(|_| true, |w| w.ticket % 2 == 0);
                model.retain(|&(_, t)| Some(t) != taken.map(|w| w.ticket));
            }
        }
        model.sort_unstable();
        assert_eq!(queue.len(), model.len());
        for (_, ticket) in model {
            assert_eq!(queue.pop().map(|w| w.ticket), Some(ticket));
        }
        assert!(queue.is_empty());
    }

    #[test]
    fn stale_entries_hide_no_valid_one() {
        let mut queue = RunQueue::default();
        for ticket in 0..20 {
            queue.push(waiting(u64::from(ticket), ticket));
        }
        let taken = queue.take_late(|w| w.ticket < 3, |_| true);
        assert_eq!(taken.map(|w| w.ticket), Some(2));
        assert_eq!(queue.take_late(|_| false, |_| true).map(|w| w.ticket), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn equal_vruntimes_are_first_in_first_out() {
        let mut queue = RunQueue::default();
        for ticket in [u32::MAX - 1, u32::MAX, 0, 1] {
            queue.push(waiting(7, ticket));
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop())
            .map(|w| w.ticket)
            .collect();
        assert_eq!(order, [u32::MAX - 1, u32::MAX, 0, 1]);
    }
}
