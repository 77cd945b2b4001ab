//! Refusal of invalid groups and knobs.

use super::*;

#[test]
fn bad_groups_and_knobs_are_refused_at_the_value() {
    refused(
        "duration = '1s'\n",
        "1:1",
        &["group: `` is missing; allowed: one [[group]]"],
    );
    refused(
        "duration = '1s'\n[group]\nname = 'a'\n",
        "2:1",
        &["group: `a table` is a table"],
    );
    let empty = "duration = '1s'\n[[group]]\nname = 'a'\n";
    refused(
        empty,
        "2:1",
        &["workload: `` is missing in group a; allowed: one [[group.workload]]"],
    );
    let twice = format!(
        "{}[[group]]\nname = 'a'\n[[group.workload]]\nkind = 'burn'\n",
        with("a", "a")
    );
    refused(
        &twice,
        "12:8",
        &["name: `a` is already the name of another group"],
    );
    refused(&with("name = 'a'\n", ""), "4:1", &["name: `` is missing"]);
    refused(&with("'a'", "'a b'"), "5:8", &["5:8: name: `a b` is"]);
    for (other, place, words) in [
        (
            "weight = 0",
            "6:10",
            "weight: `0` is out of range; allowed: a whole number from 1",
        ),
        (
            "weight = true",
            "6:10",
            "weight: `true` is true or false; allowed: a text",
        ),
        ("nice = 20", "6:8", "nice: `20` is out of range"),
        (
            "class = 'idle'",
            "6:9",
            "class: `idle` is not a class; allowed: normal or batch",
        ),
        (
            "quota = '600ms/2s'",
            "6:9",
            "quota: `600ms/2s` has a period outside",
        ),
        (
            "burst = '1ms'",
            "6:9",
            "burst: `1ms` has no effect without quota",
        ),
        (
            "per-task = true",
            "6:12",
            "per-task: `true` has no effect without cap",
        ),
        (
            "half-life = '5s'",
            "6:13",
            "half-life: `5s` has no effect without cap or soft-cap",
        ),
        (
            "soft-cap = '10%'\nhalf-life = '61s'",
            "7:13",
            "half-life: `61s` is out of range",
        ),
        (
            "per-task = 'yes'",
            "6:12",
            "per-task: `yes` is a text; allowed: true or false",
        ),
        ("cap = '25'", "6:7", "cap: `25` has no unit"),
        ("headroom = '101%'", "6:12", "headroom: `101%` is more than"),
        (
            "tolerance = '1ms/100ms'",
            "6:13",
            "tolerance: `1ms/100ms` has no effect",
        ),
        (
            "cpu-limit = '80%'",
            "6:13",
            "cpu-limit: `80%` has no effect without class batch",
        ),
        (
            "cpu-max = 'x'",
            "6:11",
            "cpu-max: `x` has a value that is no number",
        ),
        (
            "cpu-max = '50000'\nquota = '1cpus'",
            "7:9",
            "quota: `1cpus` stands beside cpu-max",
        ),
    ] {
        refused(&with("weight = 100", other), place, &[words, "allowed: "]);
    }
}

#[test]
fn more_tasks_than_fit_into_memory_are_refused() {
    let steady = |name: &str, times: usize| {
        let work = "[[group.workload]]\nkind = 'steady'\npercent = 1\n".repeat(times);
        format!("[[group]]\nname = '{name}'\n{work}")
    };
    let file = |times| {
        let machine = "duration = '1s'\nmachine.cpus = 8000\n";
        format!("{machine}{}{}", steady("a", 100), steady("b", times))
    };
    good(&file(25));
    refused(
        &file(26),
        "306:8",
        &[
            "workload: `1008000` tasks in all with group b",
            "up to 1000000",
        ],
    );
}

#[test]
fn errors_name_the_key_of_the_file_and_its_own_range() {
    let work =
        |work: &str| format!("duration = '1s'\n[[group]]\nname = 'a'\n[[group.workload]]\n{work}");
    let need = work("kind = 'need'\ncpu = '0s'\n");
    refused(&need, "6:7", &["6:7: cpu: '0s' is not allowed"]);
    let storm = work("kind = 'storm'\ncpu-each = '1ms'\ncpu-total = '1s'\n");
    refused(
        &storm,
        "6:12",
        &["cpu-each: cannot be combined with cpu-total"],
    );
    let machine = format!("machine.cpus = -1\n{need}");
    refused(
        &machine,
        "1:16",
        &["cpus: `-1` is not allowed; allowed: 1 to 8192"],
    );
}

#[test]
fn knobs_without_effect_on_the_machine_are_refused() {
    let with = |knobs: &str| {
        let work = "[[group.workload]]\nkind = 'burn'\n";
        format!("duration = '1s'\nmachine.cpus = 4\n[[group]]\nname = 'a'\n{knobs}\n{work}")
    };
    let burst = with("quota = 'max'\nburst = '1ms'");
    refused(
        &burst,
        "6:9",
        &["burst: `1ms` has no effect without a limit"],
    );
    good(&with("headroom = '4cpus'"));
    let headroom = with("headroom = '5cpus'");
    refused(
        &headroom,
        "5:12",
        &[
            "headroom: `5cpus` is more",
            "allowed: up to the machine's, 4cpus",
        ],
    );
}
