//! Mechanisms of Plimsoll's BPF scheduler.

use super::fidelity::{Fidelity, How, too_many};
use crate::host::Capabilities;
use crate::knobs::{Class, Headroom, Knob, Knobs};

/// Returns the mechanism of a knob that is set, and its loss.
pub(super) fn mechanism(knob: Knob, knobs: &Knobs, host: &Capabilities) -> How {
    let mechanism = match knob {
        Knob::Class if knobs.class == Some(Class::Batch) => "queues below normal work",
        Knob::Class => "a queue of the group above batch work",
        Knob::Nice => "setpriority, weights its queue",
        Knob::Weight => "weight among its groups",
        Knob::Quota => "runtime pool, slices ended by timers",
        Knob::Burst => "runtime pool",
        Knob::Cap => "one leaky bucket for the tree",
        Knob::SoftCap => "background queues by usage rate",
        Knob::HalfLife => "usage rate, moved forward as it runs",
        Knob::PerTask => "a leaky bucket for each task",
        Knob::Headroom => match knobs.headroom {
            Some(Headroom::Cpus(cpus)) if cpus > host.nr_cpus => {
                return ("sched_ext".into(), too_many(host.nr_cpus));
            }
            Some(Headroom::Cpus(_)) => "places for side work, taken on idle edges",
            Some(Headroom::Share(_)) | None => "exact idle time, every 1ms",
        },
        Knob::Tolerance => "places for side work, slices behind normal work",
        Knob::CpuLimit => "100ms windows of each CPU",
        Knob::HostTuning => "none: the fair class runs no batch work",
    };
    (format!("sched_ext: {mechanism}"), Fidelity::Exact)
}
