//! CPU selection at wake-up, and idle CPUs that take waiting tasks.

use plimsoll_sim::host::HostReport;

use crate::fixture::{SEC, burn, group, of, run, scenario, service};

/// Two burners that start on the same one of four CPUs, because workers without
/// requests lie between them.
fn two_of_one_cpu(threads_per_core: u32) -> HostReport {
    let workers = |name, workers| group(name, "", vec![service(0.001, "const:1ms", workers, 1)]);
    let groups = vec![
        group("first", "", vec![burn(1)]),
        workers("sleepers", 3),
        group("second", "", vec![burn(1)]),
    ];
    let mut scenario = scenario(4, SEC, groups);
    scenario.machine.threads_per_core = threads_per_core;
    run(&scenario)
}

#[test]
fn simultaneous_wakeups_go_to_different_idle_cpus() {
    let report = two_of_one_cpu(1);
    for name in ["first", "second"] {
        let own = of(&report, name);
        assert_eq!((own.wait_ns, own.cpu_ns), (0, SEC), "{name}");
    }
}

#[test]
fn simultaneous_wakeups_go_to_different_cores() {
    let report = two_of_one_cpu(2);
    for name in ["first", "second"] {
        match of(&report, name).workloads[0] {
            plimsoll_sim::host::WorkloadReport::Burn { work_ns, .. } => {
                assert_eq!(work_ns, SEC, "{name} shared a core");
            }
            ref other => panic!("{other:?}"),
        }
    }
}
