//! Knobs in the extended attributes of a cgroup's folder, which the owner of the cgroup sets:
//! `user.plimsoll.class = batch`.
//!
//! No attribute is fatal: an invalid one is ignored, and reported in one line.

use std::path::Path;
use std::str::FromStr;

use plimsoll_engine::knobs::{CpuMax, KnobError, Knobs};
use plimsoll_engine::toml_file::{KNOB_KEYS, nearest};

/// Prefix of the names of Plimsoll's attributes.
pub const PREFIX: &str = "user.plimsoll.";
/// Maximum length of a value; no knob takes more than a few words.
const VALUE_BYTES_MAX: usize = 256;
/// Maximum number of Plimsoll's attributes of one folder that are read. The kernel allows more
/// than there are knobs.
const ATTRIBUTES_MAX: usize = 32;
/// Characters of an invalid value or name that are reported.
const SHOWN_CHARACTERS_MAX: usize = 64;

/// Checks that knobs of attributes can be enforced beside those of other sources.
pub type Check<'a> = dyn Fn(&Knobs) -> Result<(), KnobError> + 'a;

/// Attributes of a cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Knobs that are allowed, valid, and can be enforced.
    pub knobs: Knobs,
    /// The other attributes: a line for each, with the allowed values.
    pub refused: Vec<String>,
}

/// Reads the attributes of a cgroup's folder. `allowed` are the knobs that the operator lets its
/// owner set; `check` names the first knob that cannot be enforced beside those of other
/// sources. A folder that has gone has no attributes, nor has one on a file system without
/// them.
#[must_use]
pub fn read(folder: &Path, allowed: &[String], check: &Check) -> Attributes {
    let names = names(folder);
    if names.is_empty() {
        return Attributes::default();
    }
    let mut reader = Reader {
        allowed,
        knobs: Knobs::default(),
        accepted: Vec::new(),
        refused: Vec::new(),
    };
    for name in names.iter().take(ATTRIBUTES_MAX) {
        // An attribute may be removed meanwhile.
        if let Ok(Some(value)) = xattr::get_deref(folder, name) {
            reader.accept(name, &value);
        }
    }
    if names.len() > ATTRIBUTES_MAX {
        let problem = format!(
            "{PREFIX}*: `{}` attributes are too many, the rest is ignored; allowed: {ATTRIBUTES_MAX}",
            names.len()
        );
        reader.refused.push(problem);
    }
    reader.drop_unenforceable(check);
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
    /// Knobs that were accepted, by their key in [`KNOB_KEYS`], with their values.
    accepted: Vec<(&'static str, String)>,
    refused: Vec<String>,
}

impl Reader<'_> {
    fn accept(&mut self, name: &str, value: &[u8]) {
        let accepted = self.checked(name, value).and_then(|(key, text)| {
            set(&mut self.knobs, key, text)
                .map(|()| (key, text.to_owned()))
                .map_err(|error| refusal(key, text, &error.problem, &error.allowed))
        });
        match accepted {
            Ok(accepted) => self.accepted.push(accepted),
            Err(line) => self.refused.push(line),
        }
    }

    /// The key of an allowed knob, and its value as text.
    fn checked<'v>(&self, name: &str, value: &'v [u8]) -> Result<(&'static str, &'v str), String> {
        let short = &value[..value.len().min(VALUE_BYTES_MAX)];
        let shown = String::from_utf8_lossy(short);
        let key = name.strip_prefix(PREFIX).unwrap_or_default();
        let Some(known) = KNOB_KEYS.into_iter().find(|known| *known == key) else {
            let meant = nearest(key, KNOB_KEYS.into_iter())
                .map_or_else(String::new, |near| format!(" (perhaps `{PREFIX}{near}`?)"));
            let problem = format!("is the value of no knob{meant}");
            return Err(refusal(key, &shown, &problem, &KNOB_KEYS.join(", ")));
        };
        if !self.allowed.iter().any(|allowed| allowed == known) {
            let allowed = match self.allowed {
                [] => "no knob (allow-xattr in the configuration)".to_owned(),
                knobs => knobs.join(", "),
            };
            let problem = "is of a knob that the operator does not leave to attributes";
            return Err(refusal(known, &shown, problem, &allowed));
        }
        if value.len() > VALUE_BYTES_MAX {
            let problem = format!("has {} bytes", value.len());
            let allowed = format!("up to {VALUE_BYTES_MAX} bytes");
            return Err(refusal(known, &shown, &problem, &allowed));
        }
        match std::str::from_utf8(value) {
            // `setfattr` and C programs may store the end of the string, too.
            Ok(text) => Ok((known, text.trim_end_matches(['\0', '\n']))),
            Err(_) => Err(refusal(known, &shown, "is no text", "text in UTF-8")),
        }
    }

    /// Drops knobs that cannot be enforced beside each other or beside those of other sources,
    /// until the rest can.
    fn drop_unenforceable(&mut self, check: &Check) {
        self.drop_beside_cpu_max();
        while let Err(error) = check(&self.knobs) {
            let Some(index) = self.culprit(check, &error) else {
                return;
            };
            let (key, text) = self.accepted.remove(index);
            clear(&mut self.knobs, key);
            let line = refusal(key, &text, &error.problem, &error.allowed);
            self.refused.push(line);
        }
    }

    fn drop_beside_cpu_max(&mut self) {
        let Some((_, line)) = self.accepted.iter().find(|(key, _)| *key == "cpu-max") else {
            return;
        };
        let line = line.clone();
        let beside = |key: &str| key == "quota" || key == "burst";
        for (key, text) in self.accepted.extract_if(.., |(key, _)| beside(key)) {
            let problem = "stands beside cpu-max";
            let allowed = "cpu-max alone, or quota and burst";
            self.refused.push(refusal(key, &text, problem, allowed));
        }
        // The last of them has overwritten the others. The value was valid when it was
        // accepted.
        let _ = set(&mut self.knobs, "cpu-max", &line);
    }

    /// The attribute to drop: the one that the error names, else the one without which there is
    /// no error, else the last.
    fn culprit(&self, check: &Check, error: &KnobError) -> Option<usize> {
        let named = self.accepted.iter().position(|(key, _)| *key == error.knob);
        let without = |index: &usize| {
            let mut knobs = self.knobs.clone();
            clear(&mut knobs, self.accepted[*index].0);
            check(&knobs).is_ok()
        };
        named
            .or_else(|| (0..self.accepted.len()).find(without))
            .or_else(|| self.accepted.len().checked_sub(1))
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

/// Resets one knob.
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

/// A refusal of an attribute: short and one line, as any user may own the cgroup.
fn refusal(key: &str, value: &str, problem: &str, allowed: &str) -> String {
    let line = format!(
        "{PREFIX}{}: `{}` {problem}; allowed: {allowed}",
        short(key),
        short(value)
    );
    line.replace(char::is_control, " ")
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
