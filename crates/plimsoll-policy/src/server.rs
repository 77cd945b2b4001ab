//! Table of the server slices of `plimsoll/server.h`, which only the kernel calls.

use crate::NSEC_PER_MSEC as MS;
use crate::ffi;

#[test]
fn a_tolerance_is_shared_among_cpus() {
    let slices = |runtime_ms: u64, period_ms: u64, nr_cpus: u32| {
        let params = ffi::plim_headroom_params {
            tolerance_runtime_ns: runtime_ms * MS,
            tolerance_period_ns: period_ms * MS,
            nr_cpus,
            ..ffi::plim_headroom_params::default()
        };
        let mut server = ffi::plim_server::default();
        // SAFETY: writes the server and reads the parameters, whose period and CPUs are not 0.
        unsafe { ffi::plim_server_set(&mut server, &params) };
        [server.slice_ns, server.period_ns, server.alone_ns].map(|ns| ns / 1000)
    };
    assert_eq!(slices(1, 100, 1), [200, 20_000, 20_000]);
    assert_eq!(slices(1, 100, 2), [100, 20_000, 10_000]);
    assert_eq!(slices(1, 100, 4), [100, 40_000, 10_000]);
    assert_eq!(slices(1, 100, 64), [100, 640_000, 10_000]);
    assert_eq!(slices(1, 10_000, 64), [100, 4_000_000, 1_000_000]);
    assert_eq!(slices(1_000, 10_000, 1), [2000, 20_000, 20_000]);
    assert_eq!(slices(1_000, 1_000, 1), [20_000, 20_000, 20_000]);
    assert_eq!(slices(1_000, 1_000, 4), [5_000, 20_000, 10_000]);
    assert_eq!(slices(0, 100, 4), [100, 4_000_000, 4_000_000]);
}
