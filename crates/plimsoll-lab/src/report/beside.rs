//! Tables of the service beside batch work, and of the cost of a switch.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::table::{Table, micros, number, percent, times};
use crate::cell::{Cell, KernelVersion};
use crate::cpus::Cpus;
use crate::matrix::{
    HEADLINE, HEADLINE_LOADS, KERNELS, LOADS, SEED_LOADS, STABLE_KERNELS, SWITCHES,
};
use crate::policy::Policy;
use crate::results::Results;
use crate::workload::Workload;

/// The README's table: p99 beside each policy, by the service's part of the machine. The median of
/// eight runs takes the place of one run; the service alone has both, as the base of each.
pub fn headline(results: &Results) -> String {
    let loads = HEADLINE_LOADS.map(|(_, words)| words);
    let mut heads = vec!["service beside four burners"];
    heads.extend(loads);
    heads.push("machine busy");
    let mut table = Table::new(&heads);
    let one_run = HEADLINE_LOADS.map(|(workload, _)| workload);
    let eight_runs = SEED_LOADS.map(Workload::Seeds);
    for policy in HEADLINE {
        let single = p99_cells(results, policy, one_run, "p99_us");
        let median = p99_cells(results, policy, eight_runs, "p99_median_us");
        let busy = Cell::new(KernelVersion::V7, Cpus::TWO, policy, Workload::Service400);
        let busy = results.figure(&busy, "idle_share").map(|idle| 1.0 - idle);
        let mut row = |words: String, p99: [String; 4]| {
            let row = [vec![words], p99.to_vec(), vec![percent(busy, 0)]];
            table.row(row.concat());
        };
        let median = median.filter(|cells| cells.iter().all(|cell| cell != "-"));
        let is_replaced = median.is_some() && policy != Policy::Alone;
        if let Some(p99) = single.filter(|_| !is_replaced) {
            row(policy.words().to_owned(), p99);
        }
        if let Some(p99) = median {
            row(format!("{}, median of 8", policy.words()), p99);
        }
    }
    table.to_markdown()
}

/// p99 with its ratio to that of the service alone. `None`: no workload is measured.
fn p99_cells(
    results: &Results,
    policy: Policy,
    workloads: [Workload; 4],
    name: &str,
) -> Option<[String; 4]> {
    let of = |workload, policy| {
        let cell = Cell::new(KernelVersion::V7, Cpus::TWO, policy, workload);
        results.figure(&cell, name)
    };
    let mut measured = workloads.iter().map(|workload| of(*workload, policy));
    measured.any(|p99| p99.is_some()).then(|| {
        workloads.map(|workload| {
            let p99 = of(workload, policy);
            let alone = of(workload, Policy::Alone);
            let ratio = p99.zip(alone).map(|(p99, alone)| p99 / alone);
            match p99 {
                None => "-".to_owned(),
                p99 => format!("{} ({})", micros(p99), times(ratio)),
            }
        })
    })
}

/// All tables of services and switches.
pub fn tables(results: &Results) -> String {
    let mut text = String::new();
    let workloads = [
        vec![Workload::Service400],
        LOADS.map(Workload::Load).to_vec(),
        vec![Workload::Tcp400, Workload::Web],
    ];
    for workload in workloads.concat() {
        let mut sections = String::new();
        for cpus in [Cpus::TWO, Cpus::ONE, Cpus::FOUR] {
            for kernel in KERNELS.into_iter().chain(STABLE_KERNELS) {
                let table = service(results, kernel, cpus, workload);
                if !table.is_empty() {
                    let _ = write!(
                        sections,
                        "### Linux {kernel}, {}\n\n{}\n",
                        cpus_in_words(cpus),
                        table.to_markdown()
                    );
                }
            }
        }
        if !sections.is_empty() {
            let _ = write!(
                text,
                "## {}\n\n{}{sections}",
                title(&workload.words()),
                super::plot::image(results, workload)
            );
        }
    }
    if !text.is_empty() {
        text = format!("{}{text}", legend());
    }
    text.push_str(&switches(results));
    text
}

fn legend() -> &'static str {
    "Columns: `× alone` is p99 against the same service alone. Failed: answered after 5 ms, or never. \
     Work: CPU time of batch work, relative to the cgroup of equal weight. A p99 is that of 4,000 requests; four seeds of one and the same \
     build gave 1,724 to 1,749 µs beside Plimsoll's stock class. Idle: \
     from sums of run time. Inversions: picks of batch work by a CPU while normal work was runnable on it, per second, \
     and the longest run after one, from a trace of two more seconds. Controller: CPU time of the \
     process that controls batch work, of one CPU. The service is in a cgroup of its own, as under \
     systemd; two burners for each CPU.\n\n"
}

fn title(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn cpus_in_words(cpus: Cpus) -> String {
    match (cpus.count, cpus.llcs) {
        (1, _) => "1 CPU".to_owned(),
        (count, 1) => format!("{count} CPUs"),
        (count, llcs) => format!("{count} CPUs, {llcs} last-level caches"),
    }
}

fn service(results: &Results, kernel: KernelVersion, cpus: Cpus, workload: Workload) -> Table {
    let mut table = Table::new(&[
        "policy",
        "p50 µs",
        "p99 µs",
        "× alone",
        "p99.9 µs",
        "failed",
        "work",
        "idle",
        "inversions /s",
        "longest ms",
        "controller",
        "cell",
    ]);
    let cell = |policy| Cell::new(kernel, cpus, policy, workload);
    let of = |policy, name: &str| results.figure(&cell(policy), name);
    for policy in Policy::all() {
        if results.of(&cell(policy)).is_none() {
            continue;
        }
        let ratio = |name: &str, base| Some(of(policy, name)? / of(base, name)?);
        let failed = of(policy, "failures").zip(of(policy, "requests"));
        table.row(vec![
            policy.words().to_owned(),
            micros(of(policy, "p50_us")),
            micros(of(policy, "p99_us")),
            times(ratio("p99_us", Policy::Alone)),
            micros(of(policy, "p999_us")),
            percent(failed.map(|(failed, all)| failed / all), 2),
            percent(ratio("batch_share", Policy::Equal), 0),
            percent(of(policy, "idle_share"), 1),
            number(of(policy, "inversions_per_second"), 1),
            number(of(policy, "inversion_ms_longest"), 2),
            percent(of(policy, "controller_cpus"), 2),
            format!("`{}`", cell(policy)),
        ]);
    }
    table
}

/// Cost of a switch and of a message.
fn switches(results: &Results) -> String {
    let mut text = String::new();
    for kernel in KERNELS {
        let mut table = Table::new(&[
            "scheduler",
            "instructions per switch (pipe)",
            "× fair",
            "instructions per message (hackbench)",
            "× fair",
            "switches per message",
            "cells",
        ]);
        let cell = |policy, workload| Cell::new(kernel, Cpus::ONE, policy, workload);
        for policy in SWITCHES {
            let pipe =
                |policy| results.figure(&cell(policy, Workload::Pipe), "instructions_per_switch");
            let message = |policy| {
                results.figure(
                    &cell(policy, Workload::Hackbench),
                    "instructions_per_message",
                )
            };
            if pipe(policy).is_none() && message(policy).is_none() {
                continue;
            }
            let each = results.figure(&cell(policy, Workload::Hackbench), "switches_per_message");
            let ratio = |one: Option<f64>, fair: Option<f64>| Some(one? / fair?);
            table.row(vec![
                policy.words().to_owned(),
                micros(pipe(policy)),
                times(ratio(pipe(policy), pipe(Policy::Fair))),
                micros(message(policy)),
                times(ratio(message(policy), message(Policy::Fair))),
                number(each, 2),
                format!("`{kernel}/1/{policy}/pipe` `…/hackbench`"),
            ]);
        }
        if !table.is_empty() {
            let _ = write!(text, "### Linux {kernel}\n\n{}\n", table.to_markdown());
        }
    }
    if text.is_empty() {
        return text;
    }
    text.push_str(&callbacks(results));
    format!(
        "## Cost of a switch\n\nOn one CPU, where a nanosecond is an instruction. Pipe: two threads \
         that wake each other, the whole round trip with its system calls, per switch. Hackbench: two \
         groups of 20 senders and 20 receivers.\n\n{text}"
    )
}

/// Cost of the scheduler's callbacks for each switch of the pipe.
fn callbacks(results: &Results) -> String {
    let cell = |policy| Cell::new(KernelVersion::V7, Cpus::ONE, policy, Workload::Pipe);
    let columns = [Policy::Unmanaged, Policy::Managed];
    let outcomes = columns.map(|policy| results.of(&cell(policy)));
    let known = outcomes
        .iter()
        .flatten()
        .flat_map(|outcome| outcome.figures.keys());
    let named = known.filter_map(|name| {
        let name = name.strip_prefix("callback_")?;
        name.strip_suffix("_instructions")
    });
    let names: BTreeSet<&str> = named.collect();
    let mut heads = vec!["callback"];
    heads.extend(columns.map(Policy::words));
    let mut table = Table::new(&heads);
    for name in names {
        let mut row = vec![name.to_owned()];
        for policy in columns {
            let of = |what: &str| results.figure(&cell(policy), &format!("callback_{name}_{what}"));
            let calls = of("calls").zip(of("instructions"));
            row.push(calls.map_or_else(
                || "-".to_owned(),
                |(calls, instructions)| format!("{instructions:.0} in {calls:.2}"),
            ));
        }
        table.row(row);
    }
    if table.is_empty() {
        return String::new();
    }
    format!(
        "### Callbacks of Plimsoll's scheduler\n\nInstructions, and in how many calls, for each switch of \
         the pipe on Linux 7, by the kernel's own counters; counting adds some to each call.\n\n{}\n",
        table.to_markdown()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::CellOutcome;

    #[test]
    fn eight_runs_replace_one_in_the_headline_but_for_the_service_alone() {
        let outcome = |policy, workload, name: &str, us| CellOutcome {
            cell: Cell::new(KernelVersion::V7, Cpus::TWO, policy, workload).to_string(),
            kernel: "7.3.4".into(),
            figures: [(name.to_owned(), us)].into(),
        };
        let one_run = |policy, us| outcome(policy, Workload::Service400, "p99_us", us);
        let mut cells = vec![
            one_run(Policy::Alone, 500.0),
            one_run(Policy::Stock(0), 550.0),
            one_run(Policy::CpuIdle, 1_500.0),
        ];
        for percent in SEED_LOADS {
            let eight_runs =
                |policy, us| outcome(policy, Workload::Seeds(percent), "p99_median_us", us);
            cells.push(eight_runs(Policy::Alone, 400.0));
            cells.push(eight_runs(Policy::Stock(0), 600.0));
        }
        let text = headline(&Results { cells });
        let rows = text.lines().skip(2).map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            [cells[1].to_owned(), cells[2].to_owned()]
        });
        let expected = [
            ["alone", "500 (1.00 ×)"],
            ["alone, median of 8", "400 (1.00 ×)"],
            ["`cpu.idle` 1", "1,500 (3.00 ×)"],
            ["Plimsoll, stock knobs, median of 8", "600 (1.50 ×)"],
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }
}
