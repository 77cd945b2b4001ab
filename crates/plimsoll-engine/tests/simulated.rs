//! The enforcer on a kernel in memory. The whole owner runs on it in plimsoll-daemon.

use std::sync::Arc;

use plimsoll_cgroupfs::simulated::{self, Kernel};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy, Version};
use plimsoll_engine::cgroup::{CgroupEnforcer, check_place};
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::knobs::{Demand, Headroom};
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks::TaskId;

/// Policy of a machine on which headroom is demanded.
fn demanding() -> MachinePolicy {
    let mut demand = Demand::default();
    demand.add(Some(Headroom::Share(300_000)), None);
    MachinePolicy {
        demand,
        bandwidth_slice: None,
    }
}

/// Checks the quota that a runtime finds: runtimes size themselves by the quota of the cgroup of
/// their process, which must not be the one that the headroom controller writes.
#[test]
fn processes_of_a_group_with_headroom_find_its_quota_or_none() {
    let path = std::path::Path::new;
    for version in [Version::V1, Version::V2] {
        for (knobs, on_v2) in [
            (r#"{"class": "batch"}"#, None),
            (r#"{"class": "batch", "quota": "50ms/100ms"}"#, Some(50_000)),
        ] {
            let mut kernel = Kernel::new(version);
            for pid in [7, std::process::id().cast_signed()] {
                kernel.tasks().start_in(pid, path(""));
            }
            simulated::install(Some(kernel));
            let hierarchy = Arc::new(Hierarchy::at_folder(path(simulated::MOUNT), version));
            let runtime = RuntimeFolder::at(path("/run/plimsoll"));
            let (mut enforcer, _) = CgroupEnforcer::adopting(&hierarchy, &runtime).unwrap();
            enforcer.set_machine(&demanding()).unwrap();
            let policy = GroupPolicy {
                name: "g".into(),
                selector: Selector::Process(TaskId::of(7).unwrap()),
                subject: String::new(),
                knobs: serde_json::from_str(knobs).unwrap(),
                is_scheduled: false,
            };
            enforcer.put(&policy).unwrap();
            let place = simulated::with(|kernel| kernel.tasks().get(7).unwrap().cgroup.clone());
            let place = CpuGroup::at(&hierarchy, place);
            let found = match place.read_cpu_max() {
                Ok(max) => max.quota_usec,
                // The controller is not switched on for this cgroup.
                Err(error) if error.is_gone() => None,
                Err(error) => panic!("{error}"),
            };
            let expected = on_v2.filter(|_| version == Version::V2);
            assert_eq!(found, expected, "{version:?} {knobs}");
            let limits: Vec<_> = std::iter::successors(place.parent(), CpuGroup::parent)
                .filter_map(|group| group.read_cpu_max().ok()?.quota_usec)
                .collect();
            assert!(limits.contains(&1_000), "{version:?} {knobs}: {limits:?}");
            assert_eq!(enforcer.undo().problems, [""; 0]);
            simulated::install(None);
        }
    }
}

/// Checks that v2's threading is avoided: it would happen to a cgroup with processes where the
/// controller is enabled for the cgroups in it.
#[test]
fn a_controller_that_would_make_a_cgroup_threaded_is_refused() {
    let path = std::path::Path::new;
    for has_process in [true, false] {
        let mut kernel = Kernel::new(Version::V2);
        for group in ["app", "app/job1"] {
            kernel.cgroups().create(path(group)).unwrap();
        }
        let root = path("cgroup.subtree_control");
        kernel.others_write(root, "+cpu").unwrap();
        if has_process {
            kernel.tasks().start_in(7, path("app"));
        }
        simulated::install(Some(kernel));
        let hierarchy = Arc::new(Hierarchy::at_folder(path(simulated::MOUNT), Version::V2));
        let group = CpuGroup::at(&hierarchy, "app/job1");
        let knobs = serde_json::from_str(r#"{"quota": "50ms/100ms"}"#).unwrap();
        let checked = check_place(&group, &knobs).map_err(|error| error.to_string());
        let runtime = RuntimeFolder::at(path("/run/plimsoll"));
        let (mut enforcer, _) = CgroupEnforcer::adopting(&hierarchy, &runtime).unwrap();
        let policy = GroupPolicy {
            name: "/app/job1".into(),
            selector: Selector::Cgroup("app/job1".into()),
            subject: String::new(),
            knobs,
            is_scheduled: false,
        };
        let added = enforcer.put(&policy).map_err(|error| error.to_string());
        if has_process {
            assert!(
                added.clone().unwrap_err().contains("holds process 7"),
                "{added:?}"
            );
            assert_eq!(added, checked);
            assert!(!group.parent().unwrap().children_enabled().unwrap());
        } else {
            assert_eq!((added, checked), (Ok(()), Ok(())));
        }
        assert!(simulated::with(|kernel| kernel.broken.is_empty()));
        simulated::install(None);
    }
}
