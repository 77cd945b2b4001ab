//! Bar of the machine's utilisation, with the headroom line and the legend.

use plimsoll_engine::sample::HeadroomSample;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use super::look::Look;
use crate::output::{one_line, percent};
use crate::top::columns::tenths;
use crate::top::rates::{MachineRates, PPM};

/// Minimum number of columns of a legend with words.
const WORDS_WIDTH_MIN: u16 = 60;

/// Column at which a share of the machine ends.
fn end_of(ppm: u64, width: u16) -> u16 {
    let columns = (ppm.min(PPM) * u64::from(width) + PPM / 2) / PPM;
    u16::try_from(columns).unwrap_or(width)
}

/// Utilisation at which batch work must stop, in ppm of all CPUs.
pub fn stop_ppm(headroom: &HeadroomSample) -> u64 {
    PPM.saturating_sub(headroom.headroom_ppm.into())
}

/// Draws the bar into the first line of `area`.
pub fn bar(
    machine: Option<&MachineRates>,
    headroom: Option<&HeadroomSample>,
    look: &Look,
    area: Rect,
    buffer: &mut Buffer,
) {
    let (width, signs) = (area.width, look.signs());
    let (normal, batch) = machine.map_or((0, 0), |machine| {
        let normal = end_of(machine.normal_ppm, width);
        let both = end_of(machine.normal_ppm + machine.batch_ppm, width);
        (normal, both - normal)
    });
    let idle = width - normal - batch;
    let part = |sign: &str, columns: u16| sign.repeat(columns.into());
    let parts = Line::from(vec![
        Span::styled(part(signs.normal, normal), look.normal()),
        Span::styled(part(signs.batch, batch), look.batch()),
        Span::styled(part(signs.idle, idle), look.faint()),
    ]);
    buffer.set_line(area.x, area.y, &parts, width);
    if let Some(headroom) = headroom
        && width > 0
    {
        let column = end_of(stop_ppm(headroom), width).min(width - 1);
        buffer.set_string(area.x + column, area.y, signs.line, look.line());
    }
}

pub fn legend(
    machine: Option<&MachineRates>,
    headroom: Option<&HeadroomSample>,
    look: &Look,
    area: Rect,
    buffer: &mut Buffer,
) {
    let has_words = area.width >= WORDS_WIDTH_MIN;
    let signs = look.signs();
    let share = |ppm: fn(&MachineRates) -> u64| {
        machine.map_or_else(
            || "-".into(),
            |machine| format!("{}%", tenths(Some(ppm(machine)))),
        )
    };
    let mut spans = Vec::new();
    for (sign, style, name, value) in [
        (
            signs.normal,
            look.normal(),
            "normal",
            share(|m| m.normal_ppm),
        ),
        (signs.batch, look.batch(), "batch", share(|m| m.batch_ppm)),
        (signs.idle, look.faint(), "idle", share(|m| m.idle_ppm)),
    ] {
        spans.push(Span::styled(sign, style));
        spans.push(Span::raw(if has_words {
            format!(" {name} {value}  ")
        } else {
            format!(" {value} ")
        }));
    }
    if let Some(headroom) = headroom {
        spans.push(Span::styled(signs.line, look.line()));
        let stop = tenths(Some(stop_ppm(headroom)));
        spans.push(Span::raw(if has_words {
            format!(" batch work stops at {stop}%")
        } else {
            format!(" {stop}%")
        }));
    }
    Line::from(spans).render(area, buffer);
}

/// State of the headroom controller, in one line.
pub fn headroom_line(headroom: &HeadroomSample) -> String {
    let asked = match &headroom.in_force {
        Some(in_force) => one_line(in_force),
        None => percent(headroom.headroom_ppm.into()),
    };
    let milliseconds = headroom.headroom_shortfall_usec / 1_000;
    format!(
        "headroom {asked}: batch work {}% of {}% allowed; short by {}.{:03} s so far",
        tenths(Some(headroom.side_ppm)),
        tenths(Some(headroom.allowance_ppm)),
        milliseconds / 1_000,
        milliseconds % 1_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(machine: MachineRates, headroom_ppm: Option<u32>, width: u16) -> String {
        let look = Look::of(|_| Some("C.UTF-8".into()));
        let area = Rect::new(0, 0, width, 1);
        let mut buffer = Buffer::empty(area);
        let headroom = headroom_ppm.map(|headroom_ppm| HeadroomSample {
            headroom_ppm,
            ..HeadroomSample::default()
        });
        bar(Some(&machine), headroom.as_ref(), &look, area, &mut buffer);
        buffer.content().iter().map(|cell| cell.symbol()).collect()
    }

    fn machine(normal_ppm: u64, batch_ppm: u64) -> MachineRates {
        MachineRates {
            normal_ppm,
            batch_ppm,
            idle_ppm: PPM - normal_ppm - batch_ppm,
        }
    }

    #[test]
    fn headroom_line_is_where_batch_work_must_stop() {
        let text = drawn(machine(300_000, 400_000), Some(300_000), 10);
        assert_eq!(text, "███▒▒▒▒┃··");
        let text = drawn(machine(300_000, 100_000), Some(300_000), 20);
        assert_eq!(text, "██████▒▒······┃·····");
        let text = drawn(machine(900_000, 100_000), Some(300_000), 10);
        assert_eq!(text, "███████┃█▒");
        assert_eq!(drawn(machine(0, 0), Some(0), 5), "····┃");
        assert_eq!(drawn(machine(0, 0), Some(1_000_000), 5), "┃····");
        assert_eq!(drawn(machine(0, 1_000_000), None, 5), "▒▒▒▒▒");
        assert_eq!(drawn(machine(0, 0), Some(0), 0), "");
    }
}
