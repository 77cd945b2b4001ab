//! Figures of the simulation and of this machine, for comparison.

use plimsoll_cgroupfs::CpuStat;
use plimsoll_load::Latency;
use plimsoll_sim::host::{BandwidthFigures, GroupReport, HostReport, WorkloadReport};
use serde::Serialize;

use super::real::{RealGroup, RealOutcome, RealWork};

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A number of CPUs.
    Cpus,
    /// A share, 1 for the whole.
    Ratio,
    /// Microseconds.
    Us,
    /// Seconds.
    Seconds,
    /// A plain count.
    Count,
}

/// A figure of the simulation and of this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Its subject: a workload's name, `group`, or `machine`.
    pub of: String,
    /// Its name.
    pub figure: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Simulated value.
    pub model: f64,
    /// Measured value; `null` if it was not measured.
    pub real: Option<f64>,
    /// `real` − `model`.
    pub difference: Option<f64>,
}

/// The figures of one group.
#[derive(Debug, Clone, Serialize)]
pub struct GroupFigures {
    /// Its name.
    pub name: String,
    /// The group's own figures, then those of its workloads in order.
    pub figures: Vec<Figure>,
    /// Commands that ran on this machine, as a user would type them.
    pub commands: Vec<String>,
}

fn figure(of: &str, figure: &'static str, unit: Unit, model: f64, real: Option<f64>) -> Figure {
    Figure {
        of: of.to_owned(),
        figure,
        unit,
        model,
        real,
        difference: real.map(|real| real - model),
    }
}

/// Part ÷ whole; 0 if the whole is 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The figure of the machine.
pub fn machine(model: &HostReport, real: Option<&RealOutcome>) -> Figure {
    let busy = 1.0 - model.machine.idle_ratio;
    figure(
        "machine",
        "busy",
        Unit::Ratio,
        busy,
        real.map(|real| real.busy_ratio),
    )
}

/// The figures of all groups.
pub fn groups(model: &HostReport, real: Option<&RealOutcome>) -> Vec<GroupFigures> {
    let measured_ns = model.measured_ns as f64;
    let group = |(index, group): (usize, &GroupReport)| {
        let real = real.and_then(|real| real.groups.get(index));
        GroupFigures {
            name: group.name.clone(),
            figures: of_group(group, real, measured_ns),
            commands: real.map_or_else(Vec::new, |real| real.commands.clone()),
        }
    };
    model.groups.iter().enumerate().map(group).collect()
}

fn of_group(model: &GroupReport, real: Option<&RealGroup>, measured_ns: f64) -> Vec<Figure> {
    let used = real.map(|real| real.cpus_used);
    let mut figures = vec![figure(
        "group",
        "CPUs used",
        Unit::Cpus,
        model.cpus_used,
        used,
    )];
    if let Some(bandwidth) = &model.bandwidth {
        throttling(
            bandwidth,
            real.and_then(|real| real.bandwidth),
            &mut figures,
        );
    }
    for (index, workload) in model.workloads.iter().enumerate() {
        let real = real.and_then(|real| real.work.get(index)?.as_ref());
        of_workload(workload, real, measured_ns, &mut figures);
    }
    figures
}

/// Adds the throttling figures; the share of throttled periods comes with the
/// number of periods.
fn throttling(model: &BandwidthFigures, real: Option<CpuStat>, figures: &mut Vec<Figure>) {
    let share = |throttled: u64, periods: u64| ratio(throttled as f64, periods as f64);
    figures.push(figure(
        "group",
        "periods",
        Unit::Count,
        model.nr_periods as f64,
        real.map(|stat| stat.nr_periods as f64),
    ));
    figures.push(figure(
        "group",
        "throttled periods",
        Unit::Ratio,
        share(model.nr_throttled, model.nr_periods),
        real.map(|stat| share(stat.nr_throttled, stat.nr_periods)),
    ));
}

fn of_workload(
    model: &WorkloadReport,
    real: Option<&RealWork>,
    measured_ns: f64,
    figures: &mut Vec<Figure>,
) {
    let mut add = |of: &str, name, unit, model: f64, real: Option<f64>| {
        figures.push(figure(of, name, unit, model, real));
    };
    match model {
        WorkloadReport::Service {
            requests,
            failures,
            latency,
            ..
        } => {
            let real = match real {
                Some(RealWork::Service(report)) => Some(report),
                _ => None,
            };
            let (count, failed) = (*requests as f64, *failures as f64);
            let real_count = real.map(|r| r.requests as f64);
            let real_failed = real.map(|r| ratio(r.failures as f64, r.requests as f64));
            add("service", "requests", Unit::Count, count, real_count);
            add(
                "service",
                "failed",
                Unit::Ratio,
                ratio(failed, count),
                real_failed,
            );
            latencies("service", latency, real.map(|r| &r.latency), figures);
        }
        WorkloadReport::Wake { late, .. } => {
            let real = match real {
                Some(RealWork::Wake(report)) => Some(&report.latency),
                _ => None,
            };
            latencies("wake", late, real, figures);
        }
        WorkloadReport::Burn { work_ns, .. } => {
            let real = match real {
                Some(RealWork::Burn(r, alone)) => {
                    Some(ratio(r.units as f64, r.elapsed_seconds * alone))
                }
                _ => None,
            };
            let work = ratio(*work_ns as f64, measured_ns);
            add("burn", "work", Unit::Cpus, work, real);
        }
        WorkloadReport::Storm {
            processes,
            elapsed_ns,
            ..
        } => {
            let real = match real {
                Some(RealWork::Storm(report)) => Some(report),
                _ => None,
            };
            let real_count = real.map(|r| f64::from(r.processes));
            let (count, took) = (*processes as f64, *elapsed_ns as f64 / 1e9);
            add("storm", "processes", Unit::Count, count, real_count);
            add(
                "storm",
                "took",
                Unit::Seconds,
                took,
                real.map(|r| r.elapsed_seconds),
            );
        }
        WorkloadReport::Need {
            elapsed_ns, rate, ..
        } => {
            let real = match real {
                Some(RealWork::Need(report)) => Some(report),
                _ => None,
            };
            let took = *elapsed_ns as f64 / 1e9;
            add("need", "rate", Unit::Ratio, *rate, real.map(|r| r.rate));
            add(
                "need",
                "took",
                Unit::Seconds,
                took,
                real.map(|r| r.elapsed_seconds),
            );
        }
        WorkloadReport::Steady {
            percent_achieved, ..
        } => {
            let real = match real {
                Some(RealWork::Steady(report)) => Some(report.percent_achieved / 100.0),
                _ => None,
            };
            add(
                "steady",
                "achieved",
                Unit::Ratio,
                percent_achieved / 100.0,
                real,
            );
        }
    }
}

fn latencies(of: &str, model: &Latency, real: Option<&Latency>, figures: &mut Vec<Figure>) {
    let all = |latency: &Latency| {
        let mean = std::iter::once(("mean", latency.mean_us));
        mean.chain(latency.quantiles())
    };
    let mut real = real.into_iter().flat_map(all);
    for (name, model) in all(model) {
        let real = real.next().map(|(_, us)| us);
        figures.push(figure(of, name, Unit::Us, model, real));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_needs_both() {
        let both = figure("group", "CPUs used", Unit::Cpus, 1.5, Some(1.25));
        assert_eq!(both.difference, Some(-0.25));
        let one = figure("group", "CPUs used", Unit::Cpus, 1.5, None);
        assert_eq!(one.difference, None);
    }

    #[test]
    fn shares_are_of_the_periods() {
        let mut figures = Vec::new();
        let model = BandwidthFigures {
            nr_periods: 200,
            nr_throttled: 50,
            ..BandwidthFigures::default()
        };
        let real = CpuStat {
            nr_periods: 100,
            nr_throttled: 30,
            ..CpuStat::default()
        };
        throttling(&model, Some(real), &mut figures);
        assert_eq!((figures[1].model, figures[1].real), (0.25, Some(0.3)));
        let none = BandwidthFigures::default();
        throttling(&none, None, &mut figures);
        assert_eq!((figures[3].model, figures[3].real), (0.0, None));
    }
}
