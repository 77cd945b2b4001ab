//! Tables of the sources' experiments, with the published figures.

use std::fmt::Write as _;

use super::printed::PRINTED_LATENCY;
use super::table::{Table, micros, number, percent, times};
use crate::cell::{Cell, KernelVersion};
use crate::cpus::Cpus;
use crate::matrix::{BESIDE, KERNELS, LATENCY, LATENCY_LOADS};
use crate::policy::Policy;
use crate::results::Results;
use crate::workload::Workload;

pub fn tables(results: &Results) -> String {
    let parts = [success(results), latency_of_bt(results), latency(results)];
    let text = parts.concat();
    if text.is_empty() {
        return text;
    }
    format!("# The sources' experiments\n\n{text}")
}

/// Formats a section; empty if its table is.
fn section(title: &str, words: &str, table: &Table) -> String {
    if table.is_empty() {
        return String::new();
    }
    format!("## {title}\n\n{words}\n\n{}\n", table.to_markdown())
}

/// A cell with two CPUs.
fn cell(kernel: KernelVersion, policy: Policy, workload: Workload) -> Cell {
    Cell::new(kernel, Cpus::TWO, policy, workload)
}

fn success(results: &Results) -> String {
    let mut table = Table::new(&[
        "server",
        "in time",
        "source",
        "machine busy",
        "source",
        "cell",
    ]);
    for kernel in KERNELS {
        for policy in BESIDE {
            let cell = cell(kernel, policy, Workload::Bt1);
            let of = |name: &str| results.figure(&cell, name);
            let Some((failed, all)) = of("failures").zip(of("requests")) else {
                continue;
            };
            let (printed, busy) = match policy {
                Policy::Alone => ("99.998 %", "25 %"),
                Policy::Weight1 => ("99.95 %", "55 %"),
                Policy::Stock(_) | Policy::SchedExt(_) => ("99.996 %", "70 %"),
                _ => ("-", "-"),
            };
            table.row(vec![
                policy.words().to_owned(),
                percent(Some(1.0 - failed / all), 3),
                printed.to_owned(),
                percent(of("idle_share").map(|idle| 1.0 - idle), 1),
                busy.to_owned(),
                format!("`{cell}`"),
            ]);
        }
    }
    section(
        "Batch class, scenario 1: requests answered in time",
        "The source's server uses 25 % of its machine; 10 million requests a minute, each with a deadline. \
         Here: exponential requests of 300 µs, the same 25 %, a deadline of 3.35 ms, 10 s. The burners here \
         use all the CPU time that is left; the source's batch work used a part of it.",
        &table,
    )
}

fn latency_of_bt(results: &Results) -> String {
    let mut table = Table::new(&["server", "mean µs", "× alone", "source", "cell"]);
    for kernel in KERNELS {
        let mean = |policy| results.figure(&cell(kernel, policy, Workload::Bt2), "mean_us");
        for policy in BESIDE {
            let Some(value) = mean(policy) else { continue };
            let printed = match policy {
                Policy::Alone => "1.00 × (115 ms)",
                Policy::Equal => "1.20 × (138 ms)",
                Policy::Stock(_) | Policy::SchedExt(_) => "1.06 × (122 ms)",
                _ => "-",
            };
            table.row(vec![
                policy.words().to_owned(),
                micros(Some(value)),
                times(mean(Policy::Alone).map(|alone| value / alone)),
                printed.to_owned(),
                format!("`{}`", cell(kernel, policy, Workload::Bt2)),
            ]);
        }
    }
    section(
        "Batch class, scenario 2: average latency",
        "Requests of 5 ms (exponential) that need 25 % of the machine; the source's take 115 ms and its \
         load is not printed.",
        &table,
    )
}

fn latency(results: &Results) -> String {
    let mut text = String::new();
    for kernel in KERNELS {
        let mut table = Table::new(&[
            "load",
            "alone",
            "alone, source",
            "beside weight 1",
            "beside, source",
            "stock, 30 %",
            "stock, 20 %",
            "sched_ext, 30 %",
            "sched_ext, 20 %",
            "30 %, source",
            "20 %, source",
        ]);
        let mean = |policy, load| {
            results.figure(&cell(kernel, policy, Workload::Latency(load)), "mean_us")
        };
        let base = mean(Policy::Alone, LATENCY_LOADS[0]);
        for (load, printed) in PRINTED_LATENCY {
            let of = |policy| {
                number(
                    mean(policy, load).zip(base).map(|(mean, base)| mean / base),
                    2,
                )
            };
            let ours = LATENCY.map(of);
            if ours.iter().all(|cell| cell == "-") {
                continue;
            }
            let printed = printed.map(|value| number(value, 2));
            let [alone, weight, stock_30, stock_20, ext_30, ext_20] = ours;
            let [printed_alone, printed_beside, printed_30, printed_20] = printed;
            table.row(vec![
                format!("{:.1}", f64::from(load) / 100.0),
                alone,
                printed_alone,
                weight,
                printed_beside,
                stock_30,
                stock_20,
                ext_30,
                ext_20,
                printed_30,
                printed_20,
            ]);
        }
        if !table.is_empty() {
            let _ = write!(text, "Linux {kernel}:\n\n{}\n", table.to_markdown());
        }
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "## Headroom: average latency against load\n\nRequests of 2 ms (exponential); load 1.0 is 22 % of \
         the machine; 1.00 is the average latency alone at load 1.0. Cells: \
         `KERNEL/2/POLICY/latency-100` to `latency-160`. The source has a web server and a video encoder \
         on a large machine with shared caches, which cost its web server more than the scheduler does; \
         here there are none.\n\n{}{text}",
        super::plot::latency_image(results)
    )
}
