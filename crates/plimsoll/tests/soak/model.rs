//! Model of the soak test: derives each knob from the actions, not from the daemon's state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::knobs::{Bandwidth, Class, Headroom, Knobs, Quota};

use crate::common::Host;
use crate::rig::{is_idle, of_cgroup, rule, shown};

/// Kinds of cgroups by prefix of the name, with their group of the file.
pub const KINDS: [(&str, &str); 4] = [("q", "quota"), ("b", "batch"), ("c", "cap"), ("m", "main")];

/// A cgroup, which may not exist.
pub struct Slot {
    pub group: CpuGroup,
    /// `q`, `b`, `c`, `m`, or `n`, which no group matches.
    pub kind: String,
    /// Whether the cgroup exists since before the daemon, and stays.
    pub is_permanent: bool,
    pub is_there: bool,
    found: (Bandwidth, u32),
}

impl Slot {
    pub fn new(host: &Host, name: &str) -> Self {
        Self {
            group: host.base().child(name),
            kind: name[..1].to_owned(),
            is_permanent: false,
            is_there: false,
            found: (Bandwidth::unlimited(), 100),
        }
    }

    /// A permanent cgroup with its present values.
    pub fn permanent(group: CpuGroup) -> Self {
        let name = group.path().file_name().unwrap().to_string_lossy();
        Self {
            kind: name[..1].to_owned(),
            is_permanent: true,
            is_there: true,
            found: (
                group.read_cpu_max().unwrap().into(),
                group.read_weight().unwrap(),
            ),
            group,
        }
    }

    pub fn name(&self) -> String {
        shown(&self.group)
    }

    fn rule(&self) -> Option<&'static str> {
        let kind = KINDS.iter().find(|(kind, _)| *kind == self.kind);
        kind.map(|(_, rule)| *rule)
    }

    /// Describes the difference from the initial values; `None`: there is none.
    fn problem_when_put_back(&self) -> Option<String> {
        let expected = Expected {
            bandwidth: Some(self.found.0),
            is_idle: false,
            weight: Some(self.found.1),
        };
        expected.differs_from(&self.group)
    }
}

/// Expected contents of a cgroup's kernel files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// `None`: the headroom controller changes the value.
    pub bandwidth: Option<Bandwidth>,
    is_idle: bool,
    /// `None`: an idle cgroup has no weight.
    weight: Option<u32>,
}

impl Expected {
    /// Describes the difference; `None`: there is none.
    pub fn differs_from(&self, group: &CpuGroup) -> Option<String> {
        let Ok(now) = group.read_cpu_max().map(Bandwidth::from) else {
            return Some(format!("{} is not there", shown(group)));
        };
        let mut text = String::new();
        match self.bandwidth {
            Some(expected) if expected != now => {
                write!(text, " quota {now:?}, expected {expected:?};").unwrap();
            }
            None if now.quota.quota_ns.is_none() => {
                text += " no quota, expected the headroom controller's;";
            }
            _ => (),
        }
        if is_idle(group) != self.is_idle {
            write!(text, " idle {}, expected {};", is_idle(group), self.is_idle).unwrap();
        }
        if let (Some(expected), Ok(now)) = (self.weight, group.read_weight())
            && now != expected
        {
            write!(text, " weight {now}, expected {expected};").unwrap();
        }
        (!text.is_empty()).then(|| format!("{}:{text}", shown(group)))
    }
}

/// All requests so far.
pub struct Model {
    pub slots: Vec<Slot>,
    /// Knobs of the file's groups, by name.
    pub rules: BTreeMap<String, Knobs>,
    /// Knobs of `set`, by group or path.
    pub overrides: BTreeMap<String, Knobs>,
}

pub fn knobs(json: &str) -> Knobs {
    serde_json::from_str(json).unwrap()
}

/// A cap as written to the kernel.
fn cap_bandwidth(permille: u32) -> Bandwidth {
    let period_ms = if permille >= 500 { 20 } else { 10 };
    Bandwidth {
        quota: Quota {
            quota_ns: Some(period_ms * u64::from(permille) * 1_000),
            period_ns: period_ms * 1_000_000,
        },
        burst_ns: 1_000_000,
    }
}

impl Model {
    /// The configuration as a file.
    pub fn text(&self, host: &Host) -> String {
        let mut text = "enforce = true\n".to_owned();
        for (kind, name) in KINDS {
            let Some(knobs) = self.rules.get(name) else {
                continue;
            };
            let json = serde_json::to_value(knobs).unwrap();
            let lines = json.as_object().unwrap().iter();
            let lines: Vec<String> = lines
                .map(|(key, value)| match value.as_str().map(str::parse::<i64>) {
                    Some(Ok(number)) => format!("{key} = {number}"),
                    _ => format!("{key} = {value}"),
                })
                .collect();
            let pattern = format!("{}/{kind}-*", host.base_path());
            text += &rule(name, &of_cgroup(&pattern), &lines.join(", "));
        }
        text
    }

    /// Knobs requested for a cgroup; `None`: none.
    fn asked(&self, slot: &Slot) -> Option<Knobs> {
        let rule = slot.rule().filter(|rule| self.rules.contains_key(*rule));
        let of_rule = rule.map(|rule| self.rules[rule].clone());
        let by_rule = rule.and_then(|rule| self.overrides.get(rule));
        let own = self.overrides.get(&slot.name());
        let anybody = of_rule.is_some() || own.is_some();
        let layers = [by_rule, own].into_iter().flatten();
        let all = layers.fold(of_rule.unwrap_or_default(), |all, one| all.overlaid(one));
        anybody.then_some(all)
    }

    fn there(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.is_there)
    }

    /// Returns whether headroom is in force.
    fn is_room_demanded(&self) -> bool {
        self.there()
            .filter_map(|slot| self.asked(slot))
            .filter_map(|asked| asked.headroom)
            .any(|headroom| headroom != Headroom::Share(0))
    }

    /// Expected state of a cgroup.
    pub fn expected(&self, slot: &Slot) -> Expected {
        let asked = self.asked(slot).unwrap_or_default();
        let is_batch = asked.class == Some(Class::Batch);
        let leaves_room = is_batch && self.is_room_demanded();
        let bandwidth = match (asked.quota, asked.cap) {
            (Some(quota), _) => Some(Bandwidth::of(quota, None)),
            (None, Some(cap)) => Some(cap_bandwidth(cap.permille)),
            (None, None) if leaves_room => None,
            (None, None) => Some(slot.found.0),
        };
        let weight = asked.weight.map_or(slot.found.1, |weight| weight.weight);
        Expected {
            bandwidth,
            is_idle: is_batch,
            weight: (!is_batch).then_some(weight),
        }
    }

    /// Panics unless each cgroup has its initial values.
    pub fn assert_put_back(&self) {
        let problems: Vec<String> = self
            .there()
            .filter_map(Slot::problem_when_put_back)
            .collect();
        assert!(problems.is_empty(), "after a stop: {}", problems.join("\n"));
    }

    /// Expected groups of the daemon.
    pub fn names(&self) -> BTreeSet<String> {
        let asked = self.there().filter(|slot| self.asked(slot).is_some());
        asked.map(Slot::name).collect()
    }

    pub fn problems(&self) -> Vec<String> {
        let differs = |slot| self.expected(slot).differs_from(&slot.group);
        self.there().filter_map(differs).collect()
    }
}
