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
