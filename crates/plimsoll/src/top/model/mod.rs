//! Model: the state of the screen, and the effect of keys on it. Pure.

#[cfg(test)]
mod tests;

use std::time::Duration;

use clap::ValueEnum as _;
use plimsoll_daemon::state::{GroupState, State};
use ratatui::crossterm::event::KeyCode;

use super::columns::Column;
use super::history::History;
use super::rates::{self, GroupRates, Rates};
use super::source::{SourceKind, Update};

/// Maximum length of a filter.
const FILTER_CHARS_MAX: usize = 60;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Screen {
    #[default]
    Table,
    Details,
    Help,
}

#[derive(Debug)]
pub struct Model {
    /// Interval between updates.
    pub interval: Duration,
    /// Source of the last state.
    pub asked: Option<SourceKind>,
    /// The last state.
    pub state: State,
    /// Rates since the previous state.
    pub rates: Rates,
    pub history: History,
    pub problem: Option<String>,
    /// Whether updates are not shown.
    pub is_paused: bool,
    pub screen: Screen,
    /// Number of lines that are scrolled out at the top.
    pub scroll: usize,
    /// The group whose details are shown, with its plan and the usage of its tasks.
    pub details: Option<GroupState>,
    /// Name of the group whose details are to be requested.
    pub wanted_details: Option<String>,
    /// Whether the user has quit.
    pub has_quit: bool,
    pub sort: Column,
    pub is_reversed: bool,
    /// Filter: only groups whose names contain this are shown.
    pub filter: String,
    /// Whether the filter is being typed.
    pub is_typing: bool,
    /// Indices of the groups that are shown, in order.
    rows: Vec<usize>,
    /// Group that the cursor is on, independent of its row; `None`: the first row, independent of
    /// the group there.
    cursor: Option<String>,
    /// Index of the first visible row.
    first_row: usize,
    /// Number of rows that fit.
    page: usize,
}

impl Model {
    pub fn new(interval: Duration, sort: Column) -> Self {
        Self {
            interval,
            asked: None,
            state: State::default(),
            rates: Rates::default(),
            history: History::default(),
            problem: None,
            is_paused: false,
            screen: Screen::Table,
            scroll: 0,
            details: None,
            wanted_details: None,
            has_quit: false,
            sort,
            is_reversed: false,
            filter: String::new(),
            is_typing: false,
            rows: Vec::new(),
            cursor: None,
            first_row: 0,
            page: 1,
        }
    }

    /// Applies a new state.
    pub fn take(&mut self, update: Update) {
        if self.is_paused {
            return;
        }
        self.problem = None;
        let is_first = self.asked.replace(update.asked) != Some(update.asked);
        let is_same = update.state.machine.at_usec == self.state.machine.at_usec;
        if is_same && !is_first {
            return;
        }
        let old = (!is_first).then_some(&self.state);
        self.rates = rates::between(old, &update.state);
        if self.rates.interval_usec > 0 {
            self.history.take(&update.state, &self.rates);
        }
        self.state = update.state;
        self.arrange();
        // A knob may have changed since, and its tasks have run.
        self.wanted_details = self.of_details();
    }

    /// Applies an error of an update.
    pub fn fail(&mut self, problem: String) {
        if !self.is_paused {
            self.problem = Some(problem);
        }
    }

    pub fn group(&self, index: usize) -> (&GroupState, &GroupRates) {
        (&self.state.groups[index], &self.rates.groups[index])
    }

    /// Number of groups that match the filter.
    pub fn nr_rows(&self) -> usize {
        self.rows.len()
    }

    /// Sets the number of rows that fit, and returns those rows: the groups,
    /// and whether the cursor is there.
    pub fn page(&mut self, fitting: usize) -> Vec<(usize, bool)> {
        self.page = fitting.max(1);
        let cursor = self.cursor_row();
        let lowest = (cursor + 1).saturating_sub(self.page);
        let last_page = self.rows.len().saturating_sub(self.page);
        self.first_row = self
            .first_row
            .clamp(lowest, cursor.max(lowest))
            .min(last_page);
        let rows = self.rows.iter().enumerate().skip(self.first_row);
        rows.take(fitting)
            .map(|(row, index)| (*index, row == cursor))
            .collect()
    }

    /// Group under the cursor; `None` if there is none, or if its details are
    /// shown and it no longer exists.
    pub fn selected(&self) -> Option<usize> {
        match (&self.cursor, self.screen) {
            (Some(name), Screen::Details) => self.index_of(name),
            _ => self.rows.get(self.cursor_row()).copied(),
        }
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        let mut groups = self.state.groups.iter();
        groups.position(|group| group.name == name)
    }

    /// Name of the group whose details are shown.
    fn of_details(&self) -> Option<String> {
        let index = self.selected().filter(|_| self.screen == Screen::Details)?;
        Some(self.state.groups[index].name.clone())
    }

    fn cursor_row(&self) -> usize {
        let Some(name) = &self.cursor else {
            return 0;
        };
        let row = self
            .rows
            .iter()
            .position(|index| self.state.groups[*index].name == *name);
        row.unwrap_or(0)
    }

    fn arrange(&mut self) {
        let wanted = self.filter.to_lowercase();
        let contains = |text: &str| text.to_lowercase().contains(&wanted);
        let groups = self.state.groups.iter().enumerate();
        let passes = groups.filter(|(_, group)| {
            wanted.is_empty()
                || contains(&group.name)
                || contains(&group.group)
                || contains(&group.subject)
        });
        let mut rows: Vec<usize> = passes.map(|(index, _)| index).collect();
        rows.sort_by(|one, two| {
            let order = self.sort.compare(self.group(*one), self.group(*two));
            let order = if self.is_reversed {
                order.reverse()
            } else {
                order
            };
            // Stable, because the groups are already sorted by name.
            order.then(one.cmp(two))
        });
        self.rows = rows;
        self.reset_stale_cursor();
    }

    /// Moves a cursor whose group no longer exists to the first row. Details
    /// stay on their group and do not switch to another.
    fn reset_stale_cursor(&mut self) {
        if let Some(name) = &self.cursor
            && self.screen != Screen::Details
            && self.index_of(name).is_none()
        {
            self.cursor = None;
        }
    }

    fn move_to(&mut self, row: usize) {
        let row = row.min(self.rows.len().saturating_sub(1));
        let index = self.rows.get(row).filter(|_| row > 0);
        self.cursor = index.map(|index| self.state.groups[*index].name.clone());
    }

    fn sort_by(&mut self, column: Column) {
        self.sort = column;
        self.arrange();
    }

    pub fn press(&mut self, key: KeyCode) {
        if self.is_typing {
            return self.type_filter(key);
        }
        match (self.screen, key) {
            (_, KeyCode::Char('q')) => self.has_quit = true,
            (_, KeyCode::Char('p')) => self.is_paused = !self.is_paused,
            (Screen::Help, KeyCode::Char('?') | KeyCode::Esc | KeyCode::Enter)
            | (Screen::Details, KeyCode::Esc | KeyCode::Enter) => self.open(Screen::Table),
            (_, KeyCode::Char('?')) => self.open(Screen::Help),
            (Screen::Table, KeyCode::Enter) => self.open_details(),
            (Screen::Table, key) => self.press_in_table(key),
            (_, key) => self.scroll_by(key),
        }
    }

    fn open(&mut self, screen: Screen) {
        self.screen = screen;
        self.scroll = 0;
        self.reset_stale_cursor();
    }

    fn open_details(&mut self) {
        let Some(index) = self.selected() else {
            return;
        };
        // Details stay on their group even if it is the first row.
        self.cursor = Some(self.state.groups[index].name.clone());
        self.details = None;
        self.open(Screen::Details);
        self.wanted_details = self.of_details();
    }

    fn press_in_table(&mut self, key: KeyCode) {
        let row = self.cursor_row();
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.move_to(row.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.move_to(row + 1),
            KeyCode::PageUp => self.move_to(row.saturating_sub(self.page)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.move_to(row + self.page),
            KeyCode::Home => self.move_to(0),
            KeyCode::End => self.move_to(usize::MAX),
            KeyCode::Char('<') | KeyCode::Left => self.sort_by(self.sort.shifted(-1)),
            KeyCode::Char('>') | KeyCode::Right => self.sort_by(self.sort.shifted(1)),
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.arrange();
            }
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char(letter) => {
                let mut columns = Column::value_variants().iter();
                if let Some(column) = columns.find(|column| column.key() == letter) {
                    self.sort_by(*column);
                }
            }
            _ => (),
        }
    }

    fn scroll_by(&mut self, key: KeyCode) {
        self.scroll = match key {
            KeyCode::Up | KeyCode::Char('k') => self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll + 1,
            KeyCode::PageUp => self.scroll.saturating_sub(self.page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll + self.page,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX / 2,
            _ => self.scroll,
        };
    }

    /// Scroll position for `length` lines on a screen of `fitting` lines.
    pub fn scrolled(&mut self, length: usize, fitting: usize) -> usize {
        self.page = fitting.max(1);
        self.scroll = self.scroll.min(length.saturating_sub(fitting));
        self.scroll
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_CHARS_MAX => {
                self.filter.push(letter);
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            _ => (),
        }
        self.arrange();
    }
}
