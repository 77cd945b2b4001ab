//! Tests of whole screens, as text.

use std::time::Duration;

use plimsoll_daemon::state::GroupState;
use plimsoll_engine::sample::{HeadroomSample, TaskRate, TaskRates};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

use super::*;
use crate::top::columns::Column;
use crate::top::plain;
use crate::top::source;
use crate::top::testing;

fn model() -> Model {
    let group = |name: &str, knobs: &str, used: u64| GroupState {
        knobs: serde_json::from_str(knobs).unwrap(),
        ..testing::group(name, used)
    };
    let groups = |scale: u64| {
        let mut broken = group("broken", r#"{"class": "batch"}"#, 0);
        broken.statistics = None;
        broken.problem = Some("no such cgroup".into());
        let encode = r#"{"class": "batch", "headroom": "30%", "nice": "10"}"#;
        [
            group(
                "/system.slice/web.service",
                r#"{"headroom": "30%"}"#,
                600 * scale,
            ),
            broken,
            group("encode", encode, 800 * scale),
            group("tenant", r#"{"quota": "2cpus", "burst": "100ms"}"#, 0),
        ]
    };
    let mut model = Model::new(Duration::from_secs(1), Column::Cpu);
    let mut state = testing::state(&groups(0));
    let asked = source::SourceKind::Daemon;
    model.take(source::Update {
        asked,
        state: state.clone(),
    });
    state.groups = groups(1_000).to_vec();
    state.machine.at_usec += 1_000_000;
    state.machine.busy_usec += 1_400_000;
    state.machine.batch_usec += 800_000;
    state.headroom = Some(HeadroomSample {
        headroom_ppm: 300_000,
        allowance_ppm: 400_000,
        side_ppm: 399_000,
        nonside_ppm: 300_000,
        headroom_shortfall_usec: 1_234_567,
        ..HeadroomSample::default()
    });
    let tenant = state.groups[3].statistics.as_mut().unwrap();
    tenant.quota.as_mut().unwrap().nr_periods = 10;
    tenant.quota.as_mut().unwrap().nr_throttled = 3;
    model.take(source::Update { asked, state });
    model
}

fn screen(model: &mut Model, width: u16, height: u16) -> Vec<String> {
    let look = Look::of(|name| (name != "NO_COLOR").then(|| "C.UTF-8".into()));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, &look, frame)).unwrap();
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(width.into()).map(|line| {
        let text: String = line.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    });
    lines.collect()
}

#[track_caller]
fn assert_lines(actual: &[String], expected: &str) {
    let actual = actual.join("\n");
    assert_eq!(actual, expected.trim_start_matches('\n'), "\n{actual}\n");
}

#[test]
fn the_table_on_80_by_24() {
    assert_lines(
        &screen(&mut model(), 80, 24),
        r"
plimsoll top - 4 groups, 2 CPUs, daemon up 3h12m
████████████████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒┃·······················
█ normal 30.0%  ▒ batch 40.0%  · idle 30.0%  ┃ batch work stops at 70.0%
headroom 30%: batch work 39.9% of 40.0% allowed; short by 1.234 s so far
! broken: no such cgroup
  GROUP               CLASS    CPU%▾   THR%  BURST%   WAIT%   PROCS KNOBS
> encode              batch     80.0    0.0     0.0     0.0       1 nice=10 hea…
  ….slice/web.service normal    60.0    0.0     0.0     0.0       1 headroom=30%
  tenant              normal     0.0   30.0     0.0     0.0       1 quota=200ms…
 !broken              batch        -      -       -       -       -













q quit  ? keys  Enter details  < > sort  r reverse  / filter  p pause",
    );
}

#[test]
fn the_table_on_40_by_10() {
    assert_lines(
        &screen(&mut model(), 40, 10),
        r"
plimsoll top - 4 groups, 2 CPUs, daemon
████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒┃···········
█ 30.0% ▒ 40.0% · 30.0% ┃ 70.0%
! broken: no such cgroup
  GROUP            CLASS    CPU%▾   THR%
> encode           batch     80.0    0.0
  …ice/web.service normal    60.0    0.0
  tenant           normal     0.0   30.0
 !broken           batch        -      -
q quit  ? keys  Enter details  < > sort",
    );
}

#[test]
fn the_table_of_once() {
    let mut model = model();
    model.press(KeyCode::Char('t'));
    let text = plain::text(&mut model);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let expected = [
        "2 CPUs: normal 30.0%, batch 40.0%, idle 30.0%",
        "headroom 30%: batch work 39.9% of 40.0% allowed; short by 1.234 s so far; \
         batch work stops at 70.0% of all CPUs",
        "",
    ];
    assert_eq!(lines[..3], expected);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(lines[4]),
        "tenant normal 0.0 30.0 0.0 0.0 1 quota=200ms/100ms burst=100ms"
    );
    assert!(lines[7].ends_with("PROBLEM: no such cgroup"), "{text}");
    assert_eq!(lines.len(), 8, "{text}");
}

/// Gives the group under the cursor a plan and a task.
fn answer_with_details(model: &mut Model) {
    let index = model.selected().unwrap();
    let mut details = model.state.groups[index].clone();
    let plan = r#"[{"group": "tenant", "knob": "quota", "value": "2cpus", "mechanism": "cpu.cfs_quota_us", "fidelity": "exact"}]"#;
    details.plan = serde_json::from_str(plan).unwrap();
    details.subject = format!("a text up to the end{}", ".".repeat(48));
    let task = TaskRate {
        tid: 4711,
        command: "burn".into(),
        rate_ppm: 250_000,
        background: false,
    };
    let sample = details.statistics.as_mut().unwrap();
    sample.task_rates = Some(TaskRates::new(vec![task], 1));
    model.details = Some(details);
}

#[test]
fn details_on_80_by_24() {
    let mut model = model();
    model.press(KeyCode::Char('t'));
    model.press(KeyCode::Enter);
    assert_eq!(model.wanted_details.as_deref(), Some("tenant"));
    answer_with_details(&mut model);
    assert_lines(
        &screen(&mut model, 80, 24),
        r"
plimsoll top - 4 groups, 2 CPUs, daemon up 3h12m
████████████████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒┃·······················
█ normal 30.0%  ▒ batch 40.0%  · idle 30.0%  ┃ batch work stops at 70.0%
headroom 30%: batch work 39.9% of 40.0% allowed; short by 1.234 s so far
! broken: no such cgroup
tenant - last 1 s
CPU            0.0%
throttled     30.0%                                                            ▂
waiting        0.0%
group       tenant
origin      file
cgroup      /tests/tenant
runs        a text up to the end................................................
knobs       quota=200ms/100ms burst=100ms
cpu time    0.000 s
processes   1
quota       throttled in 3 of 10 periods, for 0.000 s
scheduled   ran 0.000 s, waited 0.000 s; 0 switches, 0 preempted, 0 overdue

TASK  COMMAND  RATE  TIER
4711  burn     25%   -

KNOB   VALUE  ENFORCED BY       LOSS
q quit  ? keys  Esc back  up/down scroll  p pause",
    );
    model.press(KeyCode::End);
    let end = screen(&mut model, 80, 24);
    assert_eq!(end[21], "KNOB   VALUE  ENFORCED BY       LOSS");
    assert_eq!(end[22], "quota  2cpus  cpu.cfs_quota_us  none");
}

#[test]
fn help_on_40_by_10() {
    let mut model = model();
    model.press(KeyCode::Char('?'));
    assert_lines(
        &screen(&mut model, 40, 10),
        r"
plimsoll top - 4 groups, 2 CPUs, daemon
████████████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒┃···········
█ 30.0% ▒ 40.0% · 30.0% ┃ 70.0%
keys
up, down, j, k  move the cursor
PgUp, PgDn      by a page
Home, End       to the first, last row
Enter           details of the group; ba
<, >            sort by the column to th
q quit  Esc back  up/down scroll",
    );
}

#[test]
fn foot_shows_the_filter_and_problems() {
    let mut model = model();
    for key in "/serv".chars() {
        model.press(KeyCode::Char(key));
    }
    let typing = screen(&mut model, 80, 24);
    assert_eq!(typing[23], "filter: serv_  Enter keeps, Esc clears");
    model.press(KeyCode::Enter);
    let kept = screen(&mut model, 80, 24);
    assert_eq!(
        kept[23],
        "filter: serv (1 shown, Esc clears)  q quit  ? keys  Enter details  < > sort"
    );
    model.fail("control.sock: Connection refused".into());
    let failed = screen(&mut model, 80, 24);
    assert_eq!(
        failed[23],
        "no answer; retrying (control.sock: Connection refused)"
    );
    assert!(failed[1].contains('┃'), "the last state stays: {failed:?}");
    model.press(KeyCode::Char('p'));
    assert!(screen(&mut model, 40, 10)[0].ends_with(" PAUSED"));
}

#[test]
fn screens_below_40_by_10_show_the_minimum_size() {
    for (width, height) in [(39, 10), (40, 9), (1, 1), (20, 3)] {
        let lines = screen(&mut model(), width, height);
        let expected: String = "needs 40 x 10".chars().take(width.into()).collect();
        assert_eq!(lines[0], expected.trim_end(), "{width} x {height}");
        assert!(lines[1..].iter().all(String::is_empty));
    }
}

#[test]
fn every_size_from_the_minimum_on_is_drawn_without_a_panic() {
    let mut model = model();
    for screen_of in ["", "?", "?\r"] {
        for key in screen_of.chars() {
            let key = match key {
                '\r' => KeyCode::Enter,
                letter => KeyCode::Char(letter),
            };
            model.press(key);
        }
        answer_with_details(&mut model);
        for width in (40..=130).chain([300]) {
            for height in 10..=30 {
                let lines = screen(&mut model, width, height);
                assert!(lines[0].starts_with("plimsoll top"), "{lines:?}");
            }
        }
    }
    assert_eq!(model.screen, crate::top::model::Screen::Details);
}
