//! Picture of P(WCET > 1) against utilisation, with a panel for each
//! distribution and number of groups, and a curve for each burst.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::combinators::LogCoord;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::outcome::{InterferenceCell, InterferenceOutcome};
use crate::error::Result;
use crate::output::drawing::{self, Area, FONT, GRID, INK, LINES, MUTED, failed, label, text_at};

const PANEL: (i32, i32) = (460, 300);
/// Height of the title and the legend.
const HEAD: i32 = 70;
const MARGIN: i32 = 14;
/// Number of panels side by side.
const ACROSS: usize = 2;
/// Maximum number of panels, to keep the picture readable.
const PANELS_MAX: usize = 24;
const SMALL: f64 = 13.0;
/// The lowest value of the scale: ten of a million periods.
const FLOOR: f64 = 1e-5;
/// Horizontal distance between curves of one panel, so that their bars do not
/// overlap.
const APART: f64 = 0.004;

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, LogCoord<f64>>>;

fn title(cell: &InterferenceCell) -> String {
    let demand = match (cell.shape, &cell.samples, cell.distribution) {
        (Some(shape), _, "pareto") => format!("pareto, alpha {shape}"),
        (Some(shape), _, _) => format!("{}, sigma {shape}", cell.distribution),
        (None, Some(file), _) => file.clone(),
        (None, None, name) => name.to_owned(),
    };
    let groups = match cell.groups {
        1 => "1 group".to_owned(),
        groups => format!("{groups} groups"),
    };
    format!("{demand}, {groups}")
}

fn burst(cell: &InterferenceCell) -> &str {
    cell.burst.as_deref().unwrap_or("mixed")
}

pub fn draw(outcome: &InterferenceOutcome) -> Result<String> {
    let panels: Vec<&[InterferenceCell]> = outcome
        .cells
        .chunk_by(|a, b| title(a) == title(b))
        .take(PANELS_MAX)
        .collect();
    let mut bursts: Vec<&str> = Vec::new();
    for cell in &outcome.cells {
        if !bursts.contains(&burst(cell)) {
            bursts.push(burst(cell));
        }
    }
    let across = panels.len().clamp(1, ACROSS);
    // Both are at most PANELS_MAX.
    let (columns, rows) = (across as i32, panels.len().div_ceil(across) as i32);
    let size = (
        columns * PANEL.0 + 2 * MARGIN,
        HEAD + rows * PANEL.1 + MARGIN,
    );
    drawing::svg(size, |root| {
        root.fill(&WHITE).map_err(failed)?;
        head(root, &bursts)?;
        let range = utilisations(&outcome.cells);
        for (index, cells) in panels.iter().enumerate() {
            let left = MARGIN + PANEL.0 * (index % across) as i32;
            let top = HEAD + PANEL.1 * (index / across) as i32;
            let place = root.clone().shrink((left, top), PANEL);
            panel(&place, cells, &bursts, range)?;
        }
        Ok(())
    })
}

fn head(root: &Area, bursts: &[&str]) -> Result<()> {
    let left = MARGIN + 6;
    let title = "Periods that miss their deadline because of bursts: P(WCET > 1)";
    let style = label(17.0, &INK, HPos::Left, VPos::Center);
    text_at(root, title, &style, (left, 20))?;
    let style = label(SMALL, &MUTED, HPos::Left, VPos::Center);
    text_at(root, "burst", &style, (left, 48))?;
    let mut at = left + 44;
    for (burst, colour) in bursts.iter().zip(LINES.iter().cycle()) {
        let line = PathElement::new([(at, 48), (at + 20, 48)], colour.stroke_width(2));
        root.draw(&line).map_err(failed)?;
        root.draw(&Circle::new((at + 10, 48), 3, colour.filled()))
            .map_err(failed)?;
        text_at(root, burst, &style, (at + 26, 48))?;
        at += 92;
    }
    let legend = "ring: 0.001 % or less; bars: 95 % confidence";
    text_at(root, legend, &style, (at + 4, 48))
}

/// Lowest and highest utilisation, with a margin.
fn utilisations(cells: &[InterferenceCell]) -> (f64, f64) {
    let all = || cells.iter().map(|cell| cell.report.utilisation.mean);
    let (low, high) = (all().fold(1.0, f64::min), all().fold(0.0, f64::max));
    let room = (0.08 * (high - low)).max(0.05);
    ((low - room).max(0.0), (high + room).min(1.0))
}

fn panel(
    root: &Area,
    cells: &[InterferenceCell],
    bursts: &[&str],
    (low, high): (f64, f64),
) -> Result<()> {
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(16)
        .x_label_area_size(42)
        .y_label_area_size(62)
        .caption(title(&cells[0]), (FONT, 15.0, &INK))
        .build_cartesian_2d(low..high, (FLOOR..1.0).log_scale())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style((FONT, SMALL, &MUTED))
        .x_desc("utilisation of the machine")
        .y_desc("periods that miss, log scale")
        .x_labels(7)
        .y_labels(6)
        .x_label_formatter(&|ratio| format!("{:.0} %", 100.0 * ratio))
        .y_label_formatter(&|ratio| percent(*ratio))
        .draw()
        .map_err(failed)?;
    for (index, (name, colour)) in bursts.iter().zip(LINES.iter().cycle()).enumerate() {
        let own: Vec<&InterferenceCell> =
            cells.iter().filter(|cell| burst(cell) == *name).collect();
        let shift = (index as f64 - (bursts.len() as f64 - 1.0) / 2.0) * APART * (high - low);
        curve(&mut chart, &own, shift, *colour)?;
    }
    Ok(())
}

/// Formats a ratio in percent, with the digits that a power of ten needs.
fn percent(ratio: f64) -> String {
    let percent = (ratio * 1e9).round() / 1e7;
    format!("{percent} %")
}

fn curve(
    chart: &mut Chart,
    cells: &[&InterferenceCell],
    shift: f64,
    colour: RGBColor,
) -> Result<()> {
    let at = |cell: &InterferenceCell| cell.report.utilisation.mean + shift;
    let mut points: Vec<(f64, f64)> = Vec::with_capacity(cells.len());
    for cell in cells {
        let missed = cell.report.missed;
        points.push((at(cell), missed.mean.max(FLOOR)));
        if let Some(half_width) = missed.half_width.filter(|_| missed.mean > FLOOR) {
            let low = (missed.mean - half_width).max(FLOOR);
            let bar = [(at(cell), low), (at(cell), missed.mean + half_width)];
            let bar = PathElement::new(bar, colour.stroke_width(1));
            chart.draw_series([bar]).map_err(failed)?;
        }
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
    chart.draw_series(line).map_err(failed)?;
    for (point, height) in points {
        let style = if height > FLOOR {
            colour.filled()
        } else {
            WHITE.filled()
        };
        let circles = [
            Circle::new((point, height), 3, style),
            Circle::new((point, height), 3, colour.stroke_width(1)),
        ];
        chart.draw_series(circles).map_err(failed)?;
    }
    Ok(())
}
