//! Debian's package `prometheus`, which has `promtool` too.

use std::path::{Path, PathBuf};
use std::process::Command;

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
