//! The batch class and weights: who gets a CPU that several want.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{
    Host, expect_within, knob, native_or_vm, on_one_cpu, rate_percent, wait_until, wait_until_busy,
};

#[test]
fn batch_work_gets_under_5_percent_beside_normal_work_on_the_same_cpu() {
    let mut host = Host::alone();
    let rival = host.group("service");
    let group = host.batch("work");
    let (_service, _work) = on_one_cpu(|| {
        (
            host.start_load_in(&rival, "burn --threads 1 --duration 120s"),
            host.start_load(
                "--name work --class batch",
                "burn --threads 2 --duration 120s",
            ),
        )
    });
    wait_until_busy(&rival);
    wait_until("it is there", Duration::from_secs(10), || group.exists());
    expect_within("batch share, percent", 2.5, 2.5, || {
        rate_percent(&group, Duration::from_secs(3))
    });
    assert_eq!(knob(&group.parent().unwrap(), "cpu.idle"), "1");
}

#[test]
fn batch_work_gets_the_cpu_that_nobody_wants() {
    let host = Host::alone();
    let group = host.batch("work");
    let work = host.start_load(
        "--name work --class batch",
        "burn --threads 1 --duration 120s",
    );
    wait_until_busy(&group);
    expect_within("percent of a CPU", 95.0, 8.0, || {
        rate_percent(&group, Duration::from_secs(2))
    });
    work.stop();
    host.assert_clean();
}

/// Two groups of a class want the same CPU at weights 100 and 300.
fn expect_1_to_3(class: &str) {
    let host = Host::alone();
    let group = |name: &str| {
        if class == "batch" {
            host.batch(name)
        } else {
            host.normal(name)
        }
    };
    let (light, heavy) = (group("light"), group("heavy"));
    let start = |name: &str, weight: u32| {
        host.start_load(
            &format!("--name {name} --class {class} --weight {weight}"),
            "burn --threads 1 --duration 120s",
        )
    };
    let both = on_one_cpu(|| [start("light", 100), start("heavy", 300)]);
    wait_until_busy(&light);
    wait_until_busy(&heavy);
    let what = format!("{class}: share of the lighter, percent");
    expect_within(&what, 25.0, native_or_vm(2.0, 4.0), || {
        let before = (light.usage_ns().unwrap(), heavy.usage_ns().unwrap());
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs(2));
        let used = light.usage_ns().unwrap() - before.0;
        let others = heavy.usage_ns().unwrap() - before.1;
        println!("{:?} and {:?} ns in {:?}", used, others, start.elapsed());
        100.0 * used as f64 / (used + others) as f64
    });
    both.into_iter().for_each(|one| drop(one.stop()));
    host.assert_clean();
}

#[test]
fn normal_groups_share_a_cpu_by_weight() {
    expect_1_to_3("normal");
}

#[test]
fn batch_groups_share_a_cpu_by_weight() {
    expect_1_to_3("batch");
}
