//! Cgroups that are folders of files.

use std::fs;

use super::*;

/// Creates a cgroup with these files in a folder of its own.
pub(crate) fn cgroup(version: Version, texts: &[(&str, &str)]) -> (tempfile::TempDir, CpuGroup) {
    let folder = tempfile::tempdir().unwrap();
    let hierarchy = Arc::new(Hierarchy::at_folder(folder.path(), version));
    let group = CpuGroup::at(&hierarchy, "g");
    group.create().unwrap();
    for (name, text) in texts {
        fs::write(group.cpu_file(name), text).unwrap();
    }
    (folder, group)
}

#[test]
fn every_weight_is_read_back() {
    for version in [Version::V1, Version::V2] {
        let (_folder, group) = cgroup(version, &[]);
        for weight in 1..=10_000 {
            let (path, text) = group.weight_setting(weight);
            assert_eq!(group.weight_of(&path, &text).unwrap(), weight, "{version}");
        }
    }
}

#[test]
fn a_kernel_without_idle_marks_has_no_idle_cgroups() {
    let (_folder, group) = cgroup(Version::V2, &[]);
    assert!(!group.has_idle() && !group.read_idle().unwrap());
    fs::write(group.cpu_file("cpu.idle"), "0").unwrap();
    group.write_idle(true).unwrap();
    assert!(group.read_idle().unwrap());
}

#[test]
fn processes_are_those_of_all_cgroups_below_each_once() {
    let (_folder, group) = cgroup(Version::V1, &[("cgroup.procs", "3\n1\n")]);
    let child = group.child("c");
    child.create().unwrap();
    fs::write(child.cpu_file("cgroup.procs"), "2\n3\n").unwrap();
    assert_eq!(group.processes().unwrap(), [3, 1]);
    assert_eq!(group.all_processes().unwrap(), [1, 2, 3]);
}

#[test]
fn the_controller_is_given_to_children_once() {
    let (_folder, group) = cgroup(Version::V2, &[("cgroup.subtree_control", "io cpuset")]);
    assert!(group.enable_children().unwrap());
    assert!(group.children_enabled().is_ok_and(|enabled| !enabled));
    fs::write(group.subtree_control(), "cpuset cpu").unwrap();
    assert!(!group.enable_children().unwrap());
    // v1 has no such file.
    let (_folder, group) = cgroup(Version::V1, &[]);
    assert!(!group.enable_children().unwrap() && group.children_enabled().unwrap());
}
