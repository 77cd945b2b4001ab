//! Memory per task of the host simulator. A test binary of its own, because it
//! counts the heap of the whole process.

#[path = "../benches/host/scenario.rs"]
mod scenario;

use plimsoll_sim::host::Host;

#[global_allocator]
static COUNTING: dhat::Alloc = dhat::Alloc;

/// Peak heap size while a host with `tasks` tasks runs.
fn most_bytes(tasks: u32, group_max: u32) -> usize {
    const EVENTS: u64 = 400_000;
    let scenario = scenario::mixed(128, tasks, group_max);
    let _counting = dhat::Profiler::builder().testing().build();
    let mut host = Host::new(&scenario).expect("the scenario can be run");
    let mut until_ns = 0;
    while host.events() < EVENTS {
        until_ns += 1_000_000;
        host.run_until(until_ns);
    }
    dhat::HeapStats::get().max_bytes
}

/// Bytes per task of 100,000 additional tasks.
fn bytes_each(group_max: u32) -> usize {
    const MORE: u32 = 100_000;
    let few = most_bytes(1_000, group_max);
    let many = most_bytes(1_000 + MORE, group_max);
    println!("groups of {group_max}: {few} bytes with 1,000 tasks, {many} with 101,000");
    (many - few) / MORE as usize
}

/// A service has a latency histogram of some 140 KiB, which dominates in groups
/// of 100 tasks.
#[test]
fn a_task_takes_less_than_a_kibibyte() {
    let in_large_groups = bytes_each(1_000);
    let in_small_groups = bytes_each(scenario::GROUP_MAX);
    println!(
        "{in_large_groups} bytes for each task in groups of 1,000; in groups of 100, {in_small_groups}"
    );
    assert!(in_large_groups < 512, "{in_large_groups} bytes");
    assert!(in_small_groups < 1_024, "{in_small_groups} bytes");
    assert!(
        in_large_groups > 16,
        "{in_large_groups} bytes: the heap was not measured"
    );
}
