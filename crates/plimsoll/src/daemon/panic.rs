//! Panics of the owner, which must not undo anything.

use std::panic;
use std::process::abort;
use std::thread;

use plimsoll_daemon::control::server::THREAD as CONTROL;
use plimsoll_daemon::metrics::THREAD as METRICS;

/// Makes a panic end this process at once, as `kill -9` does: limits stay, and the next owner
/// adopts them. Only the threads that answer requests continue, with the next request.
pub fn abort_on_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print(info);
        let thread = thread::current();
        if !matches!(thread.name(), Some(CONTROL | METRICS)) {
            abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use nix::sys::signal::Signal;

    use super::*;

    /// Name of the thread that panics in the test's process.
    const PANICS: &str = "PLIMSOLL_TEST_PANICS";

    #[test]
    fn a_panic_ends_the_owner_before_anything_is_undone() {
        if let Ok(name) = env::var(PANICS) {
            abort_on_panic();
            let thread = thread::Builder::new().name(name);
            let panicked = thread.spawn(|| panic!("as the test wants it")).unwrap();
            assert!(panicked.join().is_err());
            return;
        }
        for (thread, ends_by) in [
            ("service", Some(Signal::SIGABRT as i32)),
            (CONTROL, None),
            (METRICS, None),
        ] {
            let name = "daemon::panic::tests::a_panic_ends_the_owner_before_anything_is_undone";
            let status = Command::new(env::current_exe().unwrap())
                .args(["--exact", name])
                .env(PANICS, thread)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            assert_eq!(status.signal(), ends_by, "{thread}");
            assert_eq!(status.success(), ends_by.is_none(), "{thread}");
        }
    }
}
