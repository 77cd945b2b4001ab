//! CPU cost of the headroom controller on an idle machine:
//! `headroom_idle GROUPS SECONDS`. Makes that many batch groups without a
//! process below a cgroup of its own, keeps them, and prints what the
//! controller used of a CPU each second. As root.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use plimsoll_cgroupfs::{BASE_VARIABLE, CpuGroup, Hierarchy};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::Enforcer;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::runtime::RuntimeFolder;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "usage: headroom_idle GROUPS SECONDS";

fn main() -> Result<ExitCode> {
    if std::env::var_os(BASE_VARIABLE).is_some() {
        keep()?;
        return Ok(ExitCode::SUCCESS);
    }
    // The base is read from the environment, which only another process can be
    // given.
    let hierarchy = Arc::new(Hierarchy::find()?);
    let name = format!("plimsoll-example-{}", std::process::id());
    let base = CpuGroup::at(&hierarchy, hierarchy.base().join(&name));
    base.create()?;
    let place = format!("/{}", base.path().display());
    let status = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(BASE_VARIABLE, place)
        .status();
    for folder in base.folders() {
        std::fs::remove_dir(folder)?;
    }
    Ok(if status?.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn keep() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let nr_groups: usize = args.next().ok_or(USAGE)?.parse()?;
    let seconds: u64 = args.next().ok_or(USAGE)?.parse()?;
    let hierarchy = Arc::new(Hierarchy::find()?);
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let runtime = RuntimeFolder::at(folder.path().join("run"));
    let (mut enforcer, _) = CgroupEnforcer::start(&hierarchy, &runtime)?;
    for index in 0..nr_groups {
        let group = GroupPolicy {
            name: format!("side-{index}"),
            selector: Selector::Processes,
            knobs: serde_json::from_str(r#"{"class": "batch", "headroom": "30%"}"#)?,
            scheduler: None,
        };
        enforcer.add(&group, "")?;
    }
    let start = Instant::now();
    let mut shown = (start, thread_cpu(), enforcer.headroom().unwrap_or_default());
    while start.elapsed() < Duration::from_secs(seconds) {
        let now = Instant::now();
        let due = enforcer.tick(now)?.unwrap_or(now + Duration::from_secs(1));
        if now - shown.0 >= Duration::from_secs(1) {
            let sample = enforcer.headroom().unwrap_or_default();
            let (then, cpu, before) = std::mem::replace(&mut shown, (now, thread_cpu(), sample));
            let elapsed = (now - then).as_secs_f64();
            let percent = |time: Duration| time.as_secs_f64() / elapsed * 100.0;
            let duty_usec = shown.2.controller_usec - before.controller_usec;
            println!(
                "{:.0} s: controller {:.3} % of a CPU, the whole thread {:.3} %; {} updates, {} writes, {} sides",
                start.elapsed().as_secs_f64(),
                percent(Duration::from_micros(duty_usec)),
                percent(shown.1.saturating_sub(cpu)),
                shown.2.nr_updates - before.nr_updates,
                shown.2.nr_writes - before.nr_writes,
                shown.2.nr_sides,
            );
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let report = enforcer.undo();
    for problem in &report.problems {
        eprintln!("{problem}");
    }
    Ok(())
}
