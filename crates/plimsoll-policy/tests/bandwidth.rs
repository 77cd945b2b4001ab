//! Errors of bad parameters of the bandwidth core.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::bandwidth::BandwidthParams;

#[test]
fn bad_parameters_are_named_in_the_error() {
    type Spoil = fn(&mut BandwidthParams);
    let good = BandwidthParams {
        quota_ns: Some(MS),
        ..BandwidthParams::default()
    };
    assert_eq!(good.check(), Ok(()));
    let bad: [(Spoil, &str); 5] = [
        (|it| it.period_ns = 1, "period_ns is 1,"),
        (|it| it.quota_ns = Some(1), "quota_ns is 1,"),
        (
            |it| it.quota_ns = Some(u64::MAX),
            "a sum of at most 17592186044416",
        ),
        (
            |it| it.burst_ns = u64::MAX,
            "burst_ns is 18446744073709551615",
        ),
        (
            |it| it.slice_ns = 0,
            "slice_ns is 0, allowed are 100000 to 1000000000",
        ),
    ];
    for (spoil, field) in bad {
        let mut params = good;
        spoil(&mut params);
        let message = params.check().unwrap_err().to_string();
        assert!(message.contains(field), "{message}");
    }
}
