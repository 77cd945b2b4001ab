//! Measured demand from a file: CPU time per period.
//!
//! The file is CSV: one value on each line, or a header and then one value on
//! each line, or several columns under a header of which one is named `cpu`:
//!
//! ```csv
//! cpu
//! 0.42
//! 183%
//! ```
//!
//! A value is a fraction of the group's quota, or a percentage if it has a
//! percent sign.

use thiserror::Error;

/// The largest value, in quotas.
const VALUE_MAX: f64 = 10_000.0;
const VALUES_MAX: usize = 10_000_000;
/// Name of the column that is read.
const COLUMN: &str = "cpu";

/// Reason why a file cannot be used, in one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}:{line}:{column}: {problem}")]
pub struct SamplesError {
    /// Name of the file, as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Field, value and what is allowed.
    pub problem: String,
}

/// Measured demand, in quotas.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    file: String,
    /// In ascending order.
    sorted: Box<[f64]>,
    mean: f64,
}

impl Samples {
    /// Checks the text of a file. `file` is its name, for messages.
    ///
    /// # Errors
    /// The first value that is not allowed, with line and column. Allowed are
    /// 0 to 10,000 quotas, not all of them 0, up to 10,000,000 of them.
    pub fn parse(file: &str, text: &str) -> Result<Self, SamplesError> {
        let mut sorted = values(file, text)?;
        let at_end = |problem: &str| SamplesError {
            file: file.to_owned(),
            line: text.lines().count().max(1),
            column: 1,
            problem: problem.to_owned(),
        };
        if sorted.is_empty() {
            return Err(at_end("cpu: there is no value; allowed: at least one"));
        }
        sorted.sort_unstable_by(f64::total_cmp);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        if mean <= 0.0 {
            return Err(at_end(
                "cpu: all values are 0; allowed: at least one above 0",
            ));
        }
        Ok(Self {
            file: file.to_owned(),
            sorted: sorted.into(),
            mean,
        })
    }

    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The mean, in quotas.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Squared coefficient of variation.
    #[must_use]
    pub fn variation_squared(&self) -> f64 {
        let squares = self.sorted.iter().map(|value| (value - self.mean).powi(2));
        squares.sum::<f64>() / self.sorted.len() as f64 / self.mean.powi(2)
    }

    /// The value at a quantile, 0 to 1.
    #[inline]
    #[must_use]
    pub fn at(&self, quantile: f64) -> f64 {
        let index = (quantile * self.sorted.len() as f64) as usize;
        self.sorted[index.min(self.sorted.len() - 1)]
    }
}

/// Parses a number, with or without a percent sign.
fn value(word: &str) -> Result<f64, String> {
    // In a file of another type, words may be arbitrarily long.
    let shown: String = word.chars().take(40).collect();
    let refused = || {
        format!("cpu: `{shown}` is not a number; allowed: a share of the quota such as 0.42 or 42%")
    };
    let (digits, unit) = match word.strip_suffix('%') {
        Some(digits) => (digits.trim_end(), 0.01),
        None => (word, 1.0),
    };
    let number: f64 = digits.parse().map_err(|_| refused())?;
    let value = number * unit;
    if (0.0..=VALUE_MAX).contains(&value) {
        return Ok(value);
    }
    Err(format!(
        "cpu: `{shown}` is out of range; allowed: 0 to {VALUE_MAX} quotas"
    ))
}

/// Whether a line names columns rather than giving values.
fn is_header(line: &str) -> bool {
    let mut words = line.split(',').map(str::trim);
    words.any(|word| word.eq_ignore_ascii_case(COLUMN))
}

fn values(file: &str, text: &str) -> Result<Vec<f64>, SamplesError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().zip(1..).peekable();
    let header = lines
        .next_if(|(line, _)| is_header(line))
        .map(|(line, _)| line);
    let names = header.map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let place = names.as_ref().and_then(|names| {
        let mut names = names.iter();
        names.position(|name| name.eq_ignore_ascii_case(COLUMN))
    });
    let (place, columns) = (place.unwrap_or(0), names.map_or(1, |names| names.len()));
    let mut values = Vec::new();
    for (line, number) in lines {
        let error = |column: usize, problem: String| SamplesError {
            file: file.to_owned(),
            line: number,
            column,
            problem: problem.replace(char::is_control, " "),
        };
        let fields: Vec<&str> = line.split(',').collect();
        if fields.len() != columns && !line.trim().is_empty() {
            let got = fields.len();
            let problem = format!("line: {got} fields are too many or too few; allowed: {columns}");
            return Err(error(1, problem));
        }
        if values.len() == VALUES_MAX {
            return Err(error(
                1,
                format!("cpu: more values; allowed: up to {VALUES_MAX}"),
            ));
        }
        let field = fields.get(place).copied().unwrap_or_default();
        let before: usize = fields
            .iter()
            .take(place)
            .map(|field| field.chars().count() + 1)
            .sum();
        let blank = field.chars().take_while(|c| c.is_whitespace()).count();
        let column = 1 + before + if field.trim().is_empty() { 0 } else { blank };
        values.push(value(field.trim()).map_err(|problem| error(column, problem))?);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let refused = Samples::parse("s.csv", text).unwrap_err().to_string();
        assert!(!refused.contains('\n'), "{refused}");
        assert!(refused.contains("allowed: "), "{refused}");
        refused
    }

    #[test]
    fn all_forms_read_alike() {
        for text in [
            "0.5\n1.5\n1\n",
            "cpu\n50%\n1.5\r\n 100 % ",
            "time,cpu,host\n0,0.5,a\n1,1.5,b\n2,1,c\n",
            "\u{feff}CPU\n0.5\n1.5\n1\n",
        ] {
            let samples = Samples::parse("s.csv", text).unwrap();
            assert_eq!(&*samples.sorted, [0.5, 1.0, 1.5], "{text}");
            assert_eq!(samples.mean(), 1.0);
            assert!((samples.variation_squared() - 1.0 / 6.0).abs() < 1e-12);
        }
    }

    #[test]
    fn quantiles_are_the_sorted_values() {
        let samples = Samples::parse("s.csv", "3\n1\n2\n4\n").unwrap();
        let quantiles = [0.0, 0.24, 0.25, 0.99, 1.0].map(|quantile| samples.at(quantile));
        assert_eq!(quantiles, [1.0, 1.0, 2.0, 4.0, 4.0]);
    }

    #[test]
    fn bad_text_is_refused_with_its_line() {
        for (text, start) in [
            ("", "s.csv:1:1: cpu: there is no value"),
            ("cpu\n", "s.csv:1:1: cpu: there is no value"),
            ("0.5\n\n0.7\n", "s.csv:2:1: cpu: `` is not a number"),
            ("0.5\n  soon\n", "s.csv:2:3: cpu: `soon` is not a number"),
            ("0.5\n-0.1\n", "s.csv:2:1: cpu: `-0.1` is out of range"),
            ("nan\n", "s.csv:1:1: cpu: `nan` is out of range"),
            ("10001\n", "s.csv:1:1: cpu: `10001` is out of range"),
            ("a,cpu\n1,\n", "s.csv:2:3: cpu: `` is not a number"),
            ("a,cpu\n1,2\n1\n", "s.csv:3:1: line: 1 fields"),
            ("1\n1,2\n", "s.csv:2:1: line: 2 fields"),
            ("0\n0\n", "s.csv:2:1: cpu: all values are 0"),
        ] {
            let refused = refusal(text);
            assert!(refused.starts_with(start), "{text:?}: {refused}");
        }
    }
}
