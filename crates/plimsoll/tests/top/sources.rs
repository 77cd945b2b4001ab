//! Tests of sources: the daemon, a daemon that comes and goes, an owner on demand, the kernel.

use crate::Scene;
use crate::common::{Host, wait_until};
use crate::rig::{GROUPS, ScriptedDaemon, Terminal, need_tmux};

#[test]
fn lost_daemon_is_reconnected() {
    need_tmux();
    let mut scene = Scene::new(&[]);
    scene.top("");
    drop(scene.daemon.take());
    // Before that its last state stays, for one interval.
    scene.terminal.until_shown("no daemon");
    scene.daemon = Some(ScriptedDaemon::start(
        scene.runtime.path(),
        GROUPS[..2].to_vec(),
    ));
    scene.terminal.until("the daemon is back", |screen| {
        screen.contains("2 groups") && !screen.contains("no daemon")
    });
}

#[test]
fn runs_of_an_owner_are_shown_and_only_the_machine_without_one() {
    need_tmux();
    let host = Host::new();
    let run = host.start_load(
        "--class batch --cap 40% --name crunch",
        "burn --threads 1 --duration 300s",
    );
    wait_until("it runs", || host.run(["show"]).stdout.contains("crunch"));
    let terminal = Terminal::new(&[], |command| host.confine(command));
    terminal.type_line("plimsoll top --interval 1s");
    terminal.until("its rate", |screen| {
        let row = screen
            .lines()
            .find(|line| line.starts_with("> crunch"))
            .unwrap_or("");
        let mut words = row.split_whitespace().skip(3);
        let rate = words.next().and_then(|word| word.parse::<f64>().ok());
        screen.contains("1 group, ")
            && screen.contains("daemon up ")
            && row.contains("cap=40%")
            && rate.is_some_and(|rate| rate > 0.0)
    });
    terminal.press(&["Enter"]);
    let screen = terminal.until("its plan", |screen| {
        screen.contains("from        the command line") && screen.contains("enforced    cap=40%")
    });
    assert!(screen.contains("runs        "), "{screen}");
    terminal.press(&["q"]);
    run.stop();
    host.assert_clean();
    let once = host.run(["top", "--once", "--json"]).good().json();
    assert_eq!(once["asked"], "kernel", "{once}");
    assert_eq!(once["groups"], serde_json::json!([]), "{once}");
    assert!(once["machine"]["nr_cpus"].as_u64().unwrap() > 0, "{once}");
    terminal.type_line("plimsoll top --once");
    terminal.until_shown("no groups");
}
