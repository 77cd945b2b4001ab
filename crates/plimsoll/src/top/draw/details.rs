//! Details of one group: sparklines of the last minutes, and all its
//! properties.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Sparkline, Widget as _};

use super::look::Look;
use crate::output::{group_text, one_line};
use crate::top::columns::tenths;
use crate::top::model::Model;
use crate::top::rates::{GroupRates, PPM};

/// Width of a sparkline's name and value.
const LABEL_WIDTH: u16 = 22;
/// Heights from which sparklines have two lines, and three.
const TALLER_HEIGHTS_MIN: [u16; 2] = [23, 30];

/// Minimum of the scale, so that small values look small.
const FULL_PPM: u64 = PPM;

struct Series {
    name: &'static str,
    value: fn(&GroupRates) -> Option<u64>,
}

const SERIES: [Series; 3] = [
    Series {
        name: "CPU",
        value: |point| point.cpu_ppm,
    },
    Series {
        name: "throttled",
        value: |point| point.throttled_ppm,
    },
    Series {
        name: "waiting",
        value: |point| point.wait_ppm,
    },
];

fn duration_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..120 => format!("{seconds} s"),
        _ => format!("{} min", seconds / 60),
    }
}

/// Draws one sparkline with its label. The newest value is at the right end.
fn sparkline(
    series: &Series,
    points: &[&GroupRates],
    look: &Look,
    area: Rect,
    buffer: &mut Buffer,
) {
    let [label, plot] = [
        Rect {
            width: LABEL_WIDTH.min(area.width),
            ..area
        },
        Rect {
            x: area.x + LABEL_WIDTH.min(area.width),
            width: area.width.saturating_sub(LABEL_WIDTH),
            ..area
        },
    ];
    let percent = |ppm: Option<u64>| match ppm {
        Some(_) => format!("{}%", tenths(ppm)),
        None => tenths(None),
    };
    let newest = points.last().and_then(|point| (series.value)(point));
    let text = format!("{:<11}{:>8}", series.name, percent(newest));
    buffer.set_stringn(label.x, area.y, text, label.width.into(), look.title());
    let values = points.iter().map(|point| (series.value)(point));
    let missing = usize::from(plot.width).saturating_sub(points.len());
    let values: Vec<Option<u64>> = std::iter::repeat_n(None, missing).chain(values).collect();
    let shown = &values[values.len() - usize::from(plot.width)..];
    let most = shown.iter().flatten().copied().max();
    if area.height > 1 {
        let text = format!("{:<11}{:>8}", "most", percent(most));
        buffer.set_stringn(label.x, area.y + 1, text, label.width.into(), look.faint());
    }
    Sparkline::default()
        .data(shown)
        .max(most.unwrap_or(0).max(FULL_PPM))
        .bar_set(look.levels())
        .absent_value_symbol(" ")
        .style(look.normal())
        .render(plot, buffer);
}

/// Draws the details of the group under the cursor.
pub fn draw(model: &mut Model, look: &Look, area: Rect, buffer: &mut Buffer) {
    let Some(index) = model.selected() else {
        buffer.set_stringn(
            area.x,
            area.y,
            "the group is gone",
            area.width.into(),
            look.alarm(),
        );
        return;
    };
    let name = model.state.groups[index].name.clone();
    let taller = TALLER_HEIGHTS_MIN
        .iter()
        .filter(|least| area.height >= **least);
    let height = 1 + u16::try_from(taller.count()).unwrap_or(0);
    let columns = usize::from(area.width.saturating_sub(LABEL_WIDTH));
    let points: Vec<&GroupRates> = model.history.of(&name).collect();
    let points = &points[points.len().saturating_sub(columns)..];
    let span = duration_words(model.interval * u32::try_from(points.len()).unwrap_or(u32::MAX));
    let title = Line::styled(format!("{} - last {span}", one_line(&name)), look.title());
    buffer.set_line(area.x, area.y, &title, area.width);
    let mut y = area.y + 1;
    for series in &SERIES {
        if y + height <= area.bottom() {
            let line = Rect { y, height, ..area };
            sparkline(series, points, look, line, buffer);
        }
        y += height;
    }
    let details = model.details.as_ref().filter(|of| of.name == name);
    let group = details.unwrap_or(&model.state.groups[index]);
    let text = group_text(group, None, Some(area.width));
    let lines: Vec<String> = text.lines().map(one_line).collect();
    super::scrolled_lines(
        model,
        &lines,
        Rect {
            y,
            height: area.bottom().saturating_sub(y),
            ..area
        },
        buffer,
    );
}
