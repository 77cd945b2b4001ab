//! A reader of the text, whose syntax is prometheus-client's, for its contents, which are ours.

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
    /// Panics if something is described or has a value twice, or is not in a base unit.
    pub fn read(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("ends with # EOF");
        let mut read = Self::default();
        let mut seen = HashSet::new();
        let mut current = "";
        for line in body.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let words: Vec<&str> = comment.splitn(3, ' ').collect();
                current = words[1];
                let metric = read.metrics.entry(current.to_owned()).or_default();
                let field = match words[0] {
                    "HELP" => &mut metric.help,
                    "TYPE" => &mut metric.kind,
                    "UNIT" => &mut metric.unit,
                    _ => panic!("unknown keyword: {comment}"),
                };
                assert!(field.is_empty(), "{comment}: described twice");
                *field = words[2].to_owned();
                continue;
            }
            let value = read_value(line);
            let is_new = seen.insert((value.name.clone(), value.labels.clone()));
            assert!(is_new && value.name.starts_with(current), "{line}");
            assert!(value.value >= 0.0 && value.value.is_finite(), "{line}");
            let metric = read.metrics.get_mut(current).expect("described before");
            metric.labels.extend(value.labels.keys().cloned());
            read.values.push(value);
        }
        for (name, metric) in &read.metrics {
            metric.check(name);
        }
        read
    }

    pub fn values_of(&self, name: &str) -> Vec<&Value> {
        self.values.iter().filter(|one| one.name == name).collect()
    }
}

impl Description {
    fn check(&self, name: &str) {
        assert!(name.starts_with("plimsoll_"), "{name}");
        assert!(!self.help.is_empty() && !self.kind.is_empty(), "{name}");
        // A suffix that the client library adds.
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
    let (name, mut rest) = line.split_at(line.find(['{', ' ']).expect("a value"));
    let mut labels = BTreeMap::new();
    while let Some((name, quoted)) = rest.split_once("=\"") {
        // The escapes are among those of JSON.
        let quoted = &rest[rest.len() - quoted.len() - 1..];
        let mut strings = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
        let value = strings.next().expect("a value").expect("a string");
        let old = labels.insert(name[1..].to_owned(), value);
        assert_eq!(old, None, "{line}: a label twice");
        rest = &quoted[strings.byte_offset()..];
    }
    let number = rest.trim_start_matches('}').trim_start();
    Value {
        name: name.to_owned(),
        labels,
        value: number.parse().unwrap_or_else(|_| panic!("{line}")),
    }
}
