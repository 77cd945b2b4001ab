//! Debian's package `prometheus`, which has `promtool` too.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Set where a missing tool is a failure.
const REQUIRED: &str = "PLIMSOLL_REQUIRE_PROMETHEUS";

/// Whether there are `prometheus` and `promtool` here. Says so if a test is
/// skipped for want of them.
pub fn are_here() -> bool {
    let is_here = |tool: &&str| Command::new(tool).arg("--version").output().is_ok();
    let Some(missing) = ["promtool", "prometheus"]
        .into_iter()
        .find(|tool| !is_here(tool))
    else {
        return true;
    };
    assert!(std::env::var_os(REQUIRED).is_none(), "{missing} is missing");
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let line = format!(
        "\n*** SKIPPED: {test}: {missing} is missing; 'make metrics-test' installs it ***\n"
    );
    // Not by eprintln, which the harness hides if a test passes.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    false
}

/// Runs promtool; what it says must be nothing bad.
pub fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

/// The folder `deploy/` of the repository.
pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}
