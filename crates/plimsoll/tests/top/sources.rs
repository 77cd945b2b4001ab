//! Tests of sources: an owner that comes and goes, and the kernel.

use crate::Scene;

#[test]
fn runs_of_an_owner_are_shown_and_only_the_machine_without_one() {
    let mut scene = Scene::new();
    let screen = scene.top();
    for part in ["daemon up ", "cap=40%"] {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
    scene.terminal.press(&["Enter"]);
    let parts = [
        "origin      command-line",
        "runs        ",
        "load burn --threads 1",
    ];
    // A frame is written in parts.
    let shows_all = |screen: &str| parts.iter().all(|part| screen.contains(part));
    scene.terminal.until("its origin and command", shows_all);
    // Its tasks and its plan are below.
    scene.terminal.until("its plan", |screen| {
        let is_there = screen.contains("TASK ") && screen.contains("ENFORCED BY");
        if !is_there {
            scene.terminal.press(&["End"]);
        }
        is_there
    });
    scene.terminal.press(&["Escape"]);

    let words = "top --once --interval 200ms --sort throttled";
    let text = scene.host.run(words.split(' ')).good().stdout;
    for part in [": normal ", "GROUP", "crunch", "cap=40%"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let document = scene.host.run(words.split(' ').chain(["--json"]));
    let document = document.good().json();
    assert_eq!(document["schema"], "plimsoll.top/1");
    assert_eq!(document["asked"], "daemon");
    assert!(document["interval_usec"].as_u64() >= Some(200_000));
    assert!(document["machine"]["idle_ppm"].is_u64(), "{document}");
    let group = &document["groups"][0];
    let identity = (&group["name"], &group["class"]);
    assert_eq!(identity, (&"crunch".into(), &"batch".into()));
    assert!(group["cpu_ppm"].is_u64(), "{group}");

    scene.end_run();
    // Before that its last state stays, for one interval.
    scene.terminal.until_shown("no daemon");
    let once = scene.host.run(["top", "--once", "--json"]).good().json();
    assert_eq!(once["asked"], "kernel", "{once}");
    assert_eq!(once["groups"], serde_json::json!([]), "{once}");
    assert!(once["machine"]["nr_cpus"].as_u64().unwrap() > 0, "{once}");
    assert!(once["machine"]["idle_ppm"].is_u64(), "{once}");
    let once = scene.host.run(["top", "--once"]).good().stdout;
    assert!(once.contains("no groups"), "{once}");

    scene.start_run();
    scene.until_rates();
    scene.terminal.press(&["q"]);
    scene.end_run();
    scene.host.assert_clean();
}
