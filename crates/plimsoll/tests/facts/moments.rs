//! Moments that events give: the nth change in a folder.

use std::os::fd::AsFd as _;
use std::path::Path;

use inotify::{Inotify, WatchMask};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Longest pause between two looks whether there will be no more changes, in milliseconds.
const PAUSE_MS: u8 = 20;
/// Looks until a test fails; a minute or more if there is no change.
const LOOKS_MAX: u32 = 3_000;

/// The longest event: its head and the longest name. A larger buffer would take more at a time.
const LONGEST_EVENT: usize = 16 + 256;

/// The changes of the files of a folder, such as the journals before each change of a cgroup.
pub struct Changes(Inotify);

impl Changes {
    pub fn of(folder: &Path) -> Self {
        let watch = Inotify::init().unwrap();
        let all = WatchMask::CREATE | WatchMask::MODIFY | WatchMask::MOVED_TO | WatchMask::DELETE;
        watch.watches().add(folder, all).unwrap();
        Self(watch)
    }

    /// Waits for the nth change from now on, or until there will be none.
    pub fn wait_for(&mut self, nth: u64, mut is_over: impl FnMut() -> bool) {
        let mut buffer = [0; LONGEST_EVENT];
        let mut left = nth;
        for _ in 0..LOOKS_MAX {
            if left == 0 || is_over() {
                return;
            }
            let mut change = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            poll(&mut change, PollTimeout::from(PAUSE_MS)).unwrap();
            let found = self.0.read_events(&mut buffer);
            left = left.saturating_sub(found.map_or(0, Iterator::count) as u64);
        }
        panic!("waited in vain for {left} of {nth} changes");
    }
}
