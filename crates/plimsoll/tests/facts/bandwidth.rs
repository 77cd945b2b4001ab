//! Quota, period and burst in the kernel's files. The lab measures the shares.

use crate::common::{Host, bandwidth_us, knob, max_with_burst, wait_until, wait_until_busy};

#[test]
fn a_burst_of_others_above_the_quota_is_cut_while_the_limit_lasts() {
    let mut host = Host::new();
    let group = host.group("theirs");
    let theirs = max_with_burst("70ms/100ms", "50ms");
    group.write_cpu_max(&theirs).unwrap();
    let before = host.snapshot();
    let target = format!("/{}", group.path().display());
    for (line, expected) in [
        ("20000", (20_000, 100_000, 20_000)),
        ("60000 200000", (60_000, 200_000, 50_000)),
    ] {
        host.run(["set", &target, "--cpu-max", line]).good();
        assert_eq!(bandwidth_us(&group), expected, "{line}");
    }
    // A burst of the user's own is not cut.
    let refused = host.run(["set", &target, "--cpu-max", "20000 100000 30000"]);
    assert!(refused.one_line().contains("burst"), "{refused:?}");
    host.run(["set", &target, "--reset"]).good();
    assert_eq!(bandwidth_us(&group), (70_000, 100_000, 50_000));
    // Alone, it is that of their quota.
    host.run(["set", &target, "--burst", "10ms"]).good();
    assert_eq!(bandwidth_us(&group), (70_000, 100_000, 10_000));
    host.run(["set", &target, "--reset"]).good();
    host.end_idle_owner();
    host.assert_as(&before);
}

#[test]
fn quota_and_burst_change_in_an_order_that_the_kernel_accepts() {
    let host = Host::new();
    let group = host.normal("steps");
    let words = "run --name steps --quota 80ms/100ms --burst 60ms -- sleep 600";
    let running = host.start(words.split(' '));
    wait_until("the group is there", || {
        group.exists() && bandwidth_us(&group) == (80_000, 100_000, 60_000)
    });
    for (knobs, expected) in [
        // Below the present burst, and above it again.
        ("--quota 20ms/100ms --burst 10ms", (20_000, 100_000, 10_000)),
        ("--quota 80ms/100ms --burst 80ms", (80_000, 100_000, 80_000)),
        ("--quota 5ms/10ms --burst 0", (5_000, 10_000, 0)),
        (
            "--quota 500ms/1s --burst 500ms",
            (500_000, 1_000_000, 500_000),
        ),
    ] {
        let words = format!("set steps {knobs}");
        host.run(words.split(' ')).good();
        assert_eq!(bandwidth_us(&group), expected, "{knobs}");
    }
    for (line, expected) in [
        ("20000 50000 20000", (20_000, 50_000, 20_000)),
        // Missing values stay unchanged.
        ("30000", (30_000, 50_000, 20_000)),
    ] {
        host.run(["set", "steps", "--cpu-max", line]).good();
        assert_eq!(bandwidth_us(&group), expected, "{line}");
    }
    // A quota below the remaining burst is refused without a change.
    let refused = host.run(["set", "steps", "--quota", "10ms/100ms"]);
    assert_eq!(refused.code(), 125, "{refused:?}");
    assert!(refused.one_line().contains("burst"), "{refused:?}");
    assert_eq!(bandwidth_us(&group), (30_000, 50_000, 20_000));
    running.stop();
    host.assert_clean();
}

#[test]
fn a_cap_inside_a_quota_keeps_both() {
    let host = Host::new();
    let group = host.normal("both");
    let running = host.start_load(
        "--name both --quota 50ms/100ms --cap 30%",
        "burn --threads 2 --duration 600s",
    );
    wait_until_busy(&group);
    assert_eq!(bandwidth_us(&group.child("quota")), (50_000, 100_000, 0));
    let cap = group.child("quota").child("cap");
    assert_eq!(bandwidth_us(&cap), (3_000, 10_000, 1_000));
    assert!(!knob(&cap, "cgroup.procs").is_empty());
    running.stop();
    host.assert_clean();
}

/// A load whose demand is below its quota on average, and above it in a period.
#[test]
fn bursts_are_counted_where_they_are_allowed() {
    let host = Host::new();
    let load = "service --workers 1 --burst-size 1 --burst-every 330ms \
                --service const:9ms --duration 80000s";
    let counts = |name: &str| {
        let quota = host.show(name)["statistics"]["quota"].clone();
        ["nr_throttled", "nr_bursts"].map(|count| quota[count].as_u64().unwrap_or(0))
    };
    let strict = host.start_load("--name strict --quota 5ms/100ms", load);
    let saving = host.start_load("--name saving --quota 5ms/100ms --burst 5ms", load);
    for name in ["strict", "saving"] {
        wait_until("the group is there", || host.normal(name).exists());
    }
    wait_until("it is throttled", || counts("strict")[0] > 0);
    wait_until("it uses what it has saved", || counts("saving")[1] > 0);
    assert_eq!(counts("strict")[1], 0);
    for running in [strict, saving] {
        running.stop();
    }
    host.assert_clean();
}
