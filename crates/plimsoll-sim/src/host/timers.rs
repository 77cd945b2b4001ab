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
