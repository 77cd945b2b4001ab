//! `doctor` says "may do so: yes" where `run` works, and otherwise why `run` fails.

use std::process::Command;

use crate::common::{Finished, Host, begin_in, binary, with_own_mounts};

/// The script that runs both, in this order.
const BOTH: &str = r#""$0" run -- true; echo "run: $?" >&2; "$0" doctor"#;

/// Text of `doctor` about the permission.
fn permission(finished: &Finished) -> String {
    let mut lines = finished.stdout.lines();
    let line = lines.find_map(|line| line.strip_prefix("may do so"));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn doctor_says_yes_where_run_works_and_leaves_nothing() {
    let host = Host::new();
    let mut command = Command::new("sh");
    command.args(["-c", BOTH]).arg(binary());
    let finished = host.finish_with_mount(command).good();
    assert_eq!(finished.stderr, "run: 0\n");
    assert_eq!(permission(&finished), "yes");
    host.assert_clean();
}

#[test]
fn doctor_gives_the_reason_of_run_where_the_cgroups_are_not_mounted_or_hidden() {
    let host = Host::new();
    let over = "another file system is mounted over";
    for (hide, reason) in [
        ("umount -l \"$MOUNT\"", "mount"),
        ("mount -t tmpfs tmpfs \"$MOUNT\"", over),
        ("mount -t tmpfs tmpfs \"$MOUNT/..\"", over),
    ] {
        let mut command = with_own_mounts(&format!("{hide} || exit 99\n{BOTH}"));
        command.arg(binary());
        let finished = host.finish_with_mount(command);
        assert_eq!(finished.code(), 125, "{hide}: {finished:?}");
        let lines: Vec<&str> = finished.stderr.lines().collect();
        let [run, "run: 125", doctor] = &lines[..] else {
            panic!("{hide}: {finished:?}");
        };
        assert_eq!(run, doctor, "{hide}");
        assert!(run.contains("no cpu controller"), "{run}");
        assert!(run.contains(reason), "{run}");
    }
    host.assert_clean();
}

#[test]
fn doctor_gives_the_reason_of_run_in_a_foreign_cgroup_namespace() {
    let mut host = Host::new();
    let home = host.group("home");
    // The mounts are those of the whole tree, where this namespace sees only `home`.
    let mut command = Command::new("sh");
    command.args(["-c", BOTH]).arg(binary());
    begin_in(&mut command, &home, libc::CLONE_NEWCGROUP);
    let finished = host.finish_with_mount(command).good();
    let lines: Vec<&str> = finished.stderr.lines().collect();
    let [run, "run: 125"] = &lines[..] else {
        panic!("{finished:?}");
    };
    let permission = permission(&finished);
    for told in [*run, &permission] {
        assert!(told.contains("cannot be found below"), "{told}");
    }
    assert!(permission.starts_with("no: "), "{permission}");
    host.assert_clean();
}

#[test]
fn doctor_says_no_where_run_fails_because_of_the_runtime_folder() {
    let host = Host::new();
    let long = "x".repeat(100);
    for unusable in [
        // Read-only.
        r#"mount -t tmpfs -o ro,mode=700 tmpfs "$PLIMSOLL_RUNTIME_DIR""#,
        // Full.
        r#"mount -t tmpfs -o size=4k,mode=700 tmpfs "$PLIMSOLL_RUNTIME_DIR" &&
           head -c 4096 /dev/zero >"$PLIMSOLL_RUNTIME_DIR/full""#,
        r#"chmod 1777 "$PLIMSOLL_RUNTIME_DIR""#,
        r#"chmod 700 "$PLIMSOLL_RUNTIME_DIR" && chown 1 "$PLIMSOLL_RUNTIME_DIR""#,
        "export PLIMSOLL_RUNTIME_DIR=/dev/null",
        "export PLIMSOLL_RUNTIME_DIR=/proc/plimsoll",
        &format!("export PLIMSOLL_RUNTIME_DIR=/run/{long}"),
    ] {
        let script = format!("{{ {unusable}; }} || exit 99\n{BOTH}");
        let mut command = with_own_mounts(&script);
        command.arg(binary());
        let finished = host.finish_with_mount(command).good();
        let last = finished.stderr.lines().last();
        assert_eq!(last, Some("run: 125"), "{unusable}: {finished:?}");
        let permission = permission(&finished);
        assert!(permission.starts_with("no: "), "{unusable}: {permission}");
    }
    let root = nix::unistd::Uid::from_raw(0);
    nix::unistd::chown(host.runtime(), Some(root), None).unwrap();
    host.assert_clean();
}
