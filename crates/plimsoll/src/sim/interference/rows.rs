//! Converts command line arguments to rows of an experiment.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use plimsoll_engine::knobs::KnobError;
use plimsoll_engine::knobs::units::{percent_ppm, show_percent};
use plimsoll_engine::text_file::read_text;
use plimsoll_sim::interference::{
    BurstBound, Distribution, GroupParams, PARETO_ALPHA_DEFAULT, Row, SIGMA_DEFAULT, Samples,
};

use crate::error::{CommandError, Result};

const DISTRIBUTIONS: &str =
    "exponential, poisson, pareto, pareto:ALPHA, lognormal, lognormal:SIGMA, empirical";
const SHARE: &str = "a share such as 70%";
const GROUP: &str = "quota=10%,mean=70%,burst=200%,count=3, of which quota is needed";
/// Maximum size of a file of samples: the maximum number of values with all
/// their digits.
const SAMPLES_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of groups of one `--group`.
const COUNT_MAX: usize = plimsoll_sim::interference::GROUPS_MAX;
/// Default means: those of the source.
const MEANS: [f64; 4] = [0.3, 0.5, 0.7, 0.9];
/// Default numbers of groups: those of the source.
const GROUPS: [usize; 2] = [5, 20];

type Parsed<T> = std::result::Result<T, KnobError>;

/// Parses a share, written as `70%`.
fn share(knob: &'static str, text: &str, allowed: &str) -> Parsed<f64> {
    let ppm =
        percent_ppm(text).map_err(|error| KnobError::new(knob, text, error.problem(), allowed))?;
    Ok(ppm as f64 / 1e6)
}

/// Parses a number of groups.
fn count(text: &str) -> Parsed<usize> {
    let number = text.parse().ok();
    let number = number.filter(|count| (1..=COUNT_MAX).contains(count));
    let allowed = format!("1 to {COUNT_MAX}");
    number.ok_or_else(|| KnobError::new("groups", text, "is out of range", allowed))
}

fn mean(text: &str) -> Parsed<f64> {
    share("mean", text, SHARE)
}

/// Parses a burst: `200%` of the quota, or `unlimited`.
fn burst(text: &str) -> Parsed<BurstBound> {
    if text == "unlimited" {
        return Ok(BurstBound::Unlimited);
    }
    let allowed = "a share of the quota such as 200%, or unlimited";
    share("burst", text, allowed).map(BurstBound::Quotas)
}

/// A burst as the user would write it.
pub fn show_burst(burst: BurstBound) -> String {
    match burst {
        BurstBound::Quotas(quotas) => show_percent((quotas * 1e6).round() as u64),
        BurstBound::Unlimited => "unlimited".into(),
    }
}

/// Parses a distribution; `None` is that of the samples.
fn distribution(text: &str) -> Parsed<Option<Distribution>> {
    let refused = |problem| KnobError::new("distribution", text, problem, DISTRIBUTIONS);
    let (name, shape) = match text.split_once(':') {
        Some((name, shape)) => {
            let shape: f64 = shape
                .parse()
                .map_err(|_| refused("has a shape that is not a number"))?;
            (name, Some(shape))
        }
        None => (text, None),
    };
    let known = match (name, shape) {
        ("exponential", None) => Distribution::Exponential,
        ("poisson", None) => Distribution::Poisson,
        ("pareto", shape) => Distribution::Pareto {
            alpha: shape.unwrap_or(PARETO_ALPHA_DEFAULT),
        },
        ("lognormal", shape) => Distribution::Lognormal {
            sigma: shape.unwrap_or(SIGMA_DEFAULT),
        },
        ("empirical", None) => return Ok(None),
        ("exponential" | "poisson" | "empirical", Some(_)) => {
            return Err(refused("has no shape"));
        }
        _ => return Err(refused("is not a known distribution")),
    };
    Ok(Some(known))
}

/// One `--group`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupArg {
    group: GroupParams,
    burst: BurstBound,
    count: usize,
}

impl FromStr for GroupArg {
    type Err = KnobError;

    fn from_str(text: &str) -> Parsed<Self> {
        let refused = |problem: String| KnobError::new("group", text, problem, GROUP);
        let (mut quota, mut mean_share, mut burst_share, mut number_of) = (None, None, None, None);
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                return Err(refused(format!("has `{part}`, which is not KEY=VALUE")));
            };
            let is_new = match key {
                "quota" => quota.replace(share("quota", value, SHARE)?).is_none(),
                "mean" | "u" => mean_share.replace(mean(value)?).is_none(),
                "burst" => burst_share.replace(burst(value)?).is_none(),
                "count" => {
                    let problem = format!("has the count `{value}`, not 1 to {COUNT_MAX}");
                    let number = count(value).map_err(|_| refused(problem))?;
                    number_of.replace(number).is_none()
                }
                _ => return Err(refused(format!("has the unknown key `{key}`"))),
            };
            if !is_new {
                return Err(refused(format!("has `{key}` twice")));
            }
        }
        let quota = quota.ok_or_else(|| refused("has no quota".into()))?;
        Ok(Self {
            group: GroupParams {
                quota,
                mean: mean_share,
            },
            burst: burst_share.unwrap_or(BurstBound::Quotas(0.0)),
            count: number_of.unwrap_or(1),
        })
    }
}

/// Arguments that determine the rows.
#[derive(Debug, Clone, clap::Args)]
pub struct RowArgs {
    /// Distributions of demand: exponential, poisson, pareto[:ALPHA],
    /// lognormal[:SIGMA] or empirical [default: exponential; with --samples:
    /// empirical]
    #[arg(long, value_name = "D,…", value_delimiter = ',', value_parser = distribution)]
    distribution: Vec<Option<Distribution>>,
    /// File of measured demand, CSV: CPU per period as shares of the quota
    #[arg(long, value_name = "FILE")]
    samples: Option<std::path::PathBuf>,
    /// Mean demand as shares of the quota [default: 30%,50%,70%,90%; of samples: their own]
    #[arg(long, value_name = "U,…", value_delimiter = ',', value_parser = mean, allow_hyphen_values = true)]
    mean: Vec<f64>,
    /// Numbers of groups, whose quotas are equal parts of the machine [default: 5,20]
    #[arg(
        long,
        value_name = "M,…",
        value_delimiter = ',',
        value_parser = count,
        allow_hyphen_values = true
    )]
    groups: Vec<usize>,
    /// Bursts as shares of the quota, or unlimited [default: 100%,200%,unlimited]
    #[arg(
        long,
        value_name = "B,…",
        value_delimiter = ',',
        value_parser = burst,
        allow_hyphen_values = true
    )]
    burst: Vec<BurstBound>,
    /// Groups of different quotas instead; may be repeated, once for each kind
    /// of group. Quota is a share of the machine, mean and burst are shares of
    /// the quota
    #[arg(
        long,
        value_name = "quota=Q,mean=U,burst=B,count=N",
        conflicts_with_all = ["mean", "groups", "burst"]
    )]
    group: Vec<GroupArg>,
    /// Correlation of the groups' demands, 0 to 1
    #[arg(
        long,
        value_name = "R",
        default_value_t = 0.0,
        allow_hyphen_values = true
    )]
    correlation: f64,
}

impl RowArgs {
    pub fn rows(&self) -> Result<Vec<Row>> {
        let distributions = self.distributions()?;
        let mut rows = Vec::new();
        for distribution in &distributions {
            if !self.group.is_empty() {
                rows.push(self.unequal(distribution));
                continue;
            }
            for groups in or_default(&self.groups, &GROUPS) {
                let row = |mean| self.equal(distribution, *groups, mean);
                match self.means(distribution) {
                    means if means.is_empty() => rows.push(row(None)),
                    means => rows.extend(means.into_iter().map(|mean| row(Some(mean)))),
                }
            }
        }
        Ok(rows)
    }

    /// Means; empty for the samples' own.
    fn means(&self, distribution: &Distribution) -> Vec<f64> {
        if self.mean.is_empty() && distribution.mean().is_none() {
            return MEANS.to_vec();
        }
        self.mean.clone()
    }

    fn equal(&self, distribution: &Distribution, groups: usize, mean: Option<f64>) -> Row {
        let group = GroupParams {
            quota: 1.0 / groups as f64,
            mean,
        };
        let default = plimsoll_sim::interference::published::BURSTS;
        let bursts = or_default(&self.burst, &default).iter();
        Row {
            distribution: distribution.clone(),
            groups: vec![group; groups],
            correlation: self.correlation,
            columns: bursts.map(|burst| vec![*burst; groups]).collect(),
        }
    }

    fn unequal(&self, distribution: &Distribution) -> Row {
        let each = self.group.iter();
        let each =
            each.flat_map(|asked| std::iter::repeat_n((asked.group, asked.burst), asked.count));
        let (groups, bursts) = each.unzip();
        Row {
            distribution: distribution.clone(),
            groups,
            correlation: self.correlation,
            columns: vec![bursts],
        }
    }

    fn distributions(&self) -> Result<Vec<Distribution>> {
        let samples = self.samples.as_deref().map(read).transpose()?;
        if self.distribution.is_empty() {
            return Ok(vec![samples.map_or(Distribution::Exponential, |samples| {
                Distribution::Empirical(samples)
            })]);
        }
        let needs_them = self.distribution.contains(&None);
        if needs_them != samples.is_some() {
            return Err(CommandError::SamplesAlone);
        }
        let asked = self.distribution.iter();
        let known = asked.filter_map(|known| {
            let measured = || samples.clone().map(Distribution::Empirical);
            known.clone().or_else(measured)
        });
        Ok(known.collect())
    }
}

fn or_default<'a, T>(asked: &'a [T], default: &'a [T]) -> &'a [T] {
    if asked.is_empty() { default } else { asked }
}

fn read(path: &Path) -> Result<Arc<Samples>> {
    let shown = path.display().to_string();
    let text = read_text(path, SAMPLES_BYTES_MAX)?;
    Ok(Arc::new(Samples::parse(&shown, &text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_shapes_where_they_can() {
        let pareto = Distribution::Pareto { alpha: 2.5 };
        assert_eq!(distribution("pareto:2.5"), Ok(Some(pareto)));
        let default = Distribution::Lognormal { sigma: 1.0 };
        assert_eq!(distribution("lognormal"), Ok(Some(default)));
        for bad in ["exponential:2", "pareto:x", "normal", ""] {
            let error = distribution(bad).unwrap_err().to_string();
            assert!(error.contains("allowed: exponential, "), "{error}");
        }
    }

    #[test]
    fn a_group_is_read_in_any_order_of_its_keys() {
        let group: GroupArg = "burst=unlimited,u=70%,count=3,quota=12.5%".parse().unwrap();
        let expected = GroupArg {
            group: GroupParams {
                quota: 0.125,
                mean: Some(0.7),
            },
            burst: BurstBound::Unlimited,
            count: 3,
        };
        assert_eq!(group, expected);
        for (bad, word) in [
            ("mean=70%", "has no quota"),
            ("quota=10%,quota=20%", "`quota` twice"),
            ("quota=10", "has no unit"),
            ("quota=10%,burst=much", "unlimited"),
            ("quota=10%,count=0", "count `0`"),
            ("quota=10%,qouta=1%", "`qouta`"),
            ("10%", "KEY=VALUE"),
        ] {
            let error = bad.parse::<GroupArg>().unwrap_err().to_string();
            assert!(
                error.contains(word) && error.contains("; allowed: "),
                "{error}"
            );
        }
    }
}
