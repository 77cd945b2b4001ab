//! Columns of the table: names, order and content.

use std::cmp::Ordering;

use clap::ValueEnum;
use plimsoll_daemon::state::GroupState;
use plimsoll_engine::knobs::{Class, Knob, Knobs};

use super::rates::GroupRates;
use crate::output::one_line;

/// A column, which is also a sort key of the table; from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// The group's name
    Group,
    /// normal or batch
    Class,
    /// CPU time, in percent of one CPU
    Cpu,
    /// Periods that ended throttled, in percent
    Throttled,
    /// Periods that used more than the quota, in percent
    Bursts,
    /// Time that tasks waited, in percent; 200% is two tasks all the time
    Wait,
    /// Processes in the group
    Processes,
    /// Knobs of the group
    Knobs,
}

impl Column {
    pub fn title(self) -> &'static str {
        match self {
            Self::Group => "GROUP",
            Self::Class => "CLASS",
            Self::Cpu => "CPU%",
            Self::Throttled => "THR%",
            Self::Bursts => "BURST%",
            Self::Wait => "WAIT%",
            Self::Processes => "PROCS",
            Self::Knobs => "KNOBS",
        }
    }

    /// Key that sorts by the column.
    pub fn key(self) -> char {
        match self {
            Self::Group => 'g',
            Self::Class => 's',
            Self::Cpu => 'c',
            Self::Throttled => 't',
            Self::Bursts => 'b',
            Self::Wait => 'w',
            Self::Processes => 'o',
            Self::Knobs => 'n',
        }
    }

    /// Whether the column is numeric, sorted in descending order.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Group | Self::Class | Self::Knobs)
    }

    /// The column `places` to the right, wrapping around.
    pub fn shifted(self, places: isize) -> Self {
        let all = Self::value_variants();
        let place = (self as isize) + places;
        all[place.rem_euclid(all.len().cast_signed()).cast_unsigned()]
    }

    /// Text of one group, sanitised for a terminal.
    pub fn text(self, group: &GroupState, rates: &GroupRates) -> String {
        match self {
            Self::Group => one_line(&group.name),
            Self::Class => class(group).to_string(),
            Self::Cpu => tenths(rates.cpu_ppm),
            Self::Throttled => tenths(rates.throttled_ppm),
            Self::Bursts => tenths(rates.bursts_ppm),
            Self::Wait => tenths(rates.wait_ppm),
            Self::Processes => match &group.statistics {
                Some(sample) => sample.processes.to_string(),
                None => "-".into(),
            },
            Self::Knobs => knob_words(&group.knobs),
        }
    }

    /// Order of two groups by this column: numbers in descending order, unknown
    /// values last.
    pub fn compare(
        self,
        one: (&GroupState, &GroupRates),
        two: (&GroupState, &GroupRates),
    ) -> Ordering {
        let number = |(group, rates): (&GroupState, &GroupRates)| match self {
            Self::Cpu => rates.cpu_ppm,
            Self::Throttled => rates.throttled_ppm,
            Self::Bursts => rates.bursts_ppm,
            Self::Wait => rates.wait_ppm,
            Self::Processes => group.statistics.as_ref().map(|sample| sample.processes),
            Self::Group | Self::Class | Self::Knobs => None,
        };
        match self {
            Self::Group => one.0.name.cmp(&two.0.name),
            Self::Class => (class(one.0) as u8).cmp(&(class(two.0) as u8)),
            Self::Knobs => knob_words(&one.0.knobs).cmp(&knob_words(&two.0.knobs)),
            _ => number(two).cmp(&number(one)),
        }
    }
}

/// Class of a group; normal by default.
pub fn class(group: &GroupState) -> Class {
    group.knobs.class.unwrap_or(Class::Normal)
}

/// Percent with one decimal and without the sign; `-` if unknown.
pub fn tenths(ppm: Option<u64>) -> String {
    let Some(ppm) = ppm else {
        return "-".into();
    };
    let tenths = ppm.saturating_add(500) / 1_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// The knobs without the class, which has a column of its own.
fn knob_words(knobs: &Knobs) -> String {
    let items = knobs.items().into_iter();
    let words = items
        .filter(|(knob, _)| *knob != Knob::Class)
        .map(|(knob, value)| format!("{}={value}", knob.name()));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing::group;

    #[test]
    fn every_column_has_a_key_of_its_own() {
        let columns = Column::value_variants().iter();
        let mut keys: Vec<char> = columns.map(|column| column.key()).collect();
        // Keys with other meanings.
        keys.extend("rpq?/".chars());
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn columns_wrap_around() {
        assert_eq!(Column::Group.shifted(-1), Column::Knobs);
        assert_eq!(Column::Knobs.shifted(1), Column::Group);
        assert_eq!(Column::Cpu.shifted(1), Column::Throttled);
    }

    #[test]
    fn unknown_values_come_last() {
        let group = group("one", 0);
        let rates = |cpu_ppm| GroupRates {
            cpu_ppm,
            ..GroupRates::default()
        };
        let (some, none) = (rates(Some(0)), rates(None));
        let order = Column::Cpu.compare((&group, &some), (&group, &none));
        assert_eq!(order, Ordering::Less);
        assert_eq!(tenths(None), "-");
        assert_eq!(tenths(Some(1_234_567)), "123.5");
        assert_eq!(tenths(Some(999)), "0.1");
    }

    #[test]
    fn control_characters_of_a_name_are_shown_as_numbers() {
        let mut group = group("one", 0);
        group.name = "a\u{1b}[2Jb\nc".into();
        let text = Column::Group.text(&group, &GroupRates::default());
        assert_eq!(text, "a\\x1b[2Jb c");
    }
}
