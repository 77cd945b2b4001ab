//! Variants of a scenario.

use plimsoll_engine::knobs::Class;
use plimsoll_load::Arrivals;

use super::*;

#[test]
fn variants_override_the_file_key_by_key() {
    let file = good(VARIANTS);
    let names: Vec<_> = file.runs.iter().map(|run| run.variant.as_deref()).collect();
    assert_eq!(names, [Some("alone"), Some("more")]);
    let alone = &file.runs[0].scenario;
    assert_eq!((alone.groups.len(), alone.duration_ns), (1, 1_000_000_000));
    assert!(alone.groups[0].knobs.quota.is_some());
    let more = &file.runs[1].scenario;
    assert_eq!(
        (more.machine.contention_ppm, more.duration_ns),
        (500_000, 2_000_000_000)
    );
    let [web, batch] = more.groups.as_slice() else {
        panic!("{more:?}")
    };
    assert_eq!(
        (web.knobs.quota, web.knobs.headroom.is_some()),
        (None, true)
    );
    assert_eq!(batch.knobs.class, Some(Class::Batch));
    let (Workload::Service(service), Workload::Burn(burn)) =
        (&web.workloads[0], &batch.workloads[0])
    else {
        panic!("{more:?}")
    };
    assert_eq!(service.arrivals, Arrivals::Poisson { rate: 200.0 });
    assert_eq!(burn.burners, 9);
}

#[test]
fn one_variant_can_be_picked() {
    let one = good(VARIANTS).only("s.toml", "more").unwrap();
    assert_eq!(one.runs.len(), 1);
    let error = good(VARIANTS)
        .only("s.toml", "less")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "variant: `less` is not in s.toml; allowed: alone, more"
    );
    let error = good(ALL).only("s.toml", "less").unwrap_err().to_string();
    assert!(error.ends_with("none, the file has no variants"), "{error}");
}

#[test]
fn control_characters_of_a_file_do_not_reach_the_terminal() {
    let rest = "duration = '1s'\n[[group]]\nname = 'a'\n[[group.workload]]\nkind = 'burn'\n";
    let text = format!("about = \"a \\u001b[31mred\\u0007\\nline\\n\"\n{rest}");
    assert_eq!(good(&text).about, "a  [31mred  line");
    let text = format!("{rest}[[variant]]\nname = \"v\\u001b[31m\"\n");
    refused(&text, "7:8", &["name: `v [31m` has control characters"]);
}
