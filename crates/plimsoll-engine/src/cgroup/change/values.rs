//! Writes of a change to the idle mark, the weight and the quota.

use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{CpuMax, WEIGHT_DEFAULT, read_text};
use plimsoll_policy::order::GROUP_WEIGHT_MIN as WEIGHT_BACKGROUND;

use super::{Change, Step};
use crate::cgroup::bandwidth::least_max;
use crate::cgroup::wanted::{Limit, Wanted};
use crate::error::{EngineError, Result};
use crate::journal::FileRestore;

impl Change {
    /// Returns the text that a file had before any change of ours.
    fn old(&self, path: &Path) -> Result<String> {
        match self.known.get(path) {
            Some(file) => Ok(file.old.clone()),
            None => Ok(read_text(path)?),
        }
    }

    /// Adds a write to a file that holds `before` now.
    fn step(&mut self, path: &Path, text: &str, before: &str) {
        let back = vec![(path.to_owned(), before.to_owned())];
        self.push_step(path, text, back);
    }

    fn push_step(&mut self, path: &Path, text: &str, back: Vec<(PathBuf, String)>) {
        self.steps.push(Step::Write {
            path: path.to_owned(),
            text: text.to_owned(),
            back,
        });
    }

    /// Sets or clears the idle mark. The way back from a mark also writes the weight, which the
    /// kernel forgets.
    fn step_idle(&mut self, mark: &Path, idle: bool) -> Result<()> {
        if !idle {
            self.step(mark, "0", "1");
            return Ok(());
        }
        let (weight, _) = self.group.weight_setting(WEIGHT_DEFAULT);
        let before = read_text(&weight)?;
        let back = vec![(mark.to_owned(), "0".to_owned()), (weight, before)];
        self.push_step(mark, "1", back);
        Ok(())
    }

    /// Records that a file will hold `new`, and keep it; `None`: that a loop will write it.
    fn keep(&mut self, path: &Path, old: &str, new: Option<&str>) {
        let old = self.known.get(path).map_or(old, |file| &file.old);
        let file = FileRestore::new(path, old, new);
        self.files.push(file);
    }

    /// Returns whether somebody else has written a file since we did. The old value does not count
    /// as theirs: an owner that died half-way may have put it back.
    fn is_theirs(&self, path: &Path) -> bool {
        self.known.get(path).is_some_and(|file| {
            let is_another = |now: String| now != file.old && !file.ours.contains(&now);
            !file.is_driven() && read_text(path).is_ok_and(is_another)
        })
    }

    /// Sets the idle mark and the weight. The kernel forgets the weight of a cgroup that is marked
    /// idle, and gives it the default when the mark is cleared.
    pub(super) fn weigh(&mut self, wanted: &Wanted) -> Result<()> {
        let (weight, driven) = (wanted.weight, wanted.has_soft_cap);
        let is_asked = wanted.idle.is_some() || weight.is_some() || driven;
        if !is_asked && !self.knows_weight() {
            return Ok(());
        }
        if !self.group.has_idle() {
            let background = (wanted.idle == Some(true)).then_some(WEIGHT_BACKGROUND);
            return self.weigh_alone(background.or(weight), driven, false);
        }
        let mark = self.group.cpu_file("cpu.idle");
        let is_idle = self.group.read_idle()?;
        let old = self.old(&mark)?;
        if driven {
            self.keep(&mark, &old, None);
            return self.weigh_alone(weight, true, is_idle);
        }
        let known = self.known.get(&mark).is_some();
        let idle = match wanted.idle {
            Some(idle) => idle,
            None if known && !self.is_theirs(&mark) => old == "1",
            // The mark is newer than the weight, and another program has set it.
            None if weight.is_some() && self.knows_weight() => false,
            None => is_idle,
        };
        if let (true, Some(weight)) = (idle, weight) {
            return Err(no_weight(weight));
        }
        let text = if idle { "1" } else { "0" };
        if wanted.idle.is_some() || (idle != is_idle && !known) {
            self.keep(&mark, &old, Some(text));
        }
        if idle {
            self.remember_weight(is_idle)?;
        }
        if idle != is_idle {
            self.step_idle(&mark, idle)?;
        }
        if idle {
            return Ok(());
        }
        self.weigh_alone(weight, false, is_idle)
    }

    /// Returns whether Plimsoll has written the idle mark or the weight.
    fn knows_weight(&self) -> bool {
        let is_weight = |name| matches!(name, "cpu.idle" | "cpu.weight" | "cpu.shares");
        self.known.files.iter().map(name_of).any(is_weight)
    }

    /// Records the weight of a cgroup that is marked idle: the kernel forgets it, and it has to be
    /// put back when the mark is cleared.
    fn remember_weight(&mut self, is_idle: bool) -> Result<()> {
        let (path, default) = self.group.weight_setting(WEIGHT_DEFAULT);
        if is_idle && self.known.get(&path).is_none() {
            return Ok(());
        }
        let old = self.old(&path)?;
        if old != default || self.known.get(&path).is_some() {
            self.keep(&path, &old, Some(&default));
        }
        Ok(())
    }

    /// Sets the weight of a cgroup that is not idle. `was_idle`: the cgroup is idle until this
    /// change.
    fn weigh_alone(&mut self, wanted: Option<u32>, driven: bool, was_idle: bool) -> Result<()> {
        let (path, default) = self.group.weight_setting(WEIGHT_DEFAULT);
        let known = self.known.get(&path);
        let now = if was_idle { default } else { read_text(&path)? };
        let old = known.map_or_else(|| now.clone(), |file| file.old.clone());
        if driven {
            self.keep(&path, &old, None);
            return Ok(());
        }
        let text = match wanted {
            Some(weight) => self.group.weight_setting(weight).1,
            // Puts the weight back, unless somebody else has set it since.
            None if known.is_some() && (was_idle || !self.is_theirs(&path)) => old.clone(),
            None => return Ok(()),
        };
        if wanted.is_some() {
            self.keep(&path, &old, Some(&text));
        }
        if text != now {
            self.step(&path, &text, &now);
        }
        Ok(())
    }

    /// Sets the quota: a fixed limit, or one that the headroom controller writes.
    pub(super) fn limit(&mut self, limit: Limit) -> Result<()> {
        if limit == Limit::None && !self.knows_bandwidth() {
            return Ok(());
        }
        let now = self.group.read_cpu_max()?;
        let found = self.first_bandwidth(&now);
        let (quota_file, _) = self.group.quota_setting(&now);
        let has_headroom = limit == Limit::Headroom;
        let wanted = if has_headroom {
            let known = self.known.get(&quota_file);
            let is_driven = known.is_some_and(FileRestore::is_driven);
            let mut least = least_max();
            if is_driven && now.quota_usec.is_some() {
                // The loop's last quota stands until the loop writes the next.
                least.quota_usec = now.quota_usec;
            }
            Some(least)
        } else {
            limit.bandwidth(&found)
        };
        let Some(wanted) = wanted else {
            self.unlimit(&now, &found);
            return Ok(());
        };
        let old = self.group.cpu_max_settings(&found);
        for ((path, old), (_, new)) in old.into_iter().zip(self.group.cpu_max_settings(&wanted)) {
            let is_driven = has_headroom && path == quota_file;
            self.keep(&path, &old, (!is_driven).then_some(&*new));
        }
        self.bandwidth_steps(&now, &wanted);
        Ok(())
    }

    /// Returns the bandwidth before any change of ours; `now`: the present one.
    fn first_bandwidth(&self, now: &CpuMax) -> CpuMax {
        let mut first = *now;
        for file in self.with_first_values() {
            first.take_text(name_of(file), &file.old);
        }
        first
    }

    fn knows_bandwidth(&self) -> bool {
        let mut any = CpuMax::unlimited();
        let mut files = self.with_first_values();
        files.any(|file| any.take_text(name_of(file), &file.old))
    }

    /// Lists the files that are put back.
    fn with_first_values(&self) -> impl Iterator<Item = &FileRestore> {
        let files = self.known.files.iter();
        files.filter(|file| !file.old.is_empty())
    }

    /// Puts the original quota back, unless somebody else has written another.
    fn unlimit(&mut self, now: &CpuMax, found: &CpuMax) {
        let settings = self.group.cpu_max_settings(found);
        if !settings.iter().any(|(path, _)| self.is_theirs(path)) {
            self.bandwidth_steps(now, found);
        }
    }

    fn bandwidth_steps(&mut self, now: &CpuMax, wanted: &CpuMax) {
        // Writing a quota refills it, so a value that is there already is not written.
        let mut there = self.group.cpu_max_settings(now);
        for (path, text) in self.group.cpu_max_steps(now, wanted) {
            let present = there.iter_mut().find(|(file, _)| *file == path);
            // Each step writes to one of the files.
            let Some((_, present)) = present.filter(|(_, present)| *present != text) else {
                continue;
            };
            let before = std::mem::replace(present, text.clone());
            self.step(&path, &text, &before);
        }
    }
}

fn name_of(file: &FileRestore) -> &str {
    let name = file.path.file_name().unwrap_or_default();
    name.to_str().unwrap_or_default()
}

fn no_weight(weight: u32) -> EngineError {
    EngineError::NotEnforceable {
        knob: "weight",
        value: weight.to_string(),
        reason: "an idle cgroup has no weight".into(),
    }
}
