//! Permissions, and messages if they are missing.

use std::fs;

use crate::account::{Account, USER};
use crate::common::{Host, bandwidth_us, has_processes, wait_until};
use plimsoll_daemon::control::protocol::SOCKET;

/// The uid of `nobody` is the same everywhere.
const NOBODY: u32 = 65534;

#[test]
fn missing_permission_is_reported_in_one_line_with_a_remedy() {
    let mut host = Host::new();
    let group = host.group("foreign");
    let target = format!("/{}", group.path().display());
    let nobody = Account::new(NOBODY);
    let before = host.snapshot();
    for words in [
        &["run", "--cap", "20%", "--", "true"][..],
        &["run", "--", "true"],
        &["set", &target, "--cap", "20%"],
        &["restore"],
    ] {
        let mut command = nobody.plimsoll(words);
        command.env("PLIMSOLL_CGROUP_BASE", host.base_path());
        let finished = host.spawn(command).finish();
        let line = finished.refusal();
        assert!(
            line.contains("ermission") && line.contains("root"),
            "{words:?}: {line}"
        );
        host.assert_as(&before);
    }
    // Commands without changes need no permission.
    for words in [
        &["doctor"][..],
        &["show", &target],
        &["run", "--dry-run", "--cap", "9%", "--", "true"],
    ] {
        let finished = host.spawn(nobody.plimsoll(words)).finish();
        assert_eq!(finished.code(), 0, "{words:?}: {finished:?}");
    }
    // Nor can a user limit another user's process.
    let pid = std::process::id().to_string();
    let mut command = nobody.plimsoll(&["set", &pid, "--class", "batch"]);
    command.env("PLIMSOLL_CGROUP_BASE", host.base_path());
    assert_eq!(host.spawn(command).finish().code(), 125);
    host.assert_as(&before);
}

#[test]
fn in_a_delegated_subtree_a_user_has_an_owner_beside_roots() {
    let mut host = Host::new();
    let subtree = host.group("delegated");
    crate::common::delegate(&subtree, USER);
    // The user's shell is below the subtree, and not in its root.
    let shell = subtree.child("shell");
    shell.create().unwrap();
    crate::common::delegate(&shell, USER);
    let before = host.snapshot();
    let roots = host.sleeper("g", "--quota 30ms/100ms");
    let of_root = host.normal("g");
    let user = Account::new(USER);
    let run = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        host.spawn(user.plimsoll_in(&shell, &words))
    };
    let place = run("run --name g --cap 30% -- cat /proc/self/cgroup");
    let place = place.finish().good();
    let expected = format!("/{}/plimsoll/g", subtree.path().display());
    assert!(place.stdout.contains(&expected), "{place:?}");
    let socket = user.runtime().join("plimsoll").join(SOCKET);
    let mut owner = 0;
    for (knobs, group, quota) in [
        ("--cap 30% --weight 50", "plimsoll/g", 3_000),
        (
            "--class batch --quota 20ms/100ms --burst 5ms",
            "plimsoll-batch/g",
            20_000,
        ),
        ("--soft-cap 10% --nice 5", "plimsoll-soft-g", -1),
    ] {
        let group = subtree.child(group);
        let mut running = run(&format!("run --name g {knobs} -- sleep 600"));
        running.wait_until("it runs", || has_processes(&group));
        assert_eq!(bandwidth_us(&group).0, quota, "{knobs:?}");
        // Without a group the owner may have ended by itself.
        let state = crate::common::owner_at(&socket).expect("an owner runs");
        owner = state.daemon.pid.cast_signed();
        let names: Vec<&str> = state.groups.iter().map(|group| &*group.name).collect();
        assert!(names == ["g"] && owner != host.owner_pid(), "{names:?}");
        let status = fs::read_to_string(format!("/proc/{owner}/status")).unwrap();
        assert!(status.contains(&format!("Uid:\t{USER}\t")), "{status}");
        run("set g --weight 70").finish().good();
        assert_eq!(group.read_weight().unwrap(), 70);
        assert_eq!(of_root.read_weight().unwrap(), 100);
        running.stop();
        wait_until("it is gone", || !group.exists());
    }
    crate::common::end_owner(owner);
    assert_eq!(bandwidth_us(&of_root).0, 30_000);
    roots.stop();
    host.assert_as(&before);
    let left = fs::read_dir(user.runtime().join("plimsoll")).unwrap();
    let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    assert!(
        left.iter()
            .all(|name| name.to_string_lossy().ends_with("lock")),
        "{left:?}"
    );
}

#[test]
fn read_only_cgroups_are_reported_with_a_remedy() {
    let host = Host::new();
    let before = host.snapshot();
    let script = r#"mount -o remount,bind,ro "$MOUNT" || exit 99; "$@""#;
    let mut command = crate::common::with_own_mounts(script);
    command
        .arg("sh")
        .arg(crate::common::binary())
        .args(["run", "--cap", "20%", "--", "true"]);
    let finished = host.finish_with_mount(command);
    assert!(finished.refusal().contains("read-only"), "{finished:?}");
    host.assert_as(&before);
}
