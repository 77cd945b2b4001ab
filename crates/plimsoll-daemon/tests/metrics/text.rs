//! The text by itself.

use plimsoll_daemon::metrics::openmetrics;
use plimsoll_daemon::state::State;

use crate::fixture;
use crate::reader::Text;

#[test]
fn every_metric_is_described_in_every_state_and_has_a_value_in_a_full_one() {
    let empty = Text::read(&openmetrics(State::default()));
    let full = Text::read(&openmetrics(fixture::state(100)));
    let names = |text: &Text| text.metrics.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&empty),
        names(&full),
        "described whether or not it is there"
    );
    for (name, metric) in &full.metrics {
        let has_value = full.values.iter().any(|value| value.name.starts_with(name));
        assert!(
            has_value,
            "{name} has no value in a state that has it all: {metric:?}"
        );
    }
}

#[test]
fn values_are_in_base_units() {
    let text = Text::read(&openmetrics(fixture::state(100)));
    let value = |name: &str, group: Option<&str>| {
        let values = text.values_of(name);
        let is_it = |labels: &std::collections::BTreeMap<String, String>| {
            labels.get("group").map(String::as_str) == group
        };
        let mut found = values.iter().filter(|value| is_it(&value.labels));
        let first = found.next().unwrap_or_else(|| panic!("{name}"));
        assert!(found.next().is_none(), "{name}");
        first.value
    };
    let delay = "plimsoll_daemon_control_delay_seconds";
    let buckets = text.values_of(&format!("{delay}_bucket"));
    let buckets = buckets.iter().map(|it| (&*it.labels["le"], it.value));
    let summed_up = [
        ("0.001", 9e3),
        ("0.01", 1e4),
        ("0.1", 1e4),
        ("1.0", 1e4),
        ("+Inf", 1e4),
    ];
    assert_eq!(buckets.collect::<Vec<_>>(), summed_up);
    assert_eq!(value(&format!("{delay}_count"), None), 1e4);
    assert_eq!(value(&format!("{delay}_sum"), None), 1.0);
    let of_encode = |name: &str| value(name, Some("encode"));
    assert_eq!(of_encode("plimsoll_cpu_usage_seconds_total"), 200.0);
    assert_eq!(of_encode("plimsoll_cfs_quota_ratio"), 2.0);
    assert_eq!(of_encode("plimsoll_cfs_periods_total"), 1000.0);
    assert_eq!(of_encode("plimsoll_cfs_throttled_periods_total"), 100.0);
    assert_eq!(of_encode("plimsoll_cfs_throttled_seconds_total"), 2.0);
    assert_eq!(of_encode("plimsoll_cfs_burst_periods_total"), 100.0);
    assert_eq!(of_encode("plimsoll_cfs_burst_seconds_total"), 1.5);
    assert_eq!(of_encode("plimsoll_cap_limit_ratio"), 1.5);
    assert_eq!(of_encode("plimsoll_cap_throttled_periods_total"), 200.0);
    assert_eq!(of_encode("plimsoll_soft_cap_rate_ratio"), 0.45);
    assert_eq!(of_encode("plimsoll_soft_cap_background"), 1.0);
    assert_eq!(of_encode("plimsoll_batch_wait_seconds_total"), 300.0);
    assert_eq!(of_encode("plimsoll_group_foreign_changes"), 1.0);
    for (group, is_problem, is_applied) in [
        ("encode", 1.0, 1.0),
        ("web", 1.0, 0.0),
        ("tenants", 0.0, 1.0),
    ] {
        assert_eq!(value("plimsoll_group_problem", Some(group)), is_problem);
        assert_eq!(value("plimsoll_group_applied", Some(group)), is_applied);
    }
    assert_eq!(value("plimsoll_daemon_problems", None), 1.0);
    assert_eq!(value("plimsoll_machine_busy_seconds_total", None), 500.0);
    assert_eq!(value("plimsoll_headroom_ratio", None), 0.3);
    // All are counted though few are named.
    assert_eq!(value("plimsoll_headroom_side_groups", None), 300.0);
    assert_eq!(
        value("plimsoll_headroom_shortfall_seconds_total", None),
        0.1
    );
    assert_eq!(
        value("plimsoll_daemon_resident_memory_bytes", None),
        f64::from(12 << 20)
    );
}

#[test]
fn ten_thousand_groups_are_all_written_in_a_bounded_size() {
    let text = openmetrics(fixture::many_groups(10_000));
    assert!(text.len() < 16 << 20, "{}", text.len());
    assert_eq!(
        Text::read(&text).values_of("plimsoll_processes").len(),
        10_000
    );
}
