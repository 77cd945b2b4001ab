//! Tests of `top` in a terminal.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod exits;
mod rig;
mod screens;
mod sources;

use rig::{GROUPS, ScriptedDaemon, Terminal};
use tempfile::TempDir;

/// The bar for the scripted daemon: 30 % normal, 40 % batch, the line at 70 %.
fn bar(width: usize) -> String {
    let part = |sign: &str, columns: usize| sign.repeat(columns);
    let (normal, both) = (width * 3 / 10, width * 7 / 10);
    part("█", normal) + &part("▒", both - normal) + "┃" + &part("·", width - both - 1)
}

/// A scripted daemon, and a terminal in which Plimsoll finds it.
struct Scene {
    terminal: Terminal,
    daemon: Option<ScriptedDaemon>,
    runtime: TempDir,
}

impl Scene {
    fn new(variables: &[(&str, &str)]) -> Self {
        let runtime = tempfile::tempdir().unwrap();
        let daemon = ScriptedDaemon::start(runtime.path(), GROUPS.to_vec());
        let terminal = Terminal::new(variables, |command| {
            command.env("PLIMSOLL_RUNTIME_DIR", runtime.path());
        });
        Self {
            terminal,
            daemon: Some(daemon),
            runtime,
        }
    }

    /// Starts top and waits until there are rates.
    fn top(&self, arguments: &str) -> String {
        let line = format!("plimsoll top --interval 200ms {arguments}");
        self.terminal.type_line(&line);
        self.terminal.until("rates", |screen| {
            screen.contains("plimsoll top - ") && screen.contains("80.0")
        })
    }

    /// Asserts that the shell has its terminal back in its former state.
    fn assert_restored(&self, status: &str) {
        let terminal = &self.terminal;
        terminal.until("the screen of the shell", |screen| {
            screen.contains("before-top") && !screen.contains("plimsoll top - ")
        });
        terminal.until_the_shell_reads();
        terminal.type_line("echo status=$?");
        terminal.until_shown(&format!("status={status}"));
        terminal.type_line("stty -a");
        let screen = terminal.until_shown(" icanon");
        let words: Vec<&str> = screen.split_whitespace().collect();
        for mode in ["icanon", "isig", "echo", "opost", "icrnl"] {
            assert!(words.contains(&mode), "{mode}:\n{screen}");
        }
    }
}
