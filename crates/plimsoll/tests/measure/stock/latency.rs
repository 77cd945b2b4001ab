//! SPEC 2 and 3: the latency of a service beside batch work, with and without headroom.

use plimsoll_cgroupfs::CpuGroup;

use crate::clock::sleep_ms;
use crate::common::{Host, load_words, wait_until_busy};
use crate::figure::{SPEC_2, SPEC_3};

/// The p99 of a service in a cgroup of its own, in microseconds.
fn p99(host: &Host, service: &CpuGroup) -> f64 {
    let load = "service --workers 2 --rate 400 --service const:300us --warmup 300ms \
                --duration 2500ms --json";
    let report = host.start_in(service, load_words(load)).finish().good();
    let report = report.json();
    assert_eq!(report["failures"], 0, "{report}");
    report["latency"]["p99_us"].as_f64().unwrap()
}

#[test]
fn p99_of_a_service_beside_batch_work() {
    let mut host = Host::new();
    let service = host.group("service");
    let alone = p99(&host, &service);
    let beside = |knobs: &str| {
        let batch = host.batch("work");
        let work = host.start_load(
            &format!("--name work --class batch {knobs}"),
            "burn --threads 4 --duration 80000s",
        );
        wait_until_busy(&batch);
        sleep_ms(500);
        let before = batch.usage_ns().unwrap();
        let found = p99(&host, &service);
        let used = (batch.usage_ns().unwrap() - before) as f64 / 2.8e9;
        assert!(used > 0.9, "batch work did not run: {used} CPUs");
        work.stop();
        found
    };
    let (batch, headroom) = (beside(""), beside("--headroom 30%"));
    let what = "p99 beside batch work, of that alone";
    SPEC_2.figure(what, batch / alone, "times", 0.0..=1.05);
    let what = "p99 beside batch work under headroom, of that alone";
    SPEC_3.figure(what, headroom / alone, "times", 0.0..=1.05);
    let what = "p99 beside batch work under headroom, of that without headroom";
    SPEC_3.figure(what, headroom / batch, "times", 0.0..=1.0);
}
