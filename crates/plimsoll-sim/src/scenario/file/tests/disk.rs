//! Files on disk: traces beside a scenario, and the shipped scenarios.

use super::*;

#[test]
fn traces_are_relative_to_the_scenario_file() {
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
    std::fs::write(folder.path().join("t.csv"), "arrival,cpu\n90000,1ms\n").unwrap();
    let error = read().unwrap_err().to_string();
    assert!(
        error.contains("s.toml:9:9: trace: `t.csv` has no request before the end"),
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

#[test]
fn every_shipped_scenario_is_valid() {
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
