//! Thousands of cgroups, and thousands of changes.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::group_policy::GroupPolicy;

use crate::common::{Host, assert_same, bandwidth_us, ms, native_or_vm};
use crate::rig::{knobs, name_of, policy, start, with_values};

#[test]
fn a_thousand_changes_do_not_grow_the_journal() {
    let mut host = Host::shared();
    let group = with_values(&mut host, "g");
    let name = name_of(&group);
    let before = host.snapshot();
    let mut enforcer = start(&host);
    enforcer.add(&policy(&group, "{}"), "a test").unwrap();
    let mut longest = 0;
    for round in 0..native_or_vm(3_000, 1_500) {
        let json = match round % 4 {
            0 => format!(r#"{{"weight": "{}"}}"#, 2 + round),
            1 => r#"{"class": "batch"}"#.into(),
            2 => format!(r#"{{"quota": "{}ms/100ms", "burst": "2ms"}}"#, 2 + round),
            _ => r#"{"cap": "30%", "class": "normal", "weight": "77"}"#.into(),
        };
        enforcer.change(&name, &knobs(&json)).unwrap();
        if round % 100 == 0 {
            longest = longest.max(journal_lines(&host));
        }
    }
    println!("at most {longest} lines");
    assert!(longest < 1_200, "{longest} lines");
    assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
    assert_same(&before, &host.snapshot());
}

fn journals(host: &Host) -> Vec<PathBuf> {
    let entries = fs::read_dir(host.runtime()).unwrap().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "journal"))
        .collect()
}

fn journal_lines(host: &Host) -> usize {
    let texts = journals(host).into_iter().map(fs::read_to_string);
    texts.map(|text| text.unwrap().lines().count()).sum()
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.unwrap().trim().strip_suffix(" kB").unwrap();
    number.parse().unwrap()
}

#[test]
fn a_thousand_cgroups_share_one_journal_and_one_sync() {
    let mut host = Host::alone();
    let parent = host.group("many");
    parent.enable_children().unwrap();
    let number = match std::env::var_os("PLIMSOLL_TEST_LONG") {
        Some(_) => 10_000,
        None => native_or_vm(1_000, 200),
    };
    let groups: Vec<CpuGroup> = (0..number)
        .map(|index| {
            let group = parent.child(format!("g{index}"));
            group.create().unwrap();
            group
        })
        .collect();
    let before = host.snapshot();
    let mut enforcer = start(&host);
    let policies: Vec<(GroupPolicy, String)> = groups
        .iter()
        .map(|group| {
            let json = r#"{"quota": "2cpus", "burst": "100ms", "weight": "70"}"#;
            (policy(group, json), "a test".to_owned())
        })
        .collect();
    let (files, memory) = (open_files(), resident_kib());
    let start = Instant::now();
    for result in enforcer.add_all(&policies) {
        result.unwrap();
    }
    let added = start.elapsed();
    assert_eq!(open_files(), files, "no file stays open for a cgroup");
    let held = resident_kib() - memory;
    println!("{number} cgroups added in {added:.1?}, {held} KiB more memory");
    assert!(held < 20 * 1024, "{held} KiB");
    assert_eq!(journals(&host).len(), 1);
    assert!(added < native_or_vm(ms(5), ms(600)) * number);
    for group in &groups {
        assert_eq!(bandwidth_us(group), (200_000, 100_000, 100_000));
    }
    let start = Instant::now();
    enforcer.tick(Instant::now()).unwrap();
    println!("a tick with nothing to do took {:.1?}", start.elapsed());
    // The same knobs again cause no write.
    let lines = journal_lines(&host);
    for (policy, _) in &policies {
        enforcer.change(&policy.name, &policy.knobs).unwrap();
    }
    assert_eq!(journal_lines(&host), lines);
    let start = Instant::now();
    for (policy, _) in policies.iter().step_by(2) {
        let report = enforcer.remove(&policy.name).unwrap();
        assert_eq!(report.problems, <[String; 0]>::default());
    }
    println!("half of them removed in {:.1?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
    println!("the other half undone in {:.1?}", start.elapsed());
    assert_same(&before, &host.snapshot());
}
