//! The bandwidth slice of the machine.

use std::fs;

use crate::common::{Host, Running, wait_until, with_own_mounts};
use crate::rig::Daemon;

const FILE: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";

#[test]
fn a_daemon_that_has_only_a_part_of_the_machine_may_not_set_it() {
    let host = Host::new();
    let before = fs::read_to_string(FILE).unwrap();
    let text = "bandwidth-slice = \"2ms\"";
    let daemon = Daemon::start(&host, text);
    let problems = daemon.state().daemon.problems;
    let expected = "bandwidth-slice: cannot be `2ms` here: it holds for the whole machine";
    assert!(problems[0].starts_with(expected), "{problems:?}");
    daemon.write("");
    daemon.reload().good();
    assert_eq!(daemon.state().daemon.problems, [""; 0]);
    daemon.write(text);
    let refused = daemon.reload();
    assert_eq!(refused.code(), 125);
    assert!(
        refused.one_line().contains(expected),
        "{}",
        refused.one_line()
    );
    assert_eq!(fs::read_to_string(FILE).unwrap(), before);
    daemon.stop();
}

/// A mount namespace in which a plain file replaces the kernel's, so that no test changes a
/// setting of the machine. The file is not truncated by writes, so all values have four digits.
struct OtherFile {
    holder: Running,
    _folder: tempfile::TempDir,
    file: std::path::PathBuf,
}

impl OtherFile {
    fn new(host: &Host) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slice");
        fs::write(&file, "5000\n").unwrap();
        let script = format!(
            "mount --bind {} {FILE} && echo ready && exec sleep 100000",
            file.display()
        );
        let holder = host.spawn(with_own_mounts(&script));
        wait_until("the file is mounted", || holder.stdout().contains("ready"));
        Self {
            holder,
            _folder: folder,
            file,
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap().trim().to_owned()
    }
}

/// A daemon that has the whole machine, of which there is only one.
mod vm_only {
    use super::*;

    #[test]
    fn it_is_set_at_a_reload_and_put_back_by_a_stop_and_after_a_kill() {
        let host = Host::new();
        let other = OtherFile::new(&host);
        let pid = other.holder.pid().to_string();
        // Without a base it owns the whole machine; its file matches nothing.
        let wrapper = [
            "nsenter",
            "-t",
            &pid,
            "-m",
            "-r",
            "--",
            "env",
            "PLIMSOLL_CGROUP_BASE=",
        ];
        let mut daemon = Daemon::ready(&host, "").wrapped(&wrapper);
        daemon.restart();
        assert_eq!(other.text(), "5000");
        let reload = |text: &str| {
            daemon.write(text);
            daemon.send(nix::sys::signal::Signal::SIGHUP);
        };
        for (text, us) in [
            ("bandwidth-slice = \"2ms\"", "2000"),
            ("bandwidth-slice = \"3.5ms\"", "3500"),
            ("", "5000"),
            ("bandwidth-slice = \"1ms\"", "1000"),
        ] {
            reload(text);
            wait_until("the file has it", || other.text() == us);
        }
        daemon.kill_hard();
        assert_eq!(
            other.text(),
            "1000",
            "what is in force stays until the next start"
        );
        let journal = fs::read_to_string(host.runtime().join("groups.journal")).unwrap();
        assert!(journal.contains(FILE), "{journal}");
        daemon.restart();
        assert_eq!(other.text(), "1000");
        daemon.stop();
        assert_eq!(other.text(), "5000");
    }
}
