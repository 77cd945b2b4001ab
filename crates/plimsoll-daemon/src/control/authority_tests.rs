//! Permissions, request by request.

use plimsoll_engine::knobs::KnobError;

use super::super::protocol::Choice;
use super::*;

const ALICE: u32 = 1000;
const BOB: u32 = 1001;

fn peer(uid: u32) -> Peer {
    Peer {
        uid,
        gid: uid,
        pid: 1,
        groups: Vec::new(),
        is_operator: uid == 0,
    }
}

fn knob<T: std::str::FromStr<Err = KnobError>>(text: &str) -> Option<T> {
    Some(text.parse().unwrap())
}

fn set(knobs: Knobs) -> Request {
    Request::Set(Box::new(Set {
        target: "4711".into(),
        knobs,
        choice: Choice::default(),
    }))
}

fn run(knobs: Knobs) -> Request {
    Request::Run(Box::new(Run {
        name: "job".into(),
        pid: 4711,
        subject: "job".into(),
        knobs,
        choice: Choice::default(),
    }))
}

fn process(owner: u32) -> Facts {
    Facts {
        target: Target::Process {
            owner: Some(owner),
            confined_by: None,
        },
        ..Facts::default()
    }
}

fn group(owner: u32) -> Facts {
    Facts {
        target: Target::Group { owner },
        ..Facts::default()
    }
}

fn batch() -> Knobs {
    Knobs {
        class: Some(Class::Batch),
        ..Knobs::default()
    }
}

/// Every request but `show`, with knobs that an owner may set.
fn all_requests() -> Vec<Request> {
    vec![
        set(batch()),
        run(batch()),
        Request::Reset {
            target: "job".into(),
        },
        Request::End {
            name: "job".into(),
            release: true,
        },
        Request::Reload,
        Request::Debug,
    ]
}

#[track_caller]
fn refused(request: &Request, facts: &Facts, part: &str) {
    let refusal = check(&peer(ALICE), request, facts).unwrap_err().to_string();
    assert!(
        refusal.starts_with("only root and members of group `plimsoll` may "),
        "{refusal}"
    );
    assert!(
        refusal.contains(part) && !refusal.contains('\n'),
        "{refusal}"
    );
    assert_eq!(check(&peer(0), request, facts), Ok(()), "an operator may");
}

#[track_caller]
fn allowed(request: &Request, facts: &Facts) {
    assert_eq!(check(&peer(ALICE), request, facts), Ok(()));
}

#[test]
fn operators_may_do_everything() {
    let member = Peer {
        is_operator: true,
        ..peer(ALICE)
    };
    for request in all_requests() {
        for facts in [Facts::default(), process(BOB), group(BOB)] {
            assert_eq!(check(&member, &request, &facts), Ok(()));
            assert_eq!(check(&peer(0), &request, &facts), Ok(()));
        }
    }
}

#[test]
fn users_may_read_the_state_and_only_operators_may_reload_or_debug() {
    let show = Request::Show {
        target: Some("/web".into()),
        details: true,
    };
    allowed(&show, &Facts::default());
    let tasks = Request::Tasks {
        target: "/web".into(),
    };
    allowed(&tasks, &Facts::default());
    refused(&Request::Reload, &Facts::default(), "reload");
    for enabled in [false, true] {
        refused(&Request::Burst { enabled }, &Facts::default(), "bursts");
    }
    refused(&Request::Debug, &Facts::default(), "daemon");
}

#[test]
fn a_user_may_not_change_targets_of_other_users() {
    for request in all_requests() {
        for facts in [
            Facts::default(),
            process(BOB),
            process(0),
            group(BOB),
            group(0),
        ] {
            refused(&request, &facts, "may");
        }
    }
    let borrowed_rights = Facts {
        target: Target::Process {
            owner: None,
            confined_by: None,
        },
        ..Facts::default()
    };
    refused(&set(batch()), &borrowed_rights, "4711");
    refused(&run(batch()), &borrowed_rights, "4711");
}

#[test]
fn an_owner_may_restrict_and_end_their_groups() {
    for facts in [process(ALICE), group(ALICE)] {
        allowed(&set(batch()), &facts);
    }
    allowed(&run(batch()), &process(ALICE));
    refused(&run(batch()), &group(ALICE), "out of its group");
    for release in [false, true] {
        let name = "job".to_owned();
        allowed(&Request::End { name, release }, &group(ALICE));
    }
    let target = "job".to_owned();
    allowed(&Request::Reset { target }, &group(ALICE));
}

#[test]
fn a_user_may_not_leave_a_limit_by_moving_into_a_group() {
    let facts = Facts {
        target: Target::Process {
            owner: Some(ALICE),
            confined_by: Some("/user.slice".into()),
        },
        ..Facts::default()
    };
    refused(&run(Knobs::default()), &facts, "`/user.slice`");
    refused(&set(batch()), &facts, "`/user.slice`");
    let of_the_file = Facts {
        bound: batch(),
        ..process(ALICE)
    };
    refused(&run(batch()), &of_the_file, "out of its group");
}

#[test]
fn a_user_may_not_undo_knobs_of_an_operator() {
    let facts = Facts {
        bound: batch(),
        knobs: batch(),
        ..group(ALICE)
    };
    let target = "job".to_owned();
    refused(&Request::Reset { target }, &facts, "others have set");
    let end = |release| Request::End {
        name: "job".into(),
        release,
    };
    refused(&end(true), &facts, "others have set");
    allowed(&end(false), &facts);
}

#[test]
fn the_groups_of_a_user_are_limited() {
    let with = |owned_groups| Facts {
        owned_groups,
        ..process(ALICE)
    };
    allowed(&run(batch()), &with(USER_GROUPS_MAX - 1));
    refused(&run(batch()), &with(USER_GROUPS_MAX), "64 groups");
    refused(&set(batch()), &with(USER_GROUPS_MAX), "64 groups");
    let in_one = Facts {
        owned_groups: USER_GROUPS_MAX,
        ..group(ALICE)
    };
    allowed(&set(batch()), &in_one);
}

#[test]
fn the_groups_of_all_users_are_limited() {
    let with = |users_groups| Facts {
        users_groups,
        ..process(ALICE)
    };
    allowed(&run(batch()), &with(USERS_GROUPS_MAX - 1));
    refused(&run(batch()), &with(USERS_GROUPS_MAX), "512");
    refused(&set(batch()), &with(USERS_GROUPS_MAX), "512");
}

#[test]
fn a_user_may_not_request_a_cgroup_for_each_task() {
    let per_task = Knobs {
        cap: knob("25%"),
        per_task: true,
        ..Knobs::default()
    };
    let taking = |facts| Facts {
        tasks_take_cgroups: true,
        ..facts
    };
    allowed(&run(per_task.clone()), &process(ALICE));
    refused(
        &run(per_task.clone()),
        &taking(process(ALICE)),
        "a cgroup of its own",
    );
    refused(&set(per_task), &taking(group(ALICE)), "a cgroup of its own");
}

#[test]
fn class_nice_and_weight_only_go_down() {
    let normal = Knobs {
        class: Some(Class::Normal),
        ..Knobs::default()
    };
    allowed(&set(normal.clone()), &group(ALICE));
    let is_batch = Facts {
        knobs: batch(),
        ..group(ALICE)
    };
    refused(&set(normal), &is_batch, "class batch");
    let nice = |text| Knobs {
        nice: knob(text),
        ..Knobs::default()
    };
    let at_five = Facts {
        nice: 5,
        ..group(ALICE)
    };
    allowed(&set(nice("5")), &at_five);
    refused(&set(nice("4")), &at_five, "nice level below the present 5");
    let bound = Facts {
        bound: nice("10"),
        ..at_five
    };
    refused(&set(nice("9")), &bound, "below the present 10");
    let weight = |text| Knobs {
        weight: knob(text),
        ..Knobs::default()
    };
    allowed(&set(weight("100")), &group(ALICE));
    refused(&set(weight("101")), &group(ALICE), "weight above 100");
    let light = Facts {
        bound: weight("20"),
        ..group(ALICE)
    };
    allowed(&set(weight("20")), &light);
    refused(&set(weight("21")), &light, "weight above 20");
    let heavy = Facts {
        bound: weight("500"),
        ..group(ALICE)
    };
    refused(&set(weight("101")), &heavy, "weight above 100");
}

#[test]
fn a_user_may_set_any_limit_but_not_loosen_one_of_an_operator() {
    let bandwidth = |quota: &str, burst: Option<&str>| Knobs {
        quota: knob(quota),
        burst: burst.map(|text| text.parse().unwrap()),
        ..Knobs::default()
    };
    for knobs in [
        bandwidth("9cpus", Some("1s")),
        bandwidth("max", None),
        Knobs {
            cap: knob("900%"),
            soft_cap: knob("800%"),
            half_life: knob("60s"),
            per_task: true,
            ..Knobs::default()
        },
        Knobs {
            cpu_limit: knob("100%"),
            ..batch()
        },
    ] {
        let own = Facts {
            knobs: bandwidth("1ms/1s", None),
            ..group(ALICE)
        };
        allowed(&set(knobs), &own);
    }
    let limited = |knobs: Knobs| Facts {
        bound: knobs.clone(),
        knobs,
        ..group(ALICE)
    };
    let half = limited(bandwidth("50ms/100ms", None));
    allowed(&set(bandwidth("50ms/100ms", None)), &half);
    allowed(&set(bandwidth("10ms/20ms", None)), &half);
    refused(&set(bandwidth("500ms/1s", None)), &half, "50ms/100ms");
    refused(&set(bandwidth("50ms/99ms", None)), &half, "50ms/100ms");
    refused(&set(bandwidth("max", None)), &half, "50ms/100ms");
    refused(&set(bandwidth("9ms/99ms", Some("1ms"))), &half, "burst");
    let only_burst = Knobs {
        burst: knob("1ms"),
        ..Knobs::default()
    };
    refused(&set(only_burst), &half, "burst");
    let capped = |cap: &str, per_task| Knobs {
        cap: knob(cap),
        per_task,
        ..Knobs::default()
    };
    let quarter = limited(capped("25%", false));
    allowed(&set(capped("25%", false)), &quarter);
    refused(&set(capped("25.1%", false)), &quarter, "cap above 25%");
    refused(&set(capped("1%", true)), &quarter, "each task");
    allowed(&set(capped("1%", true)), &limited(capped("25%", true)));
    let soft = |text: &str| Knobs {
        soft_cap: knob(text),
        ..Knobs::default()
    };
    refused(&set(soft("11%")), &limited(soft("10%")), "soft cap above");
    let half_life = |text: &str| Knobs {
        half_life: knob(text),
        ..soft("10%")
    };
    let averaged = limited(half_life("5s"));
    allowed(&set(half_life("5s")), &averaged);
    refused(&set(half_life("1s")), &averaged, "half-life than 5s");
    refused(&set(half_life("60s")), &averaged, "half-life than 5s");
    allowed(&set(half_life("1s")), &limited(soft("10%")));
    refused(
        &set(half_life("2s")),
        &limited(soft("10%")),
        "half-life than 1s",
    );
    let limit = |text: &str| Knobs {
        cpu_limit: knob(text),
        ..batch()
    };
    refused(
        &set(limit("81%")),
        &limited(limit("80%")),
        "CPU limit above",
    );
    allowed(&set(limit("80%")), &limited(limit("80%")));
}

#[test]
fn a_user_may_not_change_headroom_and_tolerance_of_all_batch_work() {
    let ask = |headroom: Option<&str>, tolerance: Option<&str>| Knobs {
        headroom: headroom.map(|text| text.parse().unwrap()),
        tolerance: tolerance.map(|text| text.parse().unwrap()),
        ..batch()
    };
    let present = Facts {
        headroom: knob("30%"),
        ..group(ALICE)
    };
    allowed(&set(ask(Some("30%"), Some("1ms/100ms"))), &present);
    allowed(&set(ask(Some("0%"), None)), &group(ALICE));
    refused(&set(ask(Some("31%"), None)), &present, "(30%)");
    refused(&set(ask(Some("1cpus"), None)), &present, "(30%)");
    refused(&set(ask(Some("1%"), None)), &group(ALICE), "(none)");
    refused(&set(ask(None, Some("0"))), &present, "1ms/100ms");
    refused(&set(ask(None, Some("2ms/100ms"))), &present, "1ms/100ms");
    let generous = Facts {
        tolerance: "10ms/100ms".parse().unwrap(),
        ..present.clone()
    };
    refused(
        &set(ask(Some("30%"), Some("1ms/100ms"))),
        &generous,
        "(10ms/100ms)",
    );
    refused(&set(ask(Some("30%"), None)), &generous, "(10ms/100ms)");
    allowed(&set(ask(Some("30%"), Some("10ms/100ms"))), &generous);
    let laid_down = Facts {
        tolerance_unasked: generous.tolerance,
        ..generous
    };
    allowed(&set(ask(Some("30%"), None)), &laid_down);
    let of_normal = Knobs {
        class: None,
        ..ask(Some("30%"), None)
    };
    refused(&set(of_normal), &present, "class normal");
}
