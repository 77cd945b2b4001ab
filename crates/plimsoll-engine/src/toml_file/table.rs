//! Typed access to the values of a table by key, with errors that point at the offending value.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::error::{FileError, Source};
use super::tree::{Entries, Entry, Node, Span, Value};

/// Two words that differ in more than this share of their letters are not a slip.
const SLIP_MOST: f64 = 0.4;

/// A table of the file.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    source: &'a Source,
    /// Where it begins.
    start: usize,
    entries: &'a Entries,
    /// Subject of the table, for messages.
    what: &'a str,
}

impl<'a> Table<'a> {
    /// A table that begins at a byte of the text. `what` it describes is for messages, as in
    /// "a group".
    #[must_use]
    pub fn new(source: &'a Source, start: usize, entries: &'a Entries, what: &'a str) -> Self {
        Self {
            source,
            start,
            entries,
            what,
        }
    }

    /// A table that is not in the file, in place of one that could be.
    #[must_use]
    pub fn empty(&self, entries: &'a Entries, what: &'a str) -> Self {
        Self::new(self.source, self.start, entries, what)
    }

    /// Refuses every key that is not in `known`.
    ///
    /// # Errors
    /// Names the first other key, and the one that was probably meant.
    pub fn check_keys(&self, known: &[&str]) -> Result<(), FileError> {
        match self
            .entries
            .iter()
            .find(|e| !known.contains(&e.key.as_str()))
        {
            Some(entry) => Err(self.unknown(entry, known)),
            None => Ok(()),
        }
    }

    /// The error of a key that means nothing here.
    #[must_use]
    pub fn unknown(&self, entry: &Entry, known: &[&str]) -> FileError {
        let meant = nearest(&entry.key, known.iter().copied())
            .map_or_else(String::new, |near| format!(" (perhaps `{near}`?)"));
        let problem = format!(
            "`{}` is no key of {}{meant}; allowed: {}",
            entry.key,
            self.what,
            known.join(", ")
        );
        self.source.error(entry.key_span.start, problem)
    }

    /// All of it.
    #[must_use]
    pub fn entries(&self) -> &'a Entries {
        self.entries
    }

    /// The entry of a key.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// An error about the value of `key`, or, where that is not given, about the table.
    #[must_use]
    pub fn error(&self, key: &str, problem: impl AsRef<str>) -> FileError {
        let start = self.find(key).map_or(self.start, |e| e.node.span.start);
        self.source.error(start, problem)
    }

    /// Line and column of the value of `key`, or, where that is not given, of the table.
    #[must_use]
    pub fn place(&self, key: &str) -> (usize, usize) {
        let start = self.find(key).map_or(self.start, |e| e.node.span.start);
        self.source.place(start)
    }

    /// An error about a value.
    #[must_use]
    pub fn error_at(&self, span: &Span, problem: impl AsRef<str>) -> FileError {
        self.source.error(span.start, problem)
    }

    /// The error of a value that is not of the type or range that is wanted.
    #[must_use]
    pub fn refused(&self, entry: &Entry, problem: &str, allowed: &str) -> FileError {
        self.refused_node(&entry.key, &entry.node, problem, allowed)
    }

    fn refused_node(&self, key: &str, node: &Node, problem: &str, allowed: &str) -> FileError {
        let written = match &node.value {
            Value::Text(text) => text,
            Value::Table(_) | Value::List(_) => node.value.kind(),
            _ => self.source.written(&node.span),
        };
        let problem = format!("{key}: `{written}` {problem}; allowed: {allowed}");
        self.source.error(node.span.start, problem)
    }

    fn wrong_type(&self, entry: &Entry, allowed: &str) -> FileError {
        let problem = format!("is {}", entry.node.value.kind());
        self.refused(entry, &problem, allowed)
    }

    /// A text.
    ///
    /// # Errors
    /// When it is something else.
    pub fn text(&self, key: &str, allowed: &str) -> Result<Option<&'a str>, FileError> {
        match self.find(key) {
            None => Ok(None),
            Some(entry) => match &entry.node.value {
                Value::Text(text) => Ok(Some(text)),
                _ => Err(self.wrong_type(entry, allowed)),
            },
        }
    }

    /// A value that reads itself from text; a number is as good as the text of it.
    ///
    /// # Errors
    /// When it does not read itself from that.
    pub fn parsed<T>(&self, key: &str) -> Result<Option<T>, FileError>
    where
        T: FromStr<Err: Display>,
    {
        let Some(entry) = self.find(key) else {
            return Ok(None);
        };
        let text = match &entry.node.value {
            Value::Text(text) | Value::Number(text) => text,
            _ => return Err(self.wrong_type(entry, "a text")),
        };
        let value = text.parse();
        value
            .map(Some)
            .map_err(|error: T::Err| self.error(key, error.to_string()))
    }

    /// A time with its unit.
    ///
    /// # Errors
    /// When it is none.
    pub fn time(&self, key: &str) -> Result<Option<Duration>, FileError> {
        match self.find(key) {
            None => Ok(None),
            Some(entry) => self.time_of(key, &entry.node).map(Some),
        }
    }

    /// A list of times.
    ///
    /// # Errors
    /// When one of them is none.
    pub fn times(&self, key: &str) -> Result<Vec<Duration>, FileError> {
        self.list(key, "a list of times, such as [\"2s\", \"6s\"]", |node| {
            self.time_of(key, node)
        })
    }

    fn time_of(&self, key: &str, node: &Node) -> Result<Duration, FileError> {
        const ALLOWED: &str =
            "a time with its unit in quotes, such as \"500us\", \"2ms\" or \"1.5s\"";
        match &node.value {
            Value::Text(text) => humantime::parse_duration(text)
                .map_err(|_| self.refused_node(key, node, "is no time", ALLOWED)),
            other => {
                let problem = format!("is {}", other.kind());
                Err(self.refused_node(key, node, &problem, ALLOWED))
            }
        }
    }

    /// A number, NaN and infinite ones included: those are refused with the range.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number(&self, key: &str) -> Result<Option<f64>, FileError> {
        match self.find(key) {
            None => Ok(None),
            Some(entry) => self.number_of(key, &entry.node).map(Some),
        }
    }

    /// A list of numbers.
    ///
    /// # Errors
    /// When one of them is something else.
    pub fn numbers(&self, key: &str) -> Result<Vec<f64>, FileError> {
        self.list(key, "a list of numbers, such as [60, 20]", |node| {
            self.number_of(key, node)
        })
    }

    fn number_of(&self, key: &str, node: &Node) -> Result<f64, FileError> {
        let number = match &node.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| {
            let problem = format!("is {}", node.value.kind());
            self.refused_node(key, node, &problem, "a number")
        })
    }

    fn list<T>(
        &self,
        key: &str,
        allowed: &str,
        each: impl Fn(&Node) -> Result<T, FileError>,
    ) -> Result<Vec<T>, FileError> {
        match self.find(key) {
            None => Ok(Vec::new()),
            Some(entry) => match &entry.node.value {
                Value::List(nodes) => nodes.iter().map(each).collect(),
                _ => Err(self.wrong_type(entry, allowed)),
            },
        }
    }

    /// A whole number that fits.
    ///
    /// # Errors
    /// When it is something else, or does not fit.
    pub fn whole<T>(&self, key: &str) -> Result<Option<T>, FileError>
    where
        T: FromStr + Bounds,
    {
        let Some(entry) = self.find(key) else {
            return Ok(None);
        };
        let allowed = format!("a whole number from 0 to {}", T::MOST);
        match &entry.node.value {
            Value::Number(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) if text.starts_with('-') => {
                    Err(self.refused(entry, "is negative", &allowed))
                }
                Err(_) => Err(self.refused(entry, "is not a whole number that fits", &allowed)),
            },
            _ => Err(self.wrong_type(entry, &allowed)),
        }
    }

    /// True or false; false where it is not given.
    ///
    /// # Errors
    /// When it is something else.
    pub fn flag(&self, key: &str) -> Result<bool, FileError> {
        match self.find(key) {
            None => Ok(false),
            Some(entry) => match entry.node.value {
                Value::Flag(flag) => Ok(flag),
                _ => Err(self.wrong_type(entry, "true or false")),
            },
        }
    }

    /// A text, or a list of texts, each with where it stands; empty where the key is not given.
    ///
    /// # Errors
    /// When it is something else, or has something else.
    pub fn one_or_more(
        &self,
        key: &str,
        allowed: &str,
    ) -> Result<Vec<(&'a str, &'a Span)>, FileError> {
        let Some(entry) = self.find(key) else {
            return Ok(Vec::new());
        };
        let nodes = match &entry.node.value {
            Value::List(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(&entry.node),
        };
        let word = |node: &'a Node| match &node.value {
            Value::Text(text) => Ok((text.as_str(), &node.span)),
            other => {
                let problem = format!("is {}", other.kind());
                Err(self.refused_node(key, node, &problem, allowed))
            }
        };
        nodes.iter().map(word).collect()
    }

    /// A table below this one.
    ///
    /// # Errors
    /// When it is something else.
    pub fn table(&self, key: &str, what: &'a str) -> Result<Option<Self>, FileError> {
        match self.find(key) {
            None => Ok(None),
            Some(entry) => self.below(entry, what).map(Some),
        }
    }

    /// The value of an entry as a table.
    ///
    /// # Errors
    /// When it is something else.
    pub fn below(&self, entry: &'a Entry, what: &'a str) -> Result<Self, FileError> {
        match &entry.node.value {
            Value::Table(entries) => {
                Ok(Self::new(self.source, entry.node.span.start, entries, what))
            }
            _ => Err(self.wrong_type(entry, "a table")),
        }
    }

    /// The tables of a list, `[[key]]` each.
    ///
    /// # Errors
    /// When it is something else, or has something else.
    pub fn tables(&self, key: &str, what: &'a str) -> Result<Vec<Self>, FileError> {
        let Some(entry) = self.find(key) else {
            return Ok(Vec::new());
        };
        let Value::List(nodes) = &entry.node.value else {
            return Err(self.wrong_type(entry, &format!("tables that begin with [[{key}]]")));
        };
        let table = |node: &'a Node| match &node.value {
            Value::Table(entries) => Ok(Self::new(self.source, node.span.start, entries, what)),
            other => {
                let problem = format!("has {}", other.kind());
                let allowed = format!("tables that begin with [[{key}]]");
                Err(self.refused_node(key, node, &problem, &allowed))
            }
        };
        nodes.iter().map(table).collect()
    }
}

/// Largest value of a whole number type.
pub trait Bounds {
    /// The largest value of the type.
    const MOST: u64;
}

impl Bounds for u32 {
    const MOST: u64 = u32::MAX as u64;
}

impl Bounds for u64 {
    const MOST: u64 = u64::MAX;
}

impl Bounds for usize {
    const MOST: u64 = usize::MAX as u64;
}

/// The word that was probably meant, if one is near.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |other: &str| strsim::damerau_levenshtein(word, other);
    let near = known.min_by_key(|other| distance(other))?;
    let longest = word.chars().count().max(near.chars().count());
    (distance(near) as f64 <= SLIP_MOST * longest as f64).then_some(near)
}
