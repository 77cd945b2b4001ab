//! Loads the scheduler for some seconds (1, or the first argument), and says
//! how long loading takes and how the scheduler ended.
//!
//! `vm/run -- target/debug/examples/load 2`

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_scx::skel::OpenBpfSkel;
use plimsoll_scx::{Error, Kernel, Scheduler, bpf_intf};

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    match run(Duration::from_secs(seconds.unwrap_or(1))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{}", error.log().unwrap_or_default());
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes room for each CPU. All are taken to be in one LLC.
fn fit_machine(skel: &mut OpenBpfSkel<'static>) -> libbpf_rs::Result<()> {
    let cpus = libbpf_rs::num_possible_cpus()? as u32;
    let maps = &mut skel.maps;
    if let Some(rodata) = maps.rodata_data.as_deref_mut() {
        rodata.nr_cpu_ids = cpus;
        rodata.nr_llcs = 1;
    }
    let groups = bpf_intf::plimsoll_limits_PLIMSOLL_GROUPS_MAX;
    maps.group_cpus.set_max_entries(groups * cpus)?;
    maps.cpus.set_max_entries(cpus)?;
    maps.decisions.set_max_entries(cpus)?;
    maps.slice_timers.set_max_entries(cpus)
}

/// The kernel's constants that the scheduler got are those of the kernel's
/// sources.
fn check_constants(scheduler: &Scheduler) {
    let rodata = scheduler.skel().maps.rodata_data;
    let rodata = rodata.expect("a scheduler has read-only data");
    assert_eq!(rodata.__SCX_DSQ_LOCAL, 1 << 63 | 2, "SCX_DSQ_LOCAL");
    assert_eq!(rodata.__SCX_KICK_PREEMPT, 1 << 1, "SCX_KICK_PREEMPT");
    assert_eq!(rodata.__SCX_ENQ_LAST, 1 << 41, "SCX_ENQ_LAST");
    assert_eq!(rodata.__SCX_TASK_QUEUED, 1 << 0, "SCX_TASK_QUEUED");
    println!("constants are right");
}

fn run(duration: Duration) -> Result<(), Error> {
    let kernel = Kernel::host();
    println!("before: {:?}", kernel.supports()?);

    let start = Instant::now();
    let mut scheduler = Scheduler::load(&kernel, fit_machine)?;
    let loaded = start.elapsed();
    scheduler.attach()?;
    let attached = start.elapsed() - loaded;
    println!(
        "load {} ms, attach {} ms",
        loaded.as_millis(),
        attached.as_millis()
    );
    println!("left out: {:?}", scheduler.dropped_ops());
    check_constants(&scheduler);
    for program in scheduler.verified_programs() {
        println!("  {:6} insns  {}", program.verified_insns, program.name);
    }
    println!("during: {:?}", kernel.supports()?);

    let end = Instant::now() + duration;
    while Instant::now() < end && scheduler.exited().is_none() {
        thread::sleep(Duration::from_millis(50));
    }
    if let Some(report) = scheduler.detach() {
        print!("{}", report.dump);
        println!("exit: {:?}, code {}: {report}", report.kind, report.code);
    }
    println!("after: {:?}", kernel.supports()?);
    Ok(())
}
