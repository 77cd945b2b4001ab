//! Figures, as the lab reads them.

use std::ops::RangeInclusive;

use serde_json::json;

/// No bound from above, or below.
pub const ANY: f64 = f64::INFINITY;

/// The promises of a document.
pub struct Promises(&'static str);

pub const SPEC_1: Promises = Promises("SPEC 1");
pub const SPEC_2: Promises = Promises("SPEC 2");
pub const SPEC_3: Promises = Promises("SPEC 3");
pub const SPEC_4: Promises = Promises("SPEC 4");
pub const SPEC_6: Promises = Promises("SPEC 6");
pub const DAEMON: Promises = Promises("operator's guide");

impl Promises {
    /// Prints a figure with its bounds; never fails for a bound.
    pub fn figure(&self, what: &str, value: f64, unit: &str, bounds: RangeInclusive<f64>) {
        assert!(value.is_finite(), "{what} was not measured: {value}");
        // An infinite number is null in JSON.
        let figure = json!({
            "what": what,
            "value": value,
            "unit": unit,
            "least": bounds.start(),
            "most": bounds.end(),
            "source": self.0,
        });
        println!("FIGURE {figure}");
    }
}

/// Bounds at a distance of a value.
pub fn near(value: f64, within: f64) -> RangeInclusive<f64> {
    value - within..=value + within
}

/// Bounds with a tolerance in percent of a value.
pub fn about(value: f64, percent: f64) -> RangeInclusive<f64> {
    near(value, value * percent / 100.0)
}
