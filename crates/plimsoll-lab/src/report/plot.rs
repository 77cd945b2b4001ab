//! Plots, as SVG.

use std::fmt::Display;

use plotters::prelude::*;

use super::printed::PRINTED_LATENCY;
use super::table::micros;
use crate::cell::{Cell, KernelVersion};
use crate::cpus::Cpus;
use crate::error::{LabError, Result};
use crate::matrix::{HEADLINE, KERNELS, LATENCY, LATENCY_LOADS, LOADS};
use crate::policy::Policy;
use crate::results::Results;
use crate::workload::Workload;

const SIZE: (u32, u32) = (960, 420);
/// Height without the title and the axis.
const PLOT_HEIGHT: f64 = 340.0;
/// Height of a line of the legend, with margins.
const LEGEND_ROW: f64 = 15.0;
/// Colour of a policy, from Okabe and Ito's palette for colour-blind readers.
const fn colour(policy: Policy) -> RGBColor {
    match policy {
        Policy::Alone => RGBColor(0, 0, 0),
        Policy::Equal => RGBColor(213, 94, 0),
        Policy::RealTime => RGBColor(140, 140, 140),
        Policy::Weight1 => RGBColor(230, 159, 0),
        Policy::CpuIdle => RGBColor(204, 121, 167),
        Policy::Stock(0) => RGBColor(86, 180, 233),
        Policy::Stock(20) => RGBColor(40, 150, 220),
        Policy::Stock(_) => RGBColor(0, 114, 178),
        Policy::SchedExt(0) => RGBColor(0, 158, 115),
        Policy::SchedExt(20) => RGBColor(90, 180, 60),
        Policy::SchedExt(_) => RGBColor(0, 100, 60),
        Policy::Lavd => RGBColor(150, 90, 40),
        Policy::Bpfland => RGBColor(200, 150, 100),
        _ => RGBColor(170, 170, 170),
    }
}

/// Quantiles of a service's requests, with the names of the figures.
const QUANTILES: [(f64, &str); 5] = [
    (50.0, "p50_us"),
    (90.0, "p90_us"),
    (99.0, "p99_us"),
    (99.9, "p999_us"),
    (100.0, "max_us"),
];

/// A line of a plot.
struct Line {
    name: &'static str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// A plot for each kernel, side by side.
struct Panel {
    title: String,
    lines: Vec<Line>,
}

/// Draws the plots for which there are figures, by name within the project.
pub fn all(results: &Results) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let distribution = KERNELS.map(|kernel| distribution(results, kernel)).into();
    let loads = KERNELS.map(|kernel| against_load(results, kernel)).into();
    let source = vec![source_latency(results), printed_latency()];
    let source = Some(source).filter(|panels| has_points(&panels[0]));
    for (name, panels, axis, unit) in [
        (
            "docs/results-distribution.svg",
            distribution,
            "quantile of the requests",
            "µs",
        ),
        (
            "docs/results-load.svg",
            loads,
            "the service's share of the machine, percent",
            "µs",
        ),
        (
            "docs/results-headroom.svg",
            source.unwrap_or_default(),
            "load, percent of the source's load 1.0",
            "average latency, alone at load 1.0 is 1",
        ),
    ] {
        if let Some(svg) = draw(panels, axis, unit)? {
            files.push((name.to_owned(), svg));
        }
    }
    Ok(files)
}

/// Markdown of the plots of services.
pub fn images(results: &Results) -> String {
    let some = |panel: fn(&Results, KernelVersion) -> Panel| {
        let mut panels = KERNELS.iter().map(|kernel| panel(results, *kernel));
        panels.any(|panel| has_points(&panel))
    };
    let mut text = String::new();
    if some(distribution) {
        text.push_str(
            "![Latency of the service beside batch work, by quantile](results-distribution.svg)\n\n",
        );
    }
    if some(against_load) {
        text.push_str(
            "![p99 of the service against its share of the machine](results-load.svg)\n\n",
        );
    }
    text
}

/// Markdown of the plot of headroom's latency table.
pub fn latency_image(results: &Results) -> &'static str {
    if has_points(&source_latency(results)) {
        return "![Average latency against load, here and in the source](results-headroom.svg)\n\n";
    }
    ""
}

fn has_points(panel: &Panel) -> bool {
    panel.lines.iter().any(|line| line.points.len() > 1)
}

fn lines(policies: &[Policy], mut points: impl FnMut(Policy) -> Vec<(f64, f64)>) -> Vec<Line> {
    let all = policies.iter().map(|policy| Line {
        name: policy.words(),
        colour: colour(*policy),
        points: points(*policy),
    });
    all.filter(|line| !line.points.is_empty()).collect()
}

fn distribution(results: &Results, kernel: KernelVersion) -> Panel {
    let of = |policy, name: &str| {
        let cell = Cell::new(kernel, Cpus::TWO, policy, Workload::Service400);
        results.figure(&cell, name)
    };
    let lines = lines(&HEADLINE, |policy| {
        let points = (0u32..).zip(QUANTILES);
        points
            .filter_map(|(at, (_, name))| Some((f64::from(at), of(policy, name)?)))
            .collect()
    });
    Panel {
        title: format!("Linux {kernel}, 2 CPUs, 400 requests/s of 300 µs"),
        lines,
    }
}

fn against_load(results: &Results, kernel: KernelVersion) -> Panel {
    let lines = lines(&HEADLINE, |policy| {
        let of = |percent: u8| {
            let cell = Cell::new(kernel, Cpus::TWO, policy, Workload::Load(percent));
            Some((f64::from(percent), results.figure(&cell, "p99_us")?))
        };
        LOADS.into_iter().filter_map(of).collect()
    });
    Panel {
        title: format!("Linux {kernel}, 2 CPUs, p99 against load"),
        lines,
    }
}

fn source_latency(results: &Results) -> Panel {
    let kernel = KERNELS[0];
    let mean = |policy, load| {
        let cell = Cell::new(kernel, Cpus::TWO, policy, Workload::Latency(load));
        results.figure(&cell, "mean_us")
    };
    let base = mean(Policy::Alone, LATENCY_LOADS[0]);
    let lines = lines(&LATENCY, |policy| {
        let of = |load: u8| Some((f64::from(load), mean(policy, load)? / base?));
        LATENCY_LOADS.into_iter().filter_map(of).collect()
    });
    Panel {
        title: format!("Linux {kernel}, 2 CPUs"),
        lines,
    }
}

fn printed_latency() -> Panel {
    // Same colours as Plimsoll's corresponding lines.
    let named = [
        ("alone", Policy::Alone),
        ("encoder", Policy::Weight1),
        ("headroom 30 %", Policy::SchedExt(30)),
        ("headroom 20 %", Policy::SchedExt(20)),
    ];
    let lines = (0..)
        .zip(named)
        .map(|(column, (name, policy)): (usize, _)| {
            let points = PRINTED_LATENCY.into_iter();
            let points = points.filter_map(|(load, row)| Some((f64::from(load), row[column]?)));
            Line {
                name,
                colour: colour(policy),
                points: points.collect(),
            }
        });
    Panel {
        title: "as the source prints it".to_owned(),
        lines: lines.collect(),
    }
}

fn failed(error: impl Display) -> LabError {
    LabError::Drawing {
        what: "a plot".to_owned(),
        why: error.to_string(),
    }
}

/// Draws the panels that have lines; `None` if none has.
fn draw(panels: Vec<Panel>, axis: &str, unit: &str) -> Result<Option<String>> {
    let mut panels = panels;
    panels.retain(has_points);
    if panels.is_empty() {
        return Ok(None);
    }
    let values = || {
        let lines = panels.iter().flat_map(|panel| &panel.lines);
        lines.flat_map(|line| &line.points).copied()
    };
    let (mut low, mut high) = (f64::MAX, f64::MIN);
    for (_, y) in values() {
        low = low.min(y);
        high = high.max(y);
    }
    let (mut left, mut right) = (f64::MAX, f64::MIN);
    for (x, _) in values() {
        left = left.min(x);
        right = right.max(x);
    }
    // Leaves space above the lines for the longest legend.
    let rows = panels.iter().map(|panel| panel.lines.len() + 1).max();
    let legend = LEGEND_ROW * rows.unwrap_or(0) as f64 / PLOT_HEIGHT;
    let bottom = low * 0.8;
    let top = bottom * (high * 1.1 / bottom).powf(1.0 / (1.0 - legend));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let areas = root.split_evenly((1, panels.len()));
        for (area, panel) in areas.iter().zip(&panels) {
            let y = (bottom..top).log_scale();
            let mut chart = ChartBuilder::on(area)
                .caption(&panel.title, ("sans-serif", 15))
                .margin(10)
                .x_label_area_size(36)
                .y_label_area_size(70)
                .build_cartesian_2d(left..right, y)
                .map_err(failed)?;
            let is_quantile = axis.starts_with("quantile");
            let label = |x: &f64| {
                let name = QUANTILES.get(x.round() as usize).map(|(share, _)| *share);
                match (is_quantile, name) {
                    (true, Some(100.0)) => "max".to_owned(),
                    (true, Some(share)) => format!("p{share}"),
                    _ => format!("{x:.0}"),
                }
            };
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .x_desc(axis)
                .y_desc(unit)
                .x_labels(5)
                .x_label_formatter(&label)
                .y_label_formatter(&|y| {
                    if high < 100.0 {
                        format!("{y:.1}")
                    } else {
                        micros(Some(*y))
                    }
                })
                .draw()
                .map_err(failed)?;
            for line in &panel.lines {
                let colour = line.colour;
                chart
                    .draw_series(
                        LineSeries::new(line.points.iter().copied(), colour.stroke_width(2))
                            .point_size(3),
                    )
                    .map_err(failed)?
                    .label(line.name.replace('`', ""))
                    .legend(move |(x, y)| {
                        PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
                    });
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.85))
                .border_style(RGBColor(216, 222, 228))
                .label_font(("sans-serif", 11))
                .draw()
                .map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(Some(svg))
}
