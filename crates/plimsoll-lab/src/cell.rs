//! One cell of the matrix: a kernel, a number of CPUs, a policy and a workload.

use std::fmt;
use std::str::FromStr;

use crate::cpus::Cpus;
use crate::error::LabError;
use crate::named::named;
use crate::policy::Policy;
use crate::workload::Workload;

/// A kernel, with its default settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelVersion {
    V6_1,
    V6_12,
    V6_18,
    V7,
}

const NAMES: [(KernelVersion, &str); 4] = [
    (KernelVersion::V6_1, "6.1"),
    (KernelVersion::V6_12, "6.12"),
    (KernelVersion::V6_18, "6.18"),
    (KernelVersion::V7, "7"),
];
named!(KernelVersion, "kernel", NAMES);

/// One measurement of the matrix. `--cell` takes its name, `KERNEL/CPUS/POLICY/WORKLOAD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub kernel: KernelVersion,
    pub cpus: Cpus,
    pub workload: Workload,
    pub policy: Policy,
}

impl Cell {
    #[must_use]
    pub fn new(kernel: KernelVersion, cpus: Cpus, policy: Policy, workload: Workload) -> Self {
        Self {
            kernel,
            cpus,
            workload,
            policy,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kernel,
            cpus,
            workload,
            policy,
        } = self;
        write!(f, "{kernel}/{cpus}/{policy}/{workload}")
    }
}

impl FromStr for Cell {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Self, LabError> {
        let bad = |why: String| LabError::Cell {
            name: name.to_owned(),
            why,
        };
        let words: Vec<&str> = name.split('/').collect();
        let &[kernel, cpus, policy, workload] = words.as_slice() else {
            return Err(bad("a cell is KERNEL/CPUS/POLICY/WORKLOAD, as in \
                            7/2/sched-ext/service-400"
                .to_owned()));
        };
        let cell = Self {
            kernel: kernel.parse().map_err(bad)?,
            cpus: cpus.parse().map_err(bad)?,
            policy: policy.parse().map_err(bad)?,
            workload: workload.parse().map_err(bad)?,
        };
        cell.workload.check(cell.policy, cell.cpus).map_err(bad)?;
        Ok(cell)
    }
}
