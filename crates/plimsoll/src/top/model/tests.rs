//! Tests of keys and updates.

use super::*;
use crate::top::testing::{group, state};

fn update(at_seconds: u64, groups: &[GroupState]) -> Update {
    let mut state = state(groups);
    state.machine.at_usec += at_seconds * 1_000_000;
    let asked = SourceKind::Daemon;
    Update { asked, state }
}

/// Groups a, b, c and d that use 10, 30, 20 and 0 % of a CPU.
fn four() -> Model {
    let mut model = Model::new(Duration::from_secs(1), Column::Cpu);
    let names = ["a", "b", "c", "d"];
    let used = [100_000, 300_000, 200_000, 0];
    let before: Vec<GroupState> = names.iter().map(|name| group(name, 0)).collect();
    let after: Vec<GroupState> = names.iter().zip(used).map(|(n, u)| group(n, u)).collect();
    model.take(update(0, &before));
    model.take(update(1, &after));
    model
}

fn shown(model: &mut Model, fitting: usize) -> String {
    let rows = model.page(fitting);
    let name = |(index, cursor): &(usize, bool)| {
        let name = &model.state.groups[*index].name;
        if *cursor {
            name.to_uppercase()
        } else {
            name.clone()
        }
    };
    rows.iter().map(name).collect::<Vec<_>>().join("")
}

fn press(model: &mut Model, keys: &str) {
    for key in keys.chars() {
        model.press(KeyCode::Char(key));
    }
}

#[test]
fn groups_are_sorted_by_any_column() {
    let mut model = four();
    assert_eq!(shown(&mut model, 9), "Bcad");
    press(&mut model, "r");
    assert_eq!(shown(&mut model, 9), "Dacb");
    press(&mut model, "rg");
    assert_eq!(shown(&mut model, 9), "Abcd");
    press(&mut model, ">>");
    assert_eq!(
        (model.sort, shown(&mut model, 9)),
        (Column::Cpu, "Bcad".into())
    );
    press(&mut model, "<");
    assert_eq!(
        (model.sort, shown(&mut model, 9)),
        (Column::Class, "Abcd".into())
    );
}

#[test]
fn cursor_stays_on_the_first_row_until_moved_and_then_on_its_group() {
    let mut model = four();
    press(&mut model, "g");
    assert_eq!(shown(&mut model, 9), "Abcd");
    press(&mut model, "c");
    assert_eq!(shown(&mut model, 9), "Bcad");
    model.press(KeyCode::Down);
    press(&mut model, "g");
    assert_eq!(shown(&mut model, 9), "abCd");
    // Its group no longer exists.
    model.take(update(2, &[group("a", 0), group("b", 0)]));
    assert_eq!(shown(&mut model, 9), "Ab");
    model.take(update(3, &[]));
    assert_eq!(
        (shown(&mut model, 9).as_str(), model.selected()),
        ("", None)
    );
    model.press(KeyCode::Enter);
    assert_eq!(model.screen, Screen::Table);
}

#[test]
fn pages_follow_the_cursor() {
    let mut model = four();
    assert_eq!(shown(&mut model, 2), "Bc");
    model.press(KeyCode::Down);
    assert_eq!(shown(&mut model, 2), "bC");
    model.press(KeyCode::Down);
    assert_eq!(shown(&mut model, 2), "cA");
    model.press(KeyCode::Up);
    assert_eq!(shown(&mut model, 2), "Ca");
    model.press(KeyCode::End);
    assert_eq!(shown(&mut model, 2), "aD");
    model.press(KeyCode::PageUp);
    assert_eq!(shown(&mut model, 2), "Ca");
    // A larger screen shows earlier groups instead of empty rows at the end.
    assert_eq!(shown(&mut model, 4), "bCad");
    model.press(KeyCode::Home);
    assert_eq!(shown(&mut model, 3), "Bca");
    assert_eq!(shown(&mut model, 0), "");
}

#[test]
fn a_filter_holds_while_it_is_typed_and_until_escape() {
    let mut model = four();
    press(&mut model, "/");
    press(&mut model, "Q");
    assert_eq!(
        (shown(&mut model, 9).as_str(), model.screen),
        ("", Screen::Table)
    );
    model.press(KeyCode::Backspace);
    press(&mut model, "B");
    model.press(KeyCode::Enter);
    assert_eq!(
        (shown(&mut model, 9).as_str(), model.is_typing),
        ("B", false)
    );
    model.press(KeyCode::Esc);
    assert_eq!(shown(&mut model, 9), "Bcad");
}

#[test]
fn details_are_of_the_group_under_the_cursor() {
    let mut model = four();
    model.press(KeyCode::Enter);
    assert_eq!(model.screen, Screen::Details);
    assert_eq!(model.wanted_details.take().as_deref(), Some("b"));
    // Another group is first now.
    let again = [group("a", 900_000), group("b", 300_000)];
    model.take(update(2, &again));
    assert_eq!(model.wanted_details.take().as_deref(), Some("b"));
    press(&mut model, "p");
    model.take(update(3, &again));
    assert_eq!(model.wanted_details, None, "a pause holds details, too");
    model.press(KeyCode::Esc);
    assert_eq!((model.screen, model.of_details()), (Screen::Table, None));
    assert!(!model.has_quit);
    model.press(KeyCode::Char('q'));
    assert!(model.has_quit);
}

#[test]
fn pause_stops_updates_and_the_next_answer_clears_problems() {
    let mut model = four();
    press(&mut model, "p");
    model.take(update(2, &[]));
    model.fail("lost".into());
    assert_eq!((model.nr_rows(), model.problem.as_ref()), (4, None));
    press(&mut model, "p");
    model.fail("lost".into());
    assert_eq!(model.problem.as_deref(), Some("lost"));
    assert_eq!(model.nr_rows(), 4, "the last state stays");
    model.take(update(2, &[]));
    assert_eq!((model.nr_rows(), model.problem.as_ref()), (0, None));
}

#[test]
fn repeated_state_is_not_a_new_interval() {
    let mut model = four();
    let rates = model.rates.clone();
    let again = Update {
        asked: SourceKind::Daemon,
        state: model.state.clone(),
    };
    model.take(again);
    assert_eq!(model.rates, rates);
    assert_eq!(model.history.of("a").len(), 1);
}

#[test]
fn details_do_not_switch_to_another_group() {
    let mut model = four();
    model.press(KeyCode::Down);
    model.press(KeyCode::Enter);
    assert_eq!(model.of_details().as_deref(), Some("c"));
    let without: Vec<GroupState> = ["a", "b", "d"].iter().map(|name| group(name, 9)).collect();
    model.take(update(2, &without));
    assert_eq!((model.of_details(), model.selected()), (None, None));
    // It may come back, for instance after a restart of the daemon.
    let again: Vec<GroupState> = ["a", "b", "c"].iter().map(|name| group(name, 9)).collect();
    model.take(update(3, &again));
    assert_eq!(model.of_details().as_deref(), Some("c"));
    model.take(update(4, &without));
    model.press(KeyCode::Esc);
    assert_eq!(model.selected(), model.rows.first().copied());
    assert!(model.selected().is_some());
}
