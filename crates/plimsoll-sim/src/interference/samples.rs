//! Measured demand from a file: CPU time per period.
//!
//! A CSV file has one value on each line, or a header and then one value on
//! each line, or several columns under a header of which one is named `cpu`:
//!
//! ```csv
//! cpu
//! 0.42
//! 183%
//! ```
//!
//! A JSON file is an array of numbers, or an object with such an array under
//! `cpu`. A value is a fraction of the group's quota, or a percentage if it has
//! a percent sign.

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use thiserror::Error;

/// The largest value, in quotas.
const VALUE_MAX: f64 = 10_000.0;
const VALUES_MAX: usize = 10_000_000;
/// Name of the column or field that is read.
const COLUMN: &str = "cpu";

/// Forms of a JSON file, for messages.
const JSON_FORMS: &str = "an array of numbers, or an object with such an array under `cpu`";

/// Reason why a file cannot be used, in one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}:{line}:{column}: {problem}")]
pub struct SamplesError {
    /// Name of the file, as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1; in JSON, of the character after the value.
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
    /// Checks the text of a file. `file` is its name: `.json` is JSON,
    /// anything else CSV.
    ///
    /// # Errors
    /// The first value that is not allowed, with line and column. Allowed are
    /// 0 to 10,000 quotas, not all of them 0, up to 10,000,000 of them.
    pub fn parse(file: &str, text: &str) -> Result<Self, SamplesError> {
        let is_json = file.to_ascii_lowercase().ends_with(".json");
        let mut sorted = match is_json {
            true => from_json(file, text)?,
            false => from_csv(file, text)?,
        };
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

    #[must_use]
    pub fn count(&self) -> usize {
        self.sorted.len()
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

/// Describes a number that is out of range.
fn range_problem(shown: &str, value: f64) -> Option<String> {
    if (0.0..=VALUE_MAX).contains(&value) {
        return None;
    }
    Some(format!(
        "cpu: `{shown}` is out of range; allowed: 0 to {VALUE_MAX} quotas"
    ))
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
    range_problem(&shown, value).map_or(Ok(value), Err)
}

/// Whether a line names columns rather than giving values.
fn is_header(line: &str) -> bool {
    let mut words = line.split(',').map(str::trim);
    words.any(|word| word.eq_ignore_ascii_case(COLUMN))
}

fn from_csv(file: &str, text: &str) -> Result<Vec<f64>, SamplesError> {
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

fn from_json(file: &str, text: &str) -> Result<Vec<f64>, SamplesError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let values = reader
        .deserialize_any(Document)
        .and_then(|values| reader.end().map(|()| values));
    values.map_err(|error| {
        let (line, column) = (error.line().max(1), error.column().max(1));
        let text = error.to_string();
        // The message ends with the position, which is reported separately.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let problem = text.strip_suffix(&place).unwrap_or(&text);
        let problem = match error.classify() {
            Category::Data => problem.to_owned(),
            _ => format!("cpu: {problem}; allowed: {JSON_FORMS}, and nothing after it"),
        };
        SamplesError {
            file: file.to_owned(),
            line,
            column,
            problem: problem.replace(char::is_control, " "),
        }
    })
}

/// An array of numbers, or an object that has one.
struct Document;

impl<'de> Visitor<'de> for Document {
    type Value = Vec<f64>;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(JSON_FORMS)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<f64>, A::Error> {
        let mut values = Vec::new();
        while let Some(Value(value)) = seq.next_element()? {
            if values.len() == VALUES_MAX {
                return Err(A::Error::custom(format!(
                    "cpu: more values; allowed: up to {VALUES_MAX}"
                )));
            }
            values.push(value);
        }
        Ok(values)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<f64>, A::Error> {
        let mut values = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == COLUMN && values.is_some() {
                return Err(A::Error::custom("cpu: is given twice; allowed: once"));
            }
            if key == COLUMN {
                values = Some(map.next_value::<Array>()?.0);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        values.ok_or_else(|| A::Error::custom("cpu: is missing; allowed: an array of numbers"))
    }
}

struct Array(Vec<f64>);

impl<'de> serde::Deserialize<'de> for Array {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Document).map(Self)
    }
}

struct Value(f64);

impl<'de> serde::Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Number).map(Self)
    }
}

struct Number;

impl Visitor<'_> for Number {
    type Value = f64;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("cpu: a number; allowed: a share of the quota such as 0.42 or \"42%\"")
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<f64, E> {
        let problem = range_problem(&value.to_string(), value);
        problem.map_or(Ok(value), |problem| Err(E::custom(problem)))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<f64, E> {
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<f64, E> {
        self.visit_f64(value as f64)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<f64, E> {
        value(text.trim()).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(file: &str, text: &str) -> String {
        let refused = Samples::parse(file, text).unwrap_err().to_string();
        assert!(!refused.contains('\n'), "{refused}");
        assert!(
            refused.contains("allowed: ") || file.ends_with("json"),
            "{refused}"
        );
        refused
    }

    #[test]
    fn all_forms_read_alike() {
        for (file, text) in [
            ("s.csv", "0.5\n1.5\n1\n"),
            ("s.csv", "cpu\n50%\n1.5\r\n 100 % "),
            ("s.csv", "time,cpu,host\n0,0.5,a\n1,1.5,b\n2,1,c\n"),
            ("s.csv", "\u{feff}CPU\n0.5\n1.5\n1\n"),
            ("s.json", "[0.5, 1.5, 1]"),
            ("s.JSON", "{\"host\": [null], \"cpu\": [\"50%\", 1.5, 1]}"),
        ] {
            let samples = Samples::parse(file, text).unwrap();
            assert_eq!(&*samples.sorted, [0.5, 1.0, 1.5], "{text}");
            assert_eq!((samples.mean(), samples.count()), (1.0, 3));
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
    fn bad_csv_is_refused_with_its_line() {
        for (text, start) in [
            ("", "s.csv:1:1: cpu: there is no value"),
            ("cpu\n", "s.csv:1:1: cpu: there is no value"),
            ("0.5\n\n0.7\n", "s.csv:2:1: cpu: `` is not a number"),
            ("0.5\n  soon\n", "s.csv:2:3: cpu: `soon` is not a number"),
            ("0.5\n-0.1\n", "s.csv:2:1: cpu: `-0.1` is out of range"),
            ("nan\n", "s.csv:1:1: cpu: `nan` is out of range"),
            ("1\ninf\n", "s.csv:2:1: cpu: `inf` is out of range"),
            ("10001\n", "s.csv:1:1: cpu: `10001` is out of range"),
            ("a,cpu\n1,\n", "s.csv:2:3: cpu: `` is not a number"),
            ("a,cpu\n1,2\n1\n", "s.csv:3:1: line: 1 fields"),
            ("1\n1,2\n", "s.csv:2:1: line: 2 fields"),
            ("0\n0\n", "s.csv:2:1: cpu: all values are 0"),
        ] {
            let refused = refusal("s.csv", text);
            assert!(refused.starts_with(start), "{text:?}: {refused}");
        }
    }

    #[test]
    fn bad_json_is_refused_with_its_line() {
        for (text, line, word) in [
            ("", 1, "EOF while parsing a value; allowed: an array"),
            ("[]", 1, "there is no value"),
            ("[1,\n null]", 2, "null"),
            ("[1,\n\n -1]", 3, "`-1` is out of range"),
            ("[1,\n \"NaN\"]", 2, "`NaN` is out of range"),
            ("[1,\n \"soon\"]", 2, "`soon` is not a number"),
            ("[1,\n [2]]", 2, "sequence"),
            ("[1,\n 2", 2, "EOF"),
            ("[1] x", 1, "trailing characters; allowed: an array"),
            ("{\"a\": [1]}", 1, "cpu: is missing"),
            (
                "{\"cpu\": [1], \"cpu\": [2]}",
                1,
                "cpu: is given twice; allowed: once",
            ),
            ("{\n\"cpu\": 3}", 2, "array"),
            ("\n7", 2, "array"),
            ("[0]", 1, "all values are 0"),
        ] {
            let refused = refusal("s.json", text);
            let place = format!("s.json:{line}:");
            assert!(
                refused.starts_with(&place) && refused.contains(word),
                "{text:?}: {refused}"
            );
        }
    }
}
