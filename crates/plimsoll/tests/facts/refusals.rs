//! Bad input: a one-line message with the allowed values, exit code 125, and no change.

use std::path::Path;

use crate::common::{Finished, Host};

/// Runs a command that must be refused; checks the code, the one line, and that nothing has
/// changed.
fn refused(host: &Host, words: &[&str]) -> String {
    let before = host.snapshot();
    let finished: Finished = host.run(words);
    assert_eq!(finished.stdout, "", "{words:?}");
    let line = finished.refusal().to_owned();
    assert!(line.starts_with("plimsoll: "), "{words:?}: {line}");
    host.assert_as(&before);
    line
}

#[test]
fn bad_values_and_knobs_that_make_no_sense_together_are_refused_by_run_and_by_set() {
    let mut host = Host::new();
    let group = host.group("foreign");
    let target = format!("/{}", group.path().display());
    for (knobs, parts) in [
        ("--cap -25%", ["cap: `-25%`", "150%"]),
        ("--headroom 1000cpus", ["headroom: `1000cpus`", "up to "]),
        ("--burst 10ms", ["burst", "quota"]),
        (
            "--quota 50ms/100ms --cpu-max 90000",
            ["--quota", "--cpu-max"],
        ),
        // A knob that this host cannot enforce.
        ("--class batch --cpu-limit 80%", ["cpu-limit", "sched_ext"]),
        ("--quota 10ms/100ms --burst 11ms", ["burst", "sched_ext"]),
        ("--cap 20% --enforcer magic", ["magic", "cgroup"]),
    ] {
        let knobs: Vec<&str> = knobs.split(' ').collect();
        let run: Vec<&str> = ["run"]
            .iter()
            .chain(&knobs)
            .copied()
            .chain(["--", "true"])
            .collect();
        let set: Vec<&str> = ["set", &target].iter().chain(&knobs).copied().collect();
        for words in [run, set] {
            let line = refused(&host, &words);
            for part in parts {
                assert!(line.contains(part), "{words:?}: {line}");
            }
        }
    }
    assert!(refused(&host, &["set", &target]).contains("knob"));
    host.assert_clean();
}

#[test]
fn missing_targets_are_refused() {
    let mut host = Host::new();
    let group = host.group("here");
    let missing = format!("{}/missing", host.base_path());
    // Above the base.
    let above = format!("/{}/..", group.path().display());
    let nowhere = [
        missing.as_str(),
        &above,
        "nothing",
        // No process has it: it is the end of the kernel's range.
        "4194304",
        "0",
        "-1",
        "99999999999",
    ];
    for target in nowhere {
        for words in [
            &["set", "--cap", "20%", "--", target][..],
            &["show", "--", target],
        ] {
            let line = refused(&host, words);
            assert!(line.contains(target), "{words:?}: {line}");
        }
    }
    let folder = host.hierarchy().cpu_folder(Path::new(""));
    for root in ["/", "//", folder.to_str().unwrap()] {
        let line = refused(&host, &["set", root, "--cap", "20%"]);
        assert!(line.contains("is the root"), "{line}");
    }
    let mut command = host.plimsoll(["run", "--", "true"]);
    command.env("PLIMSOLL_CGROUP_BASE", &missing);
    let finished = host.spawn(command).finish();
    assert!(finished.refusal().contains(&missing), "{finished:?}");
    host.assert_clean();
}

mod without_sched_ext {
    use super::*;

    #[test]
    fn a_kernel_without_sched_ext_refuses_its_enforcer() {
        let here = Path::new("/sys/kernel/sched_ext");
        assert!(!here.exists(), "this kernel has sched_ext");
        let host = Host::new();
        let words = "run --cap 20% --enforcer sched-ext -- true";
        let line = refused(&host, &words.split(' ').collect::<Vec<_>>());
        assert!(
            line.contains("sched-ext") && line.contains("cgroup"),
            "{line}"
        );
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("plimsoll.toml");
        std::fs::write(&config, "version = 1\nenforcer = \"sched-ext\"\n").unwrap();
        let config = config.to_str().unwrap();
        let line = refused(&host, &["daemon", "--check", "--config", config]);
        let told = format!("{config}: enforcer: cannot be `sched-ext` here");
        assert!(line.contains(&told), "{line}");
    }
}
