//! The sound pieces of a text that is no TOML as a whole.
//!
//! It is cut where tables begin, and what comes before the first of them where
//! values begin. A piece that is no TOML by itself is blanked out, so that all
//! others stay in their places.

use std::ops::Range;

use plimsoll_engine::toml_file::{FileError, Source, parse};

use super::tell;

/// How many lines a value before the first table may have.
const VALUE_LINES_MAX: usize = 32;
/// How much is parsed to find the values before the first table; what comes
/// behind that is left out.
const TOP_BYTES_MAX: usize = 4 << 20;
/// How many pieces that are sound by themselves but not together, such as the
/// same table twice, are left out before all is given up.
const CONFLICTS_MAX: usize = 16;

/// The text with all damage blanked out. It is TOML.
pub(super) fn sound(name: &str, text: &str, problems: &mut Vec<FileError>) -> String {
    let mut pieces = Pieces {
        name,
        lines: text.split_inclusive('\n').map(str::to_owned).collect(),
        problems,
    };
    let starts = pieces.starts();
    let top_end = starts.first().copied().unwrap_or(pieces.lines.len());
    pieces.check_top(top_end);
    let ends = starts.iter().skip(1).copied().chain([pieces.lines.len()]);
    for piece in starts.iter().copied().zip(ends).map(|(a, b)| a..b) {
        pieces.leave_out_unless_sound(piece);
    }
    pieces.leave_out_conflicts(&starts);
    pieces.lines.concat()
}

struct Pieces<'a> {
    name: &'a str,
    /// With their ends.
    lines: Vec<String>,
    problems: &'a mut Vec<FileError>,
}

impl Pieces<'_> {
    /// The lines that begin a table that is no part of the one before.
    fn starts(&self) -> Vec<usize> {
        let is_start = |line: &str| {
            let header = line.trim_start();
            let is_table = line.starts_with('[') || header.starts_with("[[");
            // `[group.match]` belongs to the group before.
            is_table && !header.trim_start_matches(['[', ' ']).starts_with("group.")
        };
        let lines = self.lines.iter().enumerate();
        lines
            .filter_map(|(index, line)| is_start(line).then_some(index))
            .collect()
    }

    /// Whether some lines are TOML by themselves. The error has their place in
    /// the file.
    fn parse(&self, lines: Range<usize>) -> Result<(), FileError> {
        let before = lines.start;
        let source = Source::new(self.name, &self.lines[lines].concat());
        parse(&source).map(|_| ()).map_err(|error| match error {
            FileError::At {
                file,
                line,
                column,
                problem,
            } => FileError::At {
                file,
                line: line + before,
                column,
                problem,
            },
            other => other,
        })
    }

    fn leave_out_unless_sound(&mut self, lines: Range<usize>) {
        if let Err(error) = self.parse(lines.clone()) {
            self.leave_out(lines, error);
        }
    }

    /// Blanks out some lines.
    fn leave_out(&mut self, lines: Range<usize>, error: FileError) {
        let (first, last) = (lines.start + 1, lines.end);
        for line in &mut self.lines[lines] {
            *line = match line.ends_with('\n') {
                true => "\n".into(),
                false => String::new(),
            };
        }
        let what = match first == last {
            true => format!("line {first} is left out"),
            false => format!("lines {first} to {last} are left out"),
        };
        let told = match error {
            FileError::At {
                file,
                line,
                column,
                problem,
            } => FileError::At {
                file,
                line,
                column,
                problem: format!("{problem}; {what}"),
            },
            other => other,
        };
        tell(self.problems, told);
    }

    /// What comes before the first table: one value after the other.
    fn check_top(&mut self, end: usize) {
        if self.parse(0..end).is_ok() {
            return;
        }
        let mut line = 0;
        let mut bytes = 0;
        while line < end && bytes < TOP_BYTES_MAX {
            let value = self.value_at(line, end, &mut bytes);
            let after = value.unwrap_or(line + 1);
            if value.is_none() {
                self.leave_out_unless_sound(line..after);
            }
            line = after;
        }
        self.leave_out_unless_sound(line..end);
    }

    /// The line behind the value that begins in a line, if it is sound.
    fn value_at(&self, line: usize, end: usize, bytes: &mut usize) -> Option<usize> {
        // It only goes on in the next line if something is open.
        let lines = match self.lines[line].contains(['[', '{', '"', '\'']) {
            true => VALUE_LINES_MAX,
            false => 1,
        };
        (line + 1..=end.min(line + lines)).find(|after| {
            let value = &self.lines[line..*after];
            *bytes += value.iter().map(String::len).sum::<usize>();
            self.parse(line..*after).is_ok()
        })
    }

    /// Leaves out pieces that do not go with those before.
    fn leave_out_conflicts(&mut self, starts: &[usize]) {
        for _ in 0..CONFLICTS_MAX {
            let Err(error) = self.parse(0..self.lines.len()) else {
                return;
            };
            let line = match error {
                // The end of the text may be a line of its own.
                FileError::At { line, .. } => (line - 1).min(self.lines.len() - 1),
                _ => 0,
            };
            let next = starts.partition_point(|start| *start <= line);
            let piece = match next.checked_sub(1) {
                Some(index) => starts[index]..starts.get(next).copied().unwrap_or(self.lines.len()),
                // A value before the first table.
                None => line..line + 1,
            };
            self.leave_out(piece, error);
        }
        self.leave_out_unless_sound(0..self.lines.len());
    }
}
