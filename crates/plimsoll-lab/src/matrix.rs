//! Cells of the matrix: a selection for `make lab`, and all for `make lab-full`.

use crate::cell::Cell;
use crate::cell::KernelVersion::{self, V6_1, V6_12, V6_18, V7};
use crate::cpus::Cpus;
use crate::policy::Policy;
use crate::workload::Workload;

/// The policies of the README's table.
pub const HEADLINE: [Policy; 9] = [
    Policy::Alone,
    Policy::Equal,
    Policy::RealTime,
    Policy::CpuIdle,
    Policy::Stock(0),
    Policy::SchedExt(0),
    Policy::SchedExt(30),
    Policy::Lavd,
    Policy::Bpfland,
];

/// Workloads of the README's table, with the heads of their columns.
pub const HEADLINE_LOADS: [(Workload, &str); 4] = [
    (Workload::Service400, "p99 µs at 6 %"),
    (Workload::Load(30), "at 30 %"),
    (Workload::Load(50), "at 50 %"),
    (Workload::Load(70), "at 70 %"),
];

/// The kernels that are measured, in the order of the tables.
pub const KERNELS: [KernelVersion; 2] = [V7, V6_18];
/// Kernels of stable releases, on which only the service beside stock policies is measured.
pub const STABLE_KERNELS: [KernelVersion; 2] = [V6_12, V6_1];
const STOCK_POLICIES: [Policy; 4] = [
    Policy::Alone,
    Policy::CpuIdle,
    Policy::Stock(0),
    Policy::Stock(30),
];

/// Policies of the batch class's source.
pub const BESIDE: [Policy; 5] = [
    Policy::Alone,
    Policy::Equal,
    Policy::Weight1,
    Policy::Stock(0),
    Policy::SchedExt(0),
];
/// Policies of the source's latency table.
pub const LATENCY: [Policy; 6] = [
    Policy::Alone,
    Policy::Weight1,
    Policy::Stock(30),
    Policy::Stock(20),
    Policy::SchedExt(30),
    Policy::SchedExt(20),
];
/// The source's loads, in percent of its load 1.0.
pub const LATENCY_LOADS: [u8; 7] = [100, 110, 120, 130, 140, 150, 160];
/// Shares of the machine at which a service is measured eight times, in percent.
pub const SEED_LOADS: [u8; 4] = [6, 30, 50, 70];
pub const SEED_CPUS: [Cpus; 2] = [Cpus::TWO, Cpus::FOUR];
/// Policies of which each load is measured eight times.
pub const SEED_POLICIES: [Policy; 5] = [
    Policy::Alone,
    Policy::Stock(0),
    Policy::Stock(30),
    Policy::Tuned,
    Policy::SchedExt(0),
];
/// Shares of the machine that the service needs.
pub const LOADS: [u8; 4] = [10, 30, 50, 70];
/// Schedulers under which the cost of a switch is measured.
pub const SWITCHES: [Policy; 6] = [
    Policy::Fair,
    Policy::Stock(0),
    Policy::Tuned,
    Policy::Unmanaged,
    Policy::Managed,
    Policy::Lavd,
];

/// Collects cells in order, each once.
#[derive(Debug, Default)]
struct Cells(Vec<Cell>);

impl Cells {
    fn add(&mut self, kernel: KernelVersion, cpus: Cpus, policies: &[Policy], workload: Workload) {
        for policy in policies {
            let cell = Cell::new(kernel, cpus, *policy, workload);
            if workload.check(*policy, cpus).is_ok() && !self.0.contains(&cell) {
                self.0.push(cell);
            }
        }
    }
}

/// The selection: the README's table, and a cell of each kind.
#[must_use]
pub fn chosen() -> Vec<Cell> {
    let mut cells = Cells::default();
    for (workload, _) in HEADLINE_LOADS {
        cells.add(V7, Cpus::TWO, &HEADLINE, workload);
    }
    cells.add(V6_18, Cpus::TWO, &HEADLINE, Workload::Service400);
    let further = [Policy::Weight1, Policy::Stock(30)];
    for kernel in [V7, V6_18] {
        cells.add(kernel, Cpus::TWO, &further, Workload::Service400);
    }
    let equal = [Policy::EqualSchedExt];
    cells.add(V7, Cpus::TWO, &equal, Workload::Service400);
    cells.add(V7, Cpus::TWO, &equal, Workload::Load(30));
    let few = [
        Policy::Alone,
        Policy::RealTime,
        Policy::Stock(0),
        Policy::SchedExt(0),
    ];
    cells.add(V7, Cpus::ONE, &few, Workload::Service400);
    cells.add(V7, Cpus::FOUR, &few, Workload::Service400);
    cells.add(V7, Cpus::TWO, &few, Workload::Tcp400);
    cells.add(V7, Cpus::TWO, &few, Workload::Web);
    let switches = [Policy::Fair, Policy::Unmanaged, Policy::Managed];
    cells.add(V7, Cpus::ONE, &switches, Workload::Pipe);
    cells.add(V7, Cpus::ONE, &switches, Workload::Hackbench);
    cells.0
}

#[must_use]
pub fn full() -> Vec<Cell> {
    let mut cells = Cells(chosen());
    let all: Vec<Policy> = Policy::all().collect();
    for kernel in KERNELS {
        for cpus in [Cpus::ONE, Cpus::TWO, Cpus::FOUR] {
            cells.add(kernel, cpus, &all, Workload::Service400);
            for percent in LOADS {
                cells.add(kernel, cpus, &all, Workload::Load(percent));
            }
            cells.add(kernel, cpus, &all, Workload::Tcp400);
        }
        for cpus in SEED_CPUS {
            for percent in SEED_LOADS {
                cells.add(kernel, cpus, &SEED_POLICIES, Workload::Seeds(percent));
            }
        }
        cells.add(kernel, Cpus::TWO, &all, Workload::Web);
        sources(&mut cells, kernel);
    }
    for kernel in STABLE_KERNELS {
        for (workload, _) in HEADLINE_LOADS {
            cells.add(kernel, Cpus::TWO, &STOCK_POLICIES, workload);
        }
    }
    for kernel in KERNELS {
        cells.add(kernel, Cpus::ONE, &SWITCHES, Workload::Pipe);
        cells.add(kernel, Cpus::ONE, &SWITCHES, Workload::Hackbench);
    }
    cells.0
}

/// The experiments of the sources.
fn sources(cells: &mut Cells, kernel: KernelVersion) {
    cells.add(kernel, Cpus::TWO, &BESIDE, Workload::Bt1);
    cells.add(kernel, Cpus::TWO, &BESIDE, Workload::Bt2);
    for percent in LATENCY_LOADS {
        cells.add(kernel, Cpus::TWO, &LATENCY, Workload::Latency(percent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_cells_are_unique_and_part_of_all() {
        let all = full();
        for cell in chosen() {
            assert_eq!(
                all.iter().filter(|other| **other == cell).count(),
                1,
                "{cell}"
            );
        }
        assert!(all.len() > 250, "{}", all.len());
    }

    #[test]
    fn each_name_leads_back_to_its_cell() {
        for cell in full() {
            assert_eq!(cell.to_string().parse::<Cell>().unwrap(), cell);
        }
    }
}
