//! Draws the screen from the model. Pure.

mod bar;
mod details;
mod help;
mod look;
mod table;
#[cfg(test)]
mod tests;

pub use bar::{headroom_line, stop_ppm};
pub use look::Look;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::model::{Model, Screen};
use super::source::SourceKind;
use crate::output::one_line;

const WIDTH_MIN: u16 = 40;
const HEIGHT_MIN: u16 = 10;
/// Minimum height with a line for the headroom controller.
const HEIGHT_WITH_HEADROOM: u16 = 14;

pub fn draw(model: &mut Model, look: &Look, frame: &mut Frame<'_>) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let text = format!("needs {WIDTH_MIN} x {HEIGHT_MIN}");
        buffer.set_stringn(area.x, area.y, text, area.width.into(), Style::new());
        return;
    }
    let line = |y: u16| Rect {
        y,
        height: 1,
        ..area
    };
    title(model, look, line(0), buffer);
    let machine = model.rates.machine.as_ref();
    let headroom = model.state.headroom.as_ref();
    bar::bar(machine, headroom, look, line(1), buffer);
    bar::legend(machine, headroom, look, line(2), buffer);
    let mut y = 3;
    let is_tall = area.height >= HEIGHT_WITH_HEADROOM;
    if is_tall && let Some(headroom) = headroom {
        put(buffer, line(y), &headroom_line(headroom), Style::new());
        y += 1;
    }
    if (is_tall || model.screen == Screen::Table)
        && let Some(text) = attention(model)
    {
        put(buffer, line(y), &text, look.alarm());
        y += 1;
    }
    let last = area.bottom() - 1;
    let middle = Rect {
        y,
        height: last - y,
        ..area
    };
    match model.screen {
        Screen::Table => table::draw(model, look, middle, buffer),
        Screen::Details => details::draw(model, look, middle, buffer),
        Screen::Help => help::draw(model, look, middle, buffer),
    }
    foot(model, look, line(last), buffer);
}

fn put(buffer: &mut Buffer, area: Rect, text: &str, style: Style) {
    buffer.set_stringn(area.x, area.y, text, area.width.into(), style);
}

/// Draws lines that may not all fit, from the scroll position on.
fn scrolled_lines(model: &mut Model, lines: &[String], area: Rect, buffer: &mut Buffer) {
    let first = model.scrolled(lines.len(), area.height.into());
    for (y, text) in (area.y..area.bottom()).zip(&lines[first..]) {
        put(buffer, Rect { y, ..area }, text, Style::new());
    }
}

/// A duration, roughly.
fn uptime(usec: u64) -> String {
    let minutes = usec / 60_000_000;
    match (minutes / 1_440, minutes / 60 % 24, minutes % 60) {
        (0, 0, 0) => format!("{}s", usec / 1_000_000),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h{minutes:02}m"),
        (days, hours, _) => format!("{days}d{hours:02}h"),
    }
}

fn title(model: &Model, look: &Look, area: Rect, buffer: &mut Buffer) {
    let daemon = &model.state.daemon;
    let who = match model.asked {
        None => "starting".into(),
        Some(SourceKind::Kernel) => "no daemon".into(),
        Some(SourceKind::Denied) => "daemon denies".into(),
        Some(SourceKind::Daemon) => format!("daemon up {}", uptime(daemon.uptime_usec)),
    };
    let counts = match model.asked {
        None => String::new(),
        Some(_) => {
            let (groups, cpus) = (model.state.groups.len(), model.state.machine.nr_cpus);
            let plural = |count| if count == 1 { "" } else { "s" };
            let (s_groups, s_cpus) = (plural(groups), plural(cpus as usize));
            format!("{groups} group{s_groups}, {cpus} CPU{s_cpus}, ")
        }
    };
    let text = format!("plimsoll top - {counts}{who}");
    put(buffer, area, &text, look.title());
    if model.is_paused {
        let text = " PAUSED";
        let x = area.right() - 7;
        buffer.set_stringn(x, area.y, text, 7, look.alarm());
    }
}

/// A problem to show, in one line.
fn attention(model: &Model) -> Option<String> {
    let daemon = model.state.daemon.problems.iter();
    let scheduler = model
        .state
        .scheduler
        .iter()
        .filter_map(|state| state.loss.as_ref());
    let groups = model.state.groups.iter().filter_map(|group| {
        let problem = group.problem.as_ref()?;
        Some(format!("{}: {problem}", group.name))
    });
    let mut all = scheduler.chain(daemon).cloned().chain(groups);
    let first = one_line(&all.next()?);
    Some(match all.count() {
        0 => format!("! {first}"),
        more => format!("! {first} (and {more} more)"),
    })
}

/// Keys of a screen, the most important first.
fn keys(screen: Screen) -> &'static [&'static str] {
    match screen {
        Screen::Table => &[
            "q quit",
            "? keys",
            "Enter details",
            "< > sort",
            "r reverse",
            "/ filter",
            "p pause",
        ],
        Screen::Details => &["q quit", "? keys", "Esc back", "up/down scroll", "p pause"],
        Screen::Help => &["q quit", "Esc back", "up/down scroll"],
    }
}

fn foot(model: &Model, look: &Look, area: Rect, buffer: &mut Buffer) {
    if model.is_typing {
        let text = format!("filter: {}_  Enter keeps, Esc clears", model.filter);
        put(buffer, area, &text, look.title());
        return;
    }
    if let Some(problem) = &model.problem {
        let text = format!("no answer; retrying ({})", one_line(problem));
        put(buffer, area, &text, look.alarm());
        return;
    }
    let mut text = String::new();
    if model.screen == Screen::Table && !model.filter.is_empty() {
        text = format!(
            "filter: {} ({} shown, Esc clears)",
            model.filter,
            model.nr_rows()
        );
    }
    for key in keys(model.screen) {
        if text.len() + key.len() + 2 <= area.width.into() {
            text += if text.is_empty() { "" } else { "  " };
            text += key;
        }
    }
    put(buffer, area, &text, look.faint());
}
