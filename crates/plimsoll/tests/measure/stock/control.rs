//! SPEC 3, reaction: the controller of headroom goes on while the service is busy, while the disk
//! is full, and while the log is not read.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use plimsoll_cgroupfs::CpuGroup;

use crate::clock::sleep_ms;
use crate::common::{Host, Running, in_vm, nr_cpus, wait_until};
use crate::daemon_rig::{Daemon, kill_all, of_cgroup, quota_us, remove_group, rule, shown};
use crate::figure::{ANY, SPEC_3};

/// Processes that are moved at once.
const PROCESSES: usize = 1_000;
/// The journal of so many cgroups does not fit into the rest of a page.
const MANY: usize = 80;
const LATE_USEC: u64 = 10_000;
/// The loop runs every 10 ms; less than half of that in a second would be a loop that stood still.
const RUNS_MIN: f64 = 50.0;

/// Numbers of times that the control loop has run, and that it was late.
struct Loops {
    run: f64,
    late: f64,
}

impl Loops {
    fn now(daemon: &Daemon) -> Self {
        let delays = daemon.state().daemon.control_delay;
        let bounds = &delays.bounds_usec;
        let in_time = bounds.partition_point(|bound| *bound <= LATE_USEC);
        Self {
            run: delays.counts.iter().sum::<u64>() as f64,
            late: delays.counts[in_time..].iter().sum::<u64>() as f64,
        }
    }

    /// Prints how often the loop ran and was late since `self` was read.
    fn print(&self, daemon: &Daemon, when: &str) {
        let now = Self::now(daemon);
        let what = format!("updates of headroom 10 ms late while {when}");
        SPEC_3.figure(&what, now.late - self.late, "", 0.0..=0.0);
        let what = format!("updates of headroom while {when}");
        SPEC_3.figure(&what, now.run - self.run, "", RUNS_MIN..=ANY);
    }
}

/// A latency-critical group, batch work that makes room for it, and a rule for cgroups that come
/// later.
fn start<'h>(host: &'h Host, groups: &[CpuGroup; 2], wrapper: &[&str]) -> (Daemon<'h>, Running) {
    let [main, job] = groups;
    let threads = nr_cpus();
    let load = host.start_load_in(job, &format!("burn --threads {threads} --duration 80000s"));
    let later = format!("{}/late-*", host.base_path());
    let text = rule("main", &of_cgroup(&shown(main)), "headroom = \"30%\"")
        + &rule("jobs", &of_cgroup(&shown(job)), "class = \"batch\"")
        + &rule("late", &of_cgroup(&later), "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::ready(host, &text).wrapped(wrapper);
    daemon.restart();
    wait_until("it is limited", || quota_us(job) > 0);
    (daemon, load)
}

#[test]
fn late_while_many_processes_or_a_fork_storm_are_moved() {
    let mut host = Host::new();
    let groups = [host.group("main"), host.group("job")];
    let (daemon, _load) = start(&host, &groups, &[]);
    let set = |name: &str| {
        let knobs = "--class batch --cap 50% --quota 80ms/100ms";
        let words = ["set", name].into_iter().chain(knobs.split(' '));
        host.run(words).good();
        sleep_ms(1_000);
    };
    let are_there = |name: &str, count: usize| {
        let group = host.normal(name);
        wait_until("all are there", || {
            group.all_processes().is_ok_and(|all| all.len() > count)
        });
    };

    let script =
        format!("i=0; while [ $i -lt {PROCESSES} ]; do sleep 80000 & i=$((i+1)); done; wait");
    let words = "run --name many --weight 50 -- sh -c";
    let many = host.start(words.split(' ').chain([script.as_str()]));
    are_there("many", PROCESSES);
    let loops = Loops::now(&daemon);
    set("many");
    loops.print(&daemon, "1000 processes are moved");

    let load = "storm --processes 100000 --parallel 8 --cpu-each 1ms";
    let storm = host.start_load("--name storm --weight 50", load);
    are_there("storm", 4);
    let loops = Loops::now(&daemon);
    set("storm");
    loops.print(&daemon, "a fork storm is moved");

    storm.kill_hard();
    many.kill_hard();
    let batch = host.batch("any").parent().unwrap();
    kill_all(&batch.all_processes().unwrap());
}

/// A file system at the runtime folder, with space for journals and requested knobs only.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &Path) -> Self {
        let words = ["-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs"];
        let status = Command::new("mount").args(words).arg(folder).status();
        assert!(status.unwrap().success());
        Self(folder.to_owned())
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Fills the disk to the last byte.
    fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        let piece = [0; 1024];
        while file.write_all(&piece).is_ok() {}
        while file.write_all(&piece[..1]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn late_while_the_disk_is_full() {
    let mut host = Host::new();
    let groups = [host.group("main"), host.group("job")];
    assert!(in_vm(), "it would mount a file system on this machine");
    let disk = SmallDisk::mount(host.runtime());
    let (mut daemon, _load) = start(&host, &groups, &[]);
    let loops = Loops::now(&daemon);
    disk.fill();
    let late = (0..MANY).map(|index| host.base().child(format!("late-{index}")));
    let late: Vec<CpuGroup> = late.collect();
    late.iter().for_each(|group| group.create().unwrap());
    wait_until("a failure is counted", || {
        daemon.state().daemon.counters.apply_failures > 0
    });
    sleep_ms(1_000);
    loops.print(&daemon, "the disk is full");
    fs::remove_file(disk.filler()).unwrap();
    late.iter().for_each(remove_group);
    daemon.end();
}

/// A pipe that takes no more.
fn full_pipe(path: &Path) -> File {
    let mut pipe = open_pipe(path);
    while pipe.write(&[b'\n'; 512]).is_ok() {}
    // To the last byte.
    while pipe.write(b"\n").is_ok() {}
    pipe
}

/// Opens a pipe at both ends, so that neither side waits for the other.
fn open_pipe(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(libc::O_NONBLOCK).open(path).unwrap()
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
fn late_while_standard_error_is_blocked() {
    let mut host = Host::new();
    let groups = [host.group("main"), host.group("job")];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let mut reader = open_pipe(&path);
    let script = format!("exec \"$0\" \"$@\" 2>{}", path.display());
    let (daemon, _load) = start(&host, &groups, &["sh", "-c", &script]);
    drain(&mut reader);
    let loops = Loops::now(&daemon);
    let mut pipe = full_pipe(&path);
    // A broken file is reported, and the line cannot be written.
    daemon.write_raw("version = no number\n");
    daemon.send(Signal::SIGHUP);
    sleep_ms(200);
    let group = host.base().child("late-1");
    group.create().unwrap();
    sleep_ms(1_000);
    assert_eq!(quota_us(&group), -1, "the service is not blocked");
    // The daemon answers again then, and what it did meanwhile is counted.
    drain(&mut pipe);
    wait_until("the service goes on", || {
        drain(&mut pipe);
        quota_us(&group) == 30_000
    });
    loops.print(&daemon, "standard error is blocked");
    remove_group(&group);
    drain(&mut pipe);
    daemon.stop();
}
