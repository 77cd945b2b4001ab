//! Bounded FIFO between a generator and its workers.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A FIFO that blocks its readers when empty and its writers when full.
///
/// Both block in the kernel (futex), because a service's latency includes the
/// time until a woken worker runs.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    drained: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    /// Number of writers that wait for space; a reader skips the system call if
    /// there are none.
    writers_waiting: usize,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            items: VecDeque::new(),
            closed: false,
            writers_waiting: 0,
        };
        Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
            drained: Condvar::new(),
            capacity,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is consistent after every statement, so a panic in another
        // thread does not invalidate it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an item; blocks while full. Returns the item if the queue is
    /// closed.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        while !state.closed && state.items.len() >= self.capacity {
            state.writers_waiting += 1;
            state = self
                .drained
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.writers_waiting -= 1;
        }
        if state.closed {
            return Err(item);
        }
        state.items.push_back(item);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Removes the oldest item; blocks while empty. `None` once closed.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self
            .filled
            .wait_while(self.lock(), |s| !s.closed && s.items.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        let item = state.items.pop_front();
        let wake_writer = item.is_some() && state.writers_waiting > 0;
        drop(state);
        if wake_writer {
            self.drained.notify_one();
        }
        item
    }

    /// Closes the queue, wakes all threads, and returns the remaining items.
    pub(crate) fn close(&self) -> VecDeque<T> {
        let mut state = self.lock();
        state.closed = true;
        let rest = std::mem::take(&mut state.items);
        drop(state);
        self.filled.notify_all();
        self.drained.notify_all();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_close_returns_the_rest() {
        let queue = Queue::new(8);
        for n in 0..5 {
            queue.push(n).unwrap();
        }
        assert_eq!((queue.pop(), queue.pop()), (Some(0), Some(1)));
        assert_eq!(queue.close(), [2, 3, 4]);
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.push(9), Err(9));
    }

    #[test]
    fn full_queue_blocks_its_writer() {
        let queue = Queue::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..1_000).for_each(|n| queue.push(n).unwrap()));
            for n in 0..1_000 {
                assert_eq!(queue.pop(), Some(n));
            }
        });
        assert!(queue.close().is_empty());
    }

    #[test]
    fn close_wakes_readers_and_writers() {
        let queue = Queue::new(1);
        queue.push(0).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| queue.push(1));
            queue.close();
            // Either the writer's item was accepted before the close, or it was
            // returned.
            assert!(matches!(writer.join().unwrap(), Err(1)));
            assert_eq!(scope.spawn(|| queue.pop()).join().unwrap(), None);
        });
    }
}
