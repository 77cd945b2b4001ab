//! Variants that cannot be.

use super::*;

#[test]
fn bad_variants_are_refused_at_the_value() {
    for (line, other, place, words) in [
        (
            "name = \"alone\"",
            "nam = \"alone\"",
            "19:1",
            "`nam` is no key of a variant (perhaps `name`?)",
        ),
        (
            "name = \"alone\"",
            "about = \"\"",
            "18:1",
            "name: `` is missing",
        ),
        (
            "name = \"more\"",
            "name = \"alone\"",
            "23:8",
            "name: `alone` is another variant's too",
        ),
        (
            "[\"side\"]",
            "[\"sid\"]",
            "20:12",
            "without: `sid` is no group of the file (perhaps `side`?); allowed: main, side",
        ),
        (
            "[\"side\"]",
            "[\"side\", \"main\"]",
            "20:11",
            "without: all groups are left out",
        ),
        (
            "[\"side\"]",
            "\"side\"",
            "20:11",
            "without: `side` is a text; allowed: a list",
        ),
        (
            "[\"side\"]",
            "[3]",
            "20:12",
            "without: `3` has a number; allowed: a list",
        ),
        (
            "group.main.quota",
            "group.mian.quota",
            "26:7",
            "group: `mian` is no group of the file (perhaps `main`?)",
        ),
        (
            "main.service.rate",
            "main.burn.threads",
            "27:12",
            "`burn` is no workload of this group",
        ),
        (
            "main.service.rate = 200",
            "main.service.rate = -2",
            "27:27",
            "rate: '-2' is not allowed",
        ),
        (
            "main.service.rate",
            "main.service.rat",
            "27:20",
            "`rat` is no key of a workload (perhaps `rate`?)",
        ),
        (
            "main.headroom",
            "main.headrom",
            "28:12",
            "`headrom` is no key of a group of a variant (perhaps `headroom`?)",
        ),
        (
            "class = \"batch\"",
            "class = \"bad\"",
            "30:9",
            "class: `bad` is not a class",
        ),
        (
            "contention = \"50%\"",
            "contention = \"50\"",
            "25:22",
            "contention: `50` has no unit",
        ),
    ] {
        assert!(VARIANTS.contains(line), "{line}");
        refused(&VARIANTS.replace(line, other), place, &[words]);
    }
}
