//! Unit tests that want more of a host than every host has.

use std::io::Write as _;

/// Says that a test is skipped, past the harness, which hides what a passing test
/// prints. Panics for root in continuous integration: nothing may be missing there.
pub(crate) fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let is_complete = std::env::var_os("CI").is_some() && nix::unistd::geteuid().is_root();
    assert!(!is_complete, "{test} would be skipped: {why}");
    let line = format!("SKIPPED: {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
