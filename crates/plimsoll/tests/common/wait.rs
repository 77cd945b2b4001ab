//! Waits for states that the kernel or Plimsoll reaches by itself.
//!
//! A test asserts what holds on every machine, however busy, so it reads no clock and has no time
//! limit. Members of a cgroup, counters and answers of the owner have no event that a test could
//! block on; they are looked at again and again. The number of looks is bounded, so that a test
//! whose state is never reached fails with its name: on a busy machine looks take longer, and none
//! is lost.

use nix::poll::{PollTimeout, poll};

/// Looks at a state until a test fails; a minute or more.
const LOOKS_MAX: u32 = 30_000;
/// Pause between two looks, in milliseconds, so that the waiting test leaves its CPU to those for
/// which it waits.
const PAUSE_MS: u8 = 2;

/// A wait in progress.
pub struct Looks(u32);

impl Looks {
    pub fn begin() -> Self {
        Self(0)
    }

    /// Pauses before the next look. Returns false if there were enough.
    pub fn again(&mut self) -> bool {
        self.0 += 1;
        // An interrupted pause is a shorter one.
        let _ = poll(&mut [], PollTimeout::from(PAUSE_MS));
        self.0 < LOOKS_MAX
    }
}

/// Waits until a condition holds; panics with `what` if it never does.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut looks = Looks::begin();
    while !holds() {
        assert!(looks.again(), "waited in vain until {what}");
    }
}

/// Waits for a value; panics with `what` if there never is one.
pub fn wait_for<T>(what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let mut looks = Looks::begin();
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(looks.again(), "waited in vain for {what}");
    }
}
