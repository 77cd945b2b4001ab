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

use plimsoll_engine::knobs::BandwidthSlice;
use plimsoll_engine::toml_file::{FileError, Source, Table, parse};
use serde::{Deserialize, Serialize};

pub use patterns::Patterns;
pub(crate) use rule::PROCESS_GROUP;
pub use rule::{Match, Rule};
pub use rules::Rules;

/// Path of the file, unless another is named.
pub const PATH_DEFAULT: &str = "/etc/plimsoll/plimsoll.toml";
/// The version of the file.
const VERSION: u32 = 1;
/// Address of the metrics, unless the file says otherwise.
const METRICS_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
/// Value that switches a setting off.
const NONE: &str = "none";
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

/// The operator's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The backend that enforces the groups.
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

    /// Checks a text. `name` is for messages.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(name: &str, text: &str) -> Result<Self, FileError> {
        Self::of(&Source::new(name, text))
    }

    fn of(source: &Source) -> Result<Self, FileError> {
        let entries = parse(source)?;
        let top = Table::new(source, 0, &entries, "the configuration");
        gone::check(&top, "")?;
        top.check_keys(&KEYS)?;
        check_version(&top)?;
        Ok(Self {
            enforcer: enforcer(&top)?,
            enforce: top.flag("enforce")?,
            burst_enabled: burst_enabled(&top)?.unwrap_or(true),
            bandwidth_slice: top.parsed("bandwidth-slice")?,
            metrics: metrics(&top)?,
            rules: rules(&top)?,
        })
    }
}

fn check_version(top: &Table) -> Result<(), FileError> {
    let version: Option<u32> = top.whole("version")?;
    if version == Some(VERSION) {
        return Ok(());
    }
    let given = version.map_or_else(String::new, |version| version.to_string());
    let problem =
        format!("version: `{given}` is not one that this plimsoll reads; allowed: {VERSION}");
    Err(top.error("version", problem))
}

/// Reads one of a few words.
fn word<T: Copy>(
    table: &Table,
    key: &str,
    words: &[(&str, T)],
    default: T,
) -> Result<T, FileError> {
    let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let allowed = allowed.join(", ");
    let Some(text) = table.text(key, &allowed)? else {
        return Ok(default);
    };
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        table.error(
            key,
            format!("{key}: `{text}` is not allowed; allowed: {allowed}"),
        )
    })
}

fn enforcer(top: &Table) -> Result<EnforcerWanted, FileError> {
    let words = [
        ("auto", EnforcerWanted::Auto),
        ("sched-ext", EnforcerWanted::SchedExt),
        ("cgroup", EnforcerWanted::Cgroup),
    ];
    word(top, "enforcer", &words, EnforcerWanted::default())
}

/// `None`: the file has no such key.
fn burst_enabled(top: &Table) -> Result<Option<bool>, FileError> {
    const KEY: &str = "burst-enabled";
    top.find(KEY).map(|_| top.flag(KEY)).transpose()
}

fn rules(top: &Table) -> Result<Rules, FileError> {
    let rules = Rules::new(rule::read_all(top)?);
    rules.map_err(|error| top.error("group", format!("match: {error}")))
}

fn metrics(top: &Table) -> Result<Option<SocketAddr>, FileError> {
    let Some(table) = top.table("metrics", "the metrics")? else {
        return Ok(Some(METRICS_DEFAULT));
    };
    table.check_keys(&["listen"])?;
    listen(&table)
}

fn listen(table: &Table) -> Result<Option<SocketAddr>, FileError> {
    const ALLOWED: &str = "an address with its port such as \"127.0.0.1:9464\" or \"[::1]:9464\", \
                           or \"none\"";
    match table.text("listen", ALLOWED)? {
        None => Ok(Some(METRICS_DEFAULT)),
        Some(NONE) => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            let problem = format!("listen: `{text}` is no address; allowed: {ALLOWED}");
            table.error("listen", problem)
        }),
    }
}
