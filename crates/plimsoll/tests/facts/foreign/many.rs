//! Many cgroups, and thousands of changes.

use std::fs;
use std::path::PathBuf;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::enforcer::Enforcer as _;
use plimsoll_engine::group_policy::GroupPolicy;

use super::rig::{knobs, name_of, policy, start, with_values};
use crate::common::{Host, assert_same, bandwidth_us};

#[test]
fn thousands_of_changes_do_not_grow_the_journal() {
    let mut host = Host::new();
    let group = with_values(&mut host, "g");
    let name = name_of(&group);
    let before = host.snapshot();
    let mut enforcer = start(&host);
    enforcer.add(&policy(&group, "{}"), "a test").unwrap();
    let mut longest = 0;
    for round in 0..1_500 {
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

/// Files below a folder that this process has open.
fn open_files_below(folder: &PathBuf) -> usize {
    let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.filter(|target| target.starts_with(folder)).count()
}

#[test]
fn many_cgroups_share_one_journal_and_keep_no_file_open() {
    const GROUPS: usize = 100;
    let mut host = Host::new();
    let parent = host.group("many");
    parent.enable_children().unwrap();
    let groups: Vec<CpuGroup> = (0..GROUPS)
        .map(|index| parent.child(format!("g{index}")))
        .collect();
    for group in &groups {
        group.create().unwrap();
    }
    let before = host.snapshot();
    let mut enforcer = start(&host);
    let json = r#"{"quota": "2cpus", "burst": "100ms", "weight": "70"}"#;
    let policies: Vec<(GroupPolicy, String)> = groups
        .iter()
        .map(|group| (policy(group, json), "a test".to_owned()))
        .collect();
    for result in enforcer.add_all(&policies) {
        result.unwrap();
    }
    assert_eq!(open_files_below(&parent.cpu_file("")), 0);
    assert_eq!(journals(&host).len(), 1);
    for group in &groups {
        assert_eq!(bandwidth_us(group), (200_000, 100_000, 100_000));
    }
    // The same knobs again cause no write.
    let lines = journal_lines(&host);
    for (policy, _) in &policies {
        enforcer.change(&policy.name, &policy.knobs).unwrap();
    }
    assert_eq!(journal_lines(&host), lines);
    for (policy, _) in policies.iter().step_by(2) {
        let report = enforcer.remove(&policy.name).unwrap();
        assert_eq!(report.problems, <[String; 0]>::default());
    }
    assert_eq!(enforcer.undo().problems, <[String; 0]>::default());
    assert_same(&before, &host.snapshot());
}
