//! Random actions of the soak test.

use std::thread;

use nix::sys::signal::Signal;
use plimsoll_daemon::control::protocol::{Answer, Choice, Request, Set};
use plimsoll_engine::knobs::Knobs;

use crate::Soak;
use crate::common::wait_until;
use crate::model::{KINDS, knobs};

type Action = (&'static str, u64, fn(&mut Soak<'_>));

/// Actions with their relative frequencies.
const ACTIONS: [Action; 7] = [
    ("create or delete a cgroup", 30, |soak| {
        soak.touch_a_cgroup()
    }),
    ("reload", 5, |soak| soak.reload()),
    ("set", 8, |soak| soak.set()),
    ("reset", 6, |soak| soak.reset()),
    ("kill -9", 3, |soak| soak.kill()),
    ("stop and start", 1, |soak| soak.stop()),
    ("pause", 8, |soak| {
        let pause = soak.random.ms(0..200);
        thread::sleep(pause);
    }),
];

impl Soak<'_> {
    pub fn act(&mut self) {
        let total = ACTIONS.iter().map(|(_, weight, _)| weight).sum();
        let mut chosen = self.random.within(0..total);
        let action = ACTIONS.iter().find(|(_, weight, _)| {
            let is_it = chosen < *weight;
            chosen = chosen.saturating_sub(*weight);
            is_it
        });
        let (what, _, act) = action.unwrap();
        *self.counts.entry(what).or_default() += 1;
        act(self);
    }

    fn some_slot(&mut self, holds: impl Fn(&crate::Slot) -> bool) -> Option<usize> {
        let slots = self.model.slots.iter().enumerate();
        let fit: Vec<usize> = slots
            .filter(|(_, slot)| holds(slot))
            .map(|(i, _)| i)
            .collect();
        (!fit.is_empty()).then(|| *self.random.of(&fit))
    }

    fn touch_a_cgroup(&mut self) {
        let Some(index) = self.some_slot(|slot| !slot.is_permanent) else {
            return;
        };
        let slot = &mut self.model.slots[index];
        if slot.is_there {
            self.remove(index);
            return;
        }
        slot.group.create().unwrap();
        slot.is_there = true;
        let name = slot.name();
        self.tell(format!("create {name}"));
    }

    pub fn remove(&mut self, index: usize) {
        let slot = &mut self.model.slots[index];
        crate::rig::remove_group(&slot.group);
        slot.is_there = false;
        let name = slot.name();
        self.tell(format!("remove {name}"));
    }

    fn write_config(&mut self) {
        let text = self.model.text(self.host);
        self.daemon.write(&text);
    }

    /// Changes the groups of the file; omits some.
    fn choose_rules(&mut self) {
        let choices: [(&str, &[&str]); 4] = [
            (
                "quota",
                &[
                    r#"{"quota": "20ms/100ms", "weight": "50"}"#,
                    r#"{"quota": "40ms/100ms"}"#,
                    r#"{"quota": "60ms/50ms", "weight": "300"}"#,
                    r#"{"weight": "70"}"#,
                ],
            ),
            (
                "batch",
                &[
                    r#"{"class": "batch"}"#,
                    r#"{"class": "batch", "quota": "50ms/100ms"}"#,
                ],
            ),
            ("cap", &[r#"{"cap": "25%"}"#, r#"{"cap": "150%"}"#]),
            (
                "main",
                &[r#"{"headroom": "20%"}"#, r#"{"headroom": "50%"}"#],
            ),
        ];
        self.model.rules.clear();
        for (name, variants) in choices {
            if self.random.chance(80) {
                let chosen = knobs(self.random.of::<&str>(variants));
                self.model.rules.insert(name.to_owned(), chosen);
            }
        }
    }

    fn reload(&mut self) {
        self.choose_rules();
        self.write_config();
        let names: Vec<&String> = self.model.rules.keys().collect();
        let text = format!("reload with {names:?}");
        self.tell(text);
        if self.random.chance(50) {
            let answer = self.daemon.ask(&Request::Reload);
            assert!(matches!(answer, Answer::Reloaded { .. }), "{answer:?}");
            return;
        }
        let reloads = self.daemon.state().daemon.counters.reloads;
        self.daemon.send(Signal::SIGHUP);
        wait_until("it is read", || {
            self.daemon.state().daemon.counters.reloads > reloads
        });
    }

    /// A target of `set` with knobs that do not conflict with the file.
    fn some_target(&mut self) -> Option<(String, Knobs)> {
        if self.random.chance(50) {
            let (_, rule) = *self.random.of(&KINDS);
            let knobs = match rule {
                "quota" => knobs(r#"{"quota": "30ms/100ms"}"#),
                "batch" => knobs(r#"{"quota": "55ms/100ms"}"#),
                "cap" => knobs(r#"{"cap": "50%"}"#),
                _ => knobs(r#"{"headroom": "40%"}"#),
            };
            return Some((rule.to_owned(), knobs));
        }
        let index = self.some_slot(|slot| slot.is_there && slot.kind != "c")?;
        let slot = &self.model.slots[index];
        let knobs = match slot.kind.as_str() {
            "q" | "b" => knobs(r#"{"quota": "65ms/100ms"}"#),
            _ => knobs(r#"{"class": "batch"}"#),
        };
        Some((slot.name(), knobs))
    }

    fn is_known(&self, target: &str) -> bool {
        target.starts_with('/') || self.model.rules.contains_key(target)
    }

    fn set(&mut self) {
        let Some((target, knobs)) = self.some_target() else {
            return;
        };
        let request = Request::Set(Box::new(Set {
            target: target.clone(),
            knobs: knobs.clone(),
            choice: Choice::default(),
        }));
        let answer = self.daemon.ask(&request);
        self.tell(format!("set {target}: {}", short(&answer)));
        match answer {
            Answer::Groups { .. } => {
                assert!(self.is_known(&target), "{target} was set and is not there");
                let all = self.model.overrides.entry(target).or_default();
                *all = all.overlaid(&knobs);
            }
            Answer::Refused(line) => assert!(!self.is_known(&target), "{target}: {line}"),
            other => panic!("{other:?}"),
        }
    }

    fn reset(&mut self) {
        let targets: Vec<String> = self.model.overrides.keys().cloned().collect();
        if targets.is_empty() {
            return;
        }
        let target = self.random.of(&targets).clone();
        let slots = &mut self.model.slots.iter();
        let is_there = match target.starts_with('/') {
            true => slots.any(|slot| slot.name() == target && slot.is_there),
            false => self.model.rules.contains_key(&target),
        };
        let answer = self.daemon.ask(&Request::Reset {
            target: target.clone(),
        });
        self.tell(format!("reset {target}: {}", short(&answer)));
        match answer {
            Answer::Groups { .. } => {
                self.model.overrides.remove(&target);
            }
            Answer::Refused(line) => assert!(!is_there, "{target}: {line}"),
            other => panic!("{other:?}"),
        }
    }

    fn kill(&mut self) {
        self.tell("kill -9".into());
        self.daemon.kill_hard();
        while self.random.chance(40) {
            let moment = self.random.ms(0..80);
            self.tell(format!("start, and kill -9 after {moment:?}"));
            self.daemon.launch();
            thread::sleep(moment);
            self.daemon.kill_hard();
        }
        for _ in 0..self.random.within(0..4) {
            self.touch_a_cgroup();
        }
        self.tell("start".into());
        self.daemon.restart();
    }

    fn stop(&mut self) {
        self.tell("stop".into());
        self.daemon.end();
        self.model.assert_put_back();
        for _ in 0..self.random.within(0..4) {
            self.touch_a_cgroup();
        }
        self.tell("start".into());
        self.daemon.restart();
    }
}

fn short(answer: &Answer) -> String {
    match answer {
        Answer::Refused(line) => format!("refused: {line}"),
        Answer::Groups { groups, .. } => format!("{} groups", groups.len()),
        other => format!("{other:?}"),
    }
}
