//! Observers of the simulation.

use plimsoll_sim::host::{Event, Observer, Span};

use super::timeline::Timeline;
use super::usage::Usage;

/// The requested observers.
pub struct Watch<'a> {
    /// Trace of all runs of tasks.
    pub timeline: Option<Timeline<'a>>,
    /// Utilisation of the machine over time.
    pub usage: Option<Usage>,
}

impl Watch<'_> {
    /// Whether no observer was requested.
    pub fn is_blind(&self) -> bool {
        self.timeline.is_none() && self.usage.is_none()
    }
}

impl Observer for Watch<'_> {
    fn ran(&mut self, span: &Span) {
        if let Some(timeline) = &mut self.timeline {
            timeline.ran(span);
        }
        if let Some(usage) = &mut self.usage {
            usage.ran(span);
        }
    }

    fn happened(&mut self, now_ns: u64, event: Event) {
        if let Some(timeline) = &mut self.timeline {
            timeline.happened(now_ns, event);
        }
    }
}
