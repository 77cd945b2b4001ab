//! Policies: the ways to limit batch work beside the service.

use crate::named::named;

/// Limit of batch work, or, for the cost of a switch, the scheduler of the benchmark itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// No batch work.
    Alone,
    /// A cgroup of the same weight beside the service's.
    Equal,
    /// A cgroup of the same weight, the service's tasks in the class `SCHED_FIFO`: nothing delays
    /// them, so it is the least that a busy machine allows.
    RealTime,
    /// A cgroup of the same weight, both as normal work on the BPF scheduler.
    EqualSchedExt,
    /// Beside an ordinary service, each task at nice 19.
    Nice19,
    /// A cgroup of weight 1.
    Weight1,
    /// A cgroup whose tasks are `SCHED_IDLE`.
    SchedIdle,
    /// A cgroup with `cpu.idle`.
    CpuIdle,
    /// `plimsoll run --class batch` on stock knobs, with a headroom in percent.
    Stock(u8),
    /// `plimsoll run --class batch --host-tuning` on stock knobs.
    Tuned,
    /// `plimsoll run --class batch` on the BPF scheduler, with a headroom in percent.
    SchedExt(u8),
    /// `scx_lavd`, batch work at nice 19.
    Lavd,
    /// `scx_lavd --enable-cpu-bw`, batch work in a cgroup with a quota of 70 % of the machine.
    LavdBandwidth,
    /// Another scheduler of the registry; batch work at nice 19.
    Bpfland,
    /// The kernel's fair class, no scheduler loaded.
    Fair,
    /// In no group, on the BPF scheduler.
    Unmanaged,
    /// In a batch group on the BPF scheduler.
    Managed,
}

const NAMES: [(Policy, &str); 21] = [
    (Policy::Alone, "alone"),
    (Policy::Equal, "equal"),
    (Policy::RealTime, "real-time"),
    (Policy::EqualSchedExt, "equal-sched-ext"),
    (Policy::Nice19, "nice-19"),
    (Policy::Weight1, "weight-1"),
    (Policy::SchedIdle, "sched-idle"),
    (Policy::CpuIdle, "cpu-idle"),
    (Policy::Stock(0), "stock"),
    (Policy::Stock(20), "stock+20"),
    (Policy::Stock(30), "stock+30"),
    (Policy::Tuned, "tuned"),
    (Policy::SchedExt(0), "sched-ext"),
    (Policy::SchedExt(20), "sched-ext+20"),
    (Policy::SchedExt(30), "sched-ext+30"),
    (Policy::Lavd, "lavd"),
    (Policy::LavdBandwidth, "lavd-bw"),
    (Policy::Bpfland, "bpfland"),
    (Policy::Fair, "fair"),
    (Policy::Unmanaged, "unmanaged"),
    (Policy::Managed, "managed"),
];
named!(Policy, "policy", NAMES);

impl Policy {
    /// A scheduler of another project, which has to be built first.
    #[must_use]
    pub fn peer(self) -> Option<&'static str> {
        match self {
            Self::Lavd | Self::LavdBandwidth => Some("scx_lavd"),
            Self::Bpfland => Some("scx_bpfland"),
            _ => None,
        }
    }

    /// Whether batch work runs at nice 19.
    #[must_use]
    pub fn is_nice(self) -> bool {
        self == Self::Nice19 || (self.peer().is_some() && self != Self::LavdBandwidth)
    }

    /// Whether the policy is one of a benchmark of switches.
    #[must_use]
    pub fn is_of_switches(self) -> bool {
        matches!(self, Self::Fair | Self::Unmanaged | Self::Managed) || self.is_of_both()
    }

    /// Whether the policy is one of batch work beside a service.
    #[must_use]
    pub fn is_of_batch_work(self) -> bool {
        self.is_of_both() || !self.is_of_switches()
    }

    fn is_of_both(self) -> bool {
        matches!(self, Self::Lavd | Self::Stock(0) | Self::Tuned)
    }

    /// All policies, in the order of the tables.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(policy, _)| *policy)
    }

    /// Description for a table.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Equal => "cgroup of equal weight",
            Self::RealTime => "the service `SCHED_FIFO`",
            Self::EqualSchedExt => "cgroup of equal weight, sched_ext",
            Self::Nice19 => "cgroup of equal weight, `nice -n 19`",
            Self::Weight1 => "`cpu.weight` 1",
            Self::SchedIdle => "`SCHED_IDLE` in a cgroup",
            Self::CpuIdle => "`cpu.idle` 1",
            Self::Stock(0) => "Plimsoll, stock knobs",
            Self::Stock(20) => "Plimsoll, stock knobs, headroom 20 %",
            Self::Stock(_) => "Plimsoll, stock knobs, headroom 30 %",
            Self::Tuned => "Plimsoll, stock knobs, `--host-tuning`",
            Self::SchedExt(0) => "Plimsoll, sched_ext",
            Self::SchedExt(20) => "Plimsoll, sched_ext, headroom 20 %",
            Self::SchedExt(_) => "Plimsoll, sched_ext, headroom 30 %",
            Self::Lavd => "scx_lavd, nice 19",
            Self::LavdBandwidth => "scx_lavd, `cpu.max` 70 %",
            Self::Bpfland => "scx_bpfland, nice 19",
            Self::Fair => "fair class",
            Self::Unmanaged => "in no group, sched_ext",
            Self::Managed => "batch group, sched_ext",
        }
    }
}
