//! Accepted and refused attributes.

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
        accepted: Vec::new(),
        refused: Vec::new(),
    };
    for (name, value) in attributes {
        reader.accept(name, value);
    }
    reader.drop_unenforceable(&|knobs| rule.overlaid(knobs).check());
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

/// Without other sources, and with all knobs allowed.
fn read_alone(folder: &Path) -> Attributes {
    read(folder, &all(), &Knobs::check)
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
    let pairs: [(&str, &[u8]); 7] = [
        ("user.plimsoll.class", b"batch"),
        ("user.plimsoll.cpu-limit", b"80%"),
        ("user.plimsoll.tolerance", b"2ms/100ms"),
        ("user.plimsoll.cap", b"25%"),
        ("user.plimsoll.half-life", b"5s"),
        ("user.plimsoll.per-task", b"true\n"),
        ("user.plimsoll.cpu-max", b"20000 100000 10000\0"),
    ];
    let attributes = taken(&pairs, &all(), &Knobs::default());
    let expected = knobs(
        r#"{"class": "batch", "cpu-limit": "80%", "tolerance": "2ms/100ms", "cap": "25%",
            "half-life": "5s", "per-task": true, "quota": "20ms/100ms", "burst": "10ms"}"#,
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
                "cap": "25%", "soft-cap": "10%", "half-life": "5s", "per-task": true,
                "headroom": "1%", "tolerance": "1ms/100ms", "cpu-limit": "80%"}"#,
        );
        let before = knobs.clone();
        clear(&mut knobs, key);
        assert_ne!(knobs, before, "{key}");
    }
}

#[test]
fn an_attribute_that_is_not_allowed_is_ignored_and_reported() {
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
fn an_invalid_value_is_ignored_and_reported_in_one_line() {
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
fn unenforceable_knobs_are_dropped_and_the_others_stay() {
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
fn a_knob_that_needs_another_of_the_rule_is_accepted() {
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
fn a_missing_folder_has_no_attributes() {
    let gone = read_alone(Path::new("/no/such/folder"));
    assert_eq!(gone, Attributes::default());
    assert_eq!(read_alone(Path::new("/proc")), Attributes::default());
}

/// Sets an attribute, or says why not.
fn put(folder: &Path, key: &str, value: &[u8]) -> std::io::Result<()> {
    xattr::set(folder, format!("{PREFIX}{key}"), value)
}

#[test]
fn attributes_of_a_cgroup_are_read_and_other_prefixes_ignored() {
    let Ok(hierarchy) = plimsoll_cgroupfs::Hierarchy::find() else {
        crate::skipped::skip("no cpu controller on this host");
        return;
    };
    let name = format!("plimsoll-attributes-{}", std::process::id());
    let folder = hierarchy.cpu_folder(&hierarchy.base().join(name));
    if let Err(error) = std::fs::create_dir(&folder) {
        crate::skipped::skip(&format!("cannot make a cgroup: {error}"));
        return;
    }
    let set = put(&folder, "class", b"batch")
        .and_then(|()| put(&folder, "headroom", b"30"))
        .and_then(|()| xattr::set(&folder, "user.other", b"1"))
        .and_then(|()| (0..40).try_for_each(|i| put(&folder, &format!("x{i}"), b"1")));
    let attributes = read_alone(&folder);
    std::fs::remove_dir(&folder).unwrap();
    if let Err(error) = set {
        crate::skipped::skip(&format!("cannot set attributes of a cgroup: {error}"));
        return;
    }
    assert_eq!(attributes.knobs, knobs(r#"{"class": "batch"}"#));
    assert_eq!(attributes.refused.len(), ATTRIBUTES_MAX);
    assert!(attributes.refused[0].starts_with("user.plimsoll.headroom: `30` "));
    assert!(attributes.refused[31].contains("`42` attributes are too many"));
    assert_eq!(read_alone(&folder), Attributes::default());
}

proptest! {
    /// With any attributes, the accepted knobs are valid together, and each attribute is either
    /// accepted or reported.
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
