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

#[cfg(test)]
mod tests {
    use super::super::*;

    fn plan(json: &str) -> Plan {
        let knobs: Knobs = serde_json::from_str(json).unwrap();
        let host = Capabilities::of_a_stock_kernel();
        Plan::new("g", &knobs, &host, true).unwrap()
    }

    #[test]
    fn every_knob_is_exact() {
        let plan = plan(
            r#"{"class": "batch", "nice": "5", "weight": "50", "quota": "1cpus", "burst": "10ms",
                "cap": "50%", "soft-cap": "10%", "half-life": "5s", "per-task": true,
                "headroom": "1cpus", "tolerance": "1ms/100ms", "cpu-limit": "80%",
                "host-tuning": true}"#,
        );
        assert_eq!(plan.items.len(), 13);
        for item in &plan.items {
            assert_eq!(item.fidelity, Fidelity::Exact, "{:?}", item.knob);
            assert!(item.mechanism.starts_with("sched_ext: "), "{:?}", item.knob);
        }
        assert!(plan.warnings.is_empty());
    }

    #[test]
    fn a_normal_group_is_scheduled_too() {
        let plan = plan(r#"{"quota": "1cpus", "burst": "10ms"}"#);
        assert!(plan.items[0].mechanism.starts_with("sched_ext"));
    }

    #[test]
    fn a_burst_above_the_quota_is_allowed_with_a_warning() {
        let json = r#"{"class": "batch", "quota": "10ms/100ms", "burst": "200ms"}"#;
        let plan = plan(json);
        assert!(plan.check(false).is_ok());
        assert!(plan.warnings[0].contains("200ms"), "{:?}", plan.warnings);
    }

    #[test]
    fn more_headroom_than_cpus_is_impossible() {
        let plan = plan(r#"{"class": "batch", "headroom": "9cpus"}"#);
        assert!(plan.check(false).is_err());
    }
}
