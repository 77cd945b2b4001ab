//! Numbers with units, as users write them.
//!
//! Everything is parsed from decimal text into integers, without floating point, so that `0.1ms` is
//! exactly 100,000 ns and `NaN` is just not a number.

pub const NSEC_PER_SEC: u64 = 1_000_000_000;
/// Nanoseconds per microsecond, the unit of the kernel's cgroup files.
pub const NSEC_PER_USEC: u64 = 1_000;
/// Number of parts per million in a whole.
pub const PPM: u64 = 1_000_000;

/// Reason why a text is no number with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitError {
    Empty,
    /// No digits at the start, or a misplaced point.
    NotANumber,
    Negative,
    NoUnit,
    UnknownUnit,
    /// Number finer than the smallest step.
    TooFine,
    /// Number that does not fit the integer.
    TooLarge,
}

impl UnitError {
    /// Describes the problem as the middle of a sentence.
    pub fn problem(self) -> &'static str {
        match self {
            Self::Empty => "is empty",
            Self::NotANumber => "is not a number",
            Self::Negative => "is negative",
            Self::NoUnit => "has no unit",
            Self::UnknownUnit => "has an unknown unit",
            Self::TooFine => "is finer than can be set",
            Self::TooLarge => "is too large",
        }
    }
}

/// Splits `12.5ms` into digits before the point, digits behind it, and unit.
fn split(text: &str) -> Result<(&str, &str, &str), UnitError> {
    if text.is_empty() {
        return Err(UnitError::Empty);
    }
    if text.starts_with('-') {
        return Err(UnitError::Negative);
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(UnitError::NotANumber);
    }
    Ok((whole, fraction, unit.trim_start()))
}

/// Computes `whole.fraction` in steps of `1 / scale`.
fn scaled(whole: &str, fraction: &str, scale: u64) -> Result<u64, UnitError> {
    let whole: u64 = whole.parse().map_err(|_| UnitError::TooLarge)?;
    let mut total = whole.checked_mul(scale).ok_or(UnitError::TooLarge)?;
    let mut step = scale;
    for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
        if !step.is_multiple_of(10) && digit != 0 {
            return Err(UnitError::TooFine);
        }
        step /= 10;
        total = total.checked_add(digit * step).ok_or(UnitError::TooLarge)?;
    }
    Ok(total)
}

/// Parses a duration such as `600ms`, `1.5s`, `250us`, `100µs`, `40ns`, in nanoseconds.
pub fn duration_ns(text: &str) -> Result<u64, UnitError> {
    let (whole, fraction, unit) = split(text.trim())?;
    let scale = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => NSEC_PER_USEC,
        "ms" => 1_000_000,
        "s" => NSEC_PER_SEC,
        "" => return Err(UnitError::NoUnit),
        _ => return Err(UnitError::UnknownUnit),
    };
    scaled(whole, fraction, scale)
}

/// Parses a percentage such as `30%` or `12.5%`, in ppm of one whole.
pub fn percent_ppm(text: &str) -> Result<u64, UnitError> {
    let (whole, fraction, unit) = split(text.trim())?;
    match unit {
        "%" => scaled(whole, fraction, PPM / 100),
        "" => Err(UnitError::NoUnit),
        _ => Err(UnitError::UnknownUnit),
    }
}

/// Parses a number of CPUs such as `2cpus`, `1cpu` or `1.5cpus`, in ppm of one CPU.
pub fn cpus_ppm(text: &str) -> Result<u64, UnitError> {
    let (whole, fraction, unit) = split(text.trim())?;
    match unit {
        "cpu" | "cpus" => scaled(whole, fraction, PPM),
        "" => Err(UnitError::NoUnit),
        _ => Err(UnitError::UnknownUnit),
    }
}

/// Formats a duration for [`duration_ns`], in the shortest exact form.
pub fn show_duration(nanoseconds: u64) -> String {
    if nanoseconds == 0 {
        return "0s".into();
    }
    for (scale, unit) in [
        (NSEC_PER_SEC, "s"),
        (1_000_000, "ms"),
        (NSEC_PER_USEC, "us"),
    ] {
        if nanoseconds >= scale && nanoseconds.is_multiple_of(scale / 1_000) {
            return format!("{}{unit}", show_scaled(nanoseconds, scale));
        }
    }
    format!("{nanoseconds}ns")
}

/// Formats a percentage for [`percent_ppm`].
pub fn show_percent(ppm: u64) -> String {
    format!("{}%", show_scaled(ppm, PPM / 100))
}

/// Formats a number of CPUs for [`cpus_ppm`].
pub fn show_cpus(ppm: u64) -> String {
    format!("{}cpus", show_scaled(ppm, PPM))
}

/// Formats `value / scale` in decimal, without trailing zeros. `scale`: a power of ten.
fn show_scaled(value: u64, scale: u64) -> String {
    let rest = value % scale;
    if rest == 0 {
        return format!("{}", value / scale);
    }
    let digits = scale.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{}.{}", value / scale, fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_exact() {
        assert_eq!(duration_ns("600ms"), Ok(600_000_000));
        assert_eq!(duration_ns("0.1ms"), Ok(100_000));
        assert_eq!(duration_ns("1.000000001s"), Ok(1_000_000_001));
        assert_eq!(duration_ns("100 us"), Ok(100_000));
    }

    #[test]
    fn bad_texts_are_told_apart() {
        assert_eq!(duration_ns(""), Err(UnitError::Empty));
        assert_eq!(duration_ns("NaN"), Err(UnitError::NotANumber));
        assert_eq!(duration_ns("-5ms"), Err(UnitError::Negative));
        assert_eq!(duration_ns("5"), Err(UnitError::NoUnit));
        assert_eq!(duration_ns("5parsecs"), Err(UnitError::UnknownUnit));
        assert_eq!(duration_ns("0.5ns"), Err(UnitError::TooFine));
        assert_eq!(
            duration_ns("99999999999999999999s"),
            Err(UnitError::TooLarge)
        );
        assert_eq!(duration_ns("1.2.3s"), Err(UnitError::NotANumber));
        assert_eq!(duration_ns(".5s"), Err(UnitError::NotANumber));
        assert_eq!(percent_ppm("inf%"), Err(UnitError::NotANumber));
        assert_eq!(percent_ppm("30"), Err(UnitError::NoUnit));
        assert_eq!(cpus_ppm("2cores"), Err(UnitError::UnknownUnit));
    }

    proptest! {
        #[test]
        fn shown_durations_parse_back(nanoseconds in 0..u64::MAX / 2) {
            prop_assert_eq!(duration_ns(&show_duration(nanoseconds)), Ok(nanoseconds));
        }

        #[test]
        fn shown_percentages_parse_back(ppm in 0..100_000_000_u64) {
            prop_assert_eq!(percent_ppm(&show_percent(ppm)), Ok(ppm));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (duration_ns(&text), percent_ppm(&text), cpus_ppm(&text));
        }
    }
}
