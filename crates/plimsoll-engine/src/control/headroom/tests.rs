//! The duty on a folder that looks like a hierarchy, with a clock of its own.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use plimsoll_cgroupfs::Version;
use tempfile::TempDir;

use super::*;

/// What an owner puts back, and nobody else writes.
const PUT_BACK: &str = "-1 put back";

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
            now: Instant::now(),
        }
    }

    fn duty(&self) -> HeadroomDuty {
        HeadroomDuty::new(&self.hierarchy)
    }

    fn file(&self, group: &str, name: &str) -> PathBuf {
        self.folder.path().join(group).join(name)
    }

    /// A cgroup, and what its keeper says of it.
    fn side(&self, name: &str) -> SideDescription {
        fs::create_dir(self.folder.path().join(name)).unwrap();
        fs::write(self.file(name, "cpuacct.usage"), "0").unwrap();
        fs::write(self.file(name, "cpu.cfs_quota_us"), "").unwrap();
        SideDescription {
            name: name.into(),
            weight: 100,
            headroom: "30%".parse().unwrap(),
            tolerance: None,
            version: Version::V1,
            group: name.into(),
            identity: None,
            quota_max_ns: plimsoll_policy::RUNTIME_MAX_NS,
        }
    }

    /// The group runs for so long, and so does the machine.
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

    /// What was written to its quota since it was asked for last.
    fn take_quota(&self, group: &str) -> String {
        let text = fs::read_to_string(self.file(group, "cpu.cfs_quota_us")).unwrap();
        self.set_quota(group, "");
        text
    }

    fn tick(&mut self, duty: &HeadroomDuty) {
        self.now += GRAIN;
        duty.tick(self.now).unwrap();
    }

    fn ticks(&mut self, count: u32, duty: &HeadroomDuty) {
        (0..count).for_each(|_| self.tick(duty));
    }

    /// Ticks with a group that runs all the time, until its quota is written.
    fn ticks_until_room(&mut self, group: &str, duty: &HeadroomDuty) -> u32 {
        self.take_quota(group);
        let got_room = |rig: &Self| {
            rig.take_quota(group)
                .parse()
                .is_ok_and(|us: u64| us > 1_000)
        };
        (1..=300)
            .find(|_| {
                self.run(group, 2_000_000);
                self.tick(duty);
                got_room(self)
            })
            .unwrap()
    }
}

#[test]
fn a_thousand_idle_sides_are_given_the_least_once_and_left_alone() {
    let mut rig = Rig::new();
    let duty = rig.duty();
    for index in 0..1_000 {
        duty.add(&rig.side(&format!("side-{index}")));
    }
    rig.ticks(200, &duty);
    let sample = duty.sample().unwrap();
    assert_eq!(sample.nr_sides, 1_000);
    assert_eq!(sample.sides.len(), 32);
    // 20 until all are dormant, and one in 50 ms for 1.8 s.
    assert_eq!(sample.nr_updates, 20 + 36);
    assert_eq!(sample.nr_writes, 1_000);
    assert_eq!(rig.take_quota("side-0"), "1000");
    // One process, one file.
}

#[test]
fn a_side_that_wakes_up_has_room_within_200_ms_or_a_second() {
    for (count, most) in [(1, 7), (20, 27), (500, 57), (1_000, 107)] {
        let mut rig = Rig::new();
        let duty = rig.duty();
        for index in 0..count {
            duty.add(&rig.side(&format!("side-{index}")));
        }
        rig.ticks(100, &duty);
        let ticks = rig.ticks_until_room("side-0", &duty);
        assert!(ticks <= most, "{count} sides: {ticks} ticks");
        // As long as it runs it is measured every time.
        for _ in 0..20 {
            rig.run("side-0", 14_000_000);
            rig.tick(&duty);
            assert_ne!(rig.take_quota("side-0"), "");
        }
    }
}

#[test]
fn many_that_hardly_run_do_not_keep_one_from_its_room() {
    let mut rig = Rig::new();
    let duty = rig.duty();
    for index in 0..100 {
        duty.add(&rig.side(&format!("light-{index}")));
    }
    duty.add(&rig.side("heavy"));
    let mut given_usec = 0;
    for tick in 0..200 {
        for index in 0..100 {
            rig.run(&format!("light-{index}"), 20_000);
        }
        rig.run("heavy", 5_000_000);
        rig.tick(&duty);
        let quota_usec: u64 = rig.take_quota("heavy").parse().unwrap_or(0);
        given_usec += if tick >= 100 { quota_usec } else { 0 };
    }
    // The others use 2 ms in 10 ms, of the 14 that there are on two CPUs.
    let nr_cpus = u64::from(crate::host::nr_cpus_online());
    let free_usec = 100 * (7_000 * nr_cpus - 2_000 - 5_000);
    assert!(given_usec > free_usec / 2, "{given_usec} of {free_usec} us");
}

#[test]
fn a_removed_side_is_never_written_again() {
    let mut rig = Rig::new();
    let duty = rig.duty();
    for name in ["runs", "sleeps", "stays"] {
        duty.add(&rig.side(name));
    }
    for _ in 0..50 {
        rig.run("runs", 5_000_000);
        rig.run("stays", 5_000_000);
        rig.tick(&duty);
    }
    duty.remove("runs");
    duty.remove("sleeps");
    rig.set_quota("runs", PUT_BACK);
    rig.set_quota("sleeps", PUT_BACK);
    rig.take_quota("stays");
    for _ in 0..300 {
        rig.run("runs", 5_000_000);
        rig.run("sleeps", 5_000_000);
        rig.run("stays", 5_000_000);
        rig.tick(&duty);
    }
    assert_eq!(rig.take_quota("runs"), PUT_BACK);
    assert_eq!(rig.take_quota("sleeps"), PUT_BACK);
    assert_ne!(rig.take_quota("stays"), "");
    duty.remove("stays");
    assert_eq!(duty.tick(rig.now).unwrap(), None);
}

#[test]
fn the_largest_headroom_of_all_sides_counts() {
    let mut rig = Rig::new();
    let duty = rig.duty();
    duty.add(&rig.side("first"));
    let greedy = SideDescription {
        headroom: "45%".parse().unwrap(),
        ..rig.side("second")
    };
    duty.add(&greedy);
    rig.ticks(250, &duty);
    let sample = duty.sample().unwrap();
    assert_eq!(sample.headroom_ppm, 450_000);
    assert_eq!(sample.sides, ["first", "second"]);
    duty.remove("first");
    duty.add(&SideDescription {
        headroom: "10%".parse().unwrap(),
        ..greedy
    });
    rig.ticks(250, &duty);
    let sample = duty.sample().unwrap();
    assert_eq!(sample.headroom_ppm, 100_000);
    assert_eq!(sample.sides, ["second"]);
}

#[test]
fn a_cgroup_that_is_made_in_the_place_of_a_side_is_left_alone() {
    let mut rig = Rig::new();
    let duty = rig.duty();
    let folder = rig.folder.path().join("side");
    let mut side = rig.side("side");
    side.identity = Some(fs::metadata(&folder).unwrap().ino());
    duty.add(&side);
    rig.ticks(200, &duty);
    assert_eq!(rig.take_quota("side"), "1000");
    // The new one is made first: else it may have the number of the old.
    let aside = rig.folder.path().join("aside");
    rig.side("aside");
    fs::remove_dir_all(&folder).unwrap();
    fs::rename(aside, &folder).unwrap();
    for _ in 0..20 {
        rig.run("side", 5_000_000);
        rig.ticks(200, &duty);
    }
    assert_eq!(rig.take_quota("side"), "");
    // Nor is it taken for the old one by who begins to control that.
    duty.remove("side");
    duty.add(&side);
    rig.ticks(200, &duty);
    assert_eq!(rig.take_quota("side"), "");
    // Its keeper has noticed, and describes the new one.
    side.identity = Some(fs::metadata(&folder).unwrap().ino());
    duty.remove("side");
    duty.add(&side);
    rig.ticks(200, &duty);
    assert_eq!(rig.take_quota("side"), "1000");
}

#[test]
fn a_side_that_fails_is_tried_again_and_does_not_disturb_the_others() {
    let mut rig = Rig::new();
    let duty = rig.duty();
    for name in ["refuses", "vanishes", "stays"] {
        duty.add(&rig.side(name));
    }
    // It cannot be written, …
    let quota = rig.file("refuses", "cpu.cfs_quota_us");
    fs::remove_file(&quota).unwrap();
    fs::create_dir(&quota).unwrap();
    rig.ticks(30, &duty);
    // … nor this one be read.
    fs::write(rig.file("vanishes", "cpuacct.usage"), "").unwrap();
    rig.ticks_until_room("stays", &duty);
    fs::remove_dir(&quota).unwrap();
    rig.set_quota("refuses", "");
    fs::write(rig.file("vanishes", "cpuacct.usage"), "0").unwrap();
    rig.ticks(150, &duty);
    assert_eq!(rig.take_quota("refuses"), "1000");
    rig.ticks_until_room("refuses", &duty);
    rig.ticks_until_room("vanishes", &duty);
}

#[test]
fn a_controller_that_is_called_late_hands_out_no_more_than_usual() {
    let mut rig = Rig::new();
    let duty = rig.duty();
    duty.add(&rig.side("side"));
    rig.ticks_until_room("side", &duty);
    for pause in [1, 5, 60, 3_600] {
        rig.take_quota("side");
        // Stopped, with the whole machine idle but for this.
        rig.now += Duration::from_secs(pause);
        rig.run("side", 20_000_000);
        rig.tick(&duty);
        let most_usec = GRAIN.as_micros() as u64 * u64::from(crate::host::nr_cpus_online());
        let quota_usec: u64 = rig.take_quota("side").parse().unwrap();
        assert!(
            (1_000..=most_usec).contains(&quota_usec),
            "{pause} s: {quota_usec} us"
        );
        rig.ticks_until_room("side", &duty);
    }
}

#[test]
fn what_was_counted_stays_counted_when_the_last_side_goes_and_comes_back() {
    let mut rig = Rig::new();
    let duty = rig.duty();
    let side = rig.side("side");
    duty.add(&side);
    rig.ticks(10, &duty);
    duty.remove("side");
    duty.add(&side);
    rig.ticks(5, &duty);
    let sample = duty.sample().unwrap();
    assert_eq!((sample.nr_updates, sample.nr_writes), (15, 2));
}
