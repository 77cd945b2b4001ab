//! The configuration file.
//!
//! Read whole, checked whole, and immutable from then on: a file with a
//! mistake is refused as a whole and changes nothing. Which cgroups its rules
//! match is decided in [`matching`](crate::matching).
//!
//! | file | subject |
//! | --- | --- |
//! | `rule.rs` | one group: its match and its knobs |
//! | `rules.rs` | all groups, and which match a cgroup |
//! | `patterns.rs` | patterns of paths and names |
//! | `gone.rs` | keys of earlier versions, and what took their place |

mod gone;
mod patterns;
mod rule;
mod rules;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use plimsoll_engine::knobs::{BandwidthSlice, from_word};
use plimsoll_engine::text_file::{FileError, Source};
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(crate) use patterns::is_unit;
pub(crate) use rule::PROCESS_GROUP;
pub use rule::{Match, Rule};
pub use rules::Rules;

pub const PATH_DEFAULT: &str = "/etc/plimsoll/plimsoll.toml";
const VERSION: u32 = 1;
const METRICS_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
/// The keys at the top of the file.
const KEYS: [&str; 7] = [
    "version",
    "enforcer",
    "enforce",
    "burst-enabled",
    "bandwidth-slice",
    "metrics",
    "group",
];
/// Value that switches a setting off.
const NONE: &str = "none";

/// Kernel interface that enforces the groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnforcerWanted {
    /// The stock kernel's control groups, or Plimsoll's BPF scheduler while it is loaded.
    #[default]
    Auto,
    /// Plimsoll's BPF scheduler, which takes all ordinary tasks of the machine.
    SchedExt,
    /// The stock kernel's control groups.
    Cgroup,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub enforcer: EnforcerWanted,
    /// Write a kernel file again after an external change, in place of reporting
    /// and leaving it.
    pub enforce: bool,
    /// Groups may save up unused quota.
    pub burst_enabled: bool,
    /// Runtime that a CPU takes from a quota at once; `None`: the kernel's setting stays.
    pub bandwidth_slice: Option<BandwidthSlice>,
    /// Address of the metrics; `None` if they are not served.
    pub metrics: Option<SocketAddr>,
    /// Groups in the order of the file, which is their precedence.
    pub rules: Rules,
}

impl Config {
    /// The configuration of an owner without a file: no groups, and no metrics.
    #[must_use]
    pub fn of_no_file() -> Self {
        Self {
            metrics: None,
            ..Self::default()
        }
    }
}

impl Default for Config {
    /// The configuration of an empty file.
    fn default() -> Self {
        Self {
            enforcer: EnforcerWanted::default(),
            enforce: false,
            burst_enabled: true,
            bandwidth_slice: None,
            metrics: Some(METRICS_DEFAULT),
            rules: Rules::default(),
        }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// A line with file, line, column, field, value, and the allowed values.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::of(&Source::read(path)?)
    }

    /// Checks a text, which error messages call `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, FileError> {
        Self::of(&Source::new(name, text))
    }

    fn of(source: &Source) -> Result<Self, FileError> {
        let top = DeTable::parse(source.text());
        let top = top.map_err(|error| {
            let place = error.span().map_or(source.text().len(), |span| span.start);
            source.error(place, format!("not TOML: {}", error.message()))
        })?;
        gone::check(source, top.get_ref(), "")?;
        check_keys(source, top.get_ref(), "the configuration", &KEYS)?;
        check_version(source, top.get_ref())?;
        if let Some(metrics) = top.get_ref().get("metrics") {
            let table = table_of(source, "metrics", metrics)?;
            check_keys(source, table, "the metrics", &["listen"])?;
        }
        let groups = top.get_ref().get("group").cloned();
        let file: File = read(source, top)?;
        let place = groups.as_ref().map_or(0, |groups| groups.span().start);
        let rules = Rules::new(rule::read_all(source, groups, file.enforcer)?);
        Ok(Self {
            enforcer: file.enforcer,
            enforce: file.enforce,
            burst_enabled: file.burst_enabled,
            bandwidth_slice: file.bandwidth_slice,
            metrics: file.metrics.listen.0,
            rules: rules.map_err(|error| source.error(place, format!("match: {error}")))?,
        })
    }
}

/// Values at the top of the file; `check_keys` has refused other keys.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default, deserialize_with = "enforcer")]
    enforcer: EnforcerWanted,
    #[serde(default)]
    enforce: bool,
    #[serde(default = "enabled")]
    burst_enabled: bool,
    bandwidth_slice: Option<BandwidthSlice>,
    #[serde(default)]
    metrics: Metrics,
}

/// Reads a value of any type as a text, so that an error names the value and those that are allowed.
fn enforcer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EnforcerWanted, D::Error> {
    let word: String = from_word(deserializer)?;
    EnforcerWanted::deserialize(word.into_deserializer())
}

fn enabled() -> bool {
    true
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metrics {
    #[serde(deserialize_with = "from_word")]
    listen: Listen,
}

/// Address of the metrics; `None`: they are not served.
struct Listen(Option<SocketAddr>);

impl Default for Listen {
    fn default() -> Self {
        Self(Some(METRICS_DEFAULT))
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            NONE => Ok(Self(None)),
            _ => text
                .parse()
                .map(|address| Self(Some(address)))
                .map_err(|_| {
                    format!(
                        "listen: `{text}` is no address; allowed: an address with its port such as \
                     \"127.0.0.1:9464\" or \"[::1]:9464\", or \"none\""
                    )
                }),
        }
    }
}

/// Refuses a key that is not `known`, with the one that was probably meant.
///
/// # Errors
/// Names the first other key.
fn check_keys(
    source: &Source,
    table: &DeTable<'_>,
    what: &str,
    known: &[&str],
) -> Result<(), FileError> {
    for key in table.keys() {
        let text = key.get_ref().as_ref();
        if known.contains(&text) {
            continue;
        }
        let distance = |other: &&&str| strsim::damerau_levenshtein(text, other);
        // Words that differ in more letters are not a slip.
        let longest = |other: &str| text.chars().count().max(other.len());
        let is_slip = |other: &&&str| 5 * distance(other) <= 2 * longest(other);
        let meant = known.iter().min_by_key(distance).filter(is_slip);
        let meant = meant.map_or_else(String::new, |near| format!(" (perhaps `{near}`?)"));
        let allowed = known.join(", ");
        let problem = format!("`{text}` is no key of {what}{meant}; allowed: {allowed}");
        return Err(source.error(key.span().start, problem));
    }
    Ok(())
}

/// The table that a key has to have as its value.
fn table_of<'a, 't>(
    source: &Source,
    key: &str,
    value: &'a Spanned<DeValue<'t>>,
) -> Result<&'a DeTable<'t>, FileError> {
    let kind = value.get_ref().type_str();
    let refused = || {
        let problem = format!("{key}: {kind} is not allowed; allowed: a table");
        source.error(value.span().start, problem)
    };
    value.get_ref().as_table().ok_or_else(refused)
}

/// The innermost key of a table whose value is at a place of the text.
fn key_at<'a>(table: &'a DeTable<'_>, place: usize) -> Option<&'a str> {
    let (key, value) = table
        .iter()
        .find(|(_, value)| value.span().contains(&place))?;
    let inner = value.get_ref().as_table().and_then(|it| key_at(it, place));
    inner.or(Some(key.get_ref().as_ref()))
}

fn read<T: DeserializeOwned>(source: &Source, table: Spanned<DeTable<'_>>) -> Result<T, FileError> {
    let start = table.span().start;
    let written = table.get_ref().clone();
    let read = T::deserialize(toml::Deserializer::from(table));
    read.map_err(|error| {
        let place = error.span().map_or(start, |span| span.start);
        let key = key_at(&written, place).map(|key| format!("{key}: "));
        // Errors of knobs and patterns begin with it.
        let key = key.filter(|key| !error.message().starts_with(key.as_str()));
        source.error(place, key.unwrap_or_default() + error.message())
    })
}

fn check_version(source: &Source, top: &DeTable<'_>) -> Result<(), FileError> {
    let version = top.get("version");
    let is_read = |version: &DeValue<'_>| match version {
        DeValue::Integer(number) => {
            u32::from_str_radix(number.as_str(), number.radix()) == Ok(VERSION)
        }
        _ => false,
    };
    if version.is_some_and(|version| is_read(version.get_ref())) {
        return Ok(());
    }
    let given = version.map_or("", |version| match version.get_ref() {
        DeValue::Integer(number) => number.as_str(),
        other => other.as_str().unwrap_or(other.type_str()),
    });
    let problem =
        format!("version: `{given}` is not one that this plimsoll reads; allowed: {VERSION}");
    Err(source.error(version.map_or(0, |version| version.span().start), problem))
}
