//! Tests of the headroom control on a folder that looks like a hierarchy, with a clock of its own.

use std::fs;
use std::path::PathBuf;

use plimsoll_cgroupfs::{CpuGroup, Version};
use tempfile::TempDir;

use super::*;

fn demand(headroom: &str) -> HeadroomDemand {
    let mut demand = HeadroomDemand::default();
    demand.add(Some(headroom.parse().unwrap()), None);
    demand
}

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
        let control = HeadroomControl::new(&self.hierarchy);
        control.set_demand(demand("30%"));
        control
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
            group: CpuGroup::at(&self.hierarchy, name),
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

    /// Returns the quota written since the last call.
    fn take_quota(&self, group: &str) -> String {
        let text = fs::read_to_string(self.file(group, "cpu.cfs_quota_us")).unwrap();
        self.set_quota(group, "");
        text
    }

    fn tick(&mut self, control: &HeadroomControl) {
        self.now += INTERVAL;
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
fn the_machines_demand_counts_from_the_next_update() {
    let mut rig = Rig::new();
    let control = rig.control();
    control.add(&rig.group("first"));
    control.add(&rig.group("second"));
    control.set_demand(demand("45%"));
    rig.ticks(250, &control);
    let sample = control.sample().unwrap();
    assert_eq!(sample.headroom_ppm, 450_000);
    assert_eq!(sample.sides, ["first", "second"]);
    control.remove("first");
    control.set_demand(demand("10%"));
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
    group.group = group.group.bound().unwrap();
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
    // Nor is it taken for the old cgroup when the group is added again.
    control.remove("batch");
    control.add(&group);
    rig.ticks(200, &control);
    assert_eq!(rig.take_quota("batch"), "");
    // The owner has noticed the new cgroup and adds it.
    group.group = group.group.bound().unwrap();
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

/// A batch group that runs whenever its pool and the other work let it, as in the kernel.
struct Greedy {
    pool_ns: u64,
    capacity_ns: u64,
    nr_returns: u32,
}

impl Greedy {
    fn new() -> Self {
        let capacity = INTERVAL * crate::host::nr_cpus_online();
        Self {
            pool_ns: 1_000_000,
            capacity_ns: capacity.as_nanos() as u64,
            nr_returns: 0,
        }
    }

    /// Runs one interval in which other work uses `other_percent` of the machine. Returns how long
    /// the group ran.
    fn interval(&mut self, rig: &mut Rig, control: &HeadroomControl, other_percent: u64) -> u64 {
        let other_ns = self.capacity_ns * other_percent / 100;
        let ran_ns = self.pool_ns.min(self.capacity_ns - other_ns);
        self.pool_ns -= ran_ns;
        rig.run("batch", ran_ns);
        // `run` adds to the machine's file twice.
        rig.run("", other_ns / 2);
        self.tick(rig, control);
        ran_ns
    }

    /// Runs the controller and takes the quota that it has written.
    fn tick(&mut self, rig: &mut Rig, control: &HeadroomControl) {
        rig.tick(control);
        let had_none = self.pool_ns < 1_000_000;
        if let Ok(quota_us) = rig.take_quota("batch").parse::<u64>() {
            self.pool_ns = quota_us * 1_000;
            self.nr_returns += u32::from(had_none && quota_us > 1_000);
        }
    }
}

#[test]
fn batch_work_returns_once_in_40_ms_and_gets_all_that_the_law_gives() {
    let mut rig = Rig::new();
    let control = rig.control();
    control.add(&rig.group("batch"));
    let mut greedy = Greedy::new();
    for other_percent in [0, 10, 40, 60, 90] {
        (0..40).for_each(|_| _ = greedy.interval(&mut rig, &control, other_percent));
        greedy.nr_returns = 0;
        let ran_ns: u64 = (0..400)
            .map(|_| greedy.interval(&mut rig, &control, other_percent))
            .sum();
        assert!(greedy.nr_returns <= 100, "{}", greedy.nr_returns);
        let percent = 100 * ran_ns / (400 * greedy.capacity_ns);
        let expected = 70_u64.saturating_sub(other_percent);
        assert!(percent.abs_diff(expected) <= 1, "{percent} of {expected} %");
    }
}

#[test]
fn groups_that_hardly_run_leave_the_grant_to_one_that_takes_all() {
    let mut rig = Rig::new();
    let control = rig.control();
    control.add(&rig.group("batch"));
    for index in 0..50 {
        control.add(&rig.group(&format!("light-{index}")));
    }
    let mut greedy = Greedy::new();
    let mut ran_ns = 0;
    for interval in 0..440 {
        for index in 0..50 {
            rig.run(&format!("light-{index}"), 20_000);
        }
        let ran = greedy.interval(&mut rig, &control, 10);
        ran_ns += if interval < 40 { 0 } else { ran };
    }
    // They use 1 ms in 10.
    let light_ns = 400 * 1_000_000;
    let due_ns = 400 * greedy.capacity_ns * 60 / 100 - light_ns;
    assert!(ran_ns <= due_ns + greedy.capacity_ns * 4, "{ran_ns} ns");
    assert!(ran_ns >= due_ns / 100 * 95, "{ran_ns} of {due_ns} ns");
    assert!(greedy.nr_returns <= 130, "{}", greedy.nr_returns);
}

/// Checks a group whose run time since the last tick the kernel does not count.
#[test]
fn work_that_is_counted_at_ticks_keeps_its_share() {
    let mut rig = Rig::new();
    let control = rig.control();
    control.add(&rig.group("batch"));
    let mut greedy = Greedy::new();
    let tick_ns = 4_000_000 * greedy.capacity_ns / 10_000_000;
    let (mut run_ns, mut counted_ns, mut ran_ns) = (0, 0, 0);
    for interval in 0..440_u64 {
        let ran = greedy.pool_ns.min(greedy.capacity_ns);
        greedy.pool_ns -= ran;
        run_ns += ran;
        ran_ns += if interval < 40 { 0 } else { ran };
        // A group that was stopped is counted at once.
        let visible_ns = if greedy.pool_ns == 0 {
            run_ns
        } else {
            run_ns / tick_ns * tick_ns
        };
        rig.run("batch", visible_ns.saturating_sub(counted_ns));
        counted_ns = counted_ns.max(visible_ns);
        greedy.tick(&mut rig, &control);
    }
    let percent = 100 * ran_ns / (400 * greedy.capacity_ns);
    assert!((69..=71).contains(&percent), "{percent} %");
}

#[test]
fn a_jump_of_the_load_stops_batch_work_at_the_next_update() {
    let mut rig = Rig::new();
    let control = rig.control();
    control.add(&rig.group("batch"));
    for (other_percent, most_percent) in [(60, 30), (90, 0)] {
        let mut greedy = Greedy::new();
        // Until the group has returned, with most of its share before it.
        while greedy.pool_ns < greedy.capacity_ns * 2 {
            greedy.interval(&mut rig, &control, 10);
        }
        greedy.interval(&mut rig, &control, other_percent);
        // Until the return, the law's part of three intervals; the smallest quota is 1 ms.
        let most_ns = (greedy.capacity_ns * most_percent / 100).max(1_000_000);
        assert!(greedy.pool_ns <= most_ns, "{} ns", greedy.pool_ns);
    }
}

#[test]
fn a_return_after_a_jump_of_the_load_has_no_credit_from_before() {
    let mut rig = Rig::new();
    let control = rig.control();
    control.add(&rig.group("batch"));
    let mut greedy = Greedy::new();
    (0..40).for_each(|_| _ = greedy.interval(&mut rig, &control, 0));
    // The group has run, and the CPUs are idle: there is credit for the next return.
    while greedy.pool_ns > 0 {
        greedy.interval(&mut rig, &control, 0);
    }
    (0..3).for_each(|_| _ = greedy.interval(&mut rig, &control, 50));
    let ran_ns: u64 = (0..12)
        .map(|_| greedy.interval(&mut rig, &control, 50))
        .sum();
    let percent = 100 * ran_ns / (12 * greedy.capacity_ns);
    assert!(percent <= 21, "{percent} %");
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
        let most = INTERVAL * RETURN_INTERVALS * crate::host::nr_cpus_online();
        let most_usec = most.as_micros() as u64;
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
    assert_eq!(control.tick(rig.now).unwrap(), None);
    control.add(&group);
    rig.ticks(5, &control);
    let sample = control.sample().unwrap();
    assert_eq!((sample.nr_updates, sample.nr_writes), (15, 2));
}
