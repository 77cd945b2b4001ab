//! Refusal of invalid variants.

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
            "name: `alone` is already the name of another variant",
        ),
        (
            "[\"batch\"]",
            "[\"batc\"]",
            "20:12",
            "without: `batc` is not a group of the file (perhaps `batch`?); allowed: web, batch",
        ),
        (
            "[\"batch\"]",
            "[\"batch\", \"web\"]",
            "20:11",
            "without: all groups are left out",
        ),
        (
            "[\"batch\"]",
            "\"batch\"",
            "20:11",
            "without: `batch` is a text; allowed: a list",
        ),
        (
            "[\"batch\"]",
            "[3]",
            "20:12",
            "without: `3` has a number; allowed: a list",
        ),
        (
            "group.web.quota",
            "group.wbe.quota",
            "26:7",
            "group: `wbe` is not a group of the file (perhaps `web`?)",
        ),
        (
            "web.service.rate",
            "web.burn.threads",
            "27:11",
            "`burn` is not a workload of this group",
        ),
        (
            "web.service.rate = 200",
            "web.service.rate = -2",
            "27:26",
            "rate: '-2' is not allowed",
        ),
        (
            "web.service.rate",
            "web.service.rat",
            "27:19",
            "`rat` is no key of a workload (perhaps `rate`?)",
        ),
        (
            "web.headroom",
            "web.headrom",
            "28:11",
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
