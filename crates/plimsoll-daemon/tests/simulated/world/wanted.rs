//! Model of the desired state: the configuration file, and the requests that were granted.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll_cgroupfs::simulated;
use plimsoll_engine::knobs::{Class, Knobs};
use plimsoll_engine::own_groups::LEFT;
use serde_json::Value;

use crate::shadow::is_own;

/// Configuration with its rules, the first of which counts: name, a cgroup or all directly below
/// one (`/*`), and knobs.
pub struct Config {
    pub head: &'static str,
    pub rules: &'static [(&'static str, &'static str, &'static str)],
}

pub const CONFIGS: [Config; 6] = [
    Config {
        head: "",
        rules: &[],
    },
    Config {
        head: "",
        rules: &[
            ("web", "/a", r#"{"headroom": "30%"}"#),
            ("encode", "/d", r#"{"class": "batch"}"#),
            (
                "tenants",
                "/e/*",
                r#"{"quota": "50ms/100ms", "burst": "10ms"}"#,
            ),
        ],
    },
    Config {
        head: "enforce = true",
        rules: &[
            ("encode", "/d", r#"{"class": "batch"}"#),
            ("web", "/a/b", r#"{"quota": "80ms/100ms", "weight": "300"}"#),
            ("tenants", "/*", r#"{"weight": "50"}"#),
        ],
    },
    Config {
        head: "burst-enabled = false",
        rules: &[
            ("tenants", "/e", r#"{"class": "batch", "nice": "7"}"#),
            (
                // Also the name of a command: both are in force.
                "two",
                "/a/b/*",
                r#"{"quota": "30ms/100ms", "burst": "10ms"}"#,
            ),
            ("encode", "/a", r#"{"class": "batch", "headroom": "20%"}"#),
        ],
    },
    Config {
        head: "enforce = true",
        rules: &[
            ("tenants", "/e/*", r#"{"quota": "20ms/100ms"}"#),
            ("encode", "/d", r#"{"quota": "40ms/100ms"}"#),
            ("web", "/e", r#"{"quota": "90ms/100ms"}"#),
        ],
    },
    // One that is refused.
    Config {
        head: "enforce = 7",
        rules: &[],
    },
];

/// Number of configurations that are accepted.
pub const GOOD: usize = CONFIGS.len() - 1;

impl Config {
    pub fn text(&self) -> String {
        let mut text = format!("version = 1\n{}\n", self.head);
        for (name, path, knobs) in self.rules {
            text += &format!("[[group]]\nname = \"{name}\"\nmatch = {{ cgroup = \"{path}\" }}\n");
            let knobs: BTreeMap<String, Value> =
                serde_json::from_str(knobs).expect("the table above has JSON");
            for (key, value) in knobs {
                text += &match (key.as_str(), value.as_str()) {
                    ("nice" | "weight", Some(number)) => format!("{key} = {number}\n"),
                    _ => format!("{key} = {value}\n"),
                };
            }
        }
        text
    }

    pub fn enforces(&self) -> bool {
        self.head.contains("enforce = true")
    }

    /// Returns the name and the knobs of the rule for a cgroup.
    pub fn rule_of(&self, path: &str) -> Option<(&'static str, Knobs)> {
        let matches = |pattern: &str| match pattern.strip_suffix("/*") {
            // No wildcard means the cgroup of processes that are left.
            Some(above) => path
                .rsplit_once('/')
                .is_some_and(|(parent, name)| parent == above && name != LEFT),
            None => path == pattern,
        };
        let rule = self.rules.iter().find(|(_, pattern, _)| matches(pattern));
        rule.map(|(name, _, knobs)| (*name, parsed(knobs)))
    }
}

pub fn parsed(knobs: &str) -> Knobs {
    serde_json::from_str(knobs).expect("the tables of this test have valid knobs")
}

/// Returns the knobs without those that `show` shows as the machine demands them.
pub fn without_headroom(knobs: &Knobs) -> Knobs {
    Knobs {
        headroom: None,
        tolerance: None,
        ..knobs.clone()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// Index of the configuration in force; `None`: the owner has no file.
    pub config: Option<usize>,
    /// Knobs that were `set`, by path or by the name of a rule.
    pub sets: BTreeMap<String, Knobs>,
    /// Knobs of the groups of commands and processes.
    pub commands: BTreeMap<String, Knobs>,
}

impl Wanted {
    pub fn config(&self) -> &'static Config {
        &CONFIGS[self.config.unwrap_or(0)]
    }

    /// Reads the requests that an owner has left on the disk.
    pub fn read(config: Option<usize>, text: Option<&str>) -> Self {
        let read: Value = text.map_or(Value::Null, |text| {
            serde_json::from_str(text).expect("the file is replaced as a whole")
        });
        let of_section = |section: &str| -> BTreeMap<String, Knobs> {
            let entries = read
                .get(section)
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            let knobs = entries.map(|(key, entry)| (key.clone(), entry["knobs"].clone()));
            knobs
                .map(|(key, knobs)| (key, serde_json::from_value(knobs).expect("they are knobs")))
                .collect()
        };
        Self {
            config,
            sets: of_section("overrides"),
            commands: of_section("commands"),
        }
    }

    /// Returns the knobs of each group, by its name in `show`.
    pub fn groups(&self) -> BTreeMap<String, Knobs> {
        let mut groups = self.commands.clone();
        let paths: Vec<String> = simulated::with(|kernel| {
            let paths = kernel.cgroups().paths().filter(|path| !is_own(path));
            paths.map(shown).collect()
        });
        for path in paths {
            if let Some(knobs) = self.of_cgroup(&path) {
                groups.insert(path, knobs);
            }
        }
        groups
    }

    fn of_cgroup(&self, path: &str) -> Option<Knobs> {
        let mut knobs = None;
        if let Some((rule, of_rule)) = self.config().rule_of(path) {
            let set = self.sets.get(rule);
            knobs = Some(set.map_or(of_rule.clone(), |set| of_rule.overlaid(set)));
        }
        match self.sets.get(path) {
            Some(set) => Some(knobs.unwrap_or_default().overlaid(set)),
            None => knobs,
        }
    }

    pub fn without_commands(&self, is_meant: impl Fn(&str) -> bool) -> Self {
        let mut fewer = self.clone();
        fewer.commands.retain(|name, _| !is_meant(name));
        fewer
    }

    /// Returns the cgroups that a key of `sets` means.
    pub fn paths_of(&self, key: &str) -> Vec<String> {
        if key.starts_with('/') {
            return vec![key.to_owned()];
        }
        let groups = self.groups().into_keys();
        let is_of_rule = |path: &String| {
            let rule = self.config().rule_of(path);
            rule.is_some_and(|(rule, _)| rule == key)
        };
        groups.filter(is_of_rule).collect()
    }

    /// Returns whether batch work is to yield to headroom.
    pub fn demands_headroom(&self) -> bool {
        let groups = self.groups();
        let has_batch = groups
            .values()
            .any(|knobs| knobs.class == Some(Class::Batch));
        has_batch && groups.values().any(|knobs| knobs.headroom.is_some())
    }
}

/// Returns a cgroup's path as the owner shows it.
pub fn shown(path: &Path) -> String {
    format!("/{}", path.display())
}
