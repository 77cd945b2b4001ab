//! Reading files, and what is said of bad ones.

use std::path::Path;
use std::time::Duration;

use plimsoll_engine::knobs::{Class, Headroom};
use plimsoll_load::{Arrivals, Demand};

use super::*;

fn parse(text: &str) -> Result<ScenarioFile, FileError> {
    ScenarioFile::parse("s.toml", text, Path::new("/nowhere"), Overrides::default())
}

fn good(text: &str) -> ScenarioFile {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const ALL: &str = r#"
about = "everything"
duration = "10s"
warmup = "1s"
seed = 7

[machine]
cpus = 8
threads-per-core = 2
cpus-per-llc = 4
contention = "30%"
sibling-speed = "55.5%"
switch-cost = "3us"

[[group]]
name = "web"
headroom = "30%"
tolerance = "1ms/100ms"

[[group.workload]]
kind = "service"
rate = 300
service = "exp:1ms"
deadline = "20ms"

[[group.workload]]
kind = "service"
burst-size = 20
burst-every = "40ms"
workers = 3

[[group]]
name = "side"
class = "batch"
nice = 10
weight = 50
cap = "150%"
cpu-limit = "80%"

[[group.workload]]
kind = "burn"
processes = true

[[group.workload]]
kind = "storm"
processes = 100
cpu-total = "1s"
parallel = 4

[[group]]
name = "tenants"
cpu-max = "600000 100000 400000"

[[group.workload]]
kind = "need"
cpu = "0.5s"
tasks = 2

[[group.workload]]
kind = "steady"
percent = 12.5
step-to = [60, 20]
step-at = ["2s", "6s"]

[[group.workload]]
kind = "wake"
every = "5ms"
"#;

#[test]
fn every_key_is_read() {
    let file = good(ALL);
    assert_eq!((file.about.as_str(), file.runs.len()), ("everything", 1));
    let scenario = &file.runs[0].scenario;
    let machine = scenario.machine;
    assert_eq!(
        (machine.cpus, machine.threads_per_core, machine.cpus_per_llc),
        (8, 2, 4)
    );
    assert_eq!(
        (
            machine.contention_ppm,
            machine.sibling_speed_ppm,
            machine.switch_cost_ns
        ),
        (300_000, 555_000, 3_000)
    );
    assert_eq!(
        (scenario.duration_ns, scenario.warmup_ns, scenario.seed),
        (10_000_000_000, 1_000_000_000, 7)
    );
    let [web, side, tenants] = scenario.groups.as_slice() else {
        panic!("{scenario:?}")
    };
    assert_eq!(web.knobs.headroom, Some(Headroom::Share(300_000)));
    assert_eq!(side.knobs.class, Some(Class::Batch));
    assert_eq!(side.knobs.nice.map(|n| n.nice), Some(10));
    assert_eq!(
        tenants.knobs.burst.map(|burst| burst.burst_ns),
        Some(400_000_000)
    );
    let kinds: Vec<_> = scenario
        .groups
        .iter()
        .flat_map(|group| group.workloads.iter().map(Workload::name))
        .collect();
    let expected = [
        "service", "service", "burn", "storm", "need", "steady", "wake",
    ];
    assert_eq!(kinds, expected);
    check_workloads(web, side, tenants);
}

fn check_workloads(web: &Group, side: &Group, tenants: &Group) {
    let [Workload::Service(poisson), Workload::Service(bursts)] = web.workloads.as_slice() else {
        panic!("{web:?}")
    };
    assert_eq!(poisson.arrivals, Arrivals::Poisson { rate: 300.0 });
    let mean = Duration::from_millis(1);
    assert_eq!(poisson.demand, Demand::Exponential { mean });
    assert_eq!((poisson.seed, poisson.workers), (7, 8));
    assert_eq!(poisson.deadline, Duration::from_millis(20));
    assert_eq!(poisson.warmup, Duration::from_secs(1));
    assert_eq!(bursts.workers, 3);
    assert_eq!(bursts.seed, workload_seed(7, 1));
    let [Workload::Burn(burn), Workload::Storm(storm)] = side.workloads.as_slice() else {
        panic!("{side:?}")
    };
    assert_eq!((burn.burners, burn.processes), (8, true));
    assert_eq!(burn.duration, Duration::from_secs(11));
    assert_eq!(storm.cpu_each, Duration::from_millis(10));
    let [
        Workload::Need(need),
        Workload::Steady(steady),
        Workload::Wake(_),
    ] = tenants.workloads.as_slice()
    else {
        panic!("{tenants:?}")
    };
    assert_eq!((need.cpu, need.tasks), (Duration::from_millis(500), 2));
    assert_eq!((steady.percent, steady.steps.len()), (12.5, 2));
}

#[test]
fn defaults_are_those_of_the_command_line() {
    let file =
        good("duration = '1s'\n[[group]]\nname = 'a'\n[[group.workload]]\nkind = 'service'\n");
    let scenario = &file.runs[0].scenario;
    assert_eq!((scenario.seed, scenario.warmup_ns), (1, 500_000_000));
    assert_eq!(
        scenario.machine.cpus as usize,
        plimsoll_load::available_cpus()
    );
    let expected = plimsoll_load::ServiceConfig {
        duration: Duration::from_secs(1),
        ..plimsoll_load::ServiceConfig::default()
    };
    assert_eq!(scenario.groups[0].workloads, [Workload::Service(expected)]);
}

#[test]
fn overrides_take_the_place_of_the_file() {
    let overrides = Overrides {
        seed: Some(99),
        duration: Some(Duration::from_secs(20)),
    };
    let file = ScenarioFile::parse("s.toml", ALL, Path::new(""), overrides).unwrap();
    let scenario = &file.runs[0].scenario;
    assert_eq!((scenario.seed, scenario.duration_ns), (99, 20_000_000_000));
    let Workload::Service(service) = &scenario.groups[0].workloads[0] else {
        panic!("{scenario:?}")
    };
    assert_eq!(service.seed, 99);
}

const VARIANTS: &str = r#"
duration = "1s"
[machine]
cpus = 2
[[group]]
name = "main"
quota = "1cpus"
[[group.workload]]
kind = "service"
rate = 100
[[group]]
name = "side"
[[group.workload]]
kind = "burn"
[[group.workload]]
kind = "service"

[[variant]]
name = "alone"
without = ["side"]

[[variant]]
name = "more"
duration = "2s"
machine.contention = "50%"
group.main.quota = "none"
group.main.service.rate = 200
group.main.headroom = "30%"
[variant.group.side]
class = "batch"
burn.threads = 9
"#;

#[test]
fn variants_are_laid_over_the_rest() {
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
    let [main, side] = more.groups.as_slice() else {
        panic!("{more:?}")
    };
    assert_eq!(
        (main.knobs.quota, main.knobs.headroom.is_some()),
        (None, true)
    );
    assert_eq!(side.knobs.class, Some(Class::Batch));
    let (Workload::Service(service), Workload::Burn(burn)) =
        (&main.workloads[0], &side.workloads[0])
    else {
        panic!("{more:?}")
    };
    assert_eq!(service.arrivals, Arrivals::Poisson { rate: 200.0 });
    assert_eq!(burn.burners, 9);
}

#[test]
fn a_group_has_the_same_draws_whoever_else_is_there() {
    let text = VARIANTS.replace("without = [\"side\"]", "without = [\"main\"]");
    let file = good(&text);
    let seed = |group: &Group| match group.workloads.last() {
        Some(Workload::Service(config)) => config.seed,
        other => panic!("{other:?}"),
    };
    let (alone, both) = (&file.runs[0].scenario, &file.runs[1].scenario);
    assert_eq!(seed(&alone.groups[0]), seed(&both.groups[1]));
    assert_ne!(seed(&both.groups[0]), seed(&both.groups[1]));
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

/// A small file with one line in place of another.
fn with(line: &str, other: &str) -> String {
    const SMALL: &str = "duration = '1s'\n\
                         [machine]\n\
                         cpus = 2\n\
                         [[group]]\n\
                         name = 'a'\n\
                         weight = 100\n\
                         [[group.workload]]\n\
                         kind = 'service'\n\
                         rate = 300\n\
                         service = 'exp:1ms'\n";
    assert!(SMALL.contains(line), "{line}");
    SMALL.replace(line, other)
}

/// Checks that a text is refused at a place, with words.
fn refused(text: &str, place: &str, words: &[&str]) {
    let error = match parse(text) {
        Ok(file) => panic!("accepted: {text}\n{file:?}"),
        Err(error) => error.to_string(),
    };
    let start = format!("s.toml:{place}: ");
    assert!(
        error.starts_with(&start),
        "want {start} got {error}\n{text}"
    );
    for word in words {
        assert!(error.contains(word), "want {word} in {error}\n{text}");
    }
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn what_is_no_toml_is_refused_where_it_ends_to_be() {
    refused("duration = \n", "1:12", &["not TOML"]);
    refused(
        "duration = '1s'\nduration = '2s'\n",
        "2:1",
        &["duplicate key"],
    );
    refused(&with("cpus = 2", "cpus = 2 3"), "3:8", &["not TOML"]);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_that_is_known() {
    for (line, other, place, words) in [
        (
            "duration",
            "durration",
            "1:1",
            "`durration` is no key of a scenario (perhaps `duration`?)",
        ),
        (
            "cpus",
            "cpu",
            "3:1",
            "`cpu` is no key of a machine (perhaps `cpus`?)",
        ),
        (
            "weight",
            "wieght",
            "6:1",
            "`wieght` is no key of a group (perhaps `weight`?)",
        ),
        (
            "rate",
            "rat",
            "9:1",
            "`rat` is no key of a workload (perhaps `rate`?)",
        ),
        (
            "rate",
            "duration",
            "9:1",
            "`duration` of a service is the scenario's",
        ),
        ("rate", "grace", "9:1", "`grace` of a service has no place"),
    ] {
        refused(&with(line, other), place, &[words, "; allowed: "]);
    }
}

#[test]
fn bad_times_and_numbers_are_refused_at_the_value() {
    for (line, other, place, words) in [
        (
            "'1s'",
            "1",
            "1:12",
            "duration: `1` is a number; allowed: a time",
        ),
        (
            "'1s'",
            "'soon'",
            "1:12",
            "duration: `soon` is no time; allowed: a time",
        ),
        ("'1s'", "'0s'", "1:12", "out of range; allowed: 1ms or more"),
        ("'1s'", "'4h'", "1:12", "in all is too long"),
        ("'1s'", "'-1s'", "1:12", "duration: `-1s` is no time"),
        (
            "duration = '1s'",
            "duration = '1s'\nwarmup = '4h'",
            "2:10",
            "warmup: ",
        ),
        (
            "duration = '1s'",
            "duration = '1s'\nseed = -1",
            "2:8",
            "seed: `-1` is negative",
        ),
        (
            "duration = '1s'",
            "duration = '1s'\nseed = 1.5",
            "2:8",
            "not a whole number",
        ),
        (
            "duration = '1s'",
            "about = 'x'",
            "1:1",
            "duration: `` is missing",
        ),
        (
            "duration = '1s'",
            "duration = '1s'\nabout = 3",
            "2:9",
            "about: `3` is a number",
        ),
    ] {
        refused(&with(line, other), place, &[words, "; allowed: "]);
    }
}

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
            "cpus: `many` is a text; allowed: a whole number",
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
    ] {
        refused(&with("cpus = 2", other), place, &[words, "allowed: "]);
    }
    refused(
        "machine = 3\n",
        "1:11",
        &["machine: `3` is a number; allowed: a table"],
    );
}

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
    refused(&twice, "12:8", &["name: `a` is another group's too"]);
    refused(&with("name = 'a'\n", ""), "4:1", &["name: `` is missing"]);
    refused(&with("'a'", "'a b'"), "5:8", &["name: ", "a b"]);
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
fn bad_services_are_refused_at_the_value() {
    for (other, place, words) in [
        (
            "rate = -3",
            "9:8",
            "rate: '-3' is not allowed: a number from 0.001",
        ),
        ("rate = nan", "9:8", "rate: 'NaN' is not allowed"),
        ("rate = inf", "9:8", "rate: 'inf' is not allowed"),
        (
            "rate = '300'",
            "9:8",
            "rate: `300` is a text; allowed: a number",
        ),
        (
            "rate = 300\nworkers = 0",
            "10:11",
            "workers: '0' is not allowed",
        ),
        (
            "rate = 300\nworkers = -1",
            "10:11",
            "workers: `-1` is negative",
        ),
        (
            "rate = 300\ndeadline = '0s'",
            "10:12",
            "deadline: '0s' is not allowed",
        ),
        (
            "rate = 300\narrivals = 'often'",
            "10:12",
            "arrivals: 'often' is not allowed: poisson",
        ),
        (
            "rate = 300\nburst-size = 5",
            "7:1",
            "burst-every: 'none' is not allowed",
        ),
        (
            "burst-every = '1s'\nburst-size = 0",
            "10:14",
            "burst-size: '0' is not allowed",
        ),
        (
            "arrivals = 'uniform'\nburst-size = 5",
            "10:14",
            "burst-size: '5' is not allowed: only",
        ),
        (
            "rate = 300\ntrace = 't.csv'",
            "9:8",
            "rate: `300` stands beside a trace",
        ),
    ] {
        refused(&with("rate = 300", other), place, &[words, "allowed: "]);
    }
    for (other, words) in [
        (
            "'exp:0s'",
            "service: '0s' is not allowed: a duration from 1us",
        ),
        (
            "'gauss:1ms'",
            "service: 'gauss:1ms' is not allowed: const:TIME",
        ),
        ("'exp:-1ms'", "service: 'exp:-1ms' is not allowed"),
        ("'pareto:1ms,NaN'", "service (ALPHA): 'NaN' is not allowed"),
    ] {
        refused(&with("'exp:1ms'", other), "10:11", &[words]);
    }
    refused(&with("300", "1e7"), "9:8", &["rate"]);
}

#[test]
fn kinds_that_have_no_model_say_why() {
    for (kind, words) in [
        ("serve", "listens on a real socket"),
        ("request", "talks to a real socket"),
        ("hold", "takes a lock of the real kernel"),
        ("wait", "asks for a lock of the real kernel"),
        ("servic", "is no kind of workload (perhaps `service`?)"),
        ("", "is no kind of workload;"),
    ] {
        let text = with("'service'", &format!("'{kind}'"));
        refused(&text, "8:8", &[words, "allowed: service, burn"]);
    }
    refused(
        &with("kind = 'service'\n", ""),
        "7:1",
        &["kind: `` is missing"],
    );
    refused(&with("'service'", "5"), "8:8", &["kind: `5` is a number"]);
}

#[test]
fn bad_other_workloads_are_refused_at_the_value() {
    let of = |lines: &str| {
        format!("duration = '10s'\n[[group]]\nname = 'a'\n[[group.workload]]\n{lines}\n")
    };
    for (lines, place, words) in [
        (
            "kind = 'burn'\nthreads = 0",
            "6:11",
            "threads: '0' is not allowed",
        ),
        (
            "kind = 'burn'\nprocesses = 4",
            "6:13",
            "processes: `4` is a number",
        ),
        ("kind = 'storm'", "4:1", "not one of cpu-total and cpu-each"),
        (
            "kind = 'storm'\ncpu-total = '0s'",
            "6:13",
            "cpu-each: '0s' is not allowed",
        ),
        (
            "kind = 'storm'\ncpu-each = '1ms'\nprocesses = 0",
            "7:13",
            "processes: '0'",
        ),
        (
            "kind = 'storm'\ncpu-each = '1ms'\nparallel = 999",
            "7:12",
            "parallel: '999'",
        ),
        ("kind = 'need'", "4:1", "cpu: `` is missing"),
        (
            "kind = 'need'\ncpu = '0s'",
            "6:7",
            "need: '0s' is not allowed",
        ),
        ("kind = 'need'\ncpu = '1s'\ntasks = 0", "7:9", "tasks: '0'"),
        ("kind = 'steady'", "4:1", "percent: `` is missing"),
        ("kind = 'steady'\npercent = 101", "6:11", "percent: '101'"),
        (
            "kind = 'steady'\npercent = 5\ngrain = '0s'",
            "7:9",
            "grain: '0s'",
        ),
        (
            "kind = 'steady'\npercent = 5\nstep-to = [5]",
            "4:1",
            "step-at: `0 times`",
        ),
        (
            "kind = 'steady'\npercent = 5\nstep-to = 5",
            "7:11",
            "step-to: `5` is a number",
        ),
        (
            "kind = 'steady'\npercent = 5\nstep-to = [5, 6]\nstep-at = ['1s', 2]",
            "8:18",
            "step-at: `2` is a number",
        ),
        (
            "kind = 'steady'\npercent = 5\nstep-to = [5]\nstep-at = ['11s']",
            "8:11",
            "step-at: '11s'",
        ),
        ("kind = 'wake'\nevery = '1us'", "6:9", "every: '1us'"),
    ] {
        refused(&of(lines), place, &[words, "allowed"]);
    }
}

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

#[test]
fn traces_are_read_from_beside_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    let text = with("rate = 300\nservice = 'exp:1ms'\n", "trace = 't.csv'\n");
    std::fs::write(&path, &text).unwrap();
    let read = || ScenarioFile::read(&path, Overrides::default());
    let error = read().unwrap_err().to_string();
    assert!(
        error.contains("s.toml:9:9: trace: reading the trace "),
        "{error}"
    );
    std::fs::write(
        folder.path().join("t.csv"),
        "arrival,cpu\n0.1,1ms\n0.2,none\n",
    )
    .unwrap();
    let error = read().unwrap_err().to_string();
    assert!(
        error.contains("s.toml:9:9: trace: ") && error.contains("t.csv:3:5: cpu: 'none'"),
        "{error}"
    );
    std::fs::write(
        folder.path().join("t.csv"),
        "arrival,cpu\n0.1,1ms\n0.2,2ms\n",
    )
    .unwrap();
    let file = read().unwrap();
    let Workload::Service(service) = &file.runs[0].scenario.groups[0].workloads[0] else {
        panic!("{file:?}")
    };
    let demands: Vec<u64> = service.requests(1).unwrap().map(|r| r.demand_ns).collect();
    assert_eq!(demands, [1_000_000, 2_000_000]);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let missing = ScenarioFile::read(Path::new("/no/such.toml"), Overrides::default());
    let text = missing.unwrap_err().to_string();
    assert!(
        text.starts_with("/no/such.toml: cannot be read: No such file"),
        "{text}"
    );
    assert!(ScenarioFile::read(Path::new("/"), Overrides::default()).is_err());
}

/// The scenarios in the top folder, which people run as they are.
#[test]
fn every_shipped_scenario_is_good() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "toml") {
            let file = ScenarioFile::read(&path, Overrides::default());
            let file = file.unwrap_or_else(|error| panic!("{error}"));
            assert!(!file.about.is_empty(), "{}", path.display());
            names.push((path.file_stem().unwrap().to_owned(), file));
        }
    }
    let of = |name: &str| &names.iter().find(|(stem, _)| stem == name).unwrap().1;
    assert_eq!(of("headroom").runs.len(), 6);
    assert_eq!(of("headroom-latency").runs.len(), 28);
    assert_eq!(of("caps").runs.len(), 14);
    let large = &of("large").runs[0].scenario;
    let tasks = |workload: &Workload| match workload {
        Workload::Service(config) => config.workers,
        Workload::Burn(config) => config.burners,
        other => panic!("{other:?}"),
    };
    let all = large.groups.iter().flat_map(|group| &group.workloads);
    assert_eq!(
        (large.machine.cpus, all.map(tasks).sum::<usize>()),
        (128, 5_000)
    );
}
