//! Queue of all events that `top` waits for. Each source of events blocks in a
//! thread of its own.
//!
//! The key reader does not notice when its terminal is closed: its reads return
//! nothing, without end. So another thread waits for the hang-up, and the key
//! reader ends with the program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use plimsoll_daemon::state::GroupState;
use ratatui::crossterm::event::{
    self, Event as TerminalEvent, KeyCode, KeyEventKind, KeyModifiers,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use super::source::{StateSource, Update};
use crate::error::{CommandError, Result};

pub enum TopEvent {
    Key(KeyCode),
    Resized,
    /// The screen was overwritten and must be redrawn.
    Overwritten,
    /// A new state was read.
    Updated(Box<Result<Update>>),
    /// The details of a group, if the group still exists.
    Details(Box<Option<GroupState>>),
    Signal(i32),
    /// The user wants to suspend the program.
    Suspend,
    /// The terminal was closed, or Ctrl-C was pressed.
    Quit,
}

pub struct TopEvents {
    queue: Receiver<TopEvent>,
    detail_requests: Sender<String>,
}

impl TopEvents {
    /// Starts all threads.
    pub fn start(source: StateSource, interval: Duration) -> Result<Self> {
        let (sender, queue) = channel();
        let (detail_requests, wished) = channel();
        let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP]);
        let signals = signals.map_err(CommandError::io("cannot handle signals"))?;
        let for_signals = sender.clone();
        thread::spawn(move || wait_for_signals(signals, &for_signals));
        let for_hang_up = sender.clone();
        thread::spawn(move || {
            wait_for_hang_up([io::stdin().as_fd(), io::stdout().as_fd()]);
            let _ = for_hang_up.send(TopEvent::Quit);
        });
        let for_keys = sender.clone();
        thread::spawn(move || wait_for_keys(&for_keys));
        thread::spawn(move || poll_source(source, interval, &wished, &sender));
        Ok(Self {
            queue,
            detail_requests,
        })
    }

    pub fn next(&self) -> TopEvent {
        // The channel is closed only after all threads have ended.
        self.queue.recv().unwrap_or(TopEvent::Quit)
    }

    pub fn try_next(&self) -> Option<TopEvent> {
        self.queue.try_recv().ok()
    }

    pub fn request_details(&self, group: String) {
        // If the thread has ended, no details arrive.
        let _ = self.detail_requests.send(group);
    }
}

fn wait_for_signals(mut signals: Signals, queue: &Sender<TopEvent>) {
    for signal in signals.forever() {
        let event = match signal {
            SIGTSTP => TopEvent::Suspend,
            ending => TopEvent::Signal(ending),
        };
        if queue.send(event).is_err() {
            return;
        }
    }
}

/// Returns when either descriptor is no longer a terminal.
fn wait_for_hang_up(both: [BorrowedFd<'_>; 2]) {
    loop {
        // Errors and hang-ups are always reported.
        let mut watched = both.map(|fd| PollFd::new(fd, PollFlags::empty()));
        match poll(&mut watched, PollTimeout::NONE) {
            Err(Errno::EINTR) => (),
            _ => return,
        }
    }
}

fn wait_for_keys(queue: &Sender<TopEvent>) {
    loop {
        let events = match event::read() {
            Ok(TerminalEvent::Resize(..)) => vec![TopEvent::Resized],
            Ok(TerminalEvent::Key(key)) if key.kind != KeyEventKind::Release => {
                key_events(key.code, key.modifiers)
            }
            Ok(_) => Vec::new(),
            Err(_) => vec![TopEvent::Quit],
        };
        for event in events {
            let is_end = matches!(event, TopEvent::Quit);
            if queue.send(event).is_err() || is_end {
                return;
            }
        }
    }
}

/// Converts a key press. Escape directly followed by another key, as on a slow
/// line, is read as that key with Alt; since Alt has no meaning here, it is
/// split again.
fn key_events(code: KeyCode, modifiers: KeyModifiers) -> Vec<TopEvent> {
    let with_control = modifiers.contains(KeyModifiers::CONTROL);
    let escape = modifiers.contains(KeyModifiers::ALT);
    let escape = escape.then_some(TopEvent::Key(KeyCode::Esc));
    escape
        .into_iter()
        .chain(key_event(code, with_control))
        .collect()
}

fn key_event(code: KeyCode, with_control: bool) -> Option<TopEvent> {
    match code {
        KeyCode::Char('c') if with_control => Some(TopEvent::Quit),
        KeyCode::Char('z') if with_control => Some(TopEvent::Suspend),
        KeyCode::Char('l') if with_control => Some(TopEvent::Overwritten),
        KeyCode::Char(_) if with_control => None,
        key => Some(TopEvent::Key(key)),
    }
}

/// Reads the state in every interval, and details in between.
fn poll_source(
    mut source: StateSource,
    interval: Duration,
    wished: &Receiver<String>,
    queue: &Sender<TopEvent>,
) {
    loop {
        let begun = Instant::now();
        if queue
            .send(TopEvent::Updated(Box::new(source.read())))
            .is_err()
        {
            return;
        }
        loop {
            let left = interval.saturating_sub(begun.elapsed());
            match wished.recv_timeout(left) {
                Ok(group) => {
                    // On an error, the group is shown without details.
                    let details = source.details(&group).unwrap_or_default();
                    if queue.send(TopEvent::Details(Box::new(details))).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(code: KeyCode, modifiers: KeyModifiers) -> Vec<KeyCode> {
        let events = key_events(code, modifiers).into_iter();
        let key = |event| match event {
            TopEvent::Key(key) => Some(key),
            _ => None,
        };
        events.filter_map(key).collect()
    }

    #[test]
    fn escape_before_a_key_is_not_lost() {
        let (none, alt) = (KeyModifiers::NONE, KeyModifiers::ALT);
        assert_eq!(keys(KeyCode::Char('c'), none), [KeyCode::Char('c')]);
        let both = keys(KeyCode::Char('c'), alt);
        assert_eq!(both, [KeyCode::Esc, KeyCode::Char('c')]);
    }

    #[test]
    fn letters_with_control_are_not_letters() {
        let control = KeyModifiers::CONTROL;
        assert_eq!(keys(KeyCode::Char('r'), control), []);
        let quit = key_events(KeyCode::Char('c'), control);
        assert!(matches!(quit[..], [TopEvent::Quit]));
        let stop = key_events(KeyCode::Char('z'), control);
        assert!(matches!(stop[..], [TopEvent::Suspend]));
    }
}
