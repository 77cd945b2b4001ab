//! Debian's package `prometheus`, which has `promtool` too.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::poll::{PollTimeout, poll};

/// Looks at a Prometheus before a test gives up: two minutes or more.
const LOOKS_MAX: u32 = 600;

/// Fails unless there are `prometheus` and `promtool` here.
pub fn require() {
    for tool in ["promtool", "prometheus"] {
        let found = Command::new(tool).arg("--version").output();
        assert!(
            found.is_ok(),
            "{tool} is missing; 'make metrics-test' installs it"
        );
    }
}

/// Waits until `is_so`; returns false if that does not happen within `LOOKS_MAX` looks.
pub fn wait(mut is_so: impl FnMut() -> bool) -> bool {
    (0..LOOKS_MAX).any(|_| {
        is_so() || {
            let _ = poll(&mut [], PollTimeout::from(200u8));
            false
        }
    })
}

/// Runs promtool, which must succeed.
pub fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}
