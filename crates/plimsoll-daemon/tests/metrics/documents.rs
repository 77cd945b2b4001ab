//! The documents say what the program does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_daemon::metrics::openmetrics;

use crate::fixture;
use crate::reader::{Description, Text};
use crate::tools;

/// Environment variable that has the tables written instead of compared.
const UPDATE: &str = "PLIMSOLL_UPDATE_DOCS";

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md")
}

fn described() -> BTreeMap<String, Description> {
    Text::read(&openmetrics(fixture::state(100))).metrics
}

/// The name that queries use.
fn name_in_queries(name: &str, metric: &Description) -> String {
    let suffix = match metric.kind.as_str() {
        "counter" => "_total",
        "info" => "_info",
        "histogram" => "_bucket",
        _ => "",
    };
    format!("{name}{suffix}")
}

/// Returns the table of the metrics of groups, or of all others.
fn table(are_of_groups: bool) -> String {
    let mut table =
        "| name | type | unit | labels | |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for (name, metric) in described() {
        if metric.labels.contains("group") != are_of_groups {
            continue;
        }
        let own = metric
            .labels
            .iter()
            .filter(|label| !["group", "cgroup"].contains(&label.as_str()));
        let own: Vec<_> = own.map(|label| format!("`{label}`")).collect();
        let row = [
            format!("`{}`", name_in_queries(&name, &metric)),
            metric.kind,
            metric.unit,
            own.join(", "),
            metric.help,
        ];
        writeln!(table, "| {} |", row.join(" | ")).unwrap();
    }
    table
}

/// Compares the text between two marks of the document with the expected one, or writes it.
fn check_part(part: &str, expected: &str) {
    let (begin, end) = (
        format!("<!-- {part} -->\n"),
        format!("<!-- end of {part} -->"),
    );
    let text = fs::read_to_string(document()).unwrap();
    let (before, rest) = text.split_once(&begin).unwrap();
    let (present, after) = rest.split_once(&end).unwrap();
    if std::env::var_os(UPDATE).is_some() {
        fs::write(document(), [before, &begin, expected, &end, after].concat()).unwrap();
    } else {
        assert_eq!(
            present, expected,
            "docs/metrics.md is stale: run this test with {UPDATE}=1"
        );
    }
}

#[test]
fn the_document_describes_every_metric_as_the_program_does() {
    check_part("metrics of groups", &table(true));
    check_part("metrics of the machine", &table(false));
}

#[test]
fn documents_rules_and_dashboard_name_existing_metrics_only() {
    let metrics = described();
    let mut known: BTreeSet<_> = metrics
        .iter()
        .map(|(name, metric)| name_in_queries(name, metric))
        .collect();
    known.insert("plimsoll_daemon_control_delay_seconds".into());
    let files = [
        document(),
        tools::deploy().join("README.md"),
        tools::deploy().join("prometheus/plimsoll-rules.yml"),
        tools::deploy().join("prometheus/plimsoll-rules-test.yml"),
        tools::deploy().join("grafana/plimsoll.json"),
    ];
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_of_name(c));
        for word in words.filter(|word| word.starts_with("plimsoll_")) {
            // A prefix, as in `plimsoll_cfs_…`, is not a name.
            let is_prefix = word.ends_with('_');
            assert!(
                is_prefix || known.contains(word),
                "{}: {word}",
                file.display()
            );
        }
    }
}

#[test]
fn the_series_that_try_the_rules_have_labels_of_the_program() {
    let metrics = described();
    let tests = tools::deploy().join("prometheus/plimsoll-rules-test.yml");
    let tests = fs::read_to_string(tests).unwrap();
    let series = tests
        .lines()
        .filter_map(|line| line.split_once("series: plimsoll_"));
    for (_, series) in series {
        let (name, labels) = series.split_once('{').unwrap();
        let name = format!("plimsoll_{name}");
        let mut metrics = metrics.iter();
        let metric = metrics.find(|(of, metric)| name_in_queries(of, metric) == name);
        let (_, metric) = metric.unwrap_or_else(|| panic!("{name}"));
        for label in labels.split(", ") {
            let label = label.split('=').next().unwrap();
            assert!(
                label == "instance" || metric.labels.contains(label),
                "{series}"
            );
        }
    }
}

#[test]
fn the_document_lists_every_alert() {
    let rules = fs::read_to_string(tools::deploy().join("prometheus/plimsoll-rules.yml")).unwrap();
    let mut alerts =
        String::from("| alert | severity | after | says |\n| --- | --- | --- | --- |\n");
    for alert in rules.split("- alert: ").skip(1) {
        let value = |key: &str| {
            let value = alert.lines().find_map(|line| line.trim().strip_prefix(key));
            value.map(str::trim).unwrap_or_default().to_owned()
        };
        let name = alert.lines().next().unwrap();
        let summary = value("summary:").replace('"', "");
        let summary = summary
            .replace("{{ $labels.", "*")
            .replace("{{ $", "*")
            .replace(" }}", "*");
        let row = [
            format!("`{name}`"),
            value("severity:"),
            value("for:"),
            summary,
        ];
        writeln!(alerts, "| {} |", row.join(" | ")).unwrap();
    }
    check_part("alerts", &alerts);
}
