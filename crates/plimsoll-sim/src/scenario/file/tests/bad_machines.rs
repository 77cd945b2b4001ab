//! Refusal of invalid machines.

use super::*;

#[test]
fn bad_machines_are_refused_at_the_value() {
    for (other, place, words) in [
        (
            "cpus = 0",
            "3:8",
            "cpus: `0` is not allowed; allowed: 1 to ",
        ),
        (
            "cpus = 'many'",
            "3:8",
            "cpus: `many` is not allowed; allowed: 1 to 8192",
        ),
        (
            "cpus = 3\nthreads-per-core = 2",
            "4:20",
            "threads-per-core: `2` is not allowed",
        ),
        (
            "cpus = 4\ncpus-per-llc = 3",
            "4:16",
            "cpus-per-llc: `3` is not allowed",
        ),
        (
            "cpus = 2\ncontention = '2000%'",
            "4:14",
            "contention: `2000%` is not allowed; allowed: 0% to",
        ),
        (
            "cpus = 2\ncontention = 0.3",
            "4:14",
            "contention: `0.3` is a number; allowed: a percentage",
        ),
        (
            "cpus = 2\ncontention = '-3%'",
            "4:14",
            "contention: `-3%` is negative",
        ),
        (
            "cpus = 2\nsibling-speed = '5%'",
            "4:17",
            "sibling-speed: `5%`",
        ),
        (
            "cpus = 2\nswitch-cost = '2ms'",
            "4:15",
            "switch-cost: `2ms`",
        ),
        (
            "cpus = 2\nburst-enabled = 'no'",
            "4:17",
            "burst-enabled: `no` is a text; allowed: true or false",
        ),
        (
            "cpus = 2\nbandwidth-slice = '99us'",
            "4:19",
            "bandwidth-slice: `99us` is out of range; allowed: a time from 100us to 1s",
        ),
    ] {
        refused(&with("cpus = 2", other), place, &[words, "allowed: "]);
    }
    refused(
        "machine = 3\n",
        "1:11",
        &["machine: `3` is a number; allowed: a table"],
    );
}
