//! Tests of `top` in a terminal.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod exits;
mod rig;
mod sources;

use common::{Host, Running, wait_until};
use rig::{Terminal, need_tmux};

/// An owner with a group `crunch` that burns CPU time, and a terminal in which Plimsoll finds it.
struct Scene {
    terminal: Terminal,
    run: Option<Running>,
    host: Host,
}

impl Scene {
    fn new() -> Self {
        need_tmux();
        let host = Host::new();
        let terminal = Terminal::new(|command| host.confine(command));
        let mut scene = Self {
            terminal,
            run: None,
            host,
        };
        scene.start_run();
        scene
    }

    /// Starts the group, and with it the owner.
    fn start_run(&mut self) {
        let knobs = "--name crunch --class batch --cap 40%";
        let load = "burn --threads 1 --duration 300s";
        self.run = Some(self.host.start_load(knobs, load));
        wait_until("it runs", || {
            self.host.run(["show"]).stdout.contains("crunch")
        });
    }

    /// Ends the group and the owner.
    fn end_run(&mut self) {
        self.run.take().map(Running::stop);
        wait_until("the owner has ended", || self.host.end_idle_owner());
    }

    /// Starts top and waits until there are rates.
    fn top(&self) -> String {
        self.terminal.type_line("plimsoll top --interval 200ms");
        self.until_rates()
    }

    /// Waits until top shows that the group uses CPU time.
    fn until_rates(&self) -> String {
        self.terminal.until("rates", |screen| {
            let row = screen.lines().find(|line| line.starts_with("> crunch"));
            let mut words = row.unwrap_or("").split_whitespace().skip(3);
            let rate = words.next().and_then(|word| word.parse::<f64>().ok());
            screen.contains("plimsoll top - 1 group, ") && rate.is_some_and(|rate| rate > 0.0)
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
