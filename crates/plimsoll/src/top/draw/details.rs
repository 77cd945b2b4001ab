//! Details of one group: sparklines of the last minutes, and all its
//! properties.

use std::time::Duration;

use plimsoll_daemon::state::Group;
use plimsoll_engine::plan::{Fidelity, PlanItem};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Sparkline, Widget as _};

use super::look::Look;
use crate::output::{group_rows, one_line, task_rows};
use crate::top::columns::tenths;
use crate::top::history::Point;
use crate::top::model::Model;
use crate::top::rates::PPM;
use crate::top::source::Details;

/// Width of a sparkline's name and value.
const LABEL_WIDTH: u16 = 22;
/// Width of a property's name.
const NAME_WIDTH: usize = 12;
/// Heights from which sparklines have two lines, and three.
const TALLER_HEIGHTS_MIN: [u16; 2] = [14, 24];

/// Minimum of the scale, so that small values look small.
const FULL_PPM: u64 = PPM;

struct Series {
    name: &'static str,
    value: fn(&Point) -> Option<u32>,
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

/// The mechanism that enforces a knob, and its loss.
fn plan_line(item: &PlanItem) -> String {
    let enforced = format!("{}={}: {}", item.knob.name(), item.value, item.mechanism);
    one_line(&match &item.fidelity {
        Fidelity::Exact => enforced,
        Fidelity::Approximate { loss } => format!("{enforced}; lost: {loss}"),
        Fidelity::Impossible { reason } => format!("{enforced}; NOT ENFORCED: {reason}"),
    })
}

/// Properties of a group, as names and values.
fn known(group: &Group, details: Option<&Details>) -> Vec<(&'static str, String)> {
    let mut rows = group_rows(group, None);
    if let Some(details) = details {
        let plan = details.plan.iter();
        rows.extend(plan.map(|item| ("enforced", plan_line(item))));
        rows.extend(details.task_rates.iter().flat_map(task_rows));
    }
    rows
}

/// Wraps a value to `width`, at spaces if possible.
fn wrapped(value: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in value.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().map_or(0, |line| line.chars().count());
            let space = usize::from(line > 0);
            if line + space + word.len() <= width {
                if let Some(last) = lines.last_mut() {
                    last.push_str(if space == 1 { " " } else { "" });
                    last.extend(word);
                }
                break;
            }
            if line > 0 {
                lines.push(String::new());
            } else {
                // A word that is longer than a line.
                let rest = word.split_off(width.max(1));
                lines.pop();
                lines.push(word.into_iter().collect());
                lines.push(String::new());
                word = rest;
            }
        }
    }
    lines
}

fn text_lines(rows: &[(&'static str, String)], width: u16) -> Vec<String> {
    let width = usize::from(width).saturating_sub(NAME_WIDTH).max(1);
    let lines = rows.iter().flat_map(|(name, value)| {
        let pieces = wrapped(value, width).into_iter().enumerate();
        pieces.map(move |(number, piece)| {
            let name = if number == 0 { *name } else { "" };
            format!("{name:<NAME_WIDTH$}{piece}")
        })
    });
    lines.collect()
}

fn duration_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..120 => format!("{seconds} s"),
        _ => format!("{} min", seconds / 60),
    }
}

/// Draws one sparkline with its label. The newest value is at the right end.
fn sparkline(series: &Series, points: &[&Point], look: &Look, area: Rect, buffer: &mut Buffer) {
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
    let text = format!("{:<11}{:>8}", series.name, percent(newest.map(u64::from)));
    buffer.set_stringn(label.x, area.y, text, label.width.into(), look.title());
    let values = points
        .iter()
        .map(|point| (series.value)(point).map(u64::from));
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
    let points: Vec<&Point> = model.history.of(&name).collect();
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
    let (group, _) = model.group(index);
    let details = model.details.as_ref().filter(|(of, _)| *of == name);
    let lines = text_lines(
        &known(group, details.map(|(_, details)| details)),
        area.width,
    );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_wrapped_at_spaces_if_possible() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrapped("", 3), [""]);
        assert_eq!(wrapped("ab", 0), ["a", "b", ""]);
        let rows = [("knobs", "quota=2cpus burst=10ms".to_owned())];
        let expected = ["knobs       quota=2cpus", "            burst=10ms"];
        assert_eq!(text_lines(&rows, 24), expected);
    }
}
