//! Skipping of unit tests that need a property of the host.

use std::io::Write as _;

/// Reports a skipped test, past the harness, which hides the output of a passing test. Panics for
/// root in continuous integration, where all tests have to run.
pub(crate) fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let is_complete = std::env::var_os("CI").is_some() && nix::unistd::geteuid().is_root();
    assert!(!is_complete, "{test} would be skipped: {why}");
    let line = format!("SKIPPED: {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
