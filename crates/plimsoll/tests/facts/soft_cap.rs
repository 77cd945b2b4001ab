//! Soft caps: the idle mark of a group above its cap. The lab measures the shares.

use crate::common::{Host, knob, on_one_cpu, wait_for, wait_until, wait_until_busy};

#[test]
fn a_group_is_in_the_background_at_a_soft_cap_of_0_and_normal_below_its_soft_cap() {
    let mut host = Host::new();
    let others = host.group("others");
    let group = host.soft("slow");
    let load = "burn --threads 1 --duration 600s";
    let knobs = "--name slow --soft-cap 0% --half-life 60s --weight 50";
    let (rival, slow) = on_one_cpu(|| {
        (
            host.start_load_in(&others, load),
            host.start_load(knobs, load),
        )
    });
    wait_until_busy(&others);
    wait_until("it is in the background", || {
        knob(&group, "cpu.idle") == "1"
    });
    let switches = || host.show("slow")["statistics"]["soft_cap"]["nr_switches"].clone();
    let (before, used) = (switches(), others.usage_ns().unwrap());
    wait_until("others have run on", || {
        assert_eq!(knob(&group, "cpu.idle"), "1");
        others.usage_ns().unwrap() > used + 200_000_000
    });
    assert_eq!(switches(), before);
    // One thread cannot use more than one CPU.
    host.run(["set", "slow", "--soft-cap", "200%"]).good();
    wait_until("it is normal", || knob(&group, "cpu.idle") == "0");
    let before = switches();
    wait_until_busy(&group);
    wait_until("it has run", || {
        assert_eq!(knob(&group, "cpu.idle"), "0");
        group.usage_ns().is_ok_and(|ns| ns > 200_000_000)
    });
    assert_eq!(group.read_weight().unwrap(), 50);
    let statistics = wait_for("a usage rate", || {
        let statistics = host.show("slow")["statistics"].clone();
        let rate_ppm = statistics["soft_cap"]["rate_ppm"].as_u64();
        (rate_ppm > Some(0)).then_some(statistics)
    });
    let state = &statistics["soft_cap"];
    assert_eq!(state["background"], false, "{state}");
    assert_eq!(state["nr_switches"], before, "{state}");
    // Usage of t half-lives ago counts 2^-t, so the rate is at most the usage times ln 2 / 60 s.
    let most_ppm = statistics["usage_usec"].as_u64().unwrap() * 693_148 / 60_000_000 + 1;
    let rate_ppm = state["rate_ppm"].as_u64().unwrap();
    assert!(rate_ppm <= most_ppm, "{statistics}");
    // On a busy machine it may have little more.
    host.run(["set", "slow", "--soft-cap", "0.1%", "--half-life", "50ms"])
        .good();
    wait_until("it is in the background", || {
        knob(&group, "cpu.idle") == "1"
    });
    assert_eq!(host.show("slow")["knobs"]["half-life"], "50ms");
    slow.stop();
    rival.kill_hard();
    host.assert_clean();
}
