//! Plot of nanoseconds per event against the size of the simulated host.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// Colours that colour-blind readers can tell apart: M. Okabe, K. Ito, "Color
/// Universal Design", 2008.
const COLOURS: [RGBColor; 2] = [RGBColor(0x00, 0x72, 0xb2), RGBColor(0xd5, 0x5e, 0x00)];
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const SIZE: (u32, u32) = (820, 420);

/// A line: its name and its points.
type Line<'a> = (&'a str, Vec<(f64, f64)>);

/// Draws lines over sizes on a logarithmic scale, as SVG.
pub fn draw(file: &Path, lines: &[Line]) -> Result<(), Box<dyn Error>> {
    let points = || lines.iter().flat_map(|line| &line.1);
    let largest = points().map(|point| point.0).fold(10.0, f64::max);
    let highest = points().map(|point| point.1).fold(1.0, f64::max);
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .margin_right(40)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .caption(
            "Cost of an event of the host simulator",
            ("sans-serif", 19, &INK),
        )
        .build_cartesian_2d((2.0..largest * 1.2).log_scale(), 0.0..highest * 1.1)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(("sans-serif", 14, &INK))
        .x_desc("CPUs or tasks, log scale")
        .y_desc("ns per event")
        .x_label_formatter(&|size| format!("{size:.0}"))
        .y_label_formatter(&|ns| format!("{ns:.0}"))
        .draw()?;
    for ((name, points), colour) in lines.iter().zip(COLOURS) {
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
        chart
            .draw_series(line.point_size(3))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 14, &INK))
        .background_style(WHITE)
        .border_style(GRID)
        .draw()?;
    root.present()?;
    Ok(())
}
