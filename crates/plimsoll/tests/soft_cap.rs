//! Soft caps: the idle mark of a group beyond its cap. `timing` has the shares.

#![allow(clippy::unwrap_used)]

mod common;

use std::thread;
use std::time::Duration;

use common::{Host, knob, ms, on_one_cpu, wait_until, wait_until_busy};

#[test]
fn with_a_soft_cap_of_0_a_group_is_always_in_the_background() {
    let mut host = Host::alone();
    let rival = host.group("rival");
    let group = host.soft("last");
    let (_rival, _last) = on_one_cpu(|| {
        (
            host.start_load_in(&rival, "burn --threads 1 --duration 120s"),
            host.start_load(
                "--name last --soft-cap 0%",
                "burn --threads 1 --duration 120s",
            ),
        )
    });
    wait_until_busy(&rival);
    wait_until("it is in the background", Duration::from_secs(10), || {
        knob(&group, "cpu.idle") == "1"
    });
    for _ in 0..20 {
        assert_eq!(knob(&group, "cpu.idle"), "1");
        thread::sleep(ms(50));
    }
}

#[test]
fn under_its_soft_cap_a_group_is_normal_all_the_time() {
    let host = Host::alone();
    let group = host.soft("modest");
    let modest = host.start_load(
        "--name modest --soft-cap 90% --weight 50",
        "steady --percent 5 --duration 120s",
    );
    wait_until_busy(&group);
    for _ in 0..20 {
        let state = host.show("modest");
        assert_eq!(knob(&group, "cpu.idle"), "0", "{state}");
        thread::sleep(ms(50));
    }
    assert_eq!(group.read_weight().unwrap(), 50);
    let state = &host.show("modest")["statistics"]["soft_cap"];
    assert_eq!(state["background"], false, "{state}");
    assert_eq!(state["nr_switches"], 0, "{state}");
    modest.stop();
    host.assert_clean();
}
