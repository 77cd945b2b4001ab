//! Mechanisms of the stock kernel.

use plimsoll_cgroupfs::Version;

use super::{Fidelity, How, Mechanisms, approximate, impossible};
use crate::host::Capabilities;
use crate::knobs::{Burst, Class, Headroom, Knobs};

/// Hint for a knob that the stock kernel does not have.
const SCHED_EXT_ONLY: &str =
    "only a sched_ext scheduler can (Linux 6.18 and later): --enforcer sched-ext";

/// Loss of a service beside batch work without the guard, by docs/stock-kernels.md.
const UNGUARDED: &str = "; there is no guard, which takes root and a kernel with BTF: a service \
                         beside it has up to several times its p99, as `plimsoll doctor` shows";

pub(super) struct StockKnobs<'a> {
    pub host: &'a Capabilities,
    pub knobs: &'a Knobs,
}

impl StockKnobs<'_> {
    /// Returns the mechanism that puts a group below all others, and its loss.
    fn background(&self) -> (String, &'static str) {
        if self.host.has_idle {
            (
                "cpu.idle".into(),
                "waits are not counted, load is not balanced by them",
            )
        } else {
            let file = self.host.weight_file();
            (
                format!("lowest {file}"),
                "it still gets about 1% of a busy CPU; cpu.idle takes Linux 5.15",
            )
        }
    }
}

impl Mechanisms for StockKnobs<'_> {
    fn class(&self, class: Class) -> How {
        if class == Class::Normal {
            return ("the fair class".into(), Fidelity::Exact);
        }
        let (mechanism, loss) = self.background();
        let place = if self.host.is_top {
            ""
        } else {
            "; below the other work of this subtree only, not of the whole machine"
        };
        let guard = if self.host.may_have_guard {
            ""
        } else {
            UNGUARDED
        };
        (mechanism, approximate(format!("{loss}{place}{guard}")))
    }

    fn nice(&self) -> How {
        ("setpriority".into(), Fidelity::Exact)
    }

    fn weight(&self) -> How {
        (self.host.weight_file().into(), Fidelity::Exact)
    }

    fn quota(&self) -> How {
        (self.host.quota_file().into(), Fidelity::Exact)
    }

    fn burst(&self, burst: Burst) -> How {
        let file = self.host.burst_file();
        if !self.host.has_burst && burst.burst_ns > 0 {
            return (
                file.into(),
                impossible("the kernel has no burst (Linux 5.14 and later)"),
            );
        }
        let quota_ns = self.knobs.quota.and_then(|quota| quota.quota_ns);
        match quota_ns {
            Some(quota_ns) if burst.burst_ns > quota_ns => {
                let reason =
                    format!("the stock kernel refuses a burst above the quota; {SCHED_EXT_ONLY}");
                (file.into(), impossible(reason))
            }
            _ => (file.into(), Fidelity::Exact),
        }
    }

    fn cap(&self) -> How {
        let loss = "overruns by up to a tick on each CPU, paid back in the next period";
        (
            format!("{}, short period", self.host.quota_file()),
            approximate(loss),
        )
    }

    fn per_task(&self) -> How {
        let mechanism = "a leaf cgroup for each task".into();
        if self.host.cgroup == Version::V1 && self.knobs.headroom.is_some() {
            let reason = "on cgroup v1 a cgroup may have no more than the one around it, and \
                          headroom's limit around the tasks changes all the time; cgroup v2 can, \
                          or a cap of all tasks together";
            return (mechanism, impossible(reason));
        }
        let loss = "a new task shares its parent's cap for up to 10ms";
        (mechanism, approximate(loss))
    }

    fn soft_cap(&self) -> How {
        let (mechanism, _) = self.background();
        let scope = if self.knobs.per_task {
            "; a task goes behind the others of its group only"
        } else if !self.host.is_top {
            "; behind the other work of this subtree only"
        } else {
            ""
        };
        let loss = format!("switched every 50ms by usage rate{scope}");
        (format!("{mechanism}, switched"), approximate(loss))
    }

    fn half_life(&self) -> How {
        let loss = "the rate is moved forward every 50ms";
        ("usage rate, in user space".into(), approximate(loss))
    }

    fn headroom(&self, headroom: Headroom) -> How {
        let mechanism = format!("{}, rewritten every 10 to 40ms", self.host.quota_file());
        let nr_cpus = self.host.nr_cpus;
        let loss = match headroom {
            Headroom::Cpus(cpus) if cpus > nr_cpus => {
                return (mechanism, impossible(format!("there are {nr_cpus} CPUs")));
            }
            Headroom::Share(_) => "reacts in 10 to 30ms".to_owned(),
            Headroom::Cpus(cpus) => {
                format!("kept as {cpus} of {nr_cpus} CPUs on average, not at every instant")
            }
        };
        (mechanism, approximate(loss))
    }

    fn tolerance(&self) -> How {
        if self.knobs.headroom.is_none() {
            return ("none".into(), impossible(SCHED_EXT_ONLY));
        }
        (
            "part of headroom".into(),
            approximate("given in pieces of at least 1ms"),
        )
    }

    fn cpu_limit(&self) -> How {
        ("none".into(), impossible(SCHED_EXT_ONLY))
    }

    fn host_tuning(&self) -> How {
        let mechanism = "sched/preempt in debugfs".into();
        if !self.host.may_tune_host {
            let reason = "it takes root of the whole machine, and a kernel with PREEMPT_DYNAMIC whose \
                          debugfs is mounted at /sys/kernel/debug and not locked down";
            return (mechanism, impossible(reason));
        }
        (
            mechanism,
            approximate("all work of the machine is preempted at once"),
        )
    }
}
