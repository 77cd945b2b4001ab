//! Markdown tables, aligned for terminals.

/// A table with a row of heads; empty without rows.
#[derive(Debug)]
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Self {
            heads: heads.iter().map(|head| (*head).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Formats the table without empty columns.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let used: Vec<usize> = (0..self.heads.len())
            .filter(|at| self.rows.iter().any(|row| row[*at] != "-"))
            .collect();
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| &row[at]);
            let widths = cells
                .chain([&self.heads[at]])
                .map(|cell| cell.chars().count());
            widths.max().unwrap_or(0)
        };
        // Words to the left, numbers to the right.
        let is_of_words = |at: usize| {
            let first = self.rows.first();
            at == 0 || first.is_some_and(|row| row[at].starts_with('`'))
        };
        let line = |cells: &[String]| {
            let padded: Vec<String> = used
                .iter()
                .map(|at| {
                    let fill = " ".repeat(width(*at) - cells[*at].chars().count());
                    let cell = &cells[*at];
                    if is_of_words(*at) {
                        format!("{cell}{fill}")
                    } else {
                        format!("{fill}{cell}")
                    }
                })
                .collect();
            format!("| {} |\n", padded.join(" | "))
        };
        let rules: Vec<String> = used
            .iter()
            .map(|at| {
                let dashes = "-".repeat(width(*at).max(3) - 1);
                if is_of_words(*at) {
                    format!("{dashes}-")
                } else {
                    format!("{dashes}:")
                }
            })
            .collect();
        let mut text = line(&self.heads);
        text.push_str(&format!("| {} |\n", rules.join(" | ")));
        for row in &self.rows {
            text.push_str(&line(row));
        }
        text
    }
}

/// A figure with a number of decimals; `-` if there is none.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

pub fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| format!("{:.digits$} %", 100.0 * value),
    )
}

pub fn times(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} ×"))
}

/// Microseconds, with separators of thousands.
pub fn micros(value: Option<f64>) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let text = |value| micros(Some(value));
        assert_eq!(text(999.4), "999");
        assert_eq!(text(1_956.0), "1,956");
        assert_eq!(text(4_037_018.0), "4,037,018");
        assert_eq!(micros(None), "-");
    }
}
