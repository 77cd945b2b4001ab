//! Which batch a thread goes on with.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_policy::bandwidth::ParamError;

use super::experiment::{BATCHES, Experiment, Running};

/// Batches that take turns: as many of each row, and so many that some wait while
/// each thread has one, or a thread that runs more than others would bring on its
/// own row only. So all rows are about as far at any time. Whose turn it is makes
/// no difference to what a batch computes.
pub(super) struct Turns<'a> {
    experiment: &'a Experiment,
    /// How many batches are under way at once.
    most: usize,
    state: Mutex<TurnsState>,
}

#[derive(Default)]
struct TurnsState {
    /// Tasks begun: the first batch of each row, then the second ones, and so on.
    begun: usize,
    /// Batches under way, those that threads have included.
    nr_open: usize,
    /// Those of them that wait for their next turn, by task.
    waiting: VecDeque<(usize, Running)>,
}

impl<'a> Turns<'a> {
    pub(super) fn new(experiment: &'a Experiment, threads: NonZeroUsize) -> Self {
        let rows = experiment.rows.len().max(1);
        Self {
            experiment,
            most: rows * (2 * threads.get()).div_ceil(rows),
            state: Mutex::default(),
        }
    }

    /// The batch that is next, if there is one that no other thread has.
    pub(super) fn next(&self) -> Result<Option<(usize, Running)>, ParamError> {
        let rows = self.experiment.rows.len();
        let mut state = self.lock();
        if state.nr_open == self.most || state.begun == rows * BATCHES {
            return Ok(state.waiting.pop_front());
        }
        let task = state.begun;
        state.begun += 1;
        state.nr_open += 1;
        drop(state);
        let running = self.experiment.begin_batch(task % rows, task / rows)?;
        Ok(Some((task, running)))
    }

    /// A batch waits for its next turn.
    pub(super) fn again(&self, task: usize, running: Running) {
        self.lock().waiting.push_back((task, running));
    }

    /// A batch is done.
    pub(super) fn ended(&self) {
        self.lock().nr_open -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, TurnsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn into_waiting(self) -> VecDeque<(usize, Running)> {
        let state = self.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner).waiting
    }
}
