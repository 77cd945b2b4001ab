//! Users who are not operators, and what they see of the daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::account::{Account, USER};
use crate::common::Host;
use crate::rig::{Daemon, quota_us, rule_of, shown};

#[test]
fn no_request_of_a_user_who_is_not_an_operator_is_answered() {
    let mut host = Host::new();
    let (web, home) = (host.group("web"), host.group("home"));
    let text = rule_of("web", &web, "quota = \"30ms/100ms\"");
    let mut daemon = Daemon::start(&host, &text);
    let before = host.snapshot();
    let user = Account::new(USER);
    let refused = |words: &[&str]| {
        let mut command = user.plimsoll(words);
        host.confine(&mut command);
        host.spawn(command).finish().refusal().to_owned()
    };
    for words in [
        &["show"][..],
        &["show", "web"],
        &["set", "web", "--quota", "20ms/100ms"],
        &["set", "web", "--reset"],
        &["set", &shown(&home), "--class", "batch"],
        &["set", "--all", "--burst-enabled", "no"],
        &["reload"],
        &["run", "--", "true"],
    ] {
        let line = refused(words);
        assert!(line.contains("ermission"), "{words:?}: {line}");
        assert_eq!(host.snapshot(), before, "{words:?}");
    }
    assert_eq!(quota_us(&web), 30_000);
    let folder = fs::metadata(host.runtime()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o7777, 0o711);
    // The machine's counters are shown to everybody.
    let mut top = user.plimsoll(&["top", "--once"]);
    host.confine(&mut top);
    let top = host.spawn(top).finish().good();
    assert!(top.stdout.contains("does not answer this user"), "{top:?}");
    daemon.end();
}
