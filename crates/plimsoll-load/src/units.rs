//! Conversions and checks of quantities, shared by all settings.

use std::time::Duration;

use crate::error::LoadError;

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

/// Refuses a duration outside of `min ..= max`.
pub(crate) fn check_duration(
    field: &'static str,
    value: Duration,
    (min, max): (Duration, Duration),
) -> Result<(), LoadError> {
    if value >= min && value <= max {
        return Ok(());
    }
    let allowed = format!("a duration from {} to {}", show(min), show(max));
    Err(LoadError::invalid(field, show(value), allowed))
}

/// Refuses an integer outside of `1 ..= max`.
pub(crate) fn check_count(field: &'static str, value: u64, max: u64) -> Result<(), LoadError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    let allowed = format!("a whole number from 1 to {max}");
    Err(LoadError::invalid(field, value, allowed))
}

/// Refuses a number outside of `min ..= max`, NaN included.
pub(crate) fn check_number(
    field: &'static str,
    value: f64,
    (min, max): (f64, f64),
    unit: &str,
) -> Result<(), LoadError> {
    if value >= min && value <= max {
        return Ok(());
    }
    let allowed = format!("a number from {min} to {max}{unit}");
    Err(LoadError::invalid(field, value, allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_out_of_range_are_refused_with_field_value_and_range() {
        for bad in [f64::NAN, -1.0, 0.0, f64::INFINITY] {
            let text = check_number("rate", bad, (0.5, 2.0), " per second")
                .unwrap_err()
                .to_string();
            assert!(text.starts_with("rate: '"), "{text}");
            assert!(
                text.ends_with("a number from 0.5 to 2 per second"),
                "{text}"
            );
            assert!(!text.contains('\n'));
        }
        assert!(check_number("rate", 2.0, (0.5, 2.0), "").is_ok());
    }

    #[test]
    fn durations_and_counts_are_checked_at_both_bounds() {
        let range = (Duration::from_millis(1), Duration::from_secs(1));
        assert!(check_duration("d", Duration::ZERO, range).is_err());
        assert!(check_duration("d", Duration::from_secs(2), range).is_err());
        assert!(check_duration("d", range.0, range).is_ok());
        assert!(check_count("n", 0, 5).is_err());
        assert!(check_count("n", 6, 5).is_err());
        assert!(check_count("n", 5, 5).is_ok());
    }
}
