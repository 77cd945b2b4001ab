//! The table of eight runs: how far a p99 is from another of the same policy.

use super::table::{Table, micros};
use crate::cell::Cell;
use crate::matrix::{KERNELS, SEED_CPUS, SEED_LOADS, SEED_POLICIES};
use crate::results::Results;
use crate::workload::Workload;

/// The table with its heading; empty if nothing of it is measured.
pub fn table(results: &Results) -> String {
    let loads = SEED_LOADS.map(|percent| format!("{percent} %"));
    let heads = ["service beside two burners for each CPU"].into_iter();
    let heads: Vec<&str> = heads.chain(loads.iter().map(String::as_str)).collect();
    let mut table = Table::new(&heads);
    let machines = SEED_CPUS.map(|cpus| KERNELS.map(|kernel| (kernel, cpus)));
    for (kernel, cpus) in machines.into_iter().flatten() {
        for policy in SEED_POLICIES {
            let cells = SEED_LOADS.map(|percent| {
                let cell = Cell::new(kernel, cpus, policy, Workload::Seeds(percent));
                let of = |name| results.figure(&cell, name);
                match (of("p99_median_us"), of("p99_worst_us"), of("max_us")) {
                    (Some(median), Some(worst), Some(max)) => {
                        let [median, worst, max] = [median, worst, max].map(|us| micros(Some(us)));
                        format!("{median}, {worst}, {max}")
                    }
                    _ => "-".to_owned(),
                }
            });
            if cells.iter().any(|cell| cell != "-") {
                let name = format!("Linux {kernel}, CPUs: {cpus}, {}", policy.words());
                table.row(std::iter::once(name).chain(cells).collect());
            }
        }
    }
    if table.is_empty() {
        return String::new();
    }
    format!(
        "\n## Eight runs of the same service\n\n\
         Median and worst p99 of eight seeds, 5 s each, and the longest request of all, in µs, by \
         the share of the machine that the service needs.\n\n{}\n",
        table.to_markdown()
    )
}
