//! Random actions of the soak test.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use plimsoll_daemon::control::protocol::{Answer, Choice, Request, Set};
use plimsoll_engine::knobs::{Bandwidth, Knobs};

use crate::common::{Looks, binary, wait_until};
use crate::model::{KINDS, knobs};
use crate::rig::{kill_all, members};
use crate::{Run, Soak};

/// Bound of their number at a time.
const RUNS_MAX: usize = 4;

type Action = (&'static str, u64, fn(&mut Soak<'_>));

/// Actions with their relative frequencies.
const ACTIONS: [Action; 15] = [
    ("create or delete a cgroup", 30, |soak| {
        soak.touch_a_cgroup()
    }),
    ("create and delete in a hurry", 6, |soak| soak.hurry()),
    ("reload", 5, |soak| soak.reload()),
    ("bad reload", 3, |soak| soak.reload_badly()),
    ("set", 8, |soak| soak.set()),
    ("reset", 6, |soak| soak.reset()),
    ("run", 4, |soak| soak.begin_run()),
    ("end of run", 4, |soak| soak.end_a_run()),
    ("kill -9", 3, |soak| soak.kill()),
    ("stop and start", 1, |soak| soak.stop()),
    ("disk full", 2, |soak| soak.disk_full()),
    ("garbage clients", 3, |soak| soak.garbage()),
    ("external write", 4, |soak| soak.write_as_a_stranger()),
    ("stand still", 2, |soak| soak.stand_still()),
    ("pause", 8, |soak| {
        let pause = soak.random.ms(0..200);
        thread::sleep(pause);
    }),
];

impl Soak<'_> {
    /// Performs a random action.
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

    fn hurry(&mut self) {
        let Some(index) = self.some_slot(|slot| !slot.is_there) else {
            return;
        };
        let (times, pause) = (self.random.within(1..60), self.random.within(0..3_000));
        let group = self.model.slots[index].group.clone();
        for _ in 0..times {
            group.create().unwrap();
            thread::sleep(Duration::from_micros(pause));
            crate::rig::remove_group(&group);
        }
        let name = self.model.slots[index].name();
        self.tell(format!(
            "create and remove {name} {times} times with {pause} µs between"
        ));
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

    fn reload_badly(&mut self) {
        let good = self.model.text(self.host);
        let bad = *self.random.of::<&str>(&[
            "[[group]]\nname = 7\n",
            "[[group",
            "[[group]]\nname = \"x\"\n",
        ]);
        self.daemon.write(&(good + bad));
        let answer = self.daemon.ask(&Request::Reload);
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
        self.write_config();
        self.tell("bad reload".into());
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

    /// Returns whether a knob was set.
    fn try_set(&mut self) -> bool {
        let Some((target, knobs)) = self.some_target() else {
            return false;
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
                true
            }
            Answer::Refused(line) => {
                let may_be = !self.is_known(&target) || line.contains("No space left");
                assert!(may_be, "{target}: {line}");
                false
            }
            other => panic!("{other:?}"),
        }
    }

    fn set(&mut self) {
        self.try_set();
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

    fn begin_run(&mut self) {
        if self.runs.len() >= RUNS_MAX {
            return;
        }
        self.nr_runs += 1;
        let name = format!("r{}", self.nr_runs);
        let enter = self.disk.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).arg(binary());
        command.args(["run", "--name", &name, "--quota", "40ms/100ms"]);
        command.args(["--", "sh", "-c", "echo runs; exec sleep 100000"]);
        self.host.confine(&mut command);
        let mut running = self.host.spawn(command);
        wait_until("the command of run begins", || {
            assert!(running.is_running(), "run {name}: {}", running.stderr());
            running.stdout().contains("runs")
        });
        self.tell(format!("run {name}"));
        self.runs.push(Run { name, running });
    }

    fn end_a_run(&mut self) {
        if !self.runs.is_empty() {
            let run = self.runs.remove(0);
            self.end_run(run);
        }
    }

    /// The command ends, so the group ends.
    pub fn end_run(&mut self, run: Run) {
        let name = run.name.clone();
        wait_until("its command is in its group", || {
            !members(self.host, &name).is_empty()
        });
        kill_all(&members(self.host, &name));
        let finished = run.running.finish();
        self.tell(format!("end of run {name}: {:?}", finished.status.code()));
        assert_eq!(finished.code(), 128 + 9, "{finished:?}");
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
        let there = self.model.slots.iter().filter(|slot| slot.is_there);
        let problems: Vec<String> = there
            .filter_map(crate::Slot::problem_when_put_back)
            .collect();
        assert!(problems.is_empty(), "after a stop: {}", problems.join("\n"));
        for _ in 0..self.random.within(0..4) {
            self.touch_a_cgroup();
        }
        self.tell("start".into());
        self.daemon.restart();
    }

    fn disk_full(&mut self) {
        self.disk.fill();
        self.tell("the disk is full".into());
        let mut was_set = false;
        for _ in 0..self.random.within(1..8) {
            if self.random.chance(25) {
                was_set |= self.try_set();
            } else {
                self.touch_a_cgroup();
            }
            thread::sleep(self.random.ms(0..100));
        }
        let kill = !was_set && self.random.chance(30);
        if kill {
            self.tell("kill -9 and start while the disk is full".into());
            self.daemon.kill_hard();
            self.daemon.launch();
            thread::sleep(self.random.ms(0..500));
        }
        self.disk.free();
        self.tell("the disk has room".into());
        if kill && !self.daemon.is_running() {
            self.tell("without room it has not started".into());
            self.daemon.launch();
        }
        self.daemon.wait_until_it_answers();
        // From now on it survives a kill.
        wait_until("what was requested is written down", || {
            let problems = self.daemon.state().daemon.problems.join("\n");
            !problems.contains("requested.json")
        });
    }

    fn garbage(&mut self) {
        self.deaf.clear();
        let socket = self.daemon.socket_of_process();
        for _ in 0..self.random.within(1..40) {
            let Ok(mut client) = UnixStream::connect(&socket) else {
                continue;
            };
            client.set_nonblocking(true).unwrap();
            let request = b"{\"version\":1,\"request\":{\"show\":{\"details\":true}}}\n";
            // Whatever becomes of it.
            let _ = match self.random.within(0..4) {
                0 => client.write(&self.random.next().to_le_bytes()),
                1 => client.write(&request[..20]),
                2 => client.write(&vec![b'['; 100_000]),
                _ => client.write(&request.repeat(20)),
            };
            if self.random.chance(50) {
                self.deaf.push(client);
            }
        }
        self.tell(format!("garbage; {} clients stay", self.deaf.len()));
    }

    fn write_as_a_stranger(&mut self) {
        let model = &self.model;
        let is_limited = |slot: &crate::Slot| {
            let is_so = || model.expected(slot).differs_from(&slot.group).is_none();
            slot.is_there && model.is_limit_asked(slot) && is_so()
        };
        let fit: Vec<usize> = (0..model.slots.len())
            .filter(|index| is_limited(&model.slots[*index]))
            .collect();
        if fit.is_empty() {
            return;
        }
        let index = *self.random.of(&fit);
        let slot = &self.model.slots[index];
        let asked = self.model.expected(slot);
        let theirs = Bandwidth::of("77ms/100ms".parse().unwrap(), None);
        slot.group.write_cpu_max(&theirs.into()).unwrap();
        let name = slot.name();
        let mut looks = Looks::begin();
        while let Some(problem) = asked.differs_from(&self.model.slots[index].group) {
            assert!(looks.again(), "an external write stays: {problem}");
        }
        self.tell(format!("external write to {name}, overwritten"));
    }

    fn stand_still(&mut self) {
        let time = self.random.ms(50..2_000);
        self.tell(format!("stand still for {time:?}"));
        self.daemon.send(Signal::SIGSTOP);
        for _ in 0..self.random.within(0..6) {
            self.touch_a_cgroup();
        }
        thread::sleep(time);
        self.daemon.send(Signal::SIGCONT);
    }
}

fn short(answer: &Answer) -> String {
    match answer {
        Answer::Refused(line) => format!("refused: {line}"),
        Answer::Groups { groups, .. } => format!("{} groups", groups.len()),
        other => format!("{other:?}"),
    }
}
