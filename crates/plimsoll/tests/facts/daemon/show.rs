//! Output of `show` with a daemon.

use crate::common::Host;
use crate::rig::{Daemon, of_cgroup, rule, rule_of, shown};

#[test]
fn groups_are_shown_together_or_one_by_its_name_its_cgroup_or_a_process_in_it() {
    let mut host = Host::new();
    let (web, jobs) = (host.group("web"), host.group("jobs"));
    let sleeper = host.start_in(&web, ["sleep", "600"]);
    let text = rule_of("web", &web, "quota = \"30ms/100ms\"")
        + &rule_of("jobs", &jobs, "class = \"batch\"");
    let daemon = Daemon::start(&host, &text);
    let table = host.run(["show"]).good().stdout;
    let json = host.run(["show", "--json"]).good();
    let schema = json.json()["schema"].clone();
    assert!(
        schema.as_str().unwrap().starts_with("plimsoll."),
        "{schema}"
    );
    for word in ["web", "jobs", "30ms/100ms", "batch"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    for word in [&shown(&web), &shown(&jobs), "foreign_changes"] {
        assert!(json.stdout.contains(word), "{word}: {}", json.stdout);
    }
    for target in ["web", &shown(&web), &sleeper.pid().to_string()] {
        let text = host.run(["show", target]).good().stdout;
        let is_whole = text.contains("30ms/100ms") && text.contains(&shown(&web));
        assert!(is_whole, "{target}: {text}");
        host.run(["show", target, "--json"]).good().json();
    }
    let missing = host.run(["show", "no-such-group"]);
    assert!(missing.refusal().contains("no-such-group"), "{missing:?}");
    daemon.stop();
    sleeper.kill_hard();
}

#[test]
fn tasks_are_shown_of_one_capped_cgroup_and_refused_of_several() {
    let mut host = Host::new();
    let (one, other) = (host.group("one"), host.group("other"));
    let burner = host.start_in(&one, ["sh", "-c", "while :; do :; done"]);
    let both = of_cgroup(&format!("{}/*", host.base_path()));
    let text = rule("both", &both, "cap = \"50%\"\nhalf-life = \"5s\"");
    let daemon = Daemon::start(&host, &text);
    let shown_one = shown(&one);
    let document = host
        .run(["show", &shown_one, "--tasks", "--json"])
        .good()
        .json();
    let rates = &document["group"]["statistics"]["task_rates"];
    assert_eq!(rates["nr_tasks"], 1, "{document}");
    let task = &rates["tasks"][0];
    assert_eq!(task["tid"], burner.pid(), "{document}");
    assert_eq!(task["command"], "sh", "{document}");
    assert!(task["rate_ppm"].as_u64() > Some(0), "{document}");
    let plain = host.run(["show", &shown_one, "--json"]).good().json();
    assert_eq!(plain["group"]["statistics"].get("task_rates"), None);
    let several = host.run(["show", "both", "--tasks"]);
    let line = several.refusal();
    assert!(
        line.contains("2 groups") && line.contains(&shown_one),
        "{line}"
    );
    daemon.stop();
    burner.kill_hard();
    drop(other);
}
