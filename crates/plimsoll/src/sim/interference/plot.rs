//! The picture: P(WCET > 1) against utilisation, a panel for each distribution
//! and number of groups, a curve for each burst.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::outcome::{Cell, Outcome};
use crate::error::{CommandError, Result};

const INK: RGBColor = RGBColor(31, 35, 40);
const MUTED: RGBColor = RGBColor(101, 109, 118);
const GRID: RGBColor = RGBColor(216, 222, 228);
/// Curves, told apart also by those who see few colours (Okabe and Ito's
/// palette, the strong ones).
const CURVES: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(110, 110, 110),
];

const PANEL: (u32, u32) = (460, 300);
/// Above the panels: the title and what the colours are.
const HEAD: u32 = 70;
const MARGIN: u32 = 14;
/// Panels beside each other.
const ACROSS: usize = 2;
/// More panels than this no person looks at.
const PANELS_MAX: usize = 24;
const FONT: &str = "sans-serif";
const SMALL: f64 = 13.0;
/// The lowest value of the scale. With a million periods, ten of them.
const FLOOR: f64 = 1e-5;
/// Curves of one panel are moved apart by this, so that their bars can be told
/// apart.
const APART: f64 = 0.004;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, LogCoord<f64>>>;

fn failed(error: impl std::fmt::Display) -> CommandError {
    CommandError::Other(format!("plot: cannot draw: {error}"))
}

/// A text's style.
fn label(size: f64, colour: &RGBColor) -> TextStyle<'_> {
    TextStyle::from((FONT, size).into_font())
        .color(colour)
        .pos(Pos::new(HPos::Left, VPos::Center))
}

/// What a panel is of.
fn title(cell: &Cell) -> String {
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

fn burst(cell: &Cell) -> &str {
    cell.burst.as_deref().unwrap_or("mixed")
}

/// Draws all cells.
pub fn draw(outcome: &Outcome) -> Result<String> {
    let panels: Vec<&[Cell]> = outcome
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
    let (columns, rows) = (across as u32, panels.len().div_ceil(across) as u32);
    let size = (
        columns * PANEL.0 + 2 * MARGIN,
        HEAD + rows * PANEL.1 + MARGIN,
    );
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        head(&root, &bursts)?;
        let range = utilisations(&outcome.cells);
        for (index, cells) in panels.into_iter().enumerate() {
            let left = MARGIN + PANEL.0 * (index % across) as u32;
            let top = HEAD + PANEL.1 * (index / across) as u32;
            // Pictures are smaller than 2^31.
            let corner = (left as i32, top as i32);
            panel(&root.clone().shrink(corner, PANEL), cells, &bursts, range)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(text)
}

/// The title, and what the colours are.
fn head(root: &Area, bursts: &[&str]) -> Result<()> {
    let text = |text: &str, style: &TextStyle, at: (i32, i32)| {
        root.draw(&Text::new(text.to_owned(), at, style.clone()))
            .map_err(failed)
    };
    let left = MARGIN as i32 + 6;
    let title = "How often bursts cost somebody a deadline: P(WCET > 1)";
    text(title, &label(17.0, &INK), (left, 20))?;
    let style = label(SMALL, &MUTED);
    text("burst", &style, (left, 48))?;
    let mut at = left + 44;
    for (burst, colour) in bursts.iter().zip(CURVES.iter().cycle()) {
        let line = PathElement::new([(at, 48), (at + 20, 48)], colour.stroke_width(2));
        root.draw(&line).map_err(failed)?;
        root.draw(&Circle::new((at + 10, 48), 3, colour.filled()))
            .map_err(failed)?;
        text(burst, &style, (at + 26, 48))?;
        at += 92;
    }
    text(
        "ring: 0.001 % or less; bars: 95 % confidence",
        &style,
        (at + 4, 48),
    )
}

/// From the least to the most busy, with some room.
fn utilisations(cells: &[Cell]) -> (f64, f64) {
    let all = || cells.iter().map(|cell| cell.report.utilisation.mean);
    let (low, high) = (all().fold(1.0, f64::min), all().fold(0.0, f64::max));
    let room = (0.08 * (high - low)).max(0.05);
    ((low - room).max(0.0), (high + room).min(1.0))
}

fn panel(root: &Area, cells: &[Cell], bursts: &[&str], (low, high): (f64, f64)) -> Result<()> {
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
    for (index, (name, colour)) in bursts.iter().zip(CURVES.iter().cycle()).enumerate() {
        let own: Vec<&Cell> = cells.iter().filter(|cell| burst(cell) == *name).collect();
        let shift = (index as f64 - (bursts.len() as f64 - 1.0) / 2.0) * APART * (high - low);
        curve(&mut chart, &own, shift, *colour)?;
    }
    Ok(())
}

/// With as many digits as a power of ten needs.
fn percent(ratio: f64) -> String {
    let percent = (ratio * 1e9).round() / 1e7;
    format!("{percent} %")
}

fn curve(chart: &mut Chart, cells: &[&Cell], shift: f64, colour: RGBColor) -> Result<()> {
    let at = |cell: &Cell| cell.report.utilisation.mean + shift;
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
