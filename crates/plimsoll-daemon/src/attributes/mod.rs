//! Knobs in the extended attributes of a cgroup's folder, where whoever owns
//! the cgroup sets them: `user.plimsoll.class = batch`.
//!
//! Nothing that is written there is fatal: what cannot be used is left out,
//! and told in one line.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::str::FromStr;

use plimsoll_engine::knobs::{CpuMax, KnobError, Knobs};
use plimsoll_engine::toml_file::{KNOB_KEYS, nearest};

/// What the names of Plimsoll's attributes begin with.
pub const PREFIX: &str = "user.plimsoll.";
/// No knob takes more than a few words.
const VALUE_BYTES_MAX: usize = 256;
/// How many of Plimsoll's attributes of one folder are looked at. The kernel
/// lets a folder have more than there are knobs.
const ATTRIBUTES_MAX: usize = 32;
/// How much of a value or name that cannot be used is told.
const TOLD_CHARACTERS_MAX: usize = 64;

/// Whether attributes' knobs can be used beside what else is asked.
pub type Check<'a> = dyn Fn(&Knobs) -> Result<(), KnobError> + 'a;

/// What the owner of a cgroup asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// What is allowed, sound, and of use.
    pub knobs: Knobs,
    /// What is none of that: one line each, with what is allowed.
    pub refused: Vec<String>,
}

/// Reads the attributes of a cgroup's folder. `allowed` are the knobs that
/// the operator lets its owner set; `check` says whether knobs of the
/// attributes can be used beside what else is asked, and if not, which one is
/// in the way. A folder that has gone has none, nor has one on a file system
/// without attributes.
#[must_use]
pub fn read(folder: &Path, allowed: &[String], check: &Check) -> Attributes {
    let names = names(folder);
    if names.is_empty() {
        return Attributes::default();
    }
    let mut reader = Reader {
        allowed,
        knobs: Knobs::default(),
        taken: Vec::new(),
        refused: Vec::new(),
    };
    for name in names.iter().take(ATTRIBUTES_MAX) {
        // One that has gone in the meantime was not there.
        if let Ok(Some(value)) = xattr::get_deref(folder, name) {
            reader.take(name, &value);
        }
    }
    if names.len() > ATTRIBUTES_MAX {
        let problem = format!(
            "{PREFIX}*: `{}` attributes are too many, the rest is ignored; allowed: {ATTRIBUTES_MAX}",
            names.len()
        );
        reader.refused.push(problem);
    }
    reader.leave_out_what_has_no_use(check);
    Attributes {
        knobs: reader.knobs,
        refused: reader.refused,
    }
}

/// The names of Plimsoll's attributes, in order.
fn names(folder: &Path) -> Vec<String> {
    let Ok(all) = xattr::list_deref(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = all
        .filter(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

struct Reader<'a> {
    allowed: &'a [String],
    knobs: Knobs,
    /// The knobs that were taken over, as [`KNOB_KEYS`] has them, with their
    /// values.
    taken: Vec<(&'static str, String)>,
    refused: Vec<String>,
}

impl Reader<'_> {
    fn take(&mut self, name: &str, value: &[u8]) {
        let taken = self.checked(name, value).and_then(|(key, text)| {
            set(&mut self.knobs, key, text)
                .map(|()| (key, text.to_owned()))
                .map_err(|error| told(key, text, &error.problem, &error.allowed))
        });
        match taken {
            Ok(taken) => self.taken.push(taken),
            Err(line) => self.refused.push(line),
        }
    }

    /// A knob that may be set, and a text.
    fn checked<'v>(&self, name: &str, value: &'v [u8]) -> Result<(&'static str, &'v str), String> {
        let short = &value[..value.len().min(VALUE_BYTES_MAX)];
        let shown = String::from_utf8_lossy(short);
        let key = name.strip_prefix(PREFIX).unwrap_or_default();
        let Some(known) = KNOB_KEYS.into_iter().find(|known| *known == key) else {
            let meant = nearest(key, KNOB_KEYS.into_iter())
                .map_or_else(String::new, |near| format!(" (perhaps `{PREFIX}{near}`?)"));
            let problem = format!("is the value of no knob{meant}");
            return Err(told(key, &shown, &problem, &KNOB_KEYS.join(", ")));
        };
        if !self.allowed.iter().any(|allowed| allowed == known) {
            let allowed = match self.allowed {
                [] => "no knob (allow-xattr in the configuration)".to_owned(),
                knobs => knobs.join(", "),
            };
            let problem = "is of a knob that the operator does not leave to attributes";
            return Err(told(known, &shown, problem, &allowed));
        }
        if value.len() > VALUE_BYTES_MAX {
            let problem = format!("has {} bytes", value.len());
            let allowed = format!("up to {VALUE_BYTES_MAX} bytes");
            return Err(told(known, &shown, &problem, &allowed));
        }
        match std::str::from_utf8(value) {
            // `setfattr` and C programs may store the end of the string, too.
            Ok(text) => Ok((known, text.trim_end_matches(['\0', '\n']))),
            Err(_) => Err(told(known, &shown, "is no text", "text in UTF-8")),
        }
    }

    /// Leaves out what does not go with the others, or with what else is asked,
    /// until the rest does.
    fn leave_out_what_has_no_use(&mut self, check: &Check) {
        self.leave_out_beside_cpu_max();
        while let Err(error) = check(&self.knobs) {
            let Some(index) = self.culprit(check, &error) else {
                return;
            };
            let (key, text) = self.taken.remove(index);
            clear(&mut self.knobs, key);
            let line = told(key, &text, &error.problem, &error.allowed);
            self.refused.push(line);
        }
    }

    fn leave_out_beside_cpu_max(&mut self) {
        let Some((_, line)) = self.taken.iter().find(|(key, _)| *key == "cpu-max") else {
            return;
        };
        let line = line.clone();
        let beside = |key: &str| key == "quota" || key == "burst";
        for (key, text) in self.taken.extract_if(.., |(key, _)| beside(key)) {
            let problem = "stands beside cpu-max";
            let allowed = "cpu-max alone, or quota and burst";
            self.refused.push(told(key, &text, problem, allowed));
        }
        // Whichever of them came last has overwritten the other. It was sound
        // when it was taken.
        let _ = set(&mut self.knobs, "cpu-max", &line);
    }

    /// Which of the attributes has to go: the one that the error names, else
    /// the one without which there is no error, else the last.
    fn culprit(&self, check: &Check, error: &KnobError) -> Option<usize> {
        let named = self.taken.iter().position(|(key, _)| *key == error.knob);
        let without = |index: &usize| {
            let mut knobs = self.knobs.clone();
            clear(&mut knobs, self.taken[*index].0);
            check(&knobs).is_ok()
        };
        named
            .or_else(|| (0..self.taken.len()).find(without))
            .or_else(|| self.taken.len().checked_sub(1))
    }
}

/// Sets one knob from its text.
fn set(knobs: &mut Knobs, key: &str, text: &str) -> Result<(), KnobError> {
    match key {
        "class" => knobs.class = Some(text.parse()?),
        "nice" => knobs.nice = Some(text.parse()?),
        "weight" => knobs.weight = Some(text.parse()?),
        "quota" => knobs.quota = Some(text.parse()?),
        "burst" => knobs.burst = Some(text.parse()?),
        "cpu-max" => {
            let (quota, burst) = CpuMax::from_str(text)?.complete(None)?;
            (knobs.quota, knobs.burst) = (Some(quota), burst);
        }
        "cap" => knobs.cap = Some(text.parse()?),
        "soft-cap" => knobs.soft_cap = Some(text.parse()?),
        "half-life" => knobs.half_life = Some(text.parse()?),
        "per-task" => {
            knobs.per_task = text
                .parse()
                .map_err(|_| KnobError::new("per-task", text, "is not allowed", "true or false"))?;
        }
        "headroom" => knobs.headroom = Some(text.parse()?),
        "tolerance" => knobs.tolerance = Some(text.parse()?),
        "cpu-limit" => knobs.cpu_limit = Some(text.parse()?),
        _ => {
            let allowed = KNOB_KEYS.join(", ");
            return Err(KnobError::new("knob", key, "is no knob", allowed));
        }
    }
    Ok(())
}

/// As if one knob had not been set.
fn clear(knobs: &mut Knobs, key: &str) {
    match key {
        "class" => knobs.class = None,
        "nice" => knobs.nice = None,
        "weight" => knobs.weight = None,
        "quota" => knobs.quota = None,
        "burst" => knobs.burst = None,
        "cpu-max" => (knobs.quota, knobs.burst) = (None, None),
        "cap" => knobs.cap = None,
        "soft-cap" => knobs.soft_cap = None,
        "half-life" => knobs.half_life = None,
        "per-task" => knobs.per_task = false,
        "headroom" => knobs.headroom = None,
        "tolerance" => knobs.tolerance = None,
        "cpu-limit" => knobs.cpu_limit = None,
        _ => (),
    }
}

/// One line about an attribute. Its owner may be anybody: it is kept short,
/// and one line.
fn told(key: &str, value: &str, problem: &str, allowed: &str) -> String {
    let line = format!(
        "{PREFIX}{}: `{}` {problem}; allowed: {allowed}",
        short(key),
        short(value)
    );
    line.replace(char::is_control, " ")
}

fn short(text: &str) -> String {
    match text.char_indices().nth(TOLD_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
