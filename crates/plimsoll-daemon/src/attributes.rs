//! Knobs in the extended attributes of a cgroup's folder, where whoever owns
//! the cgroup sets them: `user.plimsoll.class = batch`.
//!
//! Nothing that is written there is fatal: what cannot be used is left out,
//! and told in one line.

use std::path::Path;
use std::str::FromStr;

use plimsoll_engine::knobs::{CpuMax, KnobError, Knobs};
use plimsoll_engine::toml_file::{KNOB_KEYS, nearest};

/// What the names of Plimsoll's attributes begin with.
pub const PREFIX: &str = "user.plimsoll.";
/// No knob takes more than a few words.
const VALUE_BYTES_MAX: usize = 256;
/// How many of Plimsoll's attributes of one folder are looked at. The kernel
/// lets a folder have more than there are knobs.
const ATTRIBUTES_MAX: usize = 32;
/// How much of a value or name that cannot be used is told.
const TOLD_CHARACTERS_MAX: usize = 64;

/// What the owner of a cgroup asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// What is allowed, sound, and of use.
    pub knobs: Knobs,
    /// What is none of that: one line each, with what is allowed.
    pub refused: Vec<String>,
}

/// Reads the attributes of a cgroup's folder. `allowed` are the knobs that
/// the operator lets its owner set. A folder that has gone has none, nor has
/// one on a file system without attributes.
#[must_use]
pub fn read(folder: &Path, allowed: &[String]) -> Attributes {
    read_above(folder, allowed, &Knobs::default())
}

/// As [`read`], for a cgroup that a rule of the configuration claims: the
/// attributes only have to make sense together with what the rule asks for,
/// which they override ([`Knobs::overlaid`]).
#[must_use]
pub fn read_above(folder: &Path, allowed: &[String], rule: &Knobs) -> Attributes {
    let names = names(folder);
    if names.is_empty() {
        return Attributes::default();
    }
    let mut reader = Reader {
        allowed,
        knobs: Knobs::default(),
        taken: Vec::new(),
        refused: Vec::new(),
    };
    for name in names.iter().take(ATTRIBUTES_MAX) {
        // One that has gone in the meantime was not there.
        if let Ok(Some(value)) = xattr::get_deref(folder, name) {
            reader.take(name, &value);
        }
    }
    if names.len() > ATTRIBUTES_MAX {
        let problem = format!(
            "{PREFIX}*: `{}` attributes are too many, the rest is ignored; allowed: {ATTRIBUTES_MAX}",
            names.len()
        );
        reader.refused.push(problem);
    }
    reader.leave_out_what_has_no_use(rule);
    Attributes {
        knobs: reader.knobs,
        refused: reader.refused,
    }
}

/// The names of Plimsoll's attributes, in order.
fn names(folder: &Path) -> Vec<String> {
    let Ok(all) = xattr::list_deref(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = all
        .filter(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

struct Reader<'a> {
    allowed: &'a [String],
    knobs: Knobs,
    /// The knobs that were taken over, as [`KNOB_KEYS`] has them, with their
    /// values.
    taken: Vec<(&'static str, String)>,
    refused: Vec<String>,
}

impl Reader<'_> {
    fn take(&mut self, name: &str, value: &[u8]) {
        let taken = self.checked(name, value).and_then(|(key, text)| {
            set(&mut self.knobs, key, text)
                .map(|()| (key, text.to_owned()))
                .map_err(|error| told(key, text, &error.problem, &error.allowed))
        });
        match taken {
            Ok(taken) => self.taken.push(taken),
            Err(line) => self.refused.push(line),
        }
    }

    /// A knob that may be set, and a text.
    fn checked<'v>(&self, name: &str, value: &'v [u8]) -> Result<(&'static str, &'v str), String> {
        let short = &value[..value.len().min(VALUE_BYTES_MAX)];
        let shown = String::from_utf8_lossy(short);
        let key = name.strip_prefix(PREFIX).unwrap_or_default();
        let Some(known) = KNOB_KEYS.into_iter().find(|known| *known == key) else {
            let meant = nearest(key, KNOB_KEYS.into_iter())
                .map_or_else(String::new, |near| format!(" (perhaps `{PREFIX}{near}`?)"));
            let problem = format!("is the value of no knob{meant}");
            return Err(told(key, &shown, &problem, &KNOB_KEYS.join(", ")));
        };
        if !self.allowed.iter().any(|allowed| allowed == known) {
            let allowed = match self.allowed {
                [] => "no knob (allow-xattr in the configuration)".to_owned(),
                knobs => knobs.join(", "),
            };
            let problem = "is of a knob that the operator does not leave to attributes";
            return Err(told(known, &shown, problem, &allowed));
        }
        if value.len() > VALUE_BYTES_MAX {
            let problem = format!("has {} bytes", value.len());
            let allowed = format!("up to {VALUE_BYTES_MAX} bytes");
            return Err(told(known, &shown, &problem, &allowed));
        }
        match std::str::from_utf8(value) {
            // `setfattr` and C programs may store the end of the string, too.
            Ok(text) => Ok((known, text.trim_end_matches(['\0', '\n']))),
            Err(_) => Err(told(known, &shown, "is no text", "text in UTF-8")),
        }
    }

    /// Leaves out what does not go with the others, or with the rule's knobs,
    /// until the rest does.
    fn leave_out_what_has_no_use(&mut self, rule: &Knobs) {
        self.leave_out_beside_cpu_max();
        while let Err(error) = rule.overlaid(&self.knobs).check() {
            let Some(index) = self.culprit(rule, &error) else {
                return;
            };
            let (key, text) = self.taken.remove(index);
            clear(&mut self.knobs, key);
            let line = told(key, &text, &error.problem, &error.allowed);
            self.refused.push(line);
        }
    }

    fn leave_out_beside_cpu_max(&mut self) {
        let Some((_, line)) = self.taken.iter().find(|(key, _)| *key == "cpu-max") else {
            return;
        };
        let line = line.clone();
        let beside = |key: &str| key == "quota" || key == "burst";
        for (key, text) in self.taken.extract_if(.., |(key, _)| beside(key)) {
            let problem = "stands beside cpu-max";
            let allowed = "cpu-max alone, or quota and burst";
            self.refused.push(told(key, &text, problem, allowed));
        }
        // Whichever of them came last has overwritten the other. It was sound
        // when it was taken.
        let _ = set(&mut self.knobs, "cpu-max", &line);
    }

    /// Which of the attributes has to go: the one that the error names, else
    /// the one without which there is no error, else the last.
    fn culprit(&self, rule: &Knobs, error: &KnobError) -> Option<usize> {
        let named = self.taken.iter().position(|(key, _)| *key == error.knob);
        let without = |index: &usize| {
            let mut knobs = self.knobs.clone();
            clear(&mut knobs, self.taken[*index].0);
            rule.overlaid(&knobs).check().is_ok()
        };
        named
            .or_else(|| (0..self.taken.len()).find(without))
            .or_else(|| self.taken.len().checked_sub(1))
    }
}

/// Sets one knob from its text.
fn set(knobs: &mut Knobs, key: &str, text: &str) -> Result<(), KnobError> {
    match key {
        "class" => knobs.class = Some(text.parse()?),
        "nice" => knobs.nice = Some(text.parse()?),
        "weight" => knobs.weight = Some(text.parse()?),
        "quota" => knobs.quota = Some(text.parse()?),
        "burst" => knobs.burst = Some(text.parse()?),
        "cpu-max" => {
            let (quota, burst) = CpuMax::from_str(text)?.complete(None)?;
            (knobs.quota, knobs.burst) = (Some(quota), burst);
        }
        "cap" => knobs.cap = Some(text.parse()?),
        "soft-cap" => knobs.soft_cap = Some(text.parse()?),
        "per-task" => {
            knobs.per_task = text
                .parse()
                .map_err(|_| KnobError::new("per-task", text, "is not allowed", "true or false"))?;
        }
        "headroom" => knobs.headroom = Some(text.parse()?),
        "tolerance" => knobs.tolerance = Some(text.parse()?),
        "cpu-limit" => knobs.cpu_limit = Some(text.parse()?),
        _ => {
            let allowed = KNOB_KEYS.join(", ");
            return Err(KnobError::new("knob", key, "is no knob", allowed));
        }
    }
    Ok(())
}

/// As if one knob had not been set.
fn clear(knobs: &mut Knobs, key: &str) {
    match key {
        "class" => knobs.class = None,
        "nice" => knobs.nice = None,
        "weight" => knobs.weight = None,
        "quota" => knobs.quota = None,
        "burst" => knobs.burst = None,
        "cpu-max" => (knobs.quota, knobs.burst) = (None, None),
        "cap" => knobs.cap = None,
        "soft-cap" => knobs.soft_cap = None,
        "per-task" => knobs.per_task = false,
        "headroom" => knobs.headroom = None,
        "tolerance" => knobs.tolerance = None,
        "cpu-limit" => knobs.cpu_limit = None,
        _ => (),
    }
}

/// One line about an attribute. Its owner may be anybody: it is kept short,
/// and one line.
fn told(key: &str, value: &str, problem: &str, allowed: &str) -> String {
    let line = format!(
        "{PREFIX}{}: `{}` {problem}; allowed: {allowed}",
        short(key),
        short(value)
    );
    line.replace(char::is_control, " ")
}

fn short(text: &str) -> String {
    match text.char_indices().nth(TOLD_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all() -> Vec<String> {
        KNOB_KEYS.map(str::to_owned).to_vec()
    }

    /// Takes attributes as if a folder had them.
    fn taken(attributes: &[(&str, &[u8])], allowed: &[String], rule: &Knobs) -> Attributes {
        let mut reader = Reader {
            allowed,
            knobs: Knobs::default(),
            taken: Vec::new(),
            refused: Vec::new(),
        };
        for (name, value) in attributes {
            reader.take(name, value);
        }
        reader.leave_out_what_has_no_use(rule);
        Attributes {
            knobs: reader.knobs,
            refused: reader.refused,
        }
    }

    fn one(key: &str, value: &[u8]) -> Attributes {
        let name = format!("{PREFIX}{key}");
        taken(&[(&name, value)], &all(), &Knobs::default())
    }

    fn knobs(json: &str) -> Knobs {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_knob_reads_as_it_does_everywhere() {
        let together = [
            ("class", "batch", r#"{"class": "batch"}"#),
            ("nice", "5", r#"{"nice": "5"}"#),
            ("weight", "200", r#"{"weight": "200"}"#),
            ("quota", "2cpus", r#"{"quota": "2cpus"}"#),
            ("cap", "25%", r#"{"cap": "25%"}"#),
            ("soft-cap", "10%", r#"{"soft-cap": "10%"}"#),
            ("headroom", "30%", r#"{"headroom": "30%"}"#),
            ("cpu-max", "max 50000", r#"{"quota": "max/50ms"}"#),
        ];
        for (key, value, json) in together {
            let attributes = one(key, value.as_bytes());
            assert_eq!(attributes.refused, [""; 0], "{key}");
            assert_eq!(attributes.knobs, knobs(json), "{key}");
        }
        let pairs: [(&str, &[u8]); 6] = [
            ("user.plimsoll.class", b"batch"),
            ("user.plimsoll.cpu-limit", b"80%"),
            ("user.plimsoll.tolerance", b"2ms/100ms"),
            ("user.plimsoll.cap", b"25%"),
            ("user.plimsoll.per-task", b"true\n"),
            ("user.plimsoll.cpu-max", b"20000 100000 10000\0"),
        ];
        let attributes = taken(&pairs, &all(), &Knobs::default());
        let expected = knobs(
            r#"{"class": "batch", "cpu-limit": "80%", "tolerance": "2ms/100ms", "cap": "25%",
                "per-task": true, "quota": "20ms/100ms", "burst": "10ms"}"#,
        );
        assert_eq!(
            (attributes.knobs, attributes.refused),
            (expected, Vec::new())
        );
    }

    #[test]
    fn every_knob_of_the_file_can_be_set_and_cleared() {
        for key in KNOB_KEYS {
            let error = set(&mut Knobs::default(), key, "\u{1}").unwrap_err();
            assert_eq!(error.knob, key, "a knob refuses what it cannot read");
            let mut knobs = knobs(
                r#"{"class": "batch", "nice": "1", "weight": "2", "quota": "2cpus", "burst": "1ms",
                    "cap": "25%", "soft-cap": "10%", "per-task": true, "headroom": "1%",
                    "tolerance": "1ms/100ms", "cpu-limit": "80%"}"#,
            );
            let before = knobs.clone();
            clear(&mut knobs, key);
            assert_ne!(knobs, before, "{key}");
        }
    }

    #[test]
    fn what_the_operator_does_not_allow_is_ignored_and_told() {
        let pairs: [(&str, &[u8]); 2] = [
            ("user.plimsoll.class", b"batch"),
            ("user.plimsoll.quota", b"2cpus"),
        ];
        let some = taken(&pairs, &["class".into()], &Knobs::default());
        assert_eq!(some.knobs, knobs(r#"{"class": "batch"}"#));
        assert_eq!(
            some.refused,
            [
                "user.plimsoll.quota: `2cpus` is of a knob that the operator does not leave to \
              attributes; allowed: class"
            ]
        );
        let none = taken(&pairs, &[], &Knobs::default());
        assert!(none.knobs.is_empty());
        assert_eq!(none.refused.len(), 2);
        assert!(none.refused[0].ends_with("allowed: no knob (allow-xattr in the configuration)"));
    }

    #[test]
    fn a_bad_value_is_ignored_and_told_in_one_line() {
        let long = vec![b'x'; VALUE_BYTES_MAX + 1];
        let cases: [(&str, &[u8], &str); 8] = [
            (
                "nice",
                b"x",
                "user.plimsoll.nice: `x` is not a whole number; allowed: a whole",
            ),
            (
                "clas",
                b"batch",
                "no knob (perhaps `user.plimsoll.class`?); allowed: class, nice",
            ),
            (
                "class",
                b"a\nb\x1b[2J",
                "user.plimsoll.class: `a b [2J` is not a class",
            ),
            ("class", b"\xff", "is no text; allowed: text in UTF-8"),
            ("class", &long, "has 257 bytes; allowed: up to 256 bytes"),
            (
                "per-task",
                b"yes",
                "`yes` is not allowed; allowed: true or false",
            ),
            ("burst", b"1ms", "`1ms` has no effect without quota"),
            ("", b"1", "user.plimsoll.: `1` is the value of no knob"),
        ];
        for (key, value, expected) in cases {
            let attributes = one(key, value);
            assert!(attributes.knobs.is_empty(), "{key}");
            let [line] = attributes.refused.as_slice() else {
                panic!("{key}: {:?}", attributes.refused);
            };
            assert!(line.contains(expected), "{line}\nexpected {expected}");
            assert!(line.len() < 400, "{line}");
        }
    }

    #[test]
    fn what_has_no_use_is_left_out_and_the_rest_stays() {
        let pairs: [(&str, &[u8]); 4] = [
            ("user.plimsoll.burst", b"1ms"),
            ("user.plimsoll.cpu-limit", b"50%"),
            ("user.plimsoll.nice", b"3"),
            ("user.plimsoll.per-task", b"true"),
        ];
        let attributes = taken(&pairs, &all(), &Knobs::default());
        assert_eq!(attributes.knobs, knobs(r#"{"nice": "3"}"#));
        assert_eq!(attributes.refused.len(), 3);
        let beside: [(&str, &[u8]); 3] = [
            ("user.plimsoll.burst", b"1ms"),
            ("user.plimsoll.cpu-max", b"20000"),
            ("user.plimsoll.quota", b"2cpus"),
        ];
        let attributes = taken(&beside, &all(), &Knobs::default());
        assert_eq!(attributes.knobs, knobs(r#"{"quota": "20ms/100ms"}"#));
        assert_eq!(attributes.refused.len(), 2);
    }

    #[test]
    fn what_only_makes_sense_with_the_rule_is_taken_above_it() {
        let rule = knobs(r#"{"class": "batch", "cpu-limit": "80%"}"#);
        let limit: [(&str, &[u8]); 1] = [("user.plimsoll.cpu-limit", b"50%")];
        let attributes = taken(&limit, &all(), &rule);
        assert_eq!(attributes.knobs, knobs(r#"{"cpu-limit": "50%"}"#));
        // The rule's own limit would have no use any more.
        let class: [(&str, &[u8]); 2] = [
            ("user.plimsoll.class", b"normal"),
            ("user.plimsoll.nice", b"1"),
        ];
        let attributes = taken(&class, &all(), &rule);
        assert_eq!(attributes.knobs, knobs(r#"{"nice": "1"}"#));
        assert!(attributes.refused[0].starts_with("user.plimsoll.class: `normal` "));
    }

    #[test]
    fn a_folder_that_is_not_there_has_none() {
        let gone = read(Path::new("/no/such/folder"), &all());
        assert_eq!(gone, Attributes::default());
        assert_eq!(read(Path::new("/proc"), &all()), Attributes::default());
    }

    /// Sets an attribute, or says why not.
    fn put(folder: &Path, key: &str, value: &[u8]) -> std::io::Result<()> {
        xattr::set(folder, format!("{PREFIX}{key}"), value)
    }

    #[test]
    fn the_attributes_of_a_cgroup_are_read_and_those_of_others_left() {
        let Ok(hierarchy) = plimsoll_engine::cgroup::Hierarchy::find() else {
            eprintln!("SKIPPED: attributes of a cgroup: no cpu controller on this host");
            return;
        };
        let name = format!("plimsoll-attributes-{}", std::process::id());
        let folder = hierarchy.cpu_folder(&hierarchy.base().join(name));
        if let Err(error) = std::fs::create_dir(&folder) {
            eprintln!("SKIPPED: attributes of a cgroup: cannot make one ({error})");
            return;
        }
        let set = put(&folder, "class", b"batch")
            .and_then(|()| put(&folder, "headroom", b"30"))
            .and_then(|()| xattr::set(&folder, "user.other", b"1"))
            .and_then(|()| (0..40).try_for_each(|i| put(&folder, &format!("x{i}"), b"1")));
        let attributes = read(&folder, &all());
        std::fs::remove_dir(&folder).unwrap();
        if let Err(error) = set {
            eprintln!("SKIPPED: attributes of a cgroup: cannot set them ({error})");
            return;
        }
        assert_eq!(attributes.knobs, knobs(r#"{"class": "batch"}"#));
        assert_eq!(attributes.refused.len(), ATTRIBUTES_MAX);
        assert!(attributes.refused[0].starts_with("user.plimsoll.headroom: `30` "));
        assert!(attributes.refused[31].contains("`42` attributes are too many"));
        assert_eq!(read(&folder, &all()), Attributes::default());
    }

    proptest! {
        /// Whatever is in the attributes: the knobs make sense together, and
        /// each attribute is either taken or told.
        #[test]
        fn any_attributes_come_out_sound(
            values in prop::collection::btree_map(
                prop::sample::select(KNOB_KEYS.to_vec()),
                prop_oneof![
                    "batch|normal|1|20|2cpus|1ms|true|25%|1ms/100ms|20000 100000 1000|17000s/1s|1000s",
                    "\\PC{0,20}",
                ],
                0..12,
            ),
            class in prop::sample::select(vec!["{}", r#"{"class": "batch", "cpu-limit": "80%"}"#,
                r#"{"quota": "17000s/1s", "headroom": "20%"}"#]),
        ) {
            let rule = knobs(class);
            let names: Vec<(String, &str)> =
                values.iter().map(|(key, value)| (format!("{PREFIX}{key}"), value.as_str())).collect();
            let pairs: Vec<(&str, &[u8])> =
                names.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
            let attributes = taken(&pairs, &all(), &rule);
            prop_assert!(rule.overlaid(&attributes.knobs).check().is_ok());
            prop_assert!(attributes.refused.len() <= values.len());
            if !values.is_empty() && attributes.refused.is_empty() {
                // A `per-task` that is false asks for nothing.
                let only_false = values.iter().all(|(key, _)| *key == "per-task");
                prop_assert!(!attributes.knobs.is_empty() || only_false);
            }
            for line in &attributes.refused {
                prop_assert!(line.starts_with(PREFIX) && !line.contains(char::is_control));
            }
        }
    }
}
