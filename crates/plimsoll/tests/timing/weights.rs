//! Groups of one class with weights 100 and 300 on the same CPU.

use crate::common::{Host, ms, on_one_cpu, wait_until_busy};
use crate::measured::assert_near;

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
    let before = (light.usage_ns().unwrap(), heavy.usage_ns().unwrap());
    std::thread::sleep(ms(2_000));
    let used = (light.usage_ns().unwrap() - before.0) as f64;
    let others = (heavy.usage_ns().unwrap() - before.1) as f64;
    let what = format!("{class} class: share of weight 100 beside 300");
    assert_near(&what, 100.0 * used / (used + others), 25.0, 1.0);
    both.into_iter().for_each(|one| drop(one.stop()));
    host.assert_clean();
}

#[test]
fn normal_groups_share_a_cpu_by_weight_within_a_point() {
    expect_1_to_3("normal");
}

#[test]
fn batch_groups_share_a_cpu_by_weight_within_a_point() {
    expect_1_to_3("batch");
}
