//! Refusal of invalid TOML, unknown keys, and invalid times and numbers.

use super::*;

#[test]
fn invalid_toml_is_refused_at_its_position() {
    refused("duration = \n", "1:12", &["not TOML"]);
    refused(
        "duration = '1s'\nduration = '2s'\n",
        "2:1",
        &["duplicate key"],
    );
    refused(&with("cpus = 2", "cpus = 2 3"), "3:8", &["not TOML"]);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_key() {
    for (line, other, place, words) in [
        (
            "duration",
            "durration",
            "1:1",
            "`durration` is no key of a scenario (perhaps `duration`?)",
        ),
        (
            "cpus",
            "cpu",
            "3:1",
            "`cpu` is no key of a machine (perhaps `cpus`?)",
        ),
        (
            "weight",
            "wieght",
            "6:1",
            "`wieght` is no key of a group (perhaps `weight`?)",
        ),
        (
            "rate",
            "rat",
            "9:1",
            "`rat` is no key of a workload (perhaps `rate`?)",
        ),
        (
            "rate",
            "duration",
            "9:1",
            "`duration` of a service is the scenario's",
        ),
        (
            "rate",
            "grace",
            "9:1",
            "`grace` of a service does not apply",
        ),
    ] {
        refused(&with(line, other), place, &[words, "; allowed: "]);
    }
}

#[test]
fn bad_times_and_numbers_are_refused_at_the_value() {
    for (line, other, place, words) in [
        (
            "'1s'",
            "1",
            "1:12",
            "duration: `1` is a number; allowed: a time",
        ),
        (
            "'1s'",
            "'soon'",
            "1:12",
            "duration: `soon` is no time; allowed: a time",
        ),
        ("'1s'", "'0s'", "1:12", "out of range; allowed: 1ms or more"),
        ("'1s'", "'4h'", "1:12", "in all is too long"),
        ("'1s'", "'-1s'", "1:12", "duration: `-1s` is no time"),
        (
            "duration = '1s'",
            "duration = '1s'\nwarmup = '4h'",
            "2:10",
            "warmup: ",
        ),
        (
            "duration = '1s'",
            "duration = '1s'\nseed = -1",
            "2:8",
            "seed: `-1` is negative",
        ),
        (
            "duration = '1s'",
            "duration = '1s'\nseed = 1.5",
            "2:8",
            "not a whole number",
        ),
        (
            "duration = '1s'",
            "about = 'x'",
            "1:1",
            "duration: `` is missing",
        ),
        (
            "duration = '1s'",
            "duration = '1s'\nabout = 3",
            "2:9",
            "about: `3` is a number",
        ),
    ] {
        refused(&with(line, other), place, &[words, "; allowed: "]);
    }
}
