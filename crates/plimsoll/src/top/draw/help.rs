//! Help screen with the keys.

use clap::ValueEnum as _;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::look::Look;
use crate::top::columns::Column;
use crate::top::model::Model;

const KEYS: [(&str, &str); 13] = [
    ("up, down, j, k", "move the cursor"),
    ("PgUp, PgDn", "by a page"),
    ("Home, End", "to the first, last row"),
    ("Enter", "details of the group; back"),
    ("<, >", "sort by the column to the left, right"),
    ("r", "reverse the order"),
    ("/", "only groups that contain a text"),
    ("Esc", "back; clear the filter"),
    ("p", "pause; continue"),
    ("?", "this; back"),
    ("q, Ctrl-C", "end"),
    ("Ctrl-Z", "suspend until fg"),
    ("Ctrl-L", "redraw the screen"),
];

const MEANINGS: [(&str, &str); 6] = [
    ("CPU%", "of one CPU"),
    ("THR%", "periods that ended throttled"),
    ("BURST%", "periods that used more than the quota"),
    ("WAIT%", "tasks waiting for a CPU: 200% is two"),
    ("!", "the group has a problem: see details"),
    ("-", "not known, or no such limit"),
];

fn lines() -> Vec<String> {
    let line = |name: &str, what: &str| format!("{name:<15} {what}");
    let letters = Column::value_variants().iter().map(|column| {
        line(
            &column.key().to_string(),
            &format!("sort by {}", column.title()),
        )
    });
    let keys = KEYS.iter().map(|(key, what)| line(key, what));
    let meanings = MEANINGS.iter().map(|(name, what)| line(name, what));
    keys.chain(letters)
        .chain([String::new()])
        .chain(meanings)
        .collect()
}

pub fn draw(model: &mut Model, look: &Look, area: Rect, buffer: &mut Buffer) {
    buffer.set_stringn(area.x, area.y, "keys", area.width.into(), look.title());
    let below = Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1),
        ..area
    };
    super::scrolled_lines(model, &lines(), below, buffer);
}
