//! The requests of a run, known before it starts.

use std::iter::Zip;

use crate::arrivals::ArrivalTimes;
use crate::demand::Draws;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Position in the schedule, from 0.
    pub(crate) id: u64,
    /// When it arrives, in ns after the start of the run. Latency counts from here.
    pub(crate) intended_ns: u64,
    /// CPU time that it needs.
    pub(crate) demand_ns: u64,
}

/// Requests in order of arrival, without end.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    source: Zip<ArrivalTimes, Draws>,
    next_id: u64,
}

impl Schedule {
    pub(crate) fn new(arrivals: ArrivalTimes, demands: Draws) -> Self {
        Self {
            source: arrivals.zip(demands),
            next_id: 0,
        }
    }
}

impl Iterator for Schedule {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let (intended_ns, demand_ns) = self.source.next()?;
        let id = self.next_id;
        self.next_id += 1;
        Some(Request {
            id,
            intended_ns,
            demand_ns,
        })
    }
}
