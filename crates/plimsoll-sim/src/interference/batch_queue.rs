//! Queue of batches that share the threads.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_policy::bandwidth::ParamError;

use super::estimate::BATCHES;

/// Batches in round-robin order. There are as many under way as rows, and
/// enough that some wait while each thread runs one; otherwise a thread that
/// gets more CPU time would advance its own row only. So all rows make about
/// equal progress. The order makes no difference to the result of a batch.
pub(super) struct BatchQueue<'a, T> {
    rows: usize,
    begin: &'a Begin<'a, T>,
    /// Maximum number of batches under way.
    most: usize,
    state: Mutex<QueueState<T>>,
}

/// Begins a batch: arguments are the number of its row, and its number in the row.
type Begin<'a, T> = dyn Fn(usize, usize) -> Result<T, ParamError> + Sync + 'a;

struct QueueState<T> {
    /// Number of batches begun: the first batch of each row, then the second
    /// ones, and so on.
    begun: usize,
    /// Number of batches under way, including those that threads run.
    nr_open: usize,
    /// Batches that wait for a thread, by task number.
    waiting: VecDeque<(usize, T)>,
}

impl<'a, T> BatchQueue<'a, T> {
    pub(super) fn new(rows: usize, threads: NonZeroUsize, begin: &'a Begin<'a, T>) -> Self {
        let most = rows * (2 * threads.get()).div_ceil(rows.max(1));
        let state = QueueState {
            begun: 0,
            nr_open: 0,
            waiting: VecDeque::new(),
        };
        Self {
            rows,
            begin,
            most,
            state: Mutex::new(state),
        }
    }

    /// The next batch that no other thread runs, if there is one.
    pub(super) fn next(&self) -> Result<Option<(usize, T)>, ParamError> {
        let rows = self.rows;
        let mut state = self.lock();
        if state.nr_open == self.most || state.begun == rows * BATCHES {
            return Ok(state.waiting.pop_front());
        }
        let task = state.begun;
        state.begun += 1;
        state.nr_open += 1;
        drop(state);
        let running = (self.begin)(task % rows, task / rows)?;
        Ok(Some((task, running)))
    }

    pub(super) fn requeue(&self, task: usize, running: T) {
        self.lock().waiting.push_back((task, running));
    }

    /// Called when a batch is done.
    pub(super) fn ended(&self) {
        self.lock().nr_open -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn into_waiting(self) -> VecDeque<(usize, T)> {
        let state = self.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner).waiting
    }
}
