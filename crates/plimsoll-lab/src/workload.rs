//! Workloads of cells.

use crate::cpus::Cpus;
use crate::named::named;
use crate::policy::Policy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// 400 requests a second of 300 µs, independent of the number of CPUs.
    Service400,
    /// Requests of 300 µs that need this share of the machine, in percent.
    Load(u8),
    /// Eight runs of the service of [`Self::Load`], each with other arrivals, because a p99 is one
    /// sample.
    Seeds(u8),
    /// The requests of [`Self::Service400`] over loopback TCP: a client's threads wake a server's,
    /// and back.
    Tcp400,
    /// A web server and its client, and a video encoder as batch work.
    Web,
    /// Two processes that wake each other through pipes, on one CPU.
    Pipe,
    /// Groups of senders and receivers, on one CPU.
    Hackbench,
    /// Scenario 1 of the batch class's source: the share of requests answered in time.
    Bt1,
    /// Scenario 2 of the batch class's source: average latency.
    Bt2,
    /// Headroom's latency table: requests of 2 ms at this percentage of the source's load 1.0.
    Latency(u8),
}

const NAMES: [(Workload, &str); 22] = [
    (Workload::Service400, "service-400"),
    (Workload::Load(10), "load-10"),
    (Workload::Load(30), "load-30"),
    (Workload::Load(50), "load-50"),
    (Workload::Load(70), "load-70"),
    (Workload::Tcp400, "tcp-400"),
    (Workload::Web, "web"),
    (Workload::Pipe, "pipe"),
    (Workload::Hackbench, "hackbench"),
    (Workload::Bt1, "bt-1"),
    (Workload::Bt2, "bt-2"),
    (Workload::Latency(100), "latency-100"),
    (Workload::Latency(110), "latency-110"),
    (Workload::Latency(120), "latency-120"),
    (Workload::Latency(130), "latency-130"),
    (Workload::Latency(140), "latency-140"),
    (Workload::Latency(150), "latency-150"),
    (Workload::Latency(160), "latency-160"),
    (Workload::Seeds(6), "seeds-6"),
    (Workload::Seeds(30), "seeds-30"),
    (Workload::Seeds(50), "seeds-50"),
    (Workload::Seeds(70), "seeds-70"),
];
named!(Workload, "workload", NAMES);

impl Workload {
    /// Checks that the workload can be measured under this policy on this machine.
    pub fn check(self, policy: Policy, cpus: Cpus) -> Result<(), String> {
        let needs = |what: &str| Err(format!("{self} is measured {what}"));
        match self {
            Self::Pipe | Self::Hackbench if !policy.is_of_switches() => {
                needs("under fair, stock, tuned, unmanaged, managed or lavd")
            }
            Self::Pipe | Self::Hackbench if cpus != Cpus::ONE => {
                needs("on one CPU, where a nanosecond is an instruction")
            }
            Self::Pipe | Self::Hackbench => Ok(()),
            _ if !policy.is_of_batch_work() => {
                Err(format!("{policy} is a policy for pipe and hackbench"))
            }
            _ => Ok(()),
        }
    }
}
