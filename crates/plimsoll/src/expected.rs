//! The p99 that a service beside batch work has to expect, by the lab's figures for a kernel like
//! this one.

use std::fs;

use plimsoll_engine::host::Capabilities;
use plimsoll_scx::Readiness;
use serde::{Deserialize, Serialize};

use crate::output;

/// The lab's results.
const RESULTS: &str = include_str!("../../../docs/results.json");
/// Loads of the service in percent of the machine.
const LOADS: [u32; 4] = [6, 30, 50, 70];
/// The lab's names of one run at these loads.
const ONE_RUN: [&str; 4] = ["service-400", "load-30", "load-50", "load-70"];
/// The lab's names of eight runs, of which the median counts.
const EIGHT_RUNS: [&str; 4] = ["seeds-6", "seeds-30", "seeds-50", "seeds-70"];

/// The least gain that is worth a step, and shows in the text.
const GAIN_MIN: f64 = 0.1;
/// The least factor at any load that is worth a warning.
const CAUTION_MIN: f64 = 1.5;

/// p99 of a service beside `--class batch` as a multiple of its p99 alone, by the load of the
/// service.
#[derive(Debug, Clone, Serialize)]
pub struct Expected {
    /// The lab's kernel that is most like this one.
    kernel: &'static str,
    /// The CPUs of its machine.
    nr_cpus: u32,
    load_percent: [u32; 4],
    /// The kernel's own `cpu.idle`, without the guard.
    no_guard: Factors,
    guard: Factors,
    /// `--host-tuning`, with the guard.
    host_tuning: Factors,
    sched_ext: Factors,
    /// Names of those that are medians of eight runs. The others are of one run.
    medians: Vec<&'static str>,
    /// The lab's kernel preempts lazily, and this one does not tell.
    #[serde(skip)]
    is_preemption_unknown: bool,
}

/// Keeps batch work from delaying a service.
#[derive(Debug, Clone, Copy, Default)]
pub enum Mechanism {
    /// `cpu.idle` alone.
    NoGuard,
    #[default]
    Guard,
    SchedExt,
}

/// The mechanisms that steps need, on a host.
#[derive(Debug, Clone, Copy)]
pub struct HostMechanisms {
    pub has_guard: bool,
    pub may_be_tuned: bool,
    pub has_sched_ext: bool,
}

impl HostMechanisms {
    pub fn of(host: &Capabilities, has_guard: bool, scheduler: &Readiness) -> Self {
        Self {
            has_guard,
            may_be_tuned: host.may_tune_host && host.is_lazy == Some(true),
            has_sched_ext: scheduler.problem.is_none() && scheduler.is_root,
        }
    }
}

/// `None`: not measured.
type Factors = [Option<f64>; 4];

#[derive(Deserialize)]
struct Results {
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    cell: String,
    figures: Figures,
}

#[derive(Deserialize)]
struct Figures {
    #[serde(alias = "p99_median_us")]
    p99_us: Option<f64>,
}

impl Expected {
    /// The figures for a kernel of this release on a machine like this one, or `None` if they
    /// cannot be read.
    pub fn of(release: &str, nr_cpus: u32, is_lazy: Option<bool>) -> Option<Self> {
        let results: Results = serde_json::from_str(RESULTS).ok()?;
        let (kernel, is_lazy_there) = lab_kernel(release);
        let is_only_here_full = is_lazy_there && is_lazy == Some(false);
        let p99_us = |nr_cpus, policy: &str, load: &str| {
            let name = format!("{kernel}/{nr_cpus}/{policy}/{load}");
            let cell = results.cells.iter().find(|cell| cell.cell == name);
            cell?.figures.p99_us
        };
        let ratios = |nr_cpus, policy: &str, loads: [&str; 4]| -> Factors {
            let of = |policy: &str, load| p99_us(nr_cpus, policy, load);
            loads.map(|load| Some(of(policy, load)? / of("alone", load)?))
        };
        let is_complete = |factors: &Factors| factors.iter().all(Option::is_some);
        // The largest machine that was measured at all loads and is no larger than this one.
        let is_measured = |nr_cpus: &u32| is_complete(&ratios(*nr_cpus, "stock", ONE_RUN));
        let measured = [4, 2, 1].into_iter().filter(is_measured);
        let nr_cpus = measured.filter(|it| *it <= nr_cpus).max().unwrap_or(2);
        let mut medians = Vec::new();
        let mut factors = |name, policy| {
            let median = ratios(nr_cpus, policy, EIGHT_RUNS);
            if !is_complete(&median) {
                return ratios(nr_cpus, policy, ONE_RUN);
            }
            medians.push(name);
            median
        };
        Some(Self {
            kernel,
            nr_cpus,
            load_percent: LOADS,
            no_guard: if is_only_here_full {
                [None; 4]
            } else {
                factors("no_guard", "cpu-idle")
            },
            guard: factors("guard", if is_only_here_full { "tuned" } else { "stock" }),
            host_tuning: factors("host_tuning", "tuned"),
            sched_ext: factors("sched_ext", "sched-ext"),
            medians,
            is_preemption_unknown: is_lazy_there && is_lazy.is_none(),
        })
    }

    /// Factor at the measured load that is nearest to this one.
    pub fn factor(&self, mechanism: Mechanism, load_percent: u32) -> Option<f64> {
        let factors = match mechanism {
            Mechanism::NoGuard => self.no_guard,
            Mechanism::Guard => self.guard,
            Mechanism::SchedExt => self.sched_ext,
        };
        factors[nearest(load_percent)]
    }

    /// The measured load that is nearest to this one, and where it was measured.
    pub fn source_near(&self, load_percent: u32) -> String {
        format!(
            "at {} % load on {}",
            LOADS[nearest(load_percent)],
            self.source()
        )
    }

    /// The machine of the figures.
    fn source(&self) -> String {
        let preemption = if self.is_preemption_unknown {
            ", lazy preemption (here: unknown)"
        } else {
            ""
        };
        format!("Linux {}, CPUs: {}{preemption}", self.kernel, self.nr_cpus)
    }

    /// Step that would improve the figures most. `None`: no step would.
    pub fn step(&self, host: HostMechanisms) -> Option<String> {
        let now = self.now(host.has_guard);
        let steps = [
            (!host.has_guard, "the guard", &self.guard),
            (
                host.has_guard && host.may_be_tuned,
                "--host-tuning",
                &self.host_tuning,
            ),
            (host.has_sched_ext, "--enforcer sched-ext", &self.sched_ext),
        ];
        let gain = |(is_possible, name, then): (bool, _, _)| {
            is_possible.then(|| Some((name, mean(now, then)?)))?
        };
        let gains = steps.into_iter().filter_map(gain);
        let best = gains.min_by(|(_, (_, one)), (_, (_, other))| one.total_cmp(other));
        let (name, (now, then)) = best.filter(|(_, (now, then))| now - then >= GAIN_MIN)?;
        Some(format!(
            "{name} would improve the p99 of a service beside batch work most, from {now:.1} to \
             {then:.1} × on average over the loads"
        ))
    }

    /// Warning for batch work of the fair class. `None`: it hardly delays a service.
    pub fn caution(&self, has_guard: bool) -> Option<String> {
        let guard = if has_guard { "despite" } else { "without" };
        let loads = self.now(has_guard).iter().zip(self.load_percent);
        let factors = loads.filter_map(|(factor, load)| Some(((*factor)?, load)));
        let worst = factors.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let text = match worst {
            Some((factor, _)) if factor < CAUTION_MIN => return None,
            Some((factor, load)) => format!(
                "up to {factor:.1} × its p99 alone (at {load} % load, by the lab's figures for Linux {})",
                self.kernel
            ),
            None if has_guard => return None,
            None => "up to several times its p99 alone".into(),
        };
        Some(format!(
            "class batch: {guard} the guard a service beside it has {text}"
        ))
    }

    /// Factors of batch work of the fair class.
    fn now(&self, has_guard: bool) -> &Factors {
        if has_guard {
            &self.guard
        } else {
            &self.no_guard
        }
    }

    /// Formats the figures as a table.
    pub fn text(&self) -> String {
        let loads = self.load_percent.map(|percent| format!("{percent} % LOAD"));
        let header = std::iter::once("P99 OF A SERVICE BESIDE");
        let header = header.chain(loads.iter().map(String::as_str));
        let mut table = output::borderless(header.chain(["RUNS"]));
        for (name, knobs, factors) in [
            ("no_guard", "--class batch, no guard", &self.no_guard),
            ("guard", "--class batch", &self.guard),
            (
                "host_tuning",
                "--class batch --host-tuning",
                &self.host_tuning,
            ),
            ("sched_ext", "--class batch, sched-ext", &self.sched_ext),
        ] {
            if factors.iter().all(Option::is_none) {
                continue;
            }
            let cells = factors.map(|factor| {
                let text = factor.map(|factor| format!("{factor:.2} ×"));
                text.unwrap_or_else(|| "-".into())
            });
            let is_median = self.medians.contains(&name);
            let runs = if is_median { "median of 8" } else { "1" }.to_owned();
            let row = std::iter::once(knobs.to_owned()).chain(cells);
            table.add_row(row.chain([runs]));
        }
        format!(
            "{table}\n× the same service alone, as the lab has measured it on {}",
            self.source()
        )
    }
}

/// Index of the load that is nearest to this one.
fn nearest(load_percent: u32) -> usize {
    let distance = |index: &usize| LOADS[*index].abs_diff(load_percent);
    (0..LOADS.len()).min_by_key(distance).unwrap_or(0)
}

/// Means of two policies over the loads at which both were measured. `None`: there is no such load.
fn mean(now: &Factors, then: &Factors) -> Option<(f64, f64)> {
    let both: Vec<_> = now
        .iter()
        .zip(then)
        .filter_map(|(a, b)| Some(((*a)?, (*b)?)))
        .collect();
    let (sum, count) = (
        both.iter()
            .fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1)),
        both.len() as f64,
    );
    (count > 0.0).then(|| (sum.0 / count, sum.1 / count))
}

/// The lab's kernel that is most like one of this release, and whether it preempts lazily.
fn lab_kernel(release: &str) -> (&'static str, bool) {
    let numbers = release.split(|it: char| !it.is_ascii_digit());
    let numbers: Vec<u32> = numbers.map_while(|it| it.parse().ok()).take(2).collect();
    match numbers[..] {
        [major, minor] if !has_hrtick(major) && (major, minor) < (6, 6) => ("6.1", false),
        // EEVDF came with 6.6, lazy preemption with 6.13.
        [major, minor] if !has_hrtick(major) && (major, minor) < (6, 13) => ("6.12", false),
        [major, _] if has_hrtick(major) => ("7", true),
        _ => ("6.18", true),
    }
}

/// Whether the fair class looks at its picks between ticks: what the kernel says, if it says
/// something, or else what it does by default.
fn has_hrtick(major: u32) -> bool {
    let features = fs::read_to_string("/sys/kernel/debug/sched/features").ok();
    let said = features.map(|all| all.split_whitespace().any(|it| it == "HRTICK"));
    said.unwrap_or(major >= 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_figures_for_the_guard_and_without() {
        for release in ["5.15.0-1", "6.12.1", "6.18.15+deb13-cloud-amd64", "7.3.4"] {
            let expected = Expected::of(release, 2, None).expect("they can be read");
            let both = [&expected.no_guard, &expected.guard];
            assert!(both.iter().all(|it| it[0].is_some()), "{expected:?}");
            let text = expected.text();
            assert!(text.contains("6 % LOAD") && text.contains("no guard"));
        }
    }

    #[test]
    fn the_median_of_eight_runs_counts_where_the_lab_has_one() {
        let expected = Expected::of("7.3.4", 2, None).expect("they can be read");
        assert!(expected.medians.contains(&"guard") && expected.text().contains("median of 8"));
        let single = Expected {
            medians: Vec::new(),
            ..expected
        };
        assert!(!single.text().contains("median"));
    }

    #[test]
    fn the_caution_names_the_worst_load_and_only_a_bad_one() {
        let expected = Expected::of("6.18.15", 2, None).expect("they can be read");
        let with = |no_guard| Expected {
            no_guard,
            ..expected.clone()
        };
        let caution = with([Some(1.2), None, Some(3.46), Some(1.6)]).caution(false);
        assert!(caution.is_some_and(|it| it.contains("3.5 ×") && it.contains("50 %")));
        assert_eq!(
            with([Some(1.2), None, None, Some(1.4)]).caution(false),
            None
        );
        let unknown = with([None; 4]).caution(false);
        assert!(unknown.is_some_and(|it| it.contains("several times")));
        let guarded = |guard| Expected {
            guard,
            ..expected.clone()
        };
        let caution = guarded([None, Some(1.83), Some(4.26), None]).caution(true);
        assert!(caution.is_some_and(|it| it.contains("despite the guard") && it.contains("4.3 ×")));
        assert_eq!(guarded([Some(1.49); 4]).caution(true), None);
        assert_eq!(guarded([None; 4]).caution(true), None);
    }

    #[test]
    fn the_factor_of_the_nearest_load_is_named_with_its_machine() {
        let of = |is_lazy| Expected::of("7.3.4", 2, is_lazy).expect("they can be read");
        let unknown = of(None);
        assert_eq!([0, 12, 18, 19, 100].map(nearest), [0, 0, 0, 1, 3]);
        assert_eq!(unknown.factor(Mechanism::NoGuard, 12), unknown.no_guard[0]);
        assert_eq!(
            unknown.factor(Mechanism::SchedExt, 68),
            unknown.sched_ext[3]
        );
        let source = unknown.source_near(12);
        assert!(
            source.starts_with("at 6 % load on Linux 7, CPUs: 2, lazy"),
            "{source}"
        );
        assert!(unknown.text().contains("here: unknown"));
        assert!(!of(Some(true)).text().contains("unknown"));
    }

    #[test]
    fn figures_are_those_of_a_machine_that_is_no_larger() {
        let of = |nr_cpus| {
            Expected::of("7.3.4", nr_cpus, None)
                .expect("they can be read")
                .nr_cpus
        };
        assert_eq!([2, 3, 4, 64].map(of), [2, 2, 4, 4]);
    }

    #[test]
    fn the_step_is_one_that_the_host_can_take() {
        let expected = Expected::of("7.3.4", 2, None).expect("they can be read");
        let step = |has_guard, has_sched_ext| {
            let host = HostMechanisms {
                has_guard,
                may_be_tuned: false,
                has_sched_ext,
            };
            expected.step(host)
        };
        let takes =
            |guard, sched_ext, word| step(guard, sched_ext).is_some_and(|it| it.contains(word));
        assert!(takes(false, false, "the guard"));
        assert!(takes(false, true, "sched-ext"));
        assert!(takes(true, true, "sched-ext"));
        assert_eq!(step(true, false), None);
        let alike = Expected {
            sched_ext: expected.guard.map(|factor| Some(factor? - 0.09)),
            ..expected
        };
        let host = HostMechanisms {
            has_guard: true,
            may_be_tuned: false,
            has_sched_ext: true,
        };
        assert_eq!(alike.step(host), None, "it would not show");
    }
}
