//! Table of groups. Only the visible rows are built.

use clap::ValueEnum as _;
use plimsoll_daemon::state::GroupState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::look::Look;
use crate::top::columns::Column;
use crate::top::model::Model;

/// Width of the mark before each row: the cursor, or a problem of the group.
const MARK_WIDTH: u16 = 2;
/// Minimum width of names; knobs get at least as much as is left.
const GROUP_WIDTH_MIN: u16 = 12;
/// Width that suffices for most names.
const GROUP_WIDTH_GOOD: u16 = 20;
/// Maximum width of names if knobs are shown.
const GROUP_WIDTH_MAX: u16 = 48;
/// Minimum width of knobs to be shown.
const KNOBS_WIDTH_MIN: u16 = 12;
/// Columns that are omitted on narrow screens, in this order.
const EXPENDABLE: [Column; 6] = [
    Column::Knobs,
    Column::Bursts,
    Column::Wait,
    Column::Processes,
    Column::Class,
    Column::Throttled,
];

fn width_min(column: Column) -> u16 {
    match column {
        Column::Group => GROUP_WIDTH_MIN,
        Column::Class | Column::Throttled => 6,
        Column::Cpu | Column::Bursts | Column::Wait | Column::Processes => 7,
        Column::Knobs => KNOBS_WIDTH_MIN,
    }
}

/// The columns that fit into `width`, each with its own width. The sort column
/// is always included.
fn columns(width: u16, sort: Column) -> Vec<(Column, u16)> {
    let mut shown = Column::value_variants().to_vec();
    let needed = |shown: &[Column]| {
        // One space between two columns.
        let widths = shown.iter().map(|column| width_min(*column) + 1);
        MARK_WIDTH + widths.sum::<u16>() - 1
    };
    for column in EXPENDABLE {
        if needed(&shown) > width && column != sort {
            shown.retain(|kept| *kept != column);
        }
    }
    let mut left = width.saturating_sub(needed(&shown));
    let has_knobs = shown.contains(&Column::Knobs);
    let widened = |column: Column| {
        let mut more = 0;
        if column == Column::Group {
            // First widens names up to the good width, then gives them half of
            // the rest if knobs are shown.
            more = left;
            if has_knobs {
                let readable = left.min(GROUP_WIDTH_GOOD - GROUP_WIDTH_MIN);
                more = readable + (left - readable) / 2;
                more = more.min(GROUP_WIDTH_MAX - GROUP_WIDTH_MIN);
            }
            left -= more;
        } else if column == Column::Knobs {
            more = left;
        }
        (column, width_min(column) + more)
    };
    shown.into_iter().map(widened).collect()
}

/// Fits `text` to exactly `width` columns. Text that is too long is truncated
/// at its end, or at its start with `keep_end`.
fn fitted(text: &str, width: u16, to_the_right: bool, keep_end: bool, look: &Look) -> String {
    let width = usize::from(width);
    let columns = |text: &str| Span::raw(text).width();
    let cut = look.signs().cut;
    let mut text = text.to_owned();
    if columns(&text) > width {
        let mut letters: Vec<char> = text.chars().collect();
        while !letters.is_empty() {
            letters.remove(if keep_end { 0 } else { letters.len() - 1 });
            let kept: String = letters.iter().collect();
            if columns(&kept) < width {
                text = if keep_end {
                    format!("{cut}{kept}")
                } else {
                    format!("{kept}{cut}")
                };
                break;
            }
        }
    }
    let padding = " ".repeat(width.saturating_sub(columns(&text)));
    if to_the_right {
        padding + &text
    } else {
        text + &padding
    }
}

fn header(model: &Model, shown: &[(Column, u16)], look: &Look) -> String {
    let signs = look.signs();
    let cell = |(column, width): &(Column, u16)| {
        let mut title = column.title().to_owned();
        if *column == model.sort {
            title += if model.is_reversed {
                signs.reversed
            } else {
                signs.sorted
            };
        }
        fitted(&title, *width, column.is_number(), false, look)
    };
    let cells: Vec<String> = shown.iter().map(cell).collect();
    " ".repeat(MARK_WIDTH.into()) + &cells.join(" ")
}

fn mark(group: &GroupState, is_cursor: bool) -> &'static str {
    match (is_cursor, group.problem.is_some()) {
        (true, true) => ">!",
        (true, false) => "> ",
        (false, true) => " !",
        (false, false) => "  ",
    }
}

pub fn draw(model: &mut Model, look: &Look, area: Rect, buffer: &mut Buffer) {
    let shown = columns(area.width, model.sort);
    let end = usize::from(area.width);
    let text = header(model, &shown, look);
    buffer.set_stringn(area.x, area.y, text, end, look.reversed());
    let rows = model.page(area.height.saturating_sub(1).into());
    if rows.is_empty() && area.height > 1 {
        let why = match (model.asked, model.filter.is_empty()) {
            (None, _) => "",
            (_, true) => "  no groups",
            (_, false) => "  no group contains the filter",
        };
        buffer.set_stringn(area.x, area.y + 1, why, end, look.faint());
    }
    for (line, (index, is_cursor)) in (area.y + 1..area.bottom()).zip(rows) {
        let (group, rates) = model.group(index);
        let cells = shown.iter().map(|(column, width)| {
            let text = column.text(group, rates);
            let is_name = *column == Column::Group;
            fitted(&text, *width, column.is_number(), is_name, look)
        });
        let cells: Vec<String> = cells.collect();
        let text = format!("{}{}", mark(group, is_cursor), cells.join(" "));
        let style = match (is_cursor, group.problem.is_some()) {
            (true, _) => look.reversed(),
            (false, true) => look.alarm(),
            (false, false) => ratatui::style::Style::new(),
        };
        buffer.set_stringn(area.x, line, text, end, style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fill_the_width_and_include_the_sort_column() {
        for width in 40..=250 {
            for sort in Column::value_variants().iter().copied() {
                let shown = columns(width, sort);
                assert!(shown.iter().any(|(column, _)| *column == sort));
                assert!(shown.iter().any(|(column, _)| *column == Column::Cpu));
                let sum: u16 = shown.iter().map(|(_, width)| width + 1).sum();
                assert_eq!(sum - 1 + MARK_WIDTH, width, "{shown:?}");
            }
        }
        assert_eq!(
            columns(80, Column::Cpu).len(),
            Column::value_variants().len()
        );
    }

    #[test]
    fn long_text_is_truncated_at_the_given_end() {
        let look = Look::of(|_| Some("C.UTF-8".into()));
        let name = "/system.slice/nginx.service";
        assert_eq!(fitted(name, 14, false, true, &look), "…nginx.service");
        assert_eq!(fitted("quota=2cpus", 8, false, false, &look), "quota=2…");
        assert_eq!(fitted("12.5", 6, true, false, &look), "  12.5");
        // Two columns per character.
        assert_eq!(fitted("漢字漢字", 4, false, false, &look), "漢… ");
    }
}
