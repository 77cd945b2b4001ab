//! Times on the command line.

use std::ops::RangeInclusive;
use std::time::Duration;

use plimsoll_engine::knobs::units::duration_ns;

/// Returns a parser of times in a range, of which `allowed` tells the user.
pub fn time_in(
    range: RangeInclusive<Duration>,
    allowed: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let time = match duration_ns(text) {
            Ok(ns) => Duration::from_nanos(ns),
            Err(error) => return Err(format!("{}; allowed: {allowed}", error.problem())),
        };
        match range.contains(&time) {
            true => Ok(time),
            false => Err(format!("is out of range; allowed: {allowed}")),
        }
    }
}
