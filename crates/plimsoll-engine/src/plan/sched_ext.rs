//! Mechanisms of Plimsoll's BPF scheduler.

use super::{Fidelity, How, Mechanisms, approximate, impossible};
use crate::host::{Capabilities, Mode, SchedExt};
use crate::knobs::{Burst, Class, Headroom};

/// One group in the BPF scheduler.
pub(super) struct Scheduler<'a> {
    pub host: &'a Capabilities,
    pub scheduler: SchedExt,
}

/// Loss of the scheduler's tasks behind the fair class without an ext server.
const RESCUE_ONLY: &str = "this kernel has no ext server (Linux 7.0 and later): behind \
     saturating normal work, a task only runs once it has waited for 10s to 12s";

impl Scheduler<'_> {
    fn exact(mechanism: &str) -> How {
        (format!("sched_ext: {mechanism}"), Fidelity::Exact)
    }

    /// Exact where the kernel sees to it that batch work is not starved. In
    /// mode all, everything is the scheduler's, and it sees to it itself.
    fn served(&self) -> Fidelity {
        if self.scheduler.has_ext_server || self.scheduler.mode == Mode::All {
            Fidelity::Exact
        } else {
            approximate(RESCUE_ONLY)
        }
    }
}

impl Mechanisms for Scheduler<'_> {
    fn class(&self, class: Class) -> How {
        match (class, self.scheduler.mode) {
            (Class::Normal, _) => Self::exact("a queue of the group above batch work"),
            (Class::Batch, Mode::All) => Self::exact("queues below normal work"),
            (Class::Batch, Mode::Partial) => (
                "sched_ext: queues below the fair class".into(),
                self.served(),
            ),
        }
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
        let mechanism = if self.scheduler.has_ext_server {
            "sched_ext: places for side work, the kernel's ext server"
        } else {
            "sched_ext: places for side work"
        };
        (mechanism.into(), self.served())
    }

    fn cpu_limit(&self) -> How {
        Self::exact("100ms windows of each CPU")
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::knobs::Knobs;

    fn plan(json: &str, scheduler: SchedExt) -> Plan {
        let knobs: Knobs = serde_json::from_str(json).unwrap();
        let host = Capabilities::of_a_stock_kernel();
        Plan::new("g", &knobs, &host, Some(scheduler)).unwrap()
    }

    const PARTIAL: SchedExt = SchedExt {
        mode: Mode::Partial,
        has_ext_server: true,
    };
    const ALL: SchedExt = SchedExt {
        mode: Mode::All,
        has_ext_server: true,
    };
    const WITHOUT_SERVER: SchedExt = SchedExt {
        mode: Mode::Partial,
        has_ext_server: false,
    };

    #[test]
    fn every_knob_of_a_batch_group_is_exact() {
        let plan = plan(
            r#"{"class": "batch", "nice": "5", "weight": "50", "quota": "1cpus", "burst": "10ms",
                "cap": "50%", "soft-cap": "10%", "half-life": "5s", "per-task": true,
                "headroom": "1cpus", "tolerance": "1ms/100ms", "cpu-limit": "80%"}"#,
            PARTIAL,
        );
        assert_eq!(plan.items.len(), 12);
        for item in &plan.items {
            assert_eq!(item.fidelity, Fidelity::Exact, "{}", item.knob);
            assert!(item.mechanism.starts_with("sched_ext: "), "{}", item.knob);
        }
        assert!(plan.warnings.is_empty());
    }

    #[test]
    fn a_normal_group_stays_with_stock_knobs_unless_all_are_scheduled() {
        let json = r#"{"quota": "1cpus", "burst": "10ms"}"#;
        assert_eq!(plan(json, PARTIAL).items[0].mechanism, "cpu.max");
        assert!(plan(json, ALL).items[0].mechanism.starts_with("sched_ext"));
    }

    #[test]
    fn a_burst_above_the_quota_is_allowed_with_a_warning() {
        let json = r#"{"class": "batch", "quota": "10ms/100ms", "burst": "200ms"}"#;
        let plan = plan(json, PARTIAL);
        assert!(plan.check(false).is_ok());
        assert!(plan.warnings[0].contains("200ms"), "{:?}", plan.warnings);
    }

    #[test]
    fn without_an_ext_server_the_loss_is_told() {
        let json = r#"{"class": "batch", "tolerance": "1ms/100ms"}"#;
        for item in plan(json, WITHOUT_SERVER).items {
            let Fidelity::Approximate { loss } = item.fidelity else {
                panic!("{} is not approximate", item.knob)
            };
            assert!(loss.contains("ext server"), "{loss}");
        }
    }

    #[test]
    fn more_headroom_than_cpus_is_impossible() {
        let plan = plan(r#"{"class": "batch", "headroom": "9cpus"}"#, PARTIAL);
        assert!(plan.check(false).is_err());
    }
}
