//! States to make metrics of, and a server of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;

use plimsoll_cgroupfs::CpuStat;
use plimsoll_daemon::metrics::{Limits, MetricsServer};
use plimsoll_daemon::state::{
    Counters, Daemon, GroupState, GuardCounts, GuardState, Histogram, KnobOrigin, MachineState,
    State,
};
use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::knobs::{Class, Knobs};
use plimsoll_engine::sample::{
    BatchCounts, BatchSample, HeadroomSample, PerTaskSample, Sample, SchedulerSample, SoftCapSample,
};

pub const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A server on loopback.
pub struct Served {
    pub server: MetricsServer,
    pub address: SocketAddr,
}

impl Served {
    pub fn start(render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self::at(ANY_PORT, render, Limits::default())
    }

    pub fn at(
        address: SocketAddr,
        render: impl Fn() -> String + Send + Sync + 'static,
        limits: Limits,
    ) -> Self {
        let (sender, listening) = channel();
        let report = move |address| sender.send(address).unwrap();
        let server = MetricsServer::start(address, render, report, limits).unwrap();
        let address = listening.recv().unwrap().unwrap();
        Self { server, address }
    }
}

/// A state with everything in it, `second` seconds after the start: every
/// counter grows by a steady amount each second.
pub fn state(second: u64) -> State {
    let usec = second * 1_000_000;
    State {
        daemon: daemon(second),
        machine: MachineState {
            at_usec: usec,
            nr_cpus: 8,
            busy_usec: usec * 5,
            batch_usec: usec * 2,
        },
        headroom: Some(HeadroomSample {
            headroom_ppm: 300_000,
            allowance_ppm: 250_000,
            side_ppm: 245_000,
            nonside_ppm: 450_000,
            headroom_shortfall_usec: usec / 1000,
            nr_updates: second * 100,
            nr_writes: second * 10,
            controller_usec: usec / 500,
            sides: vec!["encode".into()],
            nr_sides: 300,
            ..HeadroomSample::default()
        }),
        scheduler: Some(SchedulerSample {
            state: "running".into(),
            nr_reloads: 1,
            ..SchedulerSample::default()
        }),
        groups: vec![encode(second), tenant(second), unapplied()],
    }
}

fn daemon(second: u64) -> Daemon {
    Daemon {
        pid: 1,
        version: "0.1.0".into(),
        uptime_usec: second * 1_000_000,
        enforcer: EnforcerKind::SchedExt,
        problems: vec!["a file is damaged".into()],
        guard: Some(GuardState {
            counts: GuardCounts {
                nr_begun: second * 20,
                nr_inverted: second * 10,
                nr_woken: second * 10,
                nr_pulled: second,
                nr_pushed: second,
            },
            problem: None,
        }),
        counters: Counters {
            reloads: second,
            reloads_refused: 1,
            foreign_changes: 1,
            apply_failures: 1,
            requests: second * 5,
            requests_refused: 1,
            events_lost: 1,
        },
        control_delay: Histogram {
            bounds_usec: vec![1000, 10_000, 100_000, 1_000_000],
            counts: vec![second * 90, second * 10, 0, 0, 0],
            sum_usec: second * 10_000,
        },
        resident_bytes: 12 << 20,
        cpu_usec: second * 1500,
        ..Daemon::default()
    }
}

fn knobs(class: Option<Class>, quota: &str) -> Knobs {
    Knobs {
        class,
        quota: Some(quota.parse().unwrap()),
        ..Knobs::default()
    }
}

/// A batch group of Plimsoll's own with every limit there is.
fn encode(second: u64) -> GroupState {
    let usec = second * 1_000_000;
    GroupState {
        name: "encode".into(),
        group: "encode".into(),
        origin: KnobOrigin::CommandLine,
        cgroup: "/plimsoll/encode".into(),
        knobs: Knobs {
            cap: Some("150%".parse().unwrap()),
            soft_cap: Some("50%".parse().unwrap()),
            ..knobs(Some(Class::Batch), "2cpus")
        },
        statistics: Some(Sample {
            usage_usec: usec * 2,
            processes: 7,
            quota: Some(limited(second, 1)),
            cap: Some(limited(second, 2)),
            per_task: Some(PerTaskSample {
                tasks: 3,
                tasks_total: second,
                nr_periods: second * 100,
                nr_throttled: second * 5,
            }),
            soft_cap: Some(SoftCapSample {
                rate_ppm: 450_000,
                background: true,
                nr_switches: second / 10,
            }),
            batch: Some(BatchSample {
                total: BatchCounts {
                    run_usec: usec * 2,
                    wait_usec: usec * 3,
                    nr_switches: second * 500,
                    nr_preempted: second * 50,
                    nr_overdue: second / 10,
                    nr_holders: second / 5,
                },
                cpus: Vec::new(),
            }),
            foreign_changes: vec!["cpu.max".into()],
            ..Sample::default()
        }),
        problem: Some("cpu.max was changed by somebody else".into()),
        ..GroupState::default()
    }
}

/// A cgroup of somebody else's, whose name needs care.
fn tenant(second: u64) -> GroupState {
    let path = "/tenants.slice/a \"quoted\" one";
    GroupState {
        name: path.into(),
        group: "tenants".into(),
        cgroup: path.into(),
        knobs: knobs(None, "200ms/100ms"),
        statistics: Some(Sample {
            usage_usec: second * 900_000,
            processes: 2,
            quota: Some(limited(second, 1)),
            ..Sample::default()
        }),
        ..GroupState::default()
    }
}

fn unapplied() -> GroupState {
    GroupState {
        name: "/system.slice/web.service".into(),
        group: "web".into(),
        cgroup: "/system.slice/web.service".into(),
        problem: Some("cpu.max: permission denied".into()),
        ..GroupState::default()
    }
}

/// Ten periods a second, of which `throttled` end throttled.
fn limited(second: u64, throttled: u64) -> CpuStat {
    CpuStat {
        nr_periods: second * 10,
        nr_throttled: second * throttled,
        throttled_usec: second * throttled * 20_000,
        nr_bursts: second,
        burst_usec: second * 15_000,
    }
}

pub fn many_groups(number: u64) -> State {
    let groups = (0..number).map(|n| GroupState {
        name: format!("/tenants.slice/tenant-{n}.service"),
        cgroup: format!("/tenants.slice/tenant-{n}.service"),
        ..tenant(n + 1)
    });
    State {
        groups: groups.collect(),
        ..state(10)
    }
}
