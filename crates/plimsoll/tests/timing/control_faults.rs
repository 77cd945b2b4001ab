//! SPEC 3, reaction: the controller of headroom goes on while the disk is full, and while the log
//! is not read.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, Running, ms, nr_cpus, wait_until};
use crate::control::{times_late, times_run};
use crate::measured::assert_within;
use crate::namespace::SmallDisk;
use crate::rig::{Daemon, SHORT, of_cgroup, quota_us, remove_group, rule, shown};

/// The journal of so many cgroups does not fit into the rest of a page.
const MANY: usize = 80;
/// The loop runs every 10 ms; less than half of that would be a loop that stood still.
const RUNS_MIN: f64 = 50.0;

/// A latency-critical group, batch work that makes room for it, and a rule for cgroups that come
/// later.
fn start<'h>(host: &'h Host, main: &CpuGroup, job: &CpuGroup, wrapper: &[&str]) -> Daemon<'h> {
    let later = format!("{}/late-*", host.base_path());
    let text = rule("main", &of_cgroup(&shown(main)), "headroom = \"30%\"")
        + &rule("jobs", &of_cgroup(&shown(job)), "class = \"batch\"")
        + &rule("late", &of_cgroup(&later), "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::ready(host, &text).wrapped(wrapper);
    daemon.restart();
    wait_until("it is limited", SHORT, || quota_us(job) > 0);
    daemon
}

fn burn_in(host: &Host, job: &CpuGroup) -> Running {
    let threads = nr_cpus();
    host.start_load_in(job, &format!("burn --threads {threads} --duration 600s"))
}

#[test]
fn the_control_loop_is_never_10_ms_late_while_the_disk_is_full() {
    let mut host = Host::alone();
    let (main, job) = (host.group("main"), host.group("job"));
    let burners = burn_in(&host, &job);
    let disk = SmallDisk::new(&host);
    let enter = disk.enter();
    let words: Vec<&str> = enter.iter().map(String::as_str).collect();
    let mut daemon = start(&host, &main, &job, &words);
    let (late, runs) = (times_late(&daemon), times_run(&daemon));
    disk.fill();
    let groups: Vec<CpuGroup> = (0..MANY)
        .map(|index| host.base().child(format!("late-{index}")))
        .collect();
    groups.iter().for_each(|group| group.create().unwrap());
    wait_until("a failure is counted", SHORT, || {
        daemon.state().daemon.counters.apply_failures > 0
    });
    thread::sleep(ms(1_000));
    assert_within(
        "late with a full disk",
        times_late(&daemon) - late,
        0.0,
        0.0,
    );
    assert!(times_run(&daemon) - runs >= RUNS_MIN);
    disk.free();
    groups.iter().for_each(remove_group);
    daemon.end();
    assert_eq!(disk.files(), [""; 0]);
    burners.kill_hard();
}

/// A pipe that takes no more.
fn full_pipe(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let mut pipe = options.custom_flags(libc::O_NONBLOCK).open(path).unwrap();
    while pipe.write(&[b'\n'; 512]).is_ok() {}
    // To the last byte.
    while pipe.write(b"\n").is_ok() {}
    pipe
}

fn drain(pipe: &mut File) {
    let mut piece = [0; 4096];
    loop {
        match pipe.read(&mut piece) {
            Ok(_) => (),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_control_loop_is_never_10_ms_late_while_standard_error_is_blocked() {
    let mut host = Host::alone();
    let (main, job) = (host.group("main"), host.group("job"));
    let burners = burn_in(&host, &job);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    // Open at both ends, so that neither side waits for the other at its start.
    let mut options = OpenOptions::new();
    let mut reader = options.read(true).write(true);
    reader = reader.custom_flags(libc::O_NONBLOCK);
    let mut reader = reader.open(&path).unwrap();
    let script = format!("exec \"$0\" \"$@\" 2>{}", path.display());
    let daemon = start(&host, &main, &job, &["sh", "-c", &script]);
    drain(&mut reader);
    let (late, runs) = (times_late(&daemon), times_run(&daemon));

    let mut pipe = full_pipe(&path);
    // A broken file is reported, and the line cannot be written.
    daemon.write_raw("version = no number\n");
    daemon.send(Signal::SIGHUP);
    thread::sleep(ms(200));
    let group = host.base().child("late-1");
    group.create().unwrap();
    thread::sleep(ms(1_000));
    assert_eq!(quota_us(&group), -1, "the service is not blocked");
    drain(&mut pipe);
    wait_until("the service goes on", SHORT, || {
        drain(&mut pipe);
        quota_us(&group) == 30_000
    });
    assert_within(
        "late with a blocked log",
        times_late(&daemon) - late,
        0.0,
        0.0,
    );
    assert!(times_run(&daemon) - runs >= RUNS_MIN);
    remove_group(&group);
    drain(&mut pipe);
    daemon.stop();
    burners.kill_hard();
}
