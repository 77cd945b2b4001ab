//! Mechanisms of the stock kernel.

use plimsoll_cgroupfs::Version;

use super::fidelity::{Fidelity, How, approximate, impossible, too_many};
use crate::host::Capabilities;
use crate::knobs::{Class, Headroom, Knob, Knobs};

/// Hint for a knob that the stock kernel does not have.
const SCHED_EXT_ONLY: &str =
    "only a sched_ext scheduler can (Linux 6.18 and later): --enforcer sched-ext";

/// Loss of a service beside batch work without the guard, by docs/stock-kernels.md.
const UNGUARDED: &str = "; there is no guard, which takes root and a kernel with BTF: a service \
                         beside it has up to several times its p99, as `plimsoll doctor` shows";

/// Returns whether the burst is above the quota, which the stock kernel refuses.
pub(super) fn exceeds_quota(knobs: &Knobs) -> bool {
    let quota_ns = knobs.quota.and_then(|quota| quota.quota_ns);
    matches!((knobs.burst, quota_ns), (Some(burst), Some(quota_ns)) if burst.burst_ns > quota_ns)
}

pub(super) struct StockKnobs<'a> {
    pub host: &'a Capabilities,
    pub knobs: &'a Knobs,
}

impl StockKnobs<'_> {
    /// Returns the mechanism of a knob that is set, and its loss.
    pub fn mechanism(&self, knob: Knob) -> How {
        let exact = |mechanism: &str| (mechanism.to_owned(), Fidelity::Exact);
        let with_loss = |mechanism: &str, loss| (mechanism.to_owned(), approximate(loss));
        match knob {
            Knob::Class => self.class(),
            Knob::Nice => exact("setpriority"),
            Knob::Weight => exact(self.host.weight_file()),
            Knob::Quota => exact(self.host.quota_file()),
            Knob::Burst => self.burst(),
            Knob::Cap => with_loss(
                &format!("{}, short period", self.host.quota_file()),
                "overruns by up to a tick on each CPU, paid back in the next period",
            ),
            Knob::SoftCap => self.soft_cap(),
            Knob::HalfLife => with_loss(
                "usage rate, in user space",
                "the rate is moved forward every 50ms",
            ),
            Knob::PerTask => self.per_task(),
            Knob::Headroom => self.headroom(),
            Knob::Tolerance if self.knobs.headroom.is_some() => {
                with_loss("part of headroom", "given in pieces of at least 1ms")
            }
            Knob::Tolerance | Knob::CpuLimit => ("none".into(), impossible(SCHED_EXT_ONLY)),
            Knob::HostTuning => self.host_tuning(),
        }
    }

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

    fn class(&self) -> How {
        if self.knobs.class == Some(Class::Normal) {
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

    fn burst(&self) -> How {
        let burst_ns = self.knobs.burst.map_or(0, |burst| burst.burst_ns);
        let fidelity = if !self.host.has_burst && burst_ns > 0 {
            impossible("the kernel has no burst (Linux 5.14 and later)")
        } else if exceeds_quota(self.knobs) {
            let problem = "the stock kernel refuses a burst above the quota";
            impossible(format!("{problem}; {SCHED_EXT_ONLY}"))
        } else {
            Fidelity::Exact
        };
        (self.host.burst_file().into(), fidelity)
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

    fn headroom(&self) -> How {
        let nr_cpus = self.host.nr_cpus;
        let fidelity = match self.knobs.headroom {
            Some(Headroom::Cpus(cpus)) if cpus > nr_cpus => too_many(nr_cpus),
            Some(Headroom::Cpus(cpus)) => approximate(format!(
                "kept as {cpus} of {nr_cpus} CPUs on average, not at every instant"
            )),
            Some(Headroom::Share(_)) | None => approximate("reacts in 10 to 30ms"),
        };
        let file = self.host.quota_file();
        (format!("{file}, rewritten every 10 to 40ms"), fidelity)
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
