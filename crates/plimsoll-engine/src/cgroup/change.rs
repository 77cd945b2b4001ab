//! Writes to the kernel files of a cgroup that give it the wanted values, and their order.

use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{CpuGroup, CpuMax, WEIGHT_DEFAULT, read_text};
use plimsoll_policy::order::GROUP_WEIGHT_MIN as WEIGHT_BACKGROUND;

use super::bandwidth::least_max;
use super::wanted::{Limit, Wanted};
use crate::error::{EngineError, Result};
use crate::journal::{Entry, FileRestore, Held};

/// Writes that take a cgroup from its present values to the wanted ones.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// Journal entries to be on disk before the first step.
    pub entries: Vec<Entry>,
    /// Writes in an order in which the kernel takes them.
    steps: Vec<Step>,
    /// Journal entries to be written after the last step.
    pub afterwards: Vec<Entry>,
    /// Files that hold wanted values after the change.
    pub files: Vec<PathBuf>,
}

#[derive(Debug)]
struct Step {
    path: PathBuf,
    text: String,
    /// Writes that lead back to the state before the step.
    back: Vec<(PathBuf, String)>,
}

impl Change {
    /// Finds the writes after which a cgroup has the wanted values. `known`: the files that Plimsoll
    /// has written so far.
    pub fn plan(group: &CpuGroup, known: &Held, wanted: &Wanted) -> Result<Self> {
        let mut planner = Planner {
            group,
            known,
            change: Self::default(),
        };
        planner.weigh(wanted)?;
        planner.limit(wanted.limit)?;
        Ok(planner.finish())
    }

    /// Finds the writes as [`Self::plan`] does, for a cgroup of our own, whose quota the headroom
    /// controller may write. None of its values is put back.
    pub fn plan_own(group: &CpuGroup, wanted: &Wanted) -> Result<Self> {
        let (path, _) = group.quota_setting(&CpuMax::unlimited());
        Self::plan(group, &Held::with_driven(path), wanted)
    }

    /// Writes the files. When the kernel refuses one, the writes before it are taken back.
    pub fn execute(&self, group: &CpuGroup) -> Result<()> {
        for (index, step) in self.steps.iter().enumerate() {
            if let Err(error) = group.write_file(&step.path, &step.text) {
                go_back(group, &self.steps[..index]);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Lists the files to be written, with their present texts.
    pub fn differences(&self) -> Vec<(&Path, &str)> {
        let mut found: Vec<(&Path, &str)> = Vec::new();
        for step in &self.steps {
            // The first of several writes to a file has the present text.
            if found.iter().all(|(path, _)| *path != step.path)
                && let Some((_, before)) = step.back.iter().find(|(path, _)| *path == step.path)
            {
                found.push((&step.path, before));
            }
        }
        found
    }

    /// Writes the values back that were there before the first step.
    pub fn revert(&self, group: &CpuGroup) {
        go_back(group, &self.steps);
    }
}

/// Takes steps back, the last first: the kernel has accepted the states in between on the way
/// there.
fn go_back(group: &CpuGroup, steps: &[Step]) {
    for (path, text) in steps.iter().rev().flat_map(|step| &step.back) {
        // A refused write stays for the next attempt.
        let _ = group.write_file(path, text);
    }
}

struct Planner<'a> {
    group: &'a CpuGroup,
    known: &'a Held,
    change: Change,
}

impl Planner<'_> {
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
        self.change.steps.push(Step {
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

    /// Records that a file will hold `new`, and keep it.
    fn keep(&mut self, path: &Path, old: &str, new: &str) {
        let known = self.known.get(path);
        let write = Entry::Write {
            path: path.to_owned(),
            old: old.into(),
            new: new.into(),
        };
        if known.is_some_and(|file| file.driven) {
            // From now on a foreign value can be told from ours again.
            self.change.afterwards.push(Entry::released(path));
            self.change.afterwards.push(write);
        } else if known.is_none_or(|file| file.ours.last().is_none_or(|ours| ours != new)) {
            self.change.entries.push(write);
        }
        self.change.files.push(path.to_owned());
    }

    /// Records that a loop will write a file.
    fn keep_driven(&mut self, path: &Path, old: &str) {
        if !self.known.get(path).is_some_and(|file| file.driven) {
            self.change.entries.push(Entry::Control {
                path: path.to_owned(),
                old: old.into(),
            });
        }
        self.change.files.push(path.to_owned());
    }

    /// Returns whether somebody else has written a file since we did. The old value does not count
    /// as theirs: an owner that died half-way may have put it back.
    fn is_theirs(&self, path: &Path) -> bool {
        self.known.get(path).is_some_and(|file| {
            let is_another = |now: String| now != file.old && !file.ours.contains(&now);
            !file.driven && read_text(path).is_ok_and(is_another)
        })
    }

    /// Sets the idle mark and the weight. The kernel forgets the weight of a cgroup that is marked
    /// idle, and gives it the default when the mark is cleared.
    fn weigh(&mut self, wanted: &Wanted) -> Result<()> {
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
            self.keep_driven(&mark, &old);
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
            self.keep(&mark, &old, text);
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
            self.keep(&path, &old, &default);
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
            self.keep_driven(&path, &old);
            return Ok(());
        }
        let text = match wanted {
            Some(weight) => self.group.weight_setting(weight).1,
            // Puts the weight back, unless somebody else has set it since.
            None if known.is_some() && (was_idle || !self.is_theirs(&path)) => old.clone(),
            None => return Ok(()),
        };
        if wanted.is_some() {
            self.keep(&path, &old, &text);
        }
        if text != now {
            self.step(&path, &text, &now);
        }
        Ok(())
    }

    /// Sets the quota: a fixed limit, or one that the headroom controller writes.
    fn limit(&mut self, limit: Limit) -> Result<()> {
        if limit == Limit::None && !self.knows_bandwidth() {
            return Ok(());
        }
        let now = self.group.read_cpu_max()?;
        let found = self.first_bandwidth(&now);
        let (quota_file, _) = self.group.quota_setting(&now);
        let has_headroom = limit == Limit::Headroom;
        let wanted = if has_headroom {
            let known = self.known.get(&quota_file);
            let is_driven = known.is_some_and(|file| file.driven);
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
            match has_headroom && path == quota_file {
                true => self.keep_driven(&path, &old),
                false => self.keep(&path, &old, &new),
            }
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

    fn finish(self) -> Change {
        let mut change = self.change;
        for file in &self.known.files {
            if !change.files.contains(&file.path) {
                change.afterwards.push(Entry::released(&file.path));
            }
        }
        change
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::cgroup::audit::external_changes;
    use crate::journal::Restores;
    use crate::knobs::Knobs;
    use plimsoll_cgroupfs::{Hierarchy, Version};

    /// Creates a folder in the shape of a v1 cgroup. No kernel is behind it, so a test can only
    /// look at what is planned.
    fn cgroup(folder: &tempfile::TempDir, values: &[(&str, &str)]) -> CpuGroup {
        let group = CpuGroup::at(
            &Arc::new(Hierarchy::at_folder(folder.path(), Version::V1)),
            "g",
        );
        fs::create_dir(group.cpu_file("")).unwrap();
        let found = [
            ("cpu.idle", "0"),
            ("cpu.shares", "512"),
            ("cpu.cfs_quota_us", "70000"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_burst_us", "30000"),
        ];
        for (name, text) in found.iter().chain(values) {
            fs::write(group.cpu_file(name), text).unwrap();
        }
        group
    }

    fn wanted(json: &str) -> Wanted {
        let knobs: Knobs = serde_json::from_str(json).unwrap();
        // In the tests here only a group that yields has the knob `headroom`.
        Wanted::on_one_cgroup(&knobs, knobs.headroom.is_some())
    }

    fn plan(group: &CpuGroup, known: &Held, json: &str) -> Change {
        Change::plan(group, known, &wanted(json)).unwrap()
    }

    /// Returns the files that are known after a change.
    fn after(group: &CpuGroup, known: &[&Change]) -> Held {
        let folder = group.cpu_file("x").parent().unwrap().to_owned();
        let hold = Entry::Hold {
            folder: folder.clone(),
            inode: 1,
        };
        let entries = known
            .iter()
            .flat_map(|change| [&change.entries[..], &change.afterwards].concat());
        let mut restores = Restores::of([hold].into_iter().chain(entries));
        restores.held.remove(&folder).unwrap()
    }

    fn audit(group: &CpuGroup, known: &Held, json: &str) -> Vec<String> {
        external_changes(group, Change::plan(group, known, &wanted(json))).unwrap()
    }

    fn steps(change: &Change) -> Vec<(&str, &str)> {
        let steps = change.steps.iter().map(|step| {
            let name = step.path.file_name().unwrap().to_str().unwrap();
            (name, step.text.as_str())
        });
        steps.collect()
    }

    #[test]
    fn nothing_is_written_that_is_there_already() {
        let folder = tempfile::tempdir().unwrap();
        let group = cgroup(&folder, &[]);
        let json = r#"{"class": "normal", "weight": "50", "quota": "70ms/100ms", "burst": "30ms"}"#;
        let change = plan(&group, &Held::default(), json);
        assert!(steps(&change).is_empty());
        // The files are recorded nevertheless: these are the values to put back.
        let known = after(&group, &[&change]);
        assert_eq!(known.files.len(), 5);
        fs::write(group.cpu_file("cpu.shares"), "2").unwrap();
        let changed = "/g: cpu.shares was changed to `2`";
        assert_eq!(audit(&group, &known, json), [changed]);
        let again = plan(&group, &known, json);
        assert_eq!(steps(&again), [("cpu.shares", "512")]);
        assert!(again.entries.is_empty());
    }

    #[test]
    fn the_weight_goes_with_the_idle_mark_and_comes_back_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let group = cgroup(&folder, &[]);
        let batch = plan(&group, &Held::default(), r#"{"class": "batch"}"#);
        assert_eq!(steps(&batch), [("cpu.idle", "1")]);
        // Both are in the journal.
        assert_eq!(batch.entries.len(), 2);
        fs::write(group.cpu_file("cpu.idle"), "1").unwrap();
        fs::write(group.cpu_file("cpu.shares"), "3").unwrap();
        let known = after(&group, &[&batch]);
        assert!(audit(&group, &known, r#"{"class": "batch"}"#).is_empty());
        let none = plan(&group, &known, "{}");
        assert_eq!(steps(&none), [("cpu.idle", "0"), ("cpu.shares", "512")]);
        assert!(after(&group, &[&batch, &none]).files.is_empty());
        let heavy = plan(&group, &known, r#"{"weight": "300"}"#);
        assert_eq!(steps(&heavy), [("cpu.idle", "0"), ("cpu.shares", "3072")]);
        assert_eq!(after(&group, &[&batch, &heavy]).files[0].old, "512");
    }

    #[test]
    fn a_weight_is_set_again_after_somebody_has_marked_the_cgroup_idle() {
        let folder = tempfile::tempdir().unwrap();
        let group = cgroup(&folder, &[]);
        let json = r#"{"weight": "50"}"#;
        // The weight is its own already.
        let first = plan(&group, &Held::default(), json);
        let known = after(&group, &[&first]);
        fs::write(group.cpu_file("cpu.idle"), "1").unwrap();
        fs::write(group.cpu_file("cpu.shares"), "3").unwrap();
        let changed = audit(&group, &known, json);
        assert!(
            changed.contains(&"/g: cpu.idle was changed to `1`".to_owned()),
            "{changed:?}"
        );
        let again = plan(&group, &known, json);
        assert_eq!(steps(&again), [("cpu.idle", "0"), ("cpu.shares", "512")]);
        // The mark is put back in the end.
        let known = after(&group, &[&first, &again]);
        let mark = known
            .files
            .iter()
            .find(|file| file.path.ends_with("cpu.idle"));
        assert_eq!(mark.unwrap().old, "1");
        // A cgroup that is idle at first stays so, and has no weight.
        let error = Change::plan(&group, &Held::default(), &wanted(json)).unwrap_err();
        assert!(error.to_string().contains("an idle cgroup has no weight"));
    }

    #[test]
    fn a_quota_that_is_asked_for_no_more_is_put_back_unless_it_is_somebody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let group = cgroup(&folder, &[]);
        let capped = plan(&group, &Held::default(), r#"{"cap": "20%"}"#);
        let texts = [("cpu.cfs_quota_us", "2000"), ("cpu.cfs_period_us", "10000")];
        let ours: Vec<_> = [&texts[..], &[("cpu.cfs_burst_us", "1000")]].concat();
        for (name, text) in &ours {
            assert!(steps(&capped).contains(&(name, text)), "{name}");
            fs::write(group.cpu_file(name), text).unwrap();
        }
        let known = after(&group, &[&capped]);
        let none = plan(&group, &known, "{}");
        assert_eq!(steps(&none).last(), Some(&("cpu.cfs_burst_us", "30000")));
        fs::write(group.cpu_file("cpu.cfs_quota_us"), "5000").unwrap();
        assert!(steps(&plan(&group, &known, "{}")).is_empty());
    }

    #[test]
    fn what_a_loop_writes_is_journalled_once_and_put_back_whatever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let group = cgroup(&folder, &[]);
        let json = r#"{"headroom": "30%"}"#;
        let first = plan(&group, &Held::default(), json);
        let is_control = |entry: &&Entry| matches!(entry, Entry::Control { .. });
        assert_eq!(first.entries.iter().filter(is_control).count(), 1);
        for (name, text) in [
            ("cpu.cfs_quota_us", "123456"),
            ("cpu.cfs_period_us", "1000000"),
            ("cpu.cfs_burst_us", "0"),
        ] {
            fs::write(group.cpu_file(name), text).unwrap();
        }
        let known = after(&group, &[&first]);
        let again = plan(&group, &known, json);
        assert!(steps(&again).is_empty() && again.entries.is_empty());
        let quota = known.files.iter().find(|file| file.driven).unwrap();
        assert_eq!(quota.old, "70000");
    }

    #[test]
    fn a_cgroup_that_is_gone_is_told_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let group = CpuGroup::at(
            &Arc::new(Hierarchy::at_folder(folder.path(), Version::V1)),
            "gone",
        );
        let weight = wanted(r#"{"weight": "5"}"#);
        let error = Change::plan(&group, &Held::default(), &weight).unwrap_err();
        assert!(error.is_gone(), "{error}");
    }

    #[test]
    fn files_that_go_with_the_controller_are_told_and_a_cgroup_that_goes_is_not() {
        let folder = tempfile::tempdir().unwrap();
        for json in [
            r#"{"class": "batch", "headroom": "30%"}"#,
            r#"{"weight": "50", "quota": "20ms/100ms"}"#,
            r#"{"headroom": "30%"}"#,
        ] {
            let group = cgroup(&folder, &[]);
            let change = plan(&group, &Held::default(), json);
            for (name, text) in steps(&change) {
                fs::write(group.cpu_file(name), text).unwrap();
            }
            let known = after(&group, &[&change]);
            assert_eq!(audit(&group, &known, json), [""; 0]);
            for entry in fs::read_dir(group.cpu_file("")).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
            let found = audit(&group, &known, json);
            assert_eq!(found.len(), 1, "{json}: {found:?}");
            assert!(found[0].starts_with("/g: the cpu controller was switched off in "));
            fs::remove_dir_all(group.cpu_file("")).unwrap();
            assert_eq!(audit(&group, &known, json), [""; 0]);
        }
    }
}
