//! A TOML text as a tree whose nodes carry their spans.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{FileError, Source};

/// Range of bytes of the text.
pub type Span = Range<usize>;

/// A value and its place.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its place in the text.
    pub span: Span,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Debug, Clone)]
pub enum Value {
    /// In quotes.
    Text(String),
    /// An integer or a float as it is written, without underscores.
    Number(String),
    /// True or false.
    Flag(bool),
    /// In brackets, or tables of the same name.
    List(Vec<Node>),
    /// Keys and their values.
    Table(Entries),
    /// A date or a time of day, which no key allows.
    Date,
}

/// The entries of a table, in the order of the text.
pub type Entries = Vec<Entry>;

/// A key and its value.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its place in the text.
    pub key_span: Span,
    /// The value.
    pub node: Node,
}

impl Value {
    /// The type of the value, in words.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Flag(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Date => "a date",
        }
    }
}

/// The tree of a text.
///
/// # Errors
/// When it is no TOML: the place, and why.
pub fn parse(source: &Source) -> Result<Entries, FileError> {
    match DeTable::parse(source.text()) {
        Ok(table) => Ok(entries(table.into_inner())),
        Err(error) => {
            let start = error.span().map_or(source.text().len(), |span| span.start);
            Err(source.error(start, format!("not TOML: {}", error.message())))
        }
    }
}

fn entries(table: DeTable) -> Entries {
    let entry = |(key, value): (Spanned<_>, Spanned<DeValue>)| {
        let key_span = key.span();
        let key: std::borrow::Cow<str> = key.into_inner();
        Entry {
            key: key.into_owned(),
            key_span,
            node: node(value),
        }
    };
    let mut entries: Entries = table.into_iter().map(entry).collect();
    entries.sort_by_key(|entry| entry.key_span.start);
    entries
}

fn node(spanned: Spanned<DeValue>) -> Node {
    let span = spanned.span();
    let value = match spanned.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(whole) => Value::Number(decimal(whole.as_str(), whole.radix())),
        DeValue::Float(number) => Value::Number(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(list) => Value::List(list.into_iter().map(node).collect()),
        DeValue::Table(table) => Value::Table(entries(table)),
    };
    Node { span, value }
}

/// A whole number in base 10; one that does not even fit here stays as it is, for the error
/// message.
fn decimal(digits: &str, radix: u32) -> String {
    i128::from_str_radix(digits, radix).map_or_else(|_| digits.to_owned(), |n| n.to_string())
}
