//! Plot of latency and utilisation over time, with the phases side by side, as
//! SVG.

use std::ops::Range;

use plimsoll_load::SeriesPoint;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::super::outcome::{PhaseResult, milliseconds, percent};
use crate::error::Result;
use crate::output::drawing::{
    self, Area, Panel, dotted_line, failed, label, text_at, text_upwards,
};

/// Colours by role. These values are placeholders, which are replaced by CSS
/// classes, so that the page can set the colours for light and dark mode.
const ROLES: [(RGBColor, &str, &str); 7] = [
    (INK, "#010101", "var(--ink)"),
    (MUTED, "#020202", "var(--muted)"),
    (GRID, "#030303", "var(--grid)"),
    (BAND, "#040404", "var(--band)"),
    (P50, "#050505", "var(--p50)"),
    (P99, "#060606", "var(--p99)"),
    (BUSY, "#070707", "var(--busy)"),
];
const INK: RGBColor = RGBColor(1, 1, 1);
const MUTED: RGBColor = RGBColor(2, 2, 2);
const GRID: RGBColor = RGBColor(3, 3, 3);
const BAND: RGBColor = RGBColor(4, 4, 4);
const P50: RGBColor = RGBColor(5, 5, 5);
const P99: RGBColor = RGBColor(6, 6, 6);
const BUSY: RGBColor = RGBColor(7, 7, 7);

const WIDTH: i32 = 1180;
/// Height of the header: three lines of text for each phase.
const HEAD: i32 = 70;
/// Line height of the header.
const LINE: i32 = 20;
const LATENCY_HEIGHT: i32 = 260;
const GAP: i32 = 26;
const BUSY_HEIGHT: i32 = 130;
/// Height of the time axis.
const FOOT: i32 = 44;
/// Width of the value axes.
const LEFT: i32 = 84;
const RIGHT: i32 = 14;
/// Font size of the axes.
const SMALL: f64 = 14.0;

/// Positions on the time axis: phases of equal length one after another.
struct Bands {
    length: f64,
    count: usize,
}

impl Bands {
    fn start(&self, index: usize) -> f64 {
        index as f64 * self.length
    }

    fn end(&self) -> f64 {
        self.start(self.count)
    }
}

/// Draws phases side by side: latency above, utilisation below.
pub fn timeline(phases: &[PhaseResult], phase_seconds: f64) -> Result<String> {
    let height = HEAD + LATENCY_HEIGHT + GAP + BUSY_HEIGHT + FOOT;
    let bands = Bands {
        length: phase_seconds,
        count: phases.len(),
    };
    let svg = drawing::svg((WIDTH, height), |root| draw(root, phases, &bands))?;
    Ok(themed(svg))
}

/// Replaces placeholder colours by roles, and removes the fixed size.
fn themed(mut svg: String) -> String {
    for (_, placeholder, role) in ROLES {
        svg = svg.replace(placeholder, role);
    }
    svg
}

fn draw(root: &Area, phases: &[PhaseResult], bands: &Bands) -> Result<()> {
    let width = WIDTH - LEFT - RIGHT;
    let scale = LatencyScale::of(phases);
    let latency = panel(root, bands, (HEAD, LATENCY_HEIGHT), scale.low..scale.high);
    let top = HEAD + LATENCY_HEIGHT + GAP;
    let busy = panel(root, bands, (top, BUSY_HEIGHT), 0.0..1.0);
    for panel in [&latency, &busy] {
        shade(panel, bands)?;
    }
    for (value, name) in scale.ticks() {
        grid_line(root, &latency, value, &name)?;
    }
    for quarter in [0.0, 0.5, 1.0] {
        grid_line(root, &busy, quarter, &percent(quarter))?;
    }
    reference(&latency, phases)?;
    axis_title(root, HEAD + LATENCY_HEIGHT / 2, "latency, log scale")?;
    axis_title(root, top + BUSY_HEIGHT / 2, "machine busy")?;
    for (index, phase) in phases.iter().enumerate() {
        let start = bands.start(index);
        head(root, &latency, start, phase)?;
        latency_lines(&latency, start, phase)?;
        busy_area(&busy, start, phase)?;
        time_labels(root, &busy, start, bands.length)?;
    }
    let style = label(SMALL, &MUTED, HPos::Center, VPos::Bottom);
    let middle = (LEFT + width / 2, top + BUSY_HEIGHT + FOOT - 4);
    text_at(root, "seconds of each phase", &style, middle)
}

/// A panel with the time axis of all phases; values grow upwards.
fn panel<'a>(
    root: &Area<'a>,
    bands: &Bands,
    (top, height): (i32, i32),
    values: Range<f64>,
) -> Panel<'a> {
    let across = (LEFT, WIDTH - RIGHT);
    drawing::panel(root, across, (top, height), 0.0..bands.end(), values)
}

/// Scale for the logarithm of latency in microseconds, over the measured range.
struct LatencyScale {
    low: f64,
    high: f64,
}

impl LatencyScale {
    fn of(phases: &[PhaseResult]) -> Self {
        let points = || phases.iter().flat_map(|phase| &phase.series);
        let positive = |us: &f64| *us > 0.0;
        let low = points()
            .map(|p| p.p50_us)
            .filter(positive)
            .fold(f64::MAX, f64::min);
        let high = points()
            .map(|p| p.p99_us)
            .filter(positive)
            .fold(0.0, f64::max);
        if high <= 0.0 {
            return Self {
                low: 2.0,
                high: 5.0,
            };
        }
        Self {
            low: (low * 0.75).log10(),
            high: (high * 1.4).log10().max(low.log10() + 0.5),
        }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        let name = |tick: f64| {
            let ms = 10_f64.powf(tick) / 1e3;
            (tick, format!("{} ms", (ms * 1e4).round() / 1e4))
        };
        let ticks = drawing::log_ticks(&(self.low..self.high));
        ticks.into_iter().map(name).collect()
    }
}

/// Shades every other phase.
fn shade(panel: &Panel, bands: &Bands) -> Result<()> {
    let (from, to) = (panel.get_y_range().start, panel.get_y_range().end);
    for index in (0..bands.count).step_by(2) {
        let corners = [(bands.start(index), from), (bands.start(index + 1), to)];
        panel
            .draw(&Rectangle::new(corners, BAND.filled()))
            .map_err(failed)?;
    }
    Ok(())
}

fn grid_line(root: &Area, panel: &Panel, value: f64, name: &str) -> Result<()> {
    let words = label(SMALL, &MUTED, HPos::Right, VPos::Center);
    drawing::grid_line(root, panel, value, name, (GRID, &words))
}

fn axis_title(root: &Area, middle: i32, name: &str) -> Result<()> {
    let style = label(SMALL, &MUTED, HPos::Center, VPos::Top);
    text_upwards(root, name, &style, (2, middle))
}

/// A dashed line at the p99 of the first phase, which the others are
/// compared with.
fn reference(panel: &Panel, phases: &[PhaseResult]) -> Result<()> {
    let Some(first) = phases.first() else {
        return Ok(());
    };
    let value = first.latency.p99_us.max(1.0).log10();
    let ends = [panel.get_x_range().start, panel.get_x_range().end].map(|x| (x, value));
    let line = DashedPathElement::new(ends, 5, 4, P99.stroke_width(1));
    panel.draw(&line).map_err(failed)
}

/// Draws the name and the main results of a phase.
fn head(root: &Area, panel: &Panel, start: f64, phase: &PhaseResult) -> Result<()> {
    let (x, _) = panel.map_coordinate(&(start, panel.get_y_range().start));
    let latency = format!("p99 {}", milliseconds(phase.latency.p99_us));
    let busy = format!("{} busy", percent(phase.busy_ratio));
    let lines = [
        (phase.title.as_str(), 13.0, &INK),
        (latency.as_str(), 14.0, &INK),
        (busy.as_str(), 13.0, &MUTED),
    ];
    for (index, (text, size, colour)) in (0..).zip(lines) {
        let style = label(size, colour, HPos::Left, VPos::Top);
        text_at(root, text, &style, (x + 6, 6 + LINE * index))?;
    }
    Ok(())
}

fn latency_lines(panel: &Panel, start: f64, phase: &PhaseResult) -> Result<()> {
    let interval = match phase.series.as_slice() {
        [first, second, ..] => second.at_seconds - first.at_seconds,
        _ => 0.0,
    };
    let measured = || phase.series.iter().filter(|point| point.count > 0);
    let middle = |point: &SeriesPoint| start + point.at_seconds + interval / 2.0;
    let p50 = measured().map(|p| (middle(p), p.p50_us)).collect();
    let p99 = measured().map(|p| (middle(p), p.p99_us)).collect();
    latency_line(panel, P50, p50)?;
    latency_line(panel, P99, p99)
}

/// Draws a line of `points`: time, and latency in microseconds.
fn latency_line(panel: &Panel, colour: RGBColor, mut points: Vec<(f64, f64)>) -> Result<()> {
    for (_, us) in &mut points {
        *us = us.max(1.0).log10();
    }
    dotted_line(panel, points, colour, 2)
}

fn busy_area(panel: &Panel, start: f64, phase: &PhaseResult) -> Result<()> {
    let line: Vec<(f64, f64)> = phase
        .busy_series
        .iter()
        .map(|p| (start + p.at_seconds, p.busy_ratio))
        .collect();
    let (Some(first), Some(last)) = (line.first(), line.last()) else {
        return Ok(());
    };
    let mut area = line.clone();
    area.extend([(last.0, 0.0), (first.0, 0.0)]);
    panel
        .draw(&Polygon::new(area, BUSY.mix(0.3)))
        .map_err(failed)?;
    let line = PathElement::new(line, BUSY.stroke_width(2));
    panel.draw(&line).map_err(failed)
}

/// Labels of seconds below a phase; the last is omitted, because the next phase
/// begins there.
fn time_labels(root: &Area, panel: &Panel, start: f64, length: f64) -> Result<()> {
    let step = drawing::round_step(length, 5.0);
    let style = label(SMALL, &MUTED, HPos::Center, VPos::Top);
    let mut second = 0.0;
    while second < length - step / 4.0 {
        let (x, y) = panel.map_coordinate(&(start + second, 0.0));
        text_at(root, &format!("{second}"), &style, (x, y + 6))?;
        second += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture;
    use super::*;

    #[test]
    fn plot_names_its_phases_and_has_no_fixed_colours() {
        let outcome = fixture::outcome();
        let svg = timeline(&outcome.phases, outcome.phase_seconds).unwrap();
        for phase in &outcome.phases {
            assert!(svg.contains(&phase.title), "{}", phase.title);
        }
        assert!(!svg.contains("=\"#"), "a colour that no theme can change");
        for role in ["--p50", "--p99", "--busy", "--ink"] {
            assert!(svg.contains(role), "{role}");
        }
    }

    #[test]
    fn phases_without_measurements_are_empty() {
        let mut outcome = fixture::outcome();
        for phase in &mut outcome.phases {
            phase.series.clear();
            phase.busy_series.clear();
        }
        timeline(&outcome.phases, 8.0).unwrap();
    }

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        let outcome = fixture::outcome();
        let names: Vec<String> = LatencyScale::of(&outcome.phases)
            .ticks()
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ["0.5 ms", "1 ms", "2 ms", "5 ms", "10 ms"]);
    }
}
