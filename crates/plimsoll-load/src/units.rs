//! Conversions and parsers of quantities, shared by all settings.

use std::time::Duration;

/// Nanoseconds of `duration`, saturating (584 years).
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(crate) fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// A ratio that is 0 if the denominator is 0.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A duration with its unit, as in settings.
pub(crate) fn show(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// Parses a duration with its unit.
///
/// # Errors
/// Says what is wrong with `text`, and what is allowed.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|e| {
        format!("{e}; allowed is a number with a unit, such as 500us, 2ms, 1.5s or 1m")
    })
}

/// A parser of durations from `min` to `max`.
pub fn time_between(
    min: Duration,
    max: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let time = duration(text)?;
        if (min..=max).contains(&time) {
            return Ok(time);
        }
        Err(format!(
            "allowed is a time from {} to {}",
            show(min),
            show(max)
        ))
    }
}

/// A parser of numbers from `min` to `max`, without NaN.
pub(crate) fn number_between(min: f64, max: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|n| (min..=max).contains(n));
        number.ok_or_else(|| format!("allowed is a number from {min} to {max}"))
    }
}
