//! Common parts of the drawings: panels, scales and text.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::{CommandError, Result};

/// Font family of text; the viewer has a font of this kind.
pub const FONT: &str = "sans-serif";

/// Colour of primary text.
pub const INK: RGBColor = RGBColor(31, 35, 40);
/// Colour of secondary text.
pub const MUTED: RGBColor = RGBColor(101, 109, 118);
/// Colour of grid lines.
pub const GRID: RGBColor = RGBColor(216, 222, 228);
/// Colours of lines, distinguishable by colour-blind readers (the strong
/// colours of Okabe and Ito's palette).
pub const LINES: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(110, 110, 110),
];

/// A whole drawing, in pixels.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Linear = Cartesian2d<RangedCoordf64, RangedCoordf64>;
/// A panel of a drawing, in values.
pub type Panel<'a> = DrawingArea<SVGBackend<'a>, Linear>;

pub fn failed(error: impl std::fmt::Display) -> CommandError {
    CommandError::Draw(error.to_string())
}

/// Creates a drawing of `width` by `height` pixels.
pub fn svg(
    (width, height): (i32, i32),
    draw: impl FnOnce(&Area<'_>) -> Result<()>,
) -> Result<String> {
    let mut text = String::new();
    {
        let size = (width.unsigned_abs(), height.unsigned_abs());
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&root)?;
        root.present().map_err(failed)?;
    }
    Ok(text)
}

pub fn label(size: f64, colour: &RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'_> {
    TextStyle::from((FONT, size).into_font())
        .color(colour)
        .pos(Pos::new(horizontal, vertical))
}

pub fn text_at(root: &Area, text: &str, style: &TextStyle, at: (i32, i32)) -> Result<()> {
    root.draw(&Text::new(text.to_owned(), at, style.clone()))
        .map_err(failed)
}

pub fn text_upwards(root: &Area, text: &str, style: &TextStyle, at: (i32, i32)) -> Result<()> {
    let font = style.font.clone().transform(FontTransform::Rotate270);
    let style = TextStyle {
        font,
        ..style.clone()
    };
    text_at(root, text, &style, at)
}

/// A panel between these pixels; values grow to the right and upwards.
pub fn panel<'a>(
    root: &Area<'a>,
    (left, right): (i32, i32),
    (top, height): (i32, i32),
    x: Range<f64>,
    y: Range<f64>,
) -> Panel<'a> {
    let pixels = (left..right, top + height..top);
    root.clone()
        .shrink((left, top), (right - left, height))
        .apply_coord_spec(Linear::new(x, y, pixels))
}

/// A grid line across a panel, with its label on the left.
pub fn grid_line(
    root: &Area,
    panel: &Panel,
    value: f64,
    name: &str,
    (line, words): (RGBColor, &TextStyle),
) -> Result<()> {
    let (from, to) = (panel.get_x_range().start, panel.get_x_range().end);
    let ends = vec![(from, value), (to, value)];
    let (left, y) = panel.map_coordinate(&ends[0]);
    panel.draw(&PathElement::new(ends, line)).map_err(failed)?;
    text_at(root, name, words, (left - 7, y))
}

/// A line with a dot at each of its points.
pub fn dotted_line(
    panel: &Panel,
    points: Vec<(f64, f64)>,
    colour: RGBColor,
    radius: u32,
) -> Result<()> {
    for point in &points {
        let dot = Circle::new(*point, radius, colour.filled());
        panel.draw(&dot).map_err(failed)?;
    }
    let line = PathElement::new(points, colour.stroke_width(2));
    panel.draw(&line).map_err(failed)
}

/// Logarithms of round values in a range of logarithms: 1, 2 and 5 times powers
/// of ten over short ranges, powers of ten over longer ones, every other power
/// over the longest.
pub fn log_ticks(range: &Range<f64>) -> Vec<f64> {
    let span = range.end - range.start;
    let steps: &[f64] = if span > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let every = if span > 4.0 { 2 } else { 1 };
    let powers = (range.start.floor() as i32..=range.end.floor() as i32).step_by(every);
    let ticks = powers.flat_map(|power| steps.iter().map(move |s| f64::from(power) + s.log10()));
    ticks
        .filter(|tick| (range.start..=range.end).contains(tick))
        .collect()
}

/// A round step of which at most `most` fit into `length`.
pub fn round_step(length: f64, most: f64) -> f64 {
    let magnitude = 10_f64.powf((length / most).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * magnitude);
    let step = steps.into_iter().find(|step| length / step <= most);
    step.unwrap_or(10.0 * magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(low: f64, high: f64) -> Vec<f64> {
        let ticks = log_ticks(&(low.log10()..high.log10()));
        ticks.into_iter().map(|t| 10_f64.powf(t).round()).collect()
    }

    #[test]
    fn short_ranges_have_ticks_between_powers_of_ten() {
        assert_eq!(values(7.0, 120.0), [10.0, 20.0, 50.0, 100.0]);
        assert_eq!(values(90.0, 120_000.0), [100.0, 1e3, 1e4, 1e5]);
        assert_eq!(values(9.0, 2e6), [100.0, 1e4, 1e6]);
    }

    #[test]
    fn round_steps_are_at_most_the_requested_number() {
        assert_eq!(
            [60.0, 10.0, 9.0, 0.7].map(|length| round_step(length, 8.0)),
            [10.0, 2.0, 2.0, 0.1]
        );
    }
}
