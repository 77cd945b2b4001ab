//! Cgroups with names of any bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::common::{Host, bandwidth_us, wait_until};
use crate::rig::{Daemon, of_cgroup, remove_group, rule};
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_cgroupfs::name::text_of;

/// Name that is no UTF-8, and would turn a terminal red.
const ODD: &[u8] = b"a\xff\x1b[31m";

fn odd(host: &Host) -> CpuGroup {
    let path = host.base().path().join(OsStr::from_bytes(ODD));
    let group = CpuGroup::at(host.hierarchy(), path);
    host.base().enable_children().unwrap();
    group.create().unwrap();
    group
}

#[test]
fn rule_limits_a_cgroup_of_any_name_and_its_undo_finds_it() {
    let host = Host::new();
    let before = odd(&host);
    let pattern = format!("{}/*", host.base_path());
    let text = rule("odd", &of_cgroup(&pattern), "quota = \"30ms/100ms\"")
        + &rule("none", &of_cgroup("/nowhere/at-all"), "weight = 50");
    let daemon = Daemon::start(&host, &text);
    assert_eq!(bandwidth_us(&before).0, 30_000, "{}", daemon.log());
    let shown = host.run(["show"]).good().stdout;
    assert!(shown.contains("a\\xff\\x1b[31m"), "{shown:?}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
    assert!(shown.contains("none: no cgroup matches it now"), "{shown}");
    assert_eq!(daemon.state().daemon.unmatched, ["none"]);
    let set = host.run(["set", "none", "--nice", "3"]).good();
    for told in [&set.stderr, host.run(["show", "none"]).refusal()] {
        assert!(told.contains("its knobs: nice=3 weight=50"), "{told}");
    }
    host.run(["set", "none", "--dry-run", "--nice", "3"]).good();
    host.run(["set", "none", "--reset"]).good();
    daemon.stop();
    assert_eq!(bandwidth_us(&before).0, -1);
    remove_group(&before);
}

#[test]
fn odd_cgroup_is_set_by_its_bytes_through_a_link_and_by_the_name_in_json() {
    let host = Host::new();
    let group = odd(&host);
    let folder = group.cpu_file("");
    let path = PathBuf::from("/").join(group.path());
    let name = text_of(&path);
    let links = tempfile::tempdir().unwrap();
    let link = links.path().join("cpu");
    std::os::unix::fs::symlink(host.hierarchy().mount_point(), &link).unwrap();
    let linked = link.join(group.path());
    let run = |command: &str, target: &OsStr, flags: &[&str]| {
        let words = [OsStr::new(command), target].into_iter();
        host.run(words.chain(flags.iter().map(OsStr::new))).good()
    };
    let quota = &["--quota", "40ms/100ms"][..];
    let targets = [folder.as_os_str(), path.as_os_str(), linked.as_os_str()];
    for target in targets.into_iter().chain([OsStr::new(&name)]) {
        let set = run("set", target, quota).stdout;
        assert!(
            set.contains("a\\xff\\x1b[31m") && !set.contains('\x1b'),
            "{set:?}"
        );
        assert_eq!(bandwidth_us(&group).0, 40_000);
        let shown = run("show", target, &["--json"]);
        assert_eq!(shown.json()["group"]["name"], name.as_str());
        assert_eq!(shown.json()["group"]["subject"], "");
        run("set", target, &["--reset"]);
        assert_eq!(bandwidth_us(&group).0, -1);
    }
    // A killed owner leaves what leads back to it.
    run("set", path.as_os_str(), quota);
    host.kill_owner();
    let left = host.run(["show", "--json"]).good().json();
    assert_eq!(left["groups"][0]["name"], name.as_str(), "{left}");
    host.run(["restore"]).good();
    wait_until("it is undone", || bandwidth_us(&group).0 == -1);
    let missing = host.run(["show", "/nowhere\x1b[31m"]);
    assert!(missing.refusal().contains("\\x1b[31m"), "{missing:?}");
    remove_group(&group);
}
