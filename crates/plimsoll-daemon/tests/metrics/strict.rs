//! A strict reader of OpenMetrics text: what it does not refuse, every other
//! reader takes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A metric as it is described.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    pub help: String,
    pub kind: String,
    pub unit: String,
    /// Names of the labels that any value has.
    pub labels: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Name of the value, with its suffix.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

#[derive(Debug, Default)]
pub struct Text {
    pub metrics: BTreeMap<String, Description>,
    pub values: Vec<Value>,
}

impl Text {
    /// Panics if the text is not valid.
    pub fn read(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("ends with # EOF");
        let mut read = Self::default();
        let mut seen = HashSet::new();
        let mut current = String::new();
        for line in body.lines() {
            assert!(!line.is_empty(), "an empty line");
            match line.strip_prefix("# ") {
                Some(comment) => read.take_description(comment, &mut current),
                None => {
                    let value = read_value(line);
                    let labels = value.labels.clone();
                    assert!(seen.insert((value.name.clone(), labels)), "twice: {line}");
                    read.take_value(value, &current);
                }
            }
        }
        for (name, metric) in &read.metrics {
            metric.check(name);
        }
        read
    }

    fn take_description(&mut self, comment: &str, current: &mut String) {
        let mut words = comment.splitn(3, ' ');
        let (keyword, name) = (words.next().unwrap(), words.next().unwrap());
        let rest = words.next().unwrap().to_owned();
        if keyword == "HELP" {
            assert!(
                !self.metrics.contains_key(name),
                "{name} is described twice"
            );
            *current = name.to_owned();
        }
        assert_eq!(current, name, "{comment}");
        let metric = self.metrics.entry(name.to_owned()).or_default();
        let field = match keyword {
            "HELP" => &mut metric.help,
            "TYPE" => &mut metric.kind,
            "UNIT" => &mut metric.unit,
            _ => panic!("unknown keyword: {comment}"),
        };
        assert!(field.is_empty() && !rest.is_empty(), "{comment}");
        *field = rest;
    }

    fn take_value(&mut self, value: Value, current: &str) {
        let name = &value.name;
        let metric = self.metrics.get_mut(current).expect("described before");
        let suffix = name.strip_prefix(current);
        let allowed: &[&str] = match metric.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            kind => panic!("{current}: unknown type {kind}"),
        };
        let is_allowed = suffix.is_some_and(|suffix| allowed.contains(&suffix));
        assert!(is_allowed, "{name} is no name of {metric:?}");
        assert!(value.value >= 0.0 && value.value.is_finite(), "{value:?}");
        let is_flag = metric.kind == "info";
        assert!(!is_flag || value.value == 1.0, "{value:?}");
        metric.labels.extend(value.labels.keys().cloned());
        self.values.push(value);
    }

    pub fn values_of(&self, name: &str) -> Vec<&Value> {
        self.values.iter().filter(|one| one.name == name).collect()
    }
}

impl Description {
    fn check(&self, name: &str) {
        let is_good = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(
            name.starts_with("plimsoll_") && name.chars().all(is_good),
            "{name}"
        );
        assert!(!self.help.is_empty() && !self.kind.is_empty(), "{name}");
        for reserved in ["_total", "_info", "_count", "_sum", "_bucket", "_created"] {
            assert!(!name.ends_with(reserved), "{name}");
        }
        for unit in ["seconds", "ratio", "bytes"] {
            let is_named = name.ends_with(&format!("_{unit}"));
            assert_eq!(is_named, self.unit == unit, "{name}: unit '{}'", self.unit);
        }
        assert!(["", "seconds", "ratio", "bytes"].contains(&self.unit.as_str()));
        for word in name.split('_') {
            let other_units = ["usec", "msec", "ns", "us", "ms", "ppm", "percent", "kb"];
            assert!(!other_units.contains(&word), "{name} is not in a base unit");
        }
    }
}

fn read_value(line: &str) -> Value {
    let name_end = line.find(['{', ' ']).expect("a value");
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => read_labels(rest),
        None => (BTreeMap::new(), rest),
    };
    let number = rest.strip_prefix(' ').expect("one space before the number");
    Value {
        name: name.to_owned(),
        labels,
        value: number.parse().unwrap_or_else(|_| panic!("{line}")),
    }
}

/// Reads labels up to and with the closing brace.
fn read_labels(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label");
        let is_good = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(!name.is_empty() && name.chars().all(is_good), "{name}");
        let (value, after) = read_quoted(after);
        let old = labels.insert(name.to_owned(), value);
        assert_eq!(old, None, "label {name} twice");
        if let Some(after) = after.strip_prefix('}') {
            return (labels, after);
        }
        rest = after.strip_prefix(',').expect("a comma");
    }
}

/// Reads up to and with the closing quote.
fn read_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next().expect("a closing quote") {
            (at, '"') => return (value, &text[at + 1..]),
            (_, '\\') => value.push(match characters.next().expect("an escape").1 {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                other => panic!("unknown escape {other}"),
            }),
            (_, '\n') => panic!("a label's value has a line break"),
            (_, other) => value.push(other),
        }
    }
}
