//! SPEC 2: groups of one class with weights 100 and 300 on the same CPU.

use crate::clock::{MEASURED, rates_of};
use crate::common::{Host, on_one_cpu, wait_until_busy};
use crate::figure::{SPEC_2, near};

#[test]
fn weights_of_normal_and_batch_groups() {
    for class in ["normal", "batch"] {
        let host = Host::new();
        let names = ["light", "heavy"];
        let groups = names.map(|name| match class {
            "batch" => host.batch(name),
            _ => host.normal(name),
        });
        let start = |name: &str, weight: u32| {
            host.start_load(
                &format!("--name {name} --class {class} --weight {weight}"),
                "burn --threads 1 --duration 80000s",
            )
        };
        let _both = on_one_cpu(|| [start("light", 100), start("heavy", 300)]);
        groups.iter().for_each(wait_until_busy);
        let rates = rates_of(&groups.each_ref(), MEASURED);
        let share = 100.0 * rates[0] / (rates[0] + rates[1]);
        let what = format!("{class} group of weight 100 beside 300");
        SPEC_2.figure(&what, share, "% of both", near(25.0, 1.0));
    }
}
