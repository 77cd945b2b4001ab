//! Knobs that a user can set, and their textual forms.
//!
//! One type a knob, with its range checked where it is made. The same words serve the command line,
//! the configuration file and every other reader.

mod bandwidth;
mod cap;
mod class;
mod demand;
mod error;
mod headroom;
pub mod units;
mod word;

pub use bandwidth::{Bandwidth, BandwidthLine, BandwidthSlice, Burst, Quota};
pub use cap::{Cap, HalfLife, SoftCap};
pub use class::{Class, CpuLimit, Nice, Weight};
pub use demand::HeadroomDemand;
pub use error::KnobError;
pub use headroom::{Headroom, Tolerance};
pub use word::from_word;

use std::fmt;

use serde::{Deserialize, Serialize};

/// All knobs of one group. A knob that is `None` is left alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Knobs {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nice: Option<Nice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<Cap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_cap: Option<SoftCap>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_life: Option<HalfLife>,
    /// Whether caps hold for each task by itself, not for all together.
    #[serde(default)]
    pub per_task: bool,
    /// Idle CPU to keep while the group runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
    /// Runtime that all batch work together is allowed despite the headroom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Tolerance>,
    /// Largest share of any one CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<CpuLimit>,
    /// Whether preemption of the whole machine is full while the group exists, so that the group
    /// delays other work less.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host_tuning: bool,
}

/// Names of the knobs, as on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    Class,
    Nice,
    Weight,
    Quota,
    Burst,
    Cap,
    SoftCap,
    HalfLife,
    PerTask,
    Headroom,
    Tolerance,
    CpuLimit,
    HostTuning,
}

impl Knob {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Nice => "nice",
            Self::Weight => "weight",
            Self::Quota => "quota",
            Self::Burst => "burst",
            Self::Cap => "cap",
            Self::SoftCap => "soft-cap",
            Self::HalfLife => "half-life",
            Self::PerTask => "per-task",
            Self::Headroom => "headroom",
            Self::Tolerance => "tolerance",
            Self::CpuLimit => "cpu-limit",
            Self::HostTuning => "host-tuning",
        }
    }
}

impl Knobs {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the knobs that are not left alone, with their values.
    pub fn items(&self) -> Vec<(Knob, String)> {
        let values = [
            (Knob::Class, self.class.map(|v| v.to_string())),
            (Knob::Nice, self.nice.map(|v| v.to_string())),
            (Knob::Weight, self.weight.map(|v| v.to_string())),
            (Knob::Quota, self.quota.map(|v| v.to_string())),
            (Knob::Burst, self.burst.map(|v| v.to_string())),
            (Knob::Cap, self.cap.map(|v| v.to_string())),
            (Knob::SoftCap, self.soft_cap.map(|v| v.to_string())),
            (Knob::HalfLife, self.half_life.map(|v| v.to_string())),
            (Knob::PerTask, self.per_task.then(|| "true".into())),
            (Knob::Headroom, self.headroom.map(|v| v.to_string())),
            (Knob::Tolerance, self.tolerance.map(|v| v.to_string())),
            (Knob::CpuLimit, self.cpu_limit.map(|v| v.to_string())),
            (Knob::HostTuning, self.host_tuning.then(|| "true".into())),
        ];
        let values = values.into_iter();
        values
            .filter_map(|(knob, value)| Some((knob, value?)))
            .collect()
    }

    /// Returns whether there is a hard or a soft cap.
    pub fn has_cap(&self) -> bool {
        self.cap.is_some() || self.soft_cap.is_some()
    }

    /// Returns these knobs, with those set in `newer` replaced.
    pub fn overlaid(&self, newer: &Self) -> Self {
        Self {
            class: newer.class.or(self.class),
            nice: newer.nice.or(self.nice),
            weight: newer.weight.or(self.weight),
            quota: newer.quota.or(self.quota),
            burst: newer.burst.or(self.burst),
            cap: newer.cap.or(self.cap),
            soft_cap: newer.soft_cap.or(self.soft_cap),
            half_life: newer.half_life.or(self.half_life),
            per_task: newer.per_task || self.per_task,
            headroom: newer.headroom.or(self.headroom),
            tolerance: newer.tolerance.or(self.tolerance),
            cpu_limit: newer.cpu_limit.or(self.cpu_limit),
            host_tuning: newer.host_tuning || self.host_tuning,
        }
    }

    /// Checks that a headroom is within the CPUs that there are.
    ///
    /// # Errors
    /// When the headroom is more: no batch work could run.
    pub fn check_cpus(&self, nr_cpus: u32) -> Result<(), KnobError> {
        match self.headroom {
            Some(Headroom::Cpus(cpus)) if cpus > nr_cpus => Err(KnobError::new(
                "headroom",
                format!("{cpus}cpus"),
                format!("is more than the {nr_cpus} CPUs that there are"),
                format!("up to {nr_cpus}cpus, or a share such as 30%"),
            )),
            _ => Ok(()),
        }
    }

    /// Checks constraints between knobs: that dependent knobs are set together, and sums.
    ///
    /// # Errors
    /// Names the first knob that has no effect as it stands.
    pub fn check(&self) -> Result<(), KnobError> {
        let needs = |knob, value: String, other: &str| {
            Err(KnobError::new(
                knob,
                value,
                format!("has no effect without {other}"),
                format!("together with {other}"),
            ))
        };
        let is_limited = self.quota.is_some_and(|quota| quota.quota_ns.is_some());
        if let (Some(burst), false) = (self.burst, is_limited)
            && (burst.burst_ns > 0 || self.quota.is_none())
        {
            return needs("burst", burst.to_string(), "quota");
        }
        if self.per_task && !self.has_cap() {
            return needs("per-task", "true".into(), "cap or soft-cap");
        }
        if let (Some(half_life), false) = (self.half_life, self.has_cap()) {
            return needs("half-life", half_life.to_string(), "cap or soft-cap");
        }
        if let (Some(tolerance), None, None | Some(Class::Normal)) =
            (self.tolerance, self.headroom, self.class)
        {
            return needs(
                "tolerance",
                tolerance.to_string(),
                "headroom or class batch",
            );
        }
        if let (Some(limit), None | Some(Class::Normal)) = (self.cpu_limit, self.class) {
            return needs("cpu-limit", limit.to_string(), "class batch");
        }
        if let (true, None | Some(Class::Normal)) = (self.host_tuning, self.class) {
            return needs("host-tuning", "true".into(), "class batch");
        }
        if let Some(quota) = self.quota {
            Bandwidth::of(quota, self.burst).check()?;
        }
        Ok(())
    }
}

/// Formats the knobs for people, on one line: `class=batch cap=50%`, or `none`.
impl fmt::Display for Knobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = self.items().into_iter();
        let words: Vec<String> = items
            .map(|(knob, value)| format!("{}={value}", knob.name()))
            .collect();
        match words.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&words.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Name of a knob; part of what its error says is allowed; words shown as written; bad words.
    const RANGES: &str = "
        nice; from -20 to 19; -20 19; -21 20
        weight; from 1 to 10000; 1 10000; 0 10001 1.5
        quota; quota of at least 1ms, period of 1ms to 1s; 1ms/1s max/200ms; 600ms/2s 600ms/0.9ms \
            0.5ms/100ms 0.009cpus -1cpus NaN inf/100ms 6 20000s/1s 18446744073709551615ns/1s
        burst; quota + burst up to 17592s; 400ms; 400parsecs
        cap; from 0.1%; 0.1% 9.5% 25% 150%; 0% 0.05% -5% 25 1e3% NaN% 9000000%
        soft-cap; from 0% in steps of 0.1%; 0%; -5% NaN
        half-life; from 50ms to 60s; 50ms 1s 60s; 49.9ms 60.1s 0s 1 -1s NaN
        headroom; from 0% to 100%; 30% 2cpus; 101% -1% 1.5cpus 30 NaN%
        tolerance; period of 1ms to 10s, runtime up to the period and 1s; 1ms/100ms; \
            1ms 2ms/1ms 2s/5s 1ms/20s 1ms/0ms -1ms/100ms
        cpu-limit; above 0% and up to 100%; 80% 100%; 0% 100.1%";

    fn knobs(json: &str) -> Result<Knobs, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn words_in_range_are_shown_as_written_and_others_name_what_is_allowed() {
        let read = |name: &str, word: &str| knobs(&json!({ name: word }).to_string());
        for row in RANGES.trim().lines() {
            let fields: Vec<&str> = row.split(';').map(str::trim).collect();
            let [name, allowed, good, bad] = fields[..] else {
                panic!("{row}");
            };
            for word in good.split(' ') {
                let shown = read(name, word).unwrap().to_string();
                assert_eq!(shown, format!("{name}={word}"));
            }
            for word in bad.split(' ').chain([""]) {
                let error = read(name, word).expect_err(word).to_string();
                assert!(error.starts_with(&format!("{name}: ")), "{error}");
                assert!(error.contains(allowed), "{error}");
            }
        }
    }

    #[test]
    fn idle_is_no_class() {
        assert!("idle".parse::<Class>().is_err());
    }

    #[test]
    fn a_half_life_is_a_second_by_default() {
        assert_eq!(HalfLife::default().to_string(), "1s");
    }

    #[test]
    fn unknown_keys_are_refused() {
        let error = knobs(r#"{"quotta": "6cpus"}"#).unwrap_err().to_string();
        assert!(error.contains("unknown field `quotta`"), "{error}");
    }

    #[test]
    fn lonely_knobs_are_refused() {
        for (json, knob) in [
            (r#"{"burst": "400ms"}"#, "burst"),
            (r#"{"per-task": true}"#, "per-task"),
            (r#"{"half-life": "5s"}"#, "half-life"),
            (r#"{"tolerance": "1ms/100ms"}"#, "tolerance"),
            (r#"{"cpu-limit": "80%"}"#, "cpu-limit"),
            (r#"{"host-tuning": true}"#, "host-tuning"),
        ] {
            let error = knobs(json).unwrap().check().unwrap_err();
            assert_eq!(error.knob, knob);
        }
    }

    #[test]
    fn people_read_the_words_of_the_command_line() {
        let all = r#"{"class": "batch", "cap": "25%", "per-task": true, "half-life": "5s"}"#;
        assert_eq!(
            knobs(all).unwrap().to_string(),
            "class=batch cap=25% half-life=5s per-task=true"
        );
        assert_eq!(Knobs::default().to_string(), "none");
    }

    #[test]
    fn overlay_keeps_what_is_not_named() {
        let old = knobs(r#"{"class": "batch", "cap": "25%", "half-life": "5s"}"#).unwrap();
        let new = knobs(r#"{"cap": "50%"}"#).unwrap();
        assert_eq!(
            old.overlaid(&new),
            knobs(r#"{"class": "batch", "cap": "50%", "half-life": "5s"}"#).unwrap()
        );
    }
}
