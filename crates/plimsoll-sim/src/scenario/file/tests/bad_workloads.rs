//! Refusal of invalid workloads.

use super::*;

#[test]
fn bad_services_are_refused_at_the_value() {
    for (other, place, words) in [
        (
            "rate = -3",
            "9:8",
            "rate: '-3' is not allowed: a number from 0.001",
        ),
        ("rate = nan", "9:8", "rate: 'NaN' is not allowed"),
        ("rate = inf", "9:8", "rate: 'inf' is not allowed"),
        (
            "rate = '300'",
            "9:8",
            "rate: `300` is a text; allowed: a number",
        ),
        (
            "rate = 300\nworkers = 0",
            "10:11",
            "workers: '0' is not allowed",
        ),
        (
            "rate = 300\nworkers = -1",
            "10:11",
            "workers: `-1` is negative",
        ),
        (
            "rate = 300\ndeadline = '0s'",
            "10:12",
            "deadline: '0s' is not allowed",
        ),
        (
            "rate = 300\narrivals = 'often'",
            "10:12",
            "arrivals: 'often' is not allowed: poisson",
        ),
        (
            "rate = 300\nburst-size = 5",
            "7:1",
            "burst-every: 'none' is not allowed",
        ),
        (
            "burst-every = '1s'\nburst-size = 0",
            "10:14",
            "burst-size: '0' is not allowed",
        ),
        (
            "arrivals = 'uniform'\nburst-size = 5",
            "10:14",
            "burst-size: '5' is not allowed: only",
        ),
        (
            "rate = 300\ntrace = 't.csv'",
            "9:8",
            "rate: `300` cannot be combined with a trace",
        ),
    ] {
        refused(&with("rate = 300", other), place, &[words, "allowed: "]);
    }
    for (other, words) in [
        (
            "'exp:0s'",
            "service: '0s' is not allowed: a duration from 1us",
        ),
        (
            "'gauss:1ms'",
            "service: 'gauss:1ms' is not allowed: const:TIME",
        ),
        ("'exp:-1ms'", "service: 'exp:-1ms' is not allowed"),
        ("'pareto:1ms,NaN'", "service (ALPHA): 'NaN' is not allowed"),
    ] {
        refused(&with("'exp:1ms'", other), "10:11", &[words]);
    }
    refused(&with("300", "1e7"), "9:8", &["rate"]);
}

#[test]
fn kinds_without_a_model_are_refused_with_the_reason() {
    for (kind, words) in [
        ("serve", "listens on a real socket"),
        ("request", "talks to a real socket"),
        ("hold", "takes a lock of the real kernel"),
        ("wait", "asks for a lock of the real kernel"),
        ("servic", "is not a kind of workload (perhaps `service`?)"),
        ("", "is not a kind of workload;"),
    ] {
        let text = with("'service'", &format!("'{kind}'"));
        refused(&text, "8:8", &[words, "allowed: service, burn"]);
    }
    refused(
        &with("kind = 'service'\n", ""),
        "7:1",
        &["kind: `` is missing"],
    );
    refused(&with("'service'", "5"), "8:8", &["kind: `5` is a number"]);
}

#[test]
fn bad_other_workloads_are_refused_at_the_value() {
    let of = |lines: &str| {
        format!("duration = '10s'\n[[group]]\nname = 'a'\n[[group.workload]]\n{lines}\n")
    };
    for (lines, place, words) in [
        (
            "kind = 'burn'\nthreads = 0",
            "6:11",
            "threads: '0' is not allowed",
        ),
        (
            "kind = 'burn'\nprocesses = 4",
            "6:13",
            "processes: `4` is a number",
        ),
        ("kind = 'storm'", "4:1", "neither cpu-total nor cpu-each"),
        (
            "kind = 'storm'\ncpu-total = '0s'",
            "6:13",
            "cpu-each: '0s' is not allowed",
        ),
        (
            "kind = 'storm'\ncpu-each = '1ms'\nprocesses = 0",
            "7:13",
            "processes: '0'",
        ),
        (
            "kind = 'storm'\ncpu-each = '1ms'\nparallel = 999",
            "7:12",
            "parallel: '999'",
        ),
        ("kind = 'need'", "4:1", "cpu: `` is missing"),
        (
            "kind = 'need'\ncpu = '0s'",
            "6:7",
            "cpu: '0s' is not allowed",
        ),
        ("kind = 'need'\ncpu = '1s'\ntasks = 0", "7:9", "tasks: '0'"),
        ("kind = 'steady'", "4:1", "percent: `` is missing"),
        ("kind = 'steady'\npercent = 101", "6:11", "percent: '101'"),
        (
            "kind = 'steady'\npercent = 5\ngrain = '0s'",
            "7:9",
            "grain: '0s'",
        ),
        (
            "kind = 'steady'\npercent = 5\nstep-to = [5]",
            "4:1",
            "step-at: `0 times`",
        ),
        (
            "kind = 'steady'\npercent = 5\nstep-to = 5",
            "7:11",
            "step-to: `5` is a number",
        ),
        (
            "kind = 'steady'\npercent = 5\nstep-to = [5, 6]\nstep-at = ['1s', 2]",
            "8:18",
            "step-at: `2` is a number",
        ),
        (
            "kind = 'steady'\npercent = 5\nstep-to = [5]\nstep-at = ['11s']",
            "8:11",
            "step-at: '11s'",
        ),
        ("kind = 'wake'\nevery = '1us'", "6:9", "every: '1us'"),
    ] {
        refused(&of(lines), place, &[words, "allowed"]);
    }
}
