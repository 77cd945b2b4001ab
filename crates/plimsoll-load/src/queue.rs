//! FIFO between the source of requests and the workers.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A FIFO without a bound, whose readers block while it is empty.
///
/// They block in the kernel (futex), because a service's latency includes the
/// time until a woken worker runs.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<Items<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct Items<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(Items {
                items: VecDeque::new(),
                closed: false,
            }),
            filled: Condvar::new(),
        }
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, Items<T>> {
        // The state is consistent after every statement, so a panic in another
        // thread does not invalidate it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, item: T) {
        self.lock().items.push_back(item);
        self.filled.notify_one();
    }

    /// Removes the oldest item; blocks while empty. `None` once closed.
    pub fn pop(&self) -> Option<T> {
        let mut state = self
            .filled
            .wait_while(self.lock(), |s| !s.closed && s.items.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return None;
        }
        state.items.pop_front()
    }

    /// Closes the queue, with the items that are left, and wakes all readers.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_until_the_close() {
        let queue = Queue::default();
        (0..5).for_each(|n| queue.push(n));
        assert_eq!((queue.pop(), queue.pop()), (Some(0), Some(1)));
        queue.close();
        assert_eq!(queue.pop(), None);
    }
}
