//! Pictures: a row for each run, with the machine's utilisation over time and
//! the latencies of its groups.

use std::ops::Range;

use plimsoll_load::Latency;
use plimsoll_sim::host::WorkloadReport;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::outcome::{Outcome, RunOutcome};
use super::table::time;
use super::usage::{Point, Usage};
use crate::error::Result;
use crate::output::drawing::{
    self, Area, GRID, INK, LINES, MUTED, Panel, dotted_line, failed, label, text_at,
};

const NORMAL: RGBColor = RGBColor(45, 106, 178);
const BATCH: RGBColor = RGBColor(224, 142, 52);
const IDLE: RGBColor = RGBColor(240, 242, 244);

const WIDTH: i32 = 1120;
/// Height of the title and the legend.
const HEAD: i32 = 62;
/// Height of a row: name, panels and axis labels.
const ROW: i32 = 186;
const NAME: i32 = 26;
const PANEL: i32 = 124;
const FOOT: i32 = 12;
/// Left and right edge of the utilisation panel.
const USE: (i32, i32) = (58, 600);
/// Left and right edge of the latency panel; labels of its lines are to the
/// right.
const LATENCY: (i32, i32) = (690, 980);
const SMALL: f64 = 13.0;
/// The percentiles, from left to right.
const PERCENTILES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];
/// Maximum number of rows, to keep the picture readable.
const ROWS_MAX: usize = 40;

/// Draws all runs, one below the other. `usages`: one for each run.
pub fn draw(outcome: &Outcome, usages: &[Usage]) -> Result<String> {
    let rows = outcome.runs.len().min(ROWS_MAX);
    // At most ROWS_MAX.
    let height = HEAD + ROW * rows as i32 + FOOT;
    drawing::svg((WIDTH, height), |root| {
        root.fill(&WHITE).map_err(failed)?;
        head(root, &outcome.about)?;
        let scale = Scale::of(&outcome.runs);
        for (index, (run, usage)) in outcome.runs.iter().zip(usages).take(rows).enumerate() {
            let row = Row {
                root,
                top: HEAD + ROW * index as i32,
            };
            let measured_ns = run.report.measured_ns;
            row.name(run)?;
            row.usage(&usage.points(measured_ns), measured_ns)?;
            row.latencies(&lines(run), &scale)?;
        }
        Ok(())
    })
}

/// Draws the title and the legend.
fn head(root: &Area, about: &str) -> Result<()> {
    let style = label(17.0, &INK, HPos::Left, VPos::Top);
    text_at(root, about, &style, (USE.0, 10))?;
    let style = label(SMALL, &MUTED, HPos::Left, VPos::Center);
    let parts = [("normal", NORMAL), ("batch", BATCH), ("idle", IDLE)];
    let mut left = USE.0;
    for (name, colour) in parts {
        let corners = [(left, 41), (left + 14, 53)];
        root.draw(&Rectangle::new(corners, colour.filled()))
            .map_err(failed)?;
        root.draw(&Rectangle::new(corners, GRID)).map_err(failed)?;
        text_at(root, name, &style, (left + 20, 47))?;
        left += 88;
    }
    let style = label(SMALL, &MUTED, HPos::Left, VPos::Center);
    text_at(root, "share of the machine over time", &style, (left, 47))?;
    text_at(root, "latency, log scale", &style, (LATENCY.0, 47))
}

/// Latencies of a workload.
struct Line {
    name: String,
    us: [f64; 5],
}

/// Workloads of all groups that have latencies.
fn lines(run: &RunOutcome) -> Vec<Line> {
    let mut lines = Vec::new();
    for group in &run.report.groups {
        for workload in &group.workloads {
            let (name, latency): (String, &Latency) = match workload {
                WorkloadReport::Service { latency, .. } => (group.name.clone(), latency),
                WorkloadReport::Wake { late, .. } => (format!("{} wakes", group.name), late),
                _ => continue,
            };
            let us = latency.quantiles().map(|(_, us)| us);
            if latency.max_us > 0.0 {
                lines.push(Line { name, us });
            }
        }
    }
    lines
}

/// Scale for the logarithm of latencies, common to all runs so that they can be
/// compared.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(runs: &[RunOutcome]) -> Self {
        let all = || runs.iter().flat_map(lines).flat_map(|line| line.us);
        let low = all().map(|us| us.max(1.0)).fold(f64::MAX, f64::min);
        let high = all().fold(1.0, f64::max);
        if low > high {
            return Self {
                low: 2.0,
                high: 5.0,
            };
        }
        // At least about a decade.
        let (low, high) = ((low * 0.7).log10(), (high * 1.5).log10());
        Self {
            low: low.min(high - 1.0),
            high,
        }
    }
}

/// Position of one run.
struct Row<'a, 'b> {
    root: &'b Area<'a>,
    top: i32,
}

impl<'a> Row<'a, '_> {
    /// A panel of the row.
    fn panel(&self, across: (i32, i32), x: f64, y: Range<f64>) -> Panel<'a> {
        drawing::panel(self.root, across, (self.top + NAME, PANEL), 0.0..x, y)
    }

    fn name(&self, run: &RunOutcome) -> Result<()> {
        let name = run.variant.as_deref().unwrap_or_default();
        let machine = &run.report.machine;
        let shares = format!(
            "normal {:.0} %, batch {:.0} %, idle {:.0} %",
            100.0 * machine.normal_ratio,
            100.0 * machine.batch_ratio,
            100.0 * machine.idle_ratio
        );
        let style = label(15.0, &INK, HPos::Left, VPos::Bottom);
        text_at(self.root, name, &style, (USE.0, self.top + NAME - 5))?;
        let style = label(SMALL, &MUTED, HPos::Right, VPos::Bottom);
        text_at(self.root, &shares, &style, (USE.1, self.top + NAME - 5))
    }

    fn grid(&self, panel: &Panel, value: f64, name: &str) -> Result<()> {
        let words = label(SMALL, &MUTED, HPos::Right, VPos::Center);
        drawing::grid_line(self.root, panel, value, name, (GRID, &words))
    }

    fn usage(&self, points: &[Point], measured_ns: u64) -> Result<()> {
        let seconds = (measured_ns as f64 / 1e9).max(1e-9);
        let panel = self.panel(USE, seconds, 0.0..1.0);
        let corners = [(0.0, 0.0), (seconds, 1.0)];
        panel
            .draw(&Rectangle::new(corners, IDLE.filled()))
            .map_err(failed)?;
        // Stacked areas, drawn as steps because each interval has one value.
        let half = points.first().map_or(0.0, |point| point.at_seconds);
        let normal = |p: &Point| p.normal_ratio;
        let both = |p: &Point| p.normal_ratio + p.batch_ratio;
        for (colour, height) in [(BATCH, &both as &dyn Fn(&Point) -> f64), (NORMAL, &normal)] {
            let mut area = vec![(0.0, 0.0)];
            for point in points {
                let height = height(point).min(1.0);
                area.push((point.at_seconds - half, height));
                area.push((point.at_seconds + half, height));
            }
            let end = points.last().map_or(0.0, |p| p.at_seconds + half);
            area.push((end, 0.0));
            panel
                .draw(&Polygon::new(area, colour.filled()))
                .map_err(failed)?;
        }
        for (value, name) in [(0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %")] {
            self.grid(&panel, value, name)?;
        }
        self.seconds(&panel, seconds)
    }

    /// Labels of round times below a panel.
    fn seconds(&self, panel: &Panel, length: f64) -> Result<()> {
        let step = drawing::round_step(length, 8.0);
        let style = label(SMALL, &MUTED, HPos::Center, VPos::Top);
        for index in 0..=(length / step + 1e-9) as u32 {
            let at = f64::from(index) * step;
            let (x, y) = panel.map_coordinate(&(at, 0.0));
            // Rounded to the digits of the step.
            let name = (at * 1e6).round() / 1e6;
            text_at(self.root, &format!("{name} s"), &style, (x, y + 5))?;
        }
        Ok(())
    }

    fn latencies(&self, lines: &[Line], scale: &Scale) -> Result<()> {
        if lines.is_empty() {
            let style = label(SMALL, &MUTED, HPos::Left, VPos::Center);
            let middle = self.top + NAME + PANEL / 2;
            return text_at(
                self.root,
                "nothing here has a latency",
                &style,
                (LATENCY.0, middle),
            );
        }
        let panel = self.panel(LATENCY, 5.0, scale.low..scale.high);
        for tick in drawing::log_ticks(&(scale.low..scale.high)) {
            self.grid(
                &panel,
                tick,
                &time(10_f64.powf(tick)).replace(".00", "").replace(".0", ""),
            )?;
        }
        let style = label(SMALL, &MUTED, HPos::Center, VPos::Top);
        for (index, name) in (0_u32..).zip(PERCENTILES) {
            let (x, y) = panel.map_coordinate(&(f64::from(index) + 0.5, scale.low));
            text_at(self.root, name, &style, (x, y + 5))?;
        }
        let mut taken: Vec<i32> = Vec::new();
        for (line, colour) in lines.iter().zip(LINES.iter().cycle()) {
            let y = self.line(&panel, line, *colour)?;
            // Labels that would overlap are moved down.
            let y = taken.iter().fold(y, |y, other| {
                if (y - other).abs() < 14 {
                    other + 14
                } else {
                    y
                }
            });
            taken.push(y);
            let style = label(SMALL, colour, HPos::Left, VPos::Center);
            let text = format!("{} {}", line.name, time(line.us[4]));
            text_at(self.root, &text, &style, (LATENCY.1 + 4, y))?;
        }
        Ok(())
    }

    /// Draws a line and returns the height of its end.
    fn line(&self, panel: &Panel, line: &Line, colour: RGBColor) -> Result<i32> {
        let points = (0_u32..).zip(line.us);
        let points: Vec<(f64, f64)> = points
            .map(|(index, us)| (f64::from(index) + 0.5, us.max(1.0).log10()))
            .collect();
        let (_, y) = panel.map_coordinate(&points[points.len() - 1]);
        dotted_line(panel, points, colour, 3)?;
        Ok(y)
    }
}
