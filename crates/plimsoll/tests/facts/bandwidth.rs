//! Quota, period and burst in the kernel's files. The lab measures the shares.

use crate::common::{Host, bandwidth_us, max_with_burst};

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
        // The period of before.
        ("30000", (30_000, 200_000, 30_000)),
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
