//! Trace of requests from a file: arrival time and CPU time of each.
//!
//! ```csv
//! arrival,cpu
//! 0.0125,300us
//! 0.0150,1.2ms
//! ```
//!
//! A plain number is in seconds. Arrivals count from the start of the run,
//! warm-up included, in ascending order. No requests arrive after the last
//! line.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use crate::error::{LoadError, TraceProblem};
use crate::limits::{DEMAND_MAX, DURATION_MAX, TRACE_BYTES_MAX, TRACE_REQUESTS_MAX};
use crate::units::{nanos, show};

/// The first line of every file.
const HEADER: [&str; 2] = ["arrival", "cpu"];
/// Forms of a time, for messages.
const TIME_FORMS: &str =
    "seconds as a plain number, or a number with a unit, such as 300us or 1.2ms";

/// The requests of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    file: String,
    /// Arrival after the start of the run, and CPU time, in ns.
    requests: Box<[(u64, u64)]>,
}

impl Trace {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`LoadError::Io`] if it cannot be read, [`LoadError::Trace`] with line
    /// and column of the
    /// first invalid value.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let failed = |e| LoadError::io(format!("reading the trace {name}"), e);
        let mut bytes = Vec::new();
        // Checked before opening, because opening a pipe waits for its other
        // end.
        if !path.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(failed)?;
        file.take(TRACE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        let place = Place::new(&name, 1, 1);
        if bytes.len() as u64 > TRACE_BYTES_MAX {
            let allowed = format!("a file of up to {TRACE_BYTES_MAX} bytes");
            return Err(place.refuses("trace", "more", &allowed));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(&name, text),
            Err(error) => {
                let good = &bytes[..error.valid_up_to()];
                let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
                let place = Place::new(&name, line, 1);
                Err(place.refuses("trace", "bytes that are not text", "text in UTF-8"))
            }
        }
    }

    /// Parses and checks the text of a file. `name` is for messages.
    ///
    /// # Errors
    /// As [`Trace::read`].
    pub fn parse(name: &str, text: &str) -> Result<Self, LoadError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines().zip(1..);
        let (first, _) = lines.next().unwrap_or_default();
        if !first.split(',').map(str::trim).eq(HEADER) {
            let allowed = format!("a first line `{}`", HEADER.join(","));
            return Err(Place::new(name, 1, 1).refuses("header", first, &allowed));
        }
        let mut requests = Vec::new();
        let mut earlier_ns = 0;
        for (line, number) in lines {
            if requests.len() == TRACE_REQUESTS_MAX {
                let allowed = format!("up to {TRACE_REQUESTS_MAX} requests");
                return Err(Place::new(name, number, 1).refuses("trace", "more", &allowed));
            }
            let request = Row { name, number, line }.read(earlier_ns)?;
            earlier_ns = request.0;
            requests.push(request);
        }
        if requests.is_empty() {
            let place = Place::new(name, 1 + text.lines().count(), 1);
            return Err(place.refuses("trace", "", "at least one request"));
        }
        Ok(Self {
            file: name.to_owned(),
            requests: requests.into(),
        })
    }

    /// Name of the file, as given.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Arrival after the start of the run and CPU time of each request, in ns.
    #[must_use]
    pub fn requests(&self) -> &[(u64, u64)] {
        &self.requests
    }

    /// Requests that arrive from `from_ns` on and before `to_ns`.
    #[must_use]
    pub fn count_within(&self, from_ns: u64, to_ns: u64) -> usize {
        let before = |ns| self.requests.partition_point(|(arrival, _)| *arrival < ns);
        before(to_ns).saturating_sub(before(from_ns))
    }
}

/// Position in a file.
struct Place<'a> {
    file: &'a str,
    line: usize,
    column: usize,
}

impl<'a> Place<'a> {
    fn new(file: &'a str, line: usize, column: usize) -> Self {
        Self { file, line, column }
    }

    fn refuses(&self, field: &'static str, value: &str, allowed: &str) -> LoadError {
        LoadError::from(Box::new(TraceProblem {
            file: self.file.to_owned(),
            line: self.line,
            column: self.column,
            field,
            // In a file of another type, lines may be arbitrarily long.
            value: value.chars().take(40).collect(),
            allowed: allowed.to_owned(),
        }))
    }
}

/// A line of the table.
struct Row<'a> {
    name: &'a str,
    number: usize,
    line: &'a str,
}

impl Row<'_> {
    /// Parses the request of this line, whose predecessor arrived at
    /// `earlier_ns`.
    fn read(&self, earlier_ns: u64) -> Result<(u64, u64), LoadError> {
        let (arrival, cpu) = match self.line.split_once(',') {
            Some((_, cpu)) if cpu.contains(',') => {
                let column = self.column_of(&cpu[cpu.find(',').unwrap_or(0)..]);
                let place = Place::new(self.name, self.number, column);
                return Err(place.refuses("line", self.line, "two values, `arrival,cpu`"));
            }
            Some(values) => values,
            None => (self.line, &self.line[self.line.len()..]),
        };
        let range = (Duration::from_nanos(earlier_ns), DURATION_MAX * 2);
        let arrival_ns = self.time("arrival", arrival, range)?;
        let range = (Duration::from_nanos(1), DEMAND_MAX);
        Ok((arrival_ns, self.time("cpu", cpu, range)?))
    }

    fn time(
        &self,
        field: &'static str,
        text: &str,
        (least, most): (Duration, Duration),
    ) -> Result<u64, LoadError> {
        let place = || Place::new(self.name, self.number, self.column_of(text.trim_start()));
        let word = text.trim();
        let time = parse(word).ok_or_else(|| place().refuses(field, word, TIME_FORMS))?;
        if time < least || time > most {
            let from = match field {
                "arrival" => "no earlier than the line before, ",
                _ => "",
            };
            let allowed = format!("{from}{} to {}", show(least), show(most));
            return Err(place().refuses(field, word, &allowed));
        }
        Ok(nanos(time))
    }

    /// Column, from 1, at which `part` of this line begins.
    fn column_of(&self, part: &str) -> usize {
        let offset = (part.as_ptr() as usize).saturating_sub(self.line.as_ptr() as usize);
        1 + self
            .line
            .get(..offset)
            .map_or(0, |before| before.chars().count())
    }
}

/// Parses a time: plain seconds, or a number with a unit.
fn parse(word: &str) -> Option<Duration> {
    match word.parse::<f64>() {
        Ok(seconds) => {
            // Rounded to whole nanoseconds, so that 0.3 is not one nanosecond
            // short.
            let ns = (seconds * 1e9).round();
            (ns >= 0.0 && ns < u64::MAX as f64).then(|| Duration::from_nanos(ns as u64))
        }
        Err(_) => humantime::parse_duration(word).ok(),
    }
}
