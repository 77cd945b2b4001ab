//! Repeatability: the same seed gives the same run in any number of steps.

use plimsoll_sim::host::{Host, Span};
use plimsoll_sim::scenario::Scenario;

use crate::fixture::{MSEC, SEC, Spans, burn, group, run, scenario, service, steady};

fn busy() -> Scenario {
    let groups = vec![
        group(
            "web",
            r#""headroom": "20%""#,
            vec![service(900.0, "exp:1ms", 4, 7)],
        ),
        group("web", "", vec![steady(20.0, 3 * SEC)]),
        group(
            "limited",
            r#""quota": "50ms/100ms", "burst": "20ms""#,
            vec![burn(3)],
        ),
        group("capped", r#""cap": "30%""#, vec![burn(3)]),
        group(
            "batch",
            r#""class": "batch", "cpu-limit": "80%""#,
            vec![burn(6)],
        ),
    ];
    let mut scenario = scenario(4, 2 * SEC, groups);
    scenario.warmup_ns = SEC / 2;
    scenario.machine.threads_per_core = 2;
    scenario.machine.contention_ppm = 300_000;
    scenario
}

#[test]
fn run_does_not_depend_on_the_number_of_steps() {
    let scenario = busy();
    let whole = run(&scenario);
    assert_eq!(whole, run(&scenario));
    let mut host = Host::new(&scenario).unwrap();
    while !host.is_over() {
        host.run_until(host.now_ns() + 777_777);
    }
    assert_eq!(whole, host.report());
    assert!(whole.complete && whole.events > 10_000, "{}", whole.events);
}

#[test]
fn no_cpu_runs_two_tasks_and_no_task_runs_on_two_cpus() {
    let mut host = Host::with_observer(&busy(), Spans::default()).unwrap();
    host.run_until(u64::MAX);
    let (events, report) = (host.events(), host.report());
    let mut spans = host.into_observer().0;
    assert!(spans.len() > 1_000 && events > 1_000);
    let total_ns: u64 = spans.iter().map(|s| s.end_ns - s.start_ns).sum();
    let busy = report.machine.normal_ratio + report.machine.batch_ratio;
    assert!(total_ns as f64 > busy * 4.0 * (2 * SEC) as f64 * 0.99);
    for key in [
        |s: &Span| (s.cpu, s.start_ns),
        |s: &Span| (s.task, s.start_ns),
    ] {
        spans.sort_unstable_by_key(key);
        for pair in spans.windows(2) {
            let same = key(&pair[0]).0 == key(&pair[1]).0;
            assert!(!same || pair[0].end_ns <= pair[1].start_ns, "{pair:?}");
        }
    }
}

#[test]
fn groups_and_classes_account_for_every_nanosecond() {
    let report = run(&busy());
    let cpu_ns: u64 = report.groups.iter().map(|g| g.cpu_ns).sum();
    let busy = report.machine.normal_ratio + report.machine.batch_ratio;
    let of_classes = busy * 4.0 * report.measured_ns as f64;
    assert!(
        (cpu_ns as f64 - of_classes).abs() < 10.0,
        "{cpu_ns} {of_classes}"
    );
}

#[test]
fn stopped_run_reports_its_progress() {
    let mut host = Host::new(&busy()).unwrap();
    host.run_until(SEC / 2 + 300 * MSEC);
    let report = host.report();
    assert_eq!((report.complete, report.measured_ns), (false, 300 * MSEC));
    assert!(report.groups.iter().all(|g| g.cpu_ns > 0));
}
