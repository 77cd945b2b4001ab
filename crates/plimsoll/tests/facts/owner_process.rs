//! The owner's process: the same whatever process has started it, with few open files for a
//! command; and its end, which no client notices.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Pid;
use plimsoll_daemon::control::client::Client;
use plimsoll_daemon::control::protocol::{Request, SOCKET};

use crate::common::{Host, has_processes, is_alive, text, wait_until};

/// Lines of `/proc/PID/status` that a process inherits.
const INHERITED: [&str; 6] = [
    "SigBlk",
    "SigIgn",
    "Umask",
    "Cpus_allowed",
    "Groups",
    "THP_enabled",
];

/// Everything that a process inherits, apart from the user.
fn settings_of(pid: i32) -> BTreeMap<String, String> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let mut found = BTreeMap::new();
    for name in [
        "limits",
        "timerslack_ns",
        "oom_score_adj",
        "environ",
        "cgroup",
    ] {
        found.insert(name.to_owned(), text(&folder.join(name)));
    }
    for line in text(&folder.join("status")).lines() {
        if let Some((name, value)) = line.split_once(':')
            && INHERITED.contains(&name)
        {
            found.insert(name.to_owned(), value.trim().to_owned());
        }
    }
    let cwd = fs::read_link(folder.join("cwd")).unwrap();
    found.insert("cwd".into(), cwd.display().to_string());
    // SAFETY: these calls take integers only.
    let (nice, policy, io) = unsafe {
        (
            libc::getpriority(libc::PRIO_PROCESS, pid.cast_unsigned()),
            libc::sched_getscheduler(pid),
            libc::syscall(libc::SYS_ioprio_get, 1, pid),
        )
    };
    found.insert("priorities".into(), format!("{nice} {policy} {io}"));
    let stat = text(&folder.join("stat"));
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!(fields[3], pid.to_string(), "it leads its session");
    assert_eq!(fields[4], "0", "it has no terminal");
    found
}

fn files_of(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let mut names: Vec<String> = links.map(|link| link.display().to_string()).collect();
    names.sort();
    names
}

/// Changes all settings that a process hands on to its children, as far as this needs no more than
/// root.
pub fn change_everything() -> std::io::Result<()> {
    for (resource, soft) in [
        (Resource::RLIMIT_NOFILE, 64),
        (Resource::RLIMIT_CORE, 1 << 20),
        (Resource::RLIMIT_CPU, 600),
        (Resource::RLIMIT_FSIZE, 1 << 20),
        (Resource::RLIMIT_DATA, 1 << 30),
        (Resource::RLIMIT_AS, 4 << 30),
        (Resource::RLIMIT_STACK, 1 << 20),
        (Resource::RLIMIT_NPROC, 5_000),
    ] {
        let (_, hard) = getrlimit(resource)?;
        setrlimit(resource, soft, hard)?;
    }
    SigSet::all().thread_block()?;
    for ignored in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGPIPE,
        Signal::SIGQUIT,
    ] {
        // SAFETY: no handler is installed.
        unsafe { signal(ignored, SigHandler::SigIgn) }?;
    }
    umask(Mode::all());
    let mut one = CpuSet::new();
    let first = (0..CpuSet::count()).find(|cpu| {
        let _ = one.set(*cpu);
        let is_bound = sched_setaffinity(Pid::from_raw(0), &one).is_ok();
        let _ = one.unset(*cpu);
        is_bound
    });
    assert!(first.is_some());
    nix::sys::prctl::set_timerslack(7_000_000)?;
    fs::write("/proc/self/oom_score_adj", "300")?;
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: these calls take integers, and one structure that lives until they return.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 7);
        // The idle class.
        libc::syscall(libc::SYS_ioprio_set, 1, 0, 3 << 13);
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param);
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
    Ok(())
}

#[test]
fn an_owner_is_the_same_whatever_process_has_started_it() {
    let host = Host::new();
    host.run(["run", "--", "true"]).good();
    let first = host.owner_pid();
    // Clients come and go.
    let named = |owner| {
        let mut files = files_of(owner);
        files.retain(|name| !name.starts_with("socket:"));
        files
    };
    let (expected, files) = (settings_of(first), named(first));
    // The command has huge pages: see `command_process`.
    assert_eq!(expected["THP_enabled"], "0");
    assert_eq!(expected["environ"].split_terminator('\0').count(), 2);
    assert!(host.end_idle_owner());
    let lock = tempfile::NamedTempFile::new().unwrap();
    let mut command = host.plimsoll(["run", "--", "true"]);
    command
        .env("NOTIFY_SOCKET", "/nowhere")
        .env("JOURNAL_STREAM", "8:9")
        .env("LC_ALL", "C")
        .current_dir(lock.path().parent().unwrap());
    let inherited = lock.as_file().try_clone().unwrap();
    // SAFETY: system calls, and little else: the file is written in one call.
    unsafe {
        command.pre_exec(move || {
            nix::fcntl::fcntl(
                &inherited,
                nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
            )?;
            change_everything()
        });
    }
    let finished = host.spawn(command).finish().good();
    assert_eq!(finished.stderr, "");
    let second = host.owner_pid();
    assert_ne!(first, second);
    assert_eq!(settings_of(second), expected);
    assert_eq!(named(second), files);
    host.assert_clean();
}

#[test]
fn an_owner_has_two_files_open_for_each_command_at_most() {
    let host = Host::new();
    let start = |number: usize| {
        let knobs = "--quota 30ms/100ms --class batch --headroom 10%";
        let words = format!("run --name job-{number} {knobs} -- sleep 600");
        host.start(words.split(' '))
    };
    let runs = |all: &[crate::common::Running]| {
        (0..all.len()).all(|number| {
            let group = host.batch(&format!("job-{number}"));
            has_processes(&group)
        })
    };
    let mut all = vec![start(0)];
    wait_until("the first runs", || runs(&all));
    // The guard has files of its own.
    wait_until("the guard is attached or refused", || {
        let owner = host.owner().expect("an owner runs");
        owner.daemon.guard.is_some()
    });
    let owner = host.owner_pid();
    // The guard opens its record when it moves a task for the first time.
    let nr_files = || {
        let files = files_of(owner).into_iter();
        files.filter(|name| !name.ends_with("/moves")).count()
    };
    let before = nr_files();
    all.extend((1..=8).map(start));
    wait_until("all run", || runs(&all));
    // Their clients disconnect a moment later.
    wait_until("two files each", || nr_files() <= before + 2 * 8);
    drop(all);
    host.assert_clean();
}

#[test]
fn an_owner_without_a_free_file_descriptor_says_so() {
    let host = Host::new();
    let running = host.sleeper("job", "");
    let owner = host.owner_pid();
    let pid = running.pid().to_string();
    // Before an answer the owner has closed what others have left; this connection stays.
    let mut client = Client::connect(&host.runtime().join(SOCKET))
        .unwrap()
        .unwrap();
    client.ask(&Request::Debug).unwrap();
    // One is left for the connection of a client.
    let nr_files = files_of(owner).len() as u64;
    let limit = |soft| {
        let few = libc::rlimit {
            rlim_cur: soft,
            rlim_max: getrlimit(Resource::RLIMIT_NOFILE).unwrap().1,
        };
        // SAFETY: the call reads one structure, which lives until it returns.
        let set = unsafe {
            libc::prlimit(
                owner,
                libc::RLIMIT_NOFILE,
                &raw const few,
                std::ptr::null_mut(),
            )
        };
        assert_eq!(set, 0);
    };
    limit(nr_files + 1);
    for words in [&["run", "--", "true"][..], &["set", &pid, "--cap", "10%"]] {
        let refused = host.run(words);
        let line = refused.refusal().to_lowercase();
        assert!(line.contains("too many open files"), "{words:?}: {line}");
    }
    limit(nr_files + 20);
    host.run(["run", "--", "true"]).good();
    running.stop();
    host.assert_clean();
}

#[test]
fn a_client_that_meets_an_ending_owner_starts_the_next() {
    let host = Host::new();
    for round in 0..20 {
        host.run(["run", "--", "true"]).good();
        let owner = host.owner().map(|state| state.daemon.pid.cast_signed());
        let first = host.start(["run", "--", "true"]);
        if let Some(owner) = owner {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(owner), Signal::SIGTERM);
        }
        let second = host.start(["run", "--", "true"]);
        for finished in [first.finish(), second.finish()] {
            assert_eq!(finished.code(), 0, "round {round}: {finished:?}");
        }
        if let Some(owner) = owner {
            wait_until("the owner has ended", || !is_alive(owner));
        }
    }
    assert!(host.end_idle_owner());
    assert!(!host.runtime().join(SOCKET).exists());
    host.assert_clean();
}

mod v1_only {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::common::binary;

    /// A client in a frozen `freezer` cgroup would freeze its owner, too.
    #[test]
    fn an_owner_is_in_no_cgroup_of_its_client() {
        let host = Host::new();
        let name = host.base_path();
        let mounts = text(Path::new("/proc/self/mounts"));
        let point = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            let mut options = fields[3].split(',');
            // A new cgroup of cpuset takes no process.
            let is_other = !options.any(|option| ["cpu", "cpuacct", "cpuset"].contains(&option));
            (fields[2] == "cgroup" && is_other).then(|| fields[1].to_owned() + &name)
        };
        let folders: Vec<String> = mounts.lines().filter_map(point).collect();
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        let script =
            r#"for f; do echo $$ >"$f/cgroup.procs" || exit 99; done; exec "$0" run -- true"#;
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(binary()).args(&folders);
        host.confine(&mut command);
        let finished = host.spawn(command).finish();
        let places = text(Path::new(&format!("/proc/{}/cgroup", host.owner_pid())));
        host.assert_clean();
        wait_until("the cgroups are removed", || {
            let mut left = folders.iter().filter(|folder| Path::new(folder).exists());
            left.all(|folder| fs::remove_dir(folder).is_ok())
        });
        finished.good();
        assert!(!places.contains(&name), "{places}");
    }
}
