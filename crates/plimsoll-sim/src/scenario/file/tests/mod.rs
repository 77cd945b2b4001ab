//! Parsing of scenario files, and the errors of invalid ones.

mod bad_groups;
mod bad_machines;
mod bad_values;
mod bad_variants;
mod bad_workloads;
mod disk;
mod good;
mod variants;

use std::path::Path;

use super::*;

fn parse(text: &str) -> Result<ScenarioFile, FileError> {
    ScenarioFile::parse("s.toml", text, Path::new("/nowhere"), Overrides::default())
}

fn good(text: &str) -> ScenarioFile {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const ALL: &str = r#"
about = "everything"
duration = "10s"
warmup = "1s"
seed = 7

[machine]
cpus = 8
threads-per-core = 2
cpus-per-llc = 4
contention = "30%"
sibling-speed = "55.5%"
switch-cost = "3us"
burst-enabled = false
bandwidth-slice = "2ms"

[[group]]
name = "web"
headroom = "30%"
tolerance = "1ms/100ms"

[[group.workload]]
kind = "service"
rate = 300
service = "exp:1ms"
deadline = "20ms"

[[group.workload]]
kind = "service"
burst-size = 20
burst-every = "40ms"
workers = 3

[[group]]
name = "batch"
class = "batch"
nice = 10
weight = 50
cap = "150%"
cpu-limit = "80%"

[[group.workload]]
kind = "burn"
processes = true

[[group.workload]]
kind = "storm"
processes = 100
cpu-total = "1s"
parallel = 4

[[group]]
name = "tenants"
cpu-max = "600000 100000 400000"

[[group.workload]]
kind = "need"
cpu = "0.5s"
tasks = 2

[[group.workload]]
kind = "steady"
percent = 12.5
step-to = [60, 20]
step-at = ["2s", "6s"]

[[group.workload]]
kind = "wake"
every = "5ms"
"#;

const VARIANTS: &str = r#"
duration = "1s"
[machine]
cpus = 2
[[group]]
name = "web"
quota = "1cpus"
[[group.workload]]
kind = "service"
rate = 100
[[group]]
name = "batch"
[[group.workload]]
kind = "burn"
[[group.workload]]
kind = "service"

[[variant]]
name = "alone"
without = ["batch"]

[[variant]]
name = "more"
duration = "2s"
machine.contention = "50%"
group.web.quota = "none"
group.web.service.rate = 200
group.web.headroom = "30%"
[variant.group.batch]
class = "batch"
burn.threads = 9
"#;

/// A small file with `line` replaced by `other`.
fn with(line: &str, other: &str) -> String {
    const SMALL: &str = "duration = '1s'\n\
                         [machine]\n\
                         cpus = 2\n\
                         [[group]]\n\
                         name = 'a'\n\
                         weight = 100\n\
                         [[group.workload]]\n\
                         kind = 'service'\n\
                         rate = 300\n\
                         service = 'exp:1ms'\n";
    assert!(SMALL.contains(line), "{line}");
    SMALL.replace(line, other)
}

/// Asserts that a text is refused at a position, with an error that contains
/// `words`.
fn refused(text: &str, place: &str, words: &[&str]) {
    let error = match parse(text) {
        Ok(file) => panic!("accepted: {text}\n{file:?}"),
        Err(error) => error.to_string(),
    };
    let start = format!("s.toml:{place}: ");
    assert!(
        error.starts_with(&start),
        "want {start} got {error}\n{text}"
    );
    for word in words {
        assert!(error.contains(word), "want {word} in {error}\n{text}");
    }
    assert!(!error.contains('\n'), "{error}");
}
