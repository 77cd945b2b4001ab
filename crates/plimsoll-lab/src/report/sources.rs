//! Tables of the sources' experiments, with the published figures.

use std::fmt::Write as _;

use super::printed::{PRINTED_IDLE, PRINTED_LATENCY};
use super::table::{Table, micros, number, percent, times};
use crate::cell::{Cell, Kernel};
use crate::cpus::Cpus;
use crate::matrix::{
    ALLOWANCES, BESIDE, ENFORCERS, HEADROOM, KERNELS, LATENCY, LATENCY_LOADS, MAIN_LOADS,
};
use crate::policy::Policy;
use crate::results::Results;
use crate::workload::{Allowance, Workload};

pub fn tables(results: &Results) -> String {
    let parts = [
        success(results),
        latency_of_bt(results),
        shares(results),
        latency(results),
        burst(results),
    ];
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
fn cell(kernel: Kernel, policy: Policy, workload: Workload) -> Cell {
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

fn shares(results: &Results) -> String {
    let mut table = Table::new(&[
        "service load",
        "enforcer",
        "idle",
        "source",
        "batch work",
        "service",
        "cell",
    ]);
    for kernel in KERNELS {
        for percent_main in MAIN_LOADS {
            for policy in HEADROOM {
                let cell = cell(kernel, policy, Workload::Main(percent_main));
                let of = |name: &str| results.figure(&cell, name);
                if of("idle_share").is_none() {
                    continue;
                }
                let printed = PRINTED_IDLE.iter().find(|(main, _)| *main == percent_main);
                table.row(vec![
                    format!("{percent_main} %"),
                    policy.words().replace("Plimsoll, ", ""),
                    percent(of("idle_share"), 1),
                    percent(printed.map(|(_, idle)| *idle), 0),
                    percent(of("batch_share"), 1),
                    percent(of("main_share"), 1),
                    format!("`{cell}`"),
                ]);
            }
        }
    }
    section(
        "Headroom: the table of shares",
        "A service load of a percentage of the machine, batch work that uses all the rest, and a headroom of \
         30 %.",
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

fn burst(results: &Results) -> String {
    let mut table = Table::new(&[
        "allowance",
        "enforcer",
        "p50 µs",
        "p99 µs",
        "source",
        "p99.9 µs",
        "source",
        "max µs",
        "source",
        "failed",
        "cell",
    ]);
    for kernel in KERNELS {
        for policy in ENFORCERS {
            for allowance in ALLOWANCES {
                let cell = cell(kernel, policy, Workload::Burst(allowance));
                let of = |name: &str| results.figure(&cell, name);
                if of("p99_us").is_none() {
                    continue;
                }
                let (words, printed) = match allowance {
                    Allowance::All => ("no quota", ["-"; 3]),
                    Allowance::Quota => ("quota", ["933", "3,068", "20,054"]),
                    Allowance::QuotaAndBurst => ("quota and burst", ["12", "19", "406"]),
                };
                let failed = of("failures").zip(of("requests"));
                table.row(vec![
                    words.to_owned(),
                    policy.words().replace("Plimsoll, ", ""),
                    micros(of("p50_us")),
                    micros(of("p99_us")),
                    printed[0].to_owned(),
                    micros(of("p999_us")),
                    printed[1].to_owned(),
                    micros(of("max_us")),
                    printed[2].to_owned(),
                    percent(failed.map(|(failed, all)| failed / all), 2),
                    format!("`{cell}`"),
                ]);
            }
        }
    }
    section(
        "Bandwidth: a bursty service under a quota, without and with burst",
        "24 requests of 1 ms at once every 310 ms under a quota of 16 ms in 100 ms: one and a half quotas at \
         once, half of one on average. The source's requests need microseconds and come to 5 of 6 CPUs, so \
         its figures are wake-up latencies and ours hold the service time of a burst; the promise to compare \
         is that burst takes p99 back to that without a quota.",
        &table,
    )
}
