//! What is looked at while the model runs.

use plimsoll_sim::host::{Event, Observer, Span};

use super::timeline::Timeline;
use super::usage::Usage;

/// All that was asked for.
pub struct Watch<'a> {
    /// What ran where.
    pub timeline: Option<Timeline<'a>>,
    /// The machine's use over time.
    pub usage: Option<Usage>,
}

impl Watch<'_> {
    /// Whether nothing was asked for.
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
