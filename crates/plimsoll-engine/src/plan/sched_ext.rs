//! Mechanisms of Plimsoll's BPF scheduler.

use super::{Fidelity, How, Mechanisms, impossible};
use crate::host::Capabilities;
use crate::knobs::{Burst, Class, Headroom};

pub(super) struct Scheduler<'a> {
    pub host: &'a Capabilities,
}

impl Scheduler<'_> {
    fn exact(mechanism: &str) -> How {
        (format!("sched_ext: {mechanism}"), Fidelity::Exact)
    }
}

impl Mechanisms for Scheduler<'_> {
    fn class(&self, class: Class) -> How {
        Self::exact(match class {
            Class::Normal => "a queue of the group above batch work",
            Class::Batch => "queues below normal work",
        })
    }

    fn nice(&self) -> How {
        Self::exact("setpriority, weights its queue")
    }

    fn weight(&self) -> How {
        Self::exact("weight among its groups")
    }

    fn quota(&self) -> How {
        Self::exact("runtime pool, slices ended by timers")
    }

    fn burst(&self, _burst: Burst) -> How {
        Self::exact("runtime pool")
    }

    fn cap(&self) -> How {
        Self::exact("one leaky bucket for the tree")
    }

    fn soft_cap(&self) -> How {
        Self::exact("background queues by usage rate")
    }

    fn half_life(&self) -> How {
        Self::exact("usage rate, moved forward as it runs")
    }

    fn per_task(&self) -> How {
        Self::exact("a leaky bucket for each task")
    }

    fn headroom(&self, headroom: Headroom) -> How {
        let nr_cpus = self.host.nr_cpus;
        match headroom {
            Headroom::Cpus(cpus) if cpus > nr_cpus => (
                "sched_ext".into(),
                impossible(format!("there are {nr_cpus} CPUs")),
            ),
            Headroom::Cpus(_) => Self::exact("places for side work, taken on idle edges"),
            Headroom::Share(_) => Self::exact("exact idle time, every 1ms"),
        }
    }

    fn tolerance(&self) -> How {
        Self::exact("places for side work, slices behind normal work")
    }

    fn cpu_limit(&self) -> How {
        Self::exact("100ms windows of each CPU")
    }

    fn host_tuning(&self) -> How {
        Self::exact("none: the fair class runs no batch work")
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::knobs::Knobs;

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
            assert_eq!(item.fidelity, Fidelity::Exact, "{}", item.knob);
            assert!(item.mechanism.starts_with("sched_ext: "), "{}", item.knob);
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
