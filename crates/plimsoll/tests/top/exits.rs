//! Tests of exits: the terminal is restored.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_engine::tasks::children;

use crate::Scene;
use crate::common::{command_of, is_alive, wait_until};

#[test]
fn signal_restores_the_screen_and_ends_top() {
    let scene = Scene::new();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        scene
            .terminal
            .type_line("clear; ulimit -c 0; echo before-top");
        scene.top();
        kill(Pid::from_raw(scene.terminal.child()), signal).unwrap();
        scene.assert_restored(&(128 + signal as i32).to_string());
    }
}

#[test]
fn suspending_and_quitting_restore_the_screen_and_the_shell() {
    let scene = Scene::new();
    let terminal = &scene.terminal;
    terminal.type_line("echo before-top");
    let screen = scene.top();
    assert!(!screen.contains("before-top"), "{screen}");
    terminal.press(&["C-z"]);
    terminal.until("the screen of the shell", |screen| {
        screen.contains("before-top") && !screen.contains("plimsoll top - ")
    });
    terminal.until_the_shell_reads();
    terminal.type_line("stty -a");
    terminal.until_shown(" icanon");
    terminal.type_line("fg");
    scene.until_rates();
    terminal.press(&["q"]);
    scene.assert_restored("0");
}

#[test]
fn a_command_that_stops_itself_gives_the_terminal_to_the_shell_until_it_goes_on() {
    let scene = Scene::new();
    let line = "plimsoll run -- sh -c 'kill -STOP $$; echo went'";
    scene.terminal.type_line(line);
    scene.terminal.until_shown("Stopped");
    scene.terminal.type_line("fg");
    scene
        .terminal
        .until("its end", |it| it.contains("\nwent\n"));
}

#[test]
fn closed_terminal_ends_top_with_and_without_a_signal() {
    // In a session of its own, top gets no signal when the terminal is closed.
    // The next redraw, which would fail, is not due for a minute.
    for prefix in ["", "setsid -w "] {
        let scene = Scene::new();
        let line = format!("{prefix}plimsoll top --interval 60s");
        scene.terminal.type_line(&line);
        scene.terminal.until_shown("plimsoll top - 1 group, ");
        let mut pid = scene.terminal.child();
        if !prefix.is_empty() {
            pid = children(pid).first().copied().unwrap_or(pid);
        }
        assert_eq!(command_of(pid).unwrap(), "plimsoll");
        scene.terminal.close();
        wait_until("it has ended", || !is_alive(pid));
    }
}
