//! Files that are allowed, and errors of others.

use super::*;

const EXAMPLE: &str = r#"
version = 1
enforcer = "cgroup"
enforce = true
burst-enabled = false
bandwidth-slice = "2ms"

[metrics]
listen = "[::1]:9000"

[[group]]
name = "web"
match = { cgroup = "/system.slice/nginx.service" }
headroom = "30%"
tolerance = "1ms/100ms"

[[group]]
name = "encode"
match = { unit = "encode-*.service" }
class = "batch"
nice = 10
cpu-limit = "80%"

[[group]]
name = "tenants"
match = { cgroup = ["/tenants.slice/*", "/old.slice/*"] }
quota = "2cpus"
burst = "100ms"
"#;

#[test]
fn all_keys_are_read() {
    let config = Config::parse("p.toml", EXAMPLE).unwrap();
    assert_eq!(config.enforcer, EnforcerWanted::Cgroup);
    assert!(config.enforce && !config.burst_enabled);
    assert_eq!(config.bandwidth_slice, Some("2ms".parse().unwrap()));
    assert_eq!(config.metrics, Some("[::1]:9000".parse().unwrap()));
    let names: Vec<_> = config.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["web", "encode", "tenants"]);
    let tenants = &config.rules[2];
    let old = config.match_cgroup("/old.slice/x").unwrap();
    assert_eq!(old.rule.name, "tenants");
    assert_eq!(tenants.knobs.quota.unwrap().to_string(), "200ms/100ms");
}

#[test]
fn a_file_with_a_version_is_enough() {
    let config = Config::parse("p.toml", "version = 1").unwrap();
    assert_eq!(config, Config::default());
    assert!(config.burst_enabled);
    let none = Config::parse("p.toml", "version = 1\nmetrics.listen = \"none\"").unwrap();
    assert_eq!(none.metrics, None);
}

fn group(rest: &str) -> String {
    format!("version = 1\n[[group]]\nname = \"g\"\n{rest}\n")
}

/// Whole files, each followed by a part of the error that refuses it.
const BAD_FILES: &str = r#"
=> p.toml:1:1: version: `` is not one
version = 2
=> p.toml:1:11: version: `2` is not one
version = "1"
=> p.toml:1:11: version: `1` is not one
version = 1
enforcr = 1
=> p.toml:2:1: `enforcr` is no key of the configuration (perhaps `enforcer`?)
version = 1
enforcer = "some"
=> p.toml:2:12: enforcer: unknown variant `some`, expected one of `auto`, `sched-ext`, `cgroup`
version = 1
mode = "all"
=> p.toml:2:1: mode: the scheduler takes all ordinary tasks; there is no mode
version = 1
enforce = true
allow-xattr = ["class"]
=> p.toml:3:1: allow-xattr: attributes of cgroups are not read; use a [[group]], or `plimsoll set`
version = 1
user = 0
=> p.toml:2:1: `user` is no key
version = 1
burst-enabled = "no"
=> p.toml:2:17: burst-enabled: invalid type: string "no", expected a boolean
version = 1
bandwidth-slice = "2s"
=> p.toml:2:19: bandwidth-slice: `2s` is out of range; allowed: a time from 100us to 1s
version = 1
metrics.listen = "9464"
=> p.toml:2:18: listen: `9464` is no address; allowed:
version = 1
metrics = ["none"]
=> p.toml:2:11: metrics: array is not allowed; allowed: a table
version = 1
[metrics]
[metrics]
=> p.toml:3:2: not TOML:
version = 1
group = 1
=> p.toml:2:9: group: integer is not allowed; allowed: tables
version = 1
group = [1, { name = "g", match = { cgroup = "/a" } }]
=> p.toml:2:10: group: integer is not allowed; allowed: tables
version = 1
[[group]]
name = "pid-7"
match = { unit = "x.service" }
=> p.toml:3:8: name: `pid-7` is not allowed
"#;

/// Such cases of the lines after the name of a group `g`, from line 4 on.
const BAD_GROUPS: &str = r#"
=> p.toml:2:1: match: `` is missing; allowed: the cgroups of the group, such as
match = ["/a", "b.service"]
=> p.toml:4:9: match: array is not allowed; allowed: a table
match = {}
=> match: `` is empty; allowed: one or more of cgroup, unit
match = { cgrop = "/a" }
=> p.toml:4:11: `cgrop` is no key of a match (perhaps `cgroup`?); allowed: cgroup, unit
match = { cgroup = ["/a", "/b["] }
=> p.toml:4:27: cgroup: `/b[` is no pattern
match = { unit = [] }
=> p.toml:4:18: unit: is empty; allowed: a pattern
match = { unit = [5] }
=> p.toml:4:19: unit: integer `5` is no pattern; allowed: a pattern
match = { cgroup = "/a", executable = ["rustc"] }
=> p.toml:4:26: match.executable: rules match cgroups and units; start the program with `plimsoll run`, or put it into a unit
match.command = 7
=> p.toml:4:7: match.command: rules match cgroups and units; start the program with `plimsoll run`, or put it into a unit
[group.match]
user = 1000
=> p.toml:5:1: match.user: rules match cgroups and units; match the user's slice, such as unit = "user-1000.slice"
match = { cgroup = "/a" }
nice = true
=> p.toml:5:8: nice: `true` is not a whole number
match = { cgroup = "/a" }
nice = 5.0
=> p.toml:5:8: nice: `5.0`
match = { cgroup = "/a" }
nice = 99999999999999999999
=> p.toml:5:8: nice: `99999999999999999999`
match = { cgroup = "/a" }
quota = "0ms/100ms"
=> p.toml:5:9: quota:
match = { cgroup = "/a" }
headroom = "999cpus"
=> p.toml:5:12: headroom: `999cpus` is more than the
match = { cgroup = "/a" }
quotta = "1ms/100ms"
=> p.toml:5:1: `quotta` is no key of a group (perhaps `quota`?); allowed: name, match,
match = { cgroup = "/a" }
burst = "1ms"
=> p.toml:5:9: burst: `1ms` has no effect without quota
match = { cgroup = "/a" }
class = "batch"
weight = 50
=> p.toml:6:10: weight: cannot be `50` here: an idle cgroup has no weight
match = { cgroup = "/a" }
quota = "2cpus
=> p.toml:5:15: not TOML:
match = { cgroup = "/a" }
[[group]]
name = "g"
match = { unit = "x.service" }
=> name: `g` is another group's too
"#;

/// Splits a table into texts and what is expected of each, which stands on a line of its own.
fn cases(table: &str) -> Vec<(String, &str)> {
    let (mut cases, mut text) = (Vec::new(), String::new());
    for line in table.trim_start().lines() {
        match line.strip_prefix("=> ") {
            Some(expected) => cases.push((std::mem::take(&mut text), expected)),
            None => text += &format!("{line}\n"),
        }
    }
    cases
}

#[test]
fn one_mistake_refuses_the_whole_file_with_its_field_line_and_column() {
    let groups = cases(BAD_GROUPS).into_iter();
    let groups = groups.map(|(rest, expected)| (group(&rest), expected));
    for (text, expected) in cases(BAD_FILES).into_iter().chain(groups) {
        let error = Config::parse("p.toml", &text).unwrap_err().to_string();
        assert!(
            error.contains(expected),
            "{text}\n{error}\nexpected {expected}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn the_scheduler_may_have_knobs_that_one_cgroup_cannot() {
    let text = "version = 1\nenforcer = \"sched-ext\"\n[[group]]\nname = \"g\"\n\
                match = { cgroup = \"/a\" }\nclass = \"batch\"\nweight = 50\n";
    assert!(Config::parse("p.toml", text).is_ok());
}

#[test]
fn patterns_too_large_to_compile_are_refused() {
    let of = |number: usize, length: usize| {
        let wildcards = "?".repeat(length);
        format!(
            "[[group]]\nname = \"g{number}\"\nmatch = {{ cgroup = \"/{number}{wildcards}\" }}\n"
        )
    };
    let refusal = |groups: String| {
        let text = format!("version = 1\n{groups}");
        Config::parse("p.toml", &text).unwrap_err().to_string()
    };
    let alone = refusal(of(0, 1 << 17));
    assert!(
        alone.starts_with("p.toml:4:20: cgroup: the patterns are too large"),
        "{alone}"
    );
    let together = refusal((0..8).map(|number| of(number, 1 << 14)).collect());
    assert!(
        together.contains("match: the patterns are too large"),
        "{together}"
    );
}

#[test]
fn groups_with_the_same_pattern_are_refused_even_without_a_match() {
    for pattern in [
        "cgroup = \"/a/*\"",
        "unit = \"a.service\"",
        "unit = \"*.slice\"",
        "cgroup = [\"/b\", \"/**\"]",
    ] {
        let last = pattern.rsplit('"').nth(1).unwrap();
        let text = group(&format!("match = {{ {pattern} }}"))
            + &format!("[[group]]\nname = \"h\"\nmatch = {{ {pattern} }}\n");
        let error = Config::parse("p.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with("p.toml:7:9: match: "), "{error}");
        assert!(error.contains("is a pattern of group `g`, too"), "{error}");
        assert!(
            error.contains(&format!("`{last}`")) || pattern.contains('['),
            "{error}"
        );
    }
    // A condition on the unit narrows the match.
    let text = group("match = { cgroup = \"/a/*\" }")
        + "[[group]]\nname = \"h\"\nmatch = { cgroup = \"/a/*\", unit = \"x.service\" }\n";
    assert_eq!(Config::parse("p.toml", &text).unwrap().rules.len(), 2);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC*") {
        let _ = Config::parse("p.toml", &text);
        let _ = Config::parse("p.toml", &group(&text));
    }
}
