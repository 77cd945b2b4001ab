//! The requests of a run, computed in advance.

use std::iter::Zip;
use std::sync::Arc;

use crate::arrivals::ArrivalTimes;
use crate::demand::Draws;
use crate::trace::Trace;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Position in the schedule, from 0.
    pub id: u64,
    /// Arrival, in ns after the start of the run, warm-up included. Latency
    /// counts from here.
    pub intended_ns: u64,
    /// CPU time that it needs, in ns.
    pub demand_ns: u64,
}

/// Requests in order of arrival; see [`ServiceConfig::requests`](crate::ServiceConfig::requests).
#[derive(Debug, Clone)]
pub struct Requests {
    source: Source,
    next_id: u64,
}

#[derive(Debug, Clone)]
enum Source {
    /// Endless.
    Drawn(Box<Zip<ArrivalTimes, Draws>>),
    Traced(Arc<Trace>),
}

impl Requests {
    pub(crate) fn drawn(arrivals: ArrivalTimes, demands: Draws) -> Self {
        Self {
            source: Source::Drawn(Box::new(arrivals.zip(demands))),
            next_id: 0,
        }
    }

    pub(crate) fn traced(trace: Arc<Trace>) -> Self {
        Self {
            source: Source::Traced(trace),
            next_id: 0,
        }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let id = self.next_id;
        let (intended_ns, demand_ns) = match &mut self.source {
            Source::Drawn(draws) => draws.next()?,
            Source::Traced(trace) => *trace.requests().get(usize::try_from(id).ok()?)?,
        };
        self.next_id += 1;
        Some(Request {
            id,
            intended_ns,
            demand_ns,
        })
    }
}
