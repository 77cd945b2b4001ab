//! Tests of the headroom control on a folder that looks like a hierarchy, with a clock of its own.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use plimsoll_cgroupfs::Version;
use tempfile::TempDir;

use super::*;

/// Marks a quota that was restored after the group's removal.
const RESTORED: &str = "-1 restored";

struct Rig {
    folder: TempDir,
    hierarchy: Arc<Hierarchy>,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        // In memory, where there is such a folder: thousands of small files.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.unwrap();
        fs::write(folder.path().join("cpuacct.usage"), "0").unwrap();
        Self {
            hierarchy: Arc::new(Hierarchy::at_folder(folder.path(), Version::V1)),
            folder,
            now: plimsoll_cgroupfs::os::now(),
        }
    }

    fn control(&self) -> HeadroomControl {
        HeadroomControl::new(&self.hierarchy)
    }

    fn file(&self, group: &str, name: &str) -> PathBuf {
        self.folder.path().join(group).join(name)
    }

    /// Creates a cgroup and returns its parameters.
    fn group(&self, name: &str) -> BatchGroup {
        fs::create_dir(self.folder.path().join(name)).unwrap();
        fs::write(self.file(name, "cpuacct.usage"), "0").unwrap();
        fs::write(self.file(name, "cpu.cfs_quota_us"), "").unwrap();
        BatchGroup {
            name: name.into(),
            weight: 100,
            headroom: "30%".parse().unwrap(),
            tolerance: None,
            version: Version::V1,
            group: name.into(),
            inode: None,
            quota_max_ns: plimsoll_policy::RUNTIME_MAX_NS,
        }
    }

    /// Adds `ns` to the usage of the group and of the machine.
    fn run(&self, group: &str, ns: u64) {
        for path in [
            self.file(group, "cpuacct.usage"),
            self.file("", "cpuacct.usage"),
        ] {
            let used_ns: u64 = fs::read_to_string(&path).unwrap().parse().unwrap();
            fs::write(path, (used_ns + ns).to_string()).unwrap();
        }
    }

    fn set_quota(&self, group: &str, text: &str) {
        fs::write(self.file(group, "cpu.cfs_quota_us"), text).unwrap();
    }

    /// The quota written since the last call.
    fn take_quota(&self, group: &str) -> String {
        let text = fs::read_to_string(self.file(group, "cpu.cfs_quota_us")).unwrap();
        self.set_quota(group, "");
        text
    }

    fn tick(&mut self, control: &HeadroomControl) {
        self.now += GRAIN;
        control.tick(self.now).unwrap();
    }

    fn ticks(&mut self, count: u32, control: &HeadroomControl) {
        (0..count).for_each(|_| self.tick(control));
    }

    /// Number of ticks until a group that runs all the time gets a quota.
    fn ticks_until_quota(&mut self, group: &str, control: &HeadroomControl) -> u32 {
        self.take_quota(group);
        let got_quota = |rig: &Self| {
            rig.take_quota(group)
                .parse()
                .is_ok_and(|us: u64| us > 1_000)
        };
        (1..=300)
            .find(|_| {
                self.run(group, 2_000_000);
                self.tick(control);
                got_quota(self)
            })
            .unwrap()
    }
}

#[test]
fn a_thousand_idle_groups_are_written_once() {
    let mut rig = Rig::new();
    let control = rig.control();
    for index in 0..1_000 {
        control.add(&rig.group(&format!("batch-{index}")));
    }
    rig.ticks(200, &control);
    let sample = control.sample().unwrap();
    assert_eq!(sample.nr_sides, 1_000);
    assert_eq!(sample.sides.len(), 32);
    // 20 until all are dormant, and one in 50 ms for 1.8 s.
    assert_eq!(sample.nr_updates, 20 + 36);
    assert_eq!(sample.nr_writes, 1_000);
    assert_eq!(rig.take_quota("batch-0"), "1000");
    // One process, one file.
}

#[test]
fn a_group_that_wakes_up_gets_quota_within_200_ms_or_a_second() {
    for (count, most) in [(1, 7), (20, 27), (500, 57), (1_000, 107)] {
        let mut rig = Rig::new();
        let control = rig.control();
        for index in 0..count {
            control.add(&rig.group(&format!("batch-{index}")));
        }
        rig.ticks(100, &control);
        let ticks = rig.ticks_until_quota("batch-0", &control);
        assert!(ticks <= most, "{count} groups: {ticks} ticks");
        // While it runs it is measured at every update.
        for _ in 0..20 {
            rig.run("batch-0", 14_000_000);
            rig.tick(&control);
            assert_ne!(rig.take_quota("batch-0"), "");
        }
    }
}

#[test]
fn many_groups_that_hardly_run_do_not_keep_the_grant_from_one_that_does() {
    let mut rig = Rig::new();
    let control = rig.control();
    for index in 0..100 {
        control.add(&rig.group(&format!("light-{index}")));
    }
    control.add(&rig.group("heavy"));
    let mut given_usec = 0;
    for tick in 0..200 {
        for index in 0..100 {
            rig.run(&format!("light-{index}"), 20_000);
        }
        rig.run("heavy", 5_000_000);
        rig.tick(&control);
        let quota_usec: u64 = rig.take_quota("heavy").parse().unwrap_or(0);
        given_usec += if tick >= 100 { quota_usec } else { 0 };
    }
    // The others use 2 of the 14 ms that two CPUs have in 10 ms.
    let nr_cpus = u64::from(crate::host::nr_cpus_online());
    let free_usec = 100 * (7_000 * nr_cpus - 2_000 - 5_000);
    assert!(given_usec > free_usec / 2, "{given_usec} of {free_usec} us");
}

#[test]
fn a_removed_group_is_never_written_again() {
    let mut rig = Rig::new();
    let control = rig.control();
    for name in ["runs", "sleeps", "stays"] {
        control.add(&rig.group(name));
    }
    for _ in 0..50 {
        rig.run("runs", 5_000_000);
        rig.run("stays", 5_000_000);
        rig.tick(&control);
    }
    control.remove("runs");
    control.remove("sleeps");
    rig.set_quota("runs", RESTORED);
    rig.set_quota("sleeps", RESTORED);
    rig.take_quota("stays");
    for _ in 0..300 {
        rig.run("runs", 5_000_000);
        rig.run("sleeps", 5_000_000);
        rig.run("stays", 5_000_000);
        rig.tick(&control);
    }
    assert_eq!(rig.take_quota("runs"), RESTORED);
    assert_eq!(rig.take_quota("sleeps"), RESTORED);
    assert_ne!(rig.take_quota("stays"), "");
    control.remove("stays");
    assert_eq!(control.tick(rig.now).unwrap(), None);
}

#[test]
fn the_largest_headroom_of_all_groups_counts() {
    let mut rig = Rig::new();
    let control = rig.control();
    control.add(&rig.group("first"));
    let greedy = BatchGroup {
        headroom: "45%".parse().unwrap(),
        ..rig.group("second")
    };
    control.add(&greedy);
    rig.ticks(250, &control);
    let sample = control.sample().unwrap();
    assert_eq!(sample.headroom_ppm, 450_000);
    assert_eq!(sample.sides, ["first", "second"]);
    control.remove("first");
    control.add(&BatchGroup {
        headroom: "10%".parse().unwrap(),
        ..greedy
    });
    rig.ticks(250, &control);
    let sample = control.sample().unwrap();
    assert_eq!(sample.headroom_ppm, 100_000);
    assert_eq!(sample.sides, ["second"]);
}

#[test]
fn a_recreated_cgroup_is_not_written() {
    let mut rig = Rig::new();
    let control = rig.control();
    let folder = rig.folder.path().join("batch");
    let mut group = rig.group("batch");
    group.inode = Some(fs::metadata(&folder).unwrap().ino());
    control.add(&group);
    rig.ticks(200, &control);
    assert_eq!(rig.take_quota("batch"), "1000");
    // The new one is created first: otherwise it may get the inode of the old one.
    let aside = rig.folder.path().join("aside");
    rig.group("aside");
    fs::remove_dir_all(&folder).unwrap();
    fs::rename(aside, &folder).unwrap();
    for _ in 0..20 {
        rig.run("batch", 5_000_000);
        rig.ticks(200, &control);
    }
    assert_eq!(rig.take_quota("batch"), "");
    // Nor is it taken for the old one when that is added again.
    control.remove("batch");
    control.add(&group);
    rig.ticks(200, &control);
    assert_eq!(rig.take_quota("batch"), "");
    // The owner has noticed the new cgroup and adds it.
    group.inode = Some(fs::metadata(&folder).unwrap().ino());
    control.remove("batch");
    control.add(&group);
    rig.ticks(200, &control);
    assert_eq!(rig.take_quota("batch"), "1000");
}

#[test]
fn a_group_that_fails_is_retried_and_the_others_stay_controlled() {
    let mut rig = Rig::new();
    let control = rig.control();
    for name in ["refuses", "vanishes", "stays"] {
        control.add(&rig.group(name));
    }
    // The first cannot be written, …
    let quota = rig.file("refuses", "cpu.cfs_quota_us");
    fs::remove_file(&quota).unwrap();
    fs::create_dir(&quota).unwrap();
    rig.ticks(30, &control);
    // … the second cannot be read.
    fs::write(rig.file("vanishes", "cpuacct.usage"), "").unwrap();
    rig.ticks_until_quota("stays", &control);
    fs::remove_dir(&quota).unwrap();
    rig.set_quota("refuses", "");
    fs::write(rig.file("vanishes", "cpuacct.usage"), "0").unwrap();
    rig.ticks(150, &control);
    assert_eq!(rig.take_quota("refuses"), "1000");
    rig.ticks_until_quota("refuses", &control);
    rig.ticks_until_quota("vanishes", &control);
}

#[test]
fn a_controller_that_is_called_late_grants_no_more_than_usual() {
    let mut rig = Rig::new();
    let control = rig.control();
    control.add(&rig.group("batch"));
    rig.ticks_until_quota("batch", &control);
    for pause in [1, 5, 60, 3_600] {
        rig.take_quota("batch");
        // A pause in which the rest of the machine was idle.
        rig.now += Duration::from_secs(pause);
        rig.run("batch", 20_000_000);
        rig.tick(&control);
        let most_usec = GRAIN.as_micros() as u64 * u64::from(crate::host::nr_cpus_online());
        let quota_usec: u64 = rig.take_quota("batch").parse().unwrap();
        assert!(
            (1_000..=most_usec).contains(&quota_usec),
            "{pause} s: {quota_usec} us"
        );
        rig.ticks_until_quota("batch", &control);
    }
}

#[test]
fn counts_survive_the_removal_of_the_last_group() {
    let mut rig = Rig::new();
    let control = rig.control();
    let group = rig.group("batch");
    control.add(&group);
    rig.ticks(10, &control);
    control.remove("batch");
    control.add(&group);
    rig.ticks(5, &control);
    let sample = control.sample().unwrap();
    assert_eq!((sample.nr_updates, sample.nr_writes), (15, 2));
}
