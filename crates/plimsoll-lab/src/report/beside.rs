//! Tables of the service beside batch work, and of the cost of a switch.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::table::{Table, micros, number, percent, times};
use crate::cell::{Cell, KernelVersion};
use crate::cpus::Cpus;
use crate::matrix::{HEADLINE, HEADLINE_LOADS, KERNELS, SEED_LOADS, STABLE_KERNELS, SWITCHES};
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
        workloads.map(|workload| beside_alone(of(workload, policy), of(workload, Policy::Alone)))
    })
}

fn beside_alone(p99: Option<f64>, alone: Option<f64>) -> String {
    let ratio = p99.zip(alone).map(|(p99, alone)| p99 / alone);
    match p99 {
        None => "-".to_owned(),
        p99 => format!("{} ({})", micros(p99), times(ratio)),
    }
}

/// Workloads of the table of a machine, with the heads of their columns.
const WORKLOADS: [(Workload, &str); 7] = [
    (Workload::Service400, "p99 µs at 400/s"),
    (Workload::Load(10), "at 10 %"),
    (Workload::Load(30), "at 30 %"),
    (Workload::Load(50), "at 50 %"),
    (Workload::Load(70), "at 70 %"),
    (Workload::Tcp400, "400/s over TCP"),
    (Workload::Web, "web server"),
];

/// All tables of services and switches.
pub fn tables(results: &Results) -> String {
    let mut text = String::new();
    for cpus in [Cpus::TWO, Cpus::ONE, Cpus::FOUR] {
        for kernel in KERNELS.into_iter().chain(STABLE_KERNELS) {
            let table = machine(results, kernel, cpus);
            if !table.is_empty() {
                let words = cpus_in_words(cpus);
                let _ = write!(
                    text,
                    "### Linux {kernel}, {words}\n\n{}\n",
                    table.to_markdown()
                );
            }
        }
    }
    if !text.is_empty() {
        text = format!("{}{}{text}", legend(), super::plot::images(results));
    }
    text.push_str(&web_server(results));
    text.push_str(&switches(results));
    text
}

/// Shows why requests of the web server take longer beside batch work than the service's, whose work
/// is a time and not a number of instructions.
fn web_server(results: &Results) -> String {
    let mut table = Table::new(&["policy", "p99 µs", "CPU time µs", "wait for a CPU µs"]);
    for policy in Policy::all() {
        let cell = Cell::new(KernelVersion::V7, Cpus::TWO, policy, Workload::Web);
        let [p99, ran, waited] =
            ["p99_us", "server_ran_us", "server_waited_us"].map(|name| results.figure(&cell, name));
        if ran.is_some() {
            let times = [micros(p99), micros(ran), micros(waited)];
            table.row([vec![policy.words().to_owned()], times.to_vec()].concat());
        }
    }
    if table.is_empty() {
        return String::new();
    }
    format!(
        "### Where the web server's time goes\n\nOf each request, on Linux 7 and two CPUs: the server's CPU \
         time, and its waits for a CPU. The page is compressed for each, which is a number of instructions: \
         beside the encoder both CPUs are busy, so these take up to twice the virtual time, under every \
         policy.\n\n{}\n",
        table.to_markdown()
    )
}

fn legend() -> &'static str {
    "## A service beside batch work\n\n\
     p99 in µs, and against the same service alone, of requests of 300 µs: 400 a second (4,000 in all), \
     or as many as need a share of the machine; 400 a second over loopback TCP; of a web server beside \
     a video encoder. Failed: the most that were answered after 5 ms, or never. At 400 a second also: work, the CPU time of batch work relative to the cgroup of equal \
     weight, and idle, from sums of run time. The service is in a cgroup of its own, as under systemd; \
     two burners for each CPU. Four seeds of one and the same build gave 1,724 to 1,749 µs beside \
     Plimsoll's stock class.\n\n"
}

fn cpus_in_words(cpus: Cpus) -> String {
    match (cpus.count, cpus.llcs) {
        (1, _) => "1 CPU".to_owned(),
        (count, 1) => format!("{count} CPUs"),
        (count, llcs) => format!("{count} CPUs, {llcs} last-level caches"),
    }
}

/// The table of a machine: a row for each policy.
fn machine(results: &Results, kernel: KernelVersion, cpus: Cpus) -> Table {
    let mut heads = vec!["policy", "in a cell's name"];
    heads.extend(WORKLOADS.map(|(_, words)| words));
    heads.extend(["failed", "work", "idle"]);
    let mut table = Table::new(&heads);
    for policy in Policy::all() {
        let of = |policy, workload, name: &str| {
            results.figure(&Cell::new(kernel, cpus, policy, workload), name)
        };
        let p99 = WORKLOADS.map(|(workload, _)| {
            let [p99, alone] = [policy, Policy::Alone].map(|policy| of(policy, workload, "p99_us"));
            beside_alone(p99, alone)
        });
        if p99.iter().all(|cell| cell == "-") {
            continue;
        }
        let at_400 = |policy, name| of(policy, Workload::Service400, name);
        let failed = WORKLOADS.iter().filter_map(|(workload, _)| {
            Some(of(policy, *workload, "failures")? / of(policy, *workload, "requests")?)
        });
        let work = at_400(policy, "batch_share").zip(at_400(Policy::Equal, "batch_share"));
        let mut row = vec![policy.words().to_owned(), format!("`{policy}`")];
        row.extend(p99);
        row.push(percent(failed.max_by(f64::total_cmp), 2));
        row.push(percent(work.map(|(work, equal)| work / equal), 0));
        // A sum of run times may exceed the time by its last digits.
        let idle = at_400(policy, "idle_share").map(|idle| idle.max(0.0));
        row.push(percent(idle, 1));
        table.row(row);
    }
    table
}

/// Cost of a switch and of a message.
fn switches(results: &Results) -> String {
    let mut text = String::new();
    for kernel in KERNELS {
        let mut table = Table::new(&[
            "scheduler",
            "in a cell's name",
            "instructions per switch (pipe)",
            "× fair",
            "instructions per message (hackbench)",
            "× fair",
            "switches per message",
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
                format!("`{policy}`"),
                micros(pipe(policy)),
                times(ratio(pipe(policy), pipe(Policy::Fair))),
                micros(message(policy)),
                times(ratio(message(policy), message(Policy::Fair))),
                number(each, 2),
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
        "## Cost of a switch\n\nOn one CPU, where a nanosecond is an instruction (`7/1/fair/pipe`). Pipe: two threads \
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
