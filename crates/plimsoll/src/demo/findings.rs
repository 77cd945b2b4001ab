//! Summary of the measured figures in sentences.

use super::outcome::{DemoOutcome, PhaseResult, percent, times};

/// Share of the machine above which other programs distort the figures.
const OTHERS_NOTABLE: f64 = 0.05;
/// The share of requests above p99.9.
const TAIL: f64 = 0.001;
/// Minimum number of requests above a percentile for it to be significant.
const TAIL_MIN: f64 = 5.0;

/// The result in a few sentences, the most important first.
pub fn sentences(outcome: &DemoOutcome) -> Vec<String> {
    let doubt = noise(outcome).map(|noise| format!("But {noise}."));
    [
        neighbours(outcome),
        headroom(outcome),
        bursts(outcome),
        doubt,
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn ratio_of(phase: &PhaseResult) -> Option<String> {
    phase.p99_ratio.map(times)
}

fn neighbours(outcome: &DemoOutcome) -> Option<String> {
    let equal = outcome.phase("equal")?;
    let batch = outcome.phase("batch")?;
    let alone = outcome.phase("alone")?;
    Some(format!(
        "Beside burners in an equal group the service's p99 was {} what it is alone; with the \
         burners in the batch class it was {}. They got {} of the same work done, and the machine \
         was {} busy instead of {}.",
        ratio_of(equal)?,
        ratio_of(batch)?,
        percent(batch.burners?.work_ratio?),
        percent(batch.busy_ratio),
        percent(alone.busy_ratio)
    ))
}

fn headroom(outcome: &DemoOutcome) -> Option<String> {
    let phase = outcome.phase("headroom")?;
    Some(format!(
        "With 30 % headroom on top the machine was {} busy and p99 {} that of alone.",
        percent(phase.busy_ratio),
        ratio_of(phase)?
    ))
}

fn bursts(outcome: &DemoOutcome) -> Option<String> {
    let (quota, burst) = (outcome.phase("quota")?, outcome.phase("quota-burst")?);
    Some(format!(
        "For a bursty service the quota alone made p99 {} what it is without quota; the same \
         quota with burst made it {}.",
        ratio_of(quota)?,
        ratio_of(burst)?
    ))
}

/// Describes the distortion by other programs, if it is large.
fn noise(outcome: &DemoOutcome) -> Option<String> {
    let all = || outcome.phases.iter().chain(&outcome.bursts);
    let by_others = |a: &&PhaseResult, b: &&PhaseResult| a.others_ratio.total_cmp(&b.others_ratio);
    let (least, most) = (all().min_by(by_others)?, all().max_by(by_others)?);
    (most.others_ratio > OTHERS_NOTABLE).then(|| {
        format!(
            "other programs used {} (`{}`) to {} (`{}`) of the machine, so that the phases are \
             hard to compare; repeat it on an idle machine",
            percent(least.others_ratio),
            least.label,
            percent(most.others_ratio),
            most.label
        )
    })
}

/// Reasons to doubt the figures.
pub fn cautions(outcome: &DemoOutcome) -> Vec<String> {
    let mut cautions = Vec::new();
    if outcome.interrupted {
        cautions.push("ended early: some phases were not measured".into());
    }
    cautions.extend(noise(outcome));
    let fewest = outcome.phases.iter().map(|phase| phase.requests).min();
    let beyond = fewest.map_or(f64::MAX, |requests| requests as f64 * TAIL);
    if beyond < TAIL_MIN {
        cautions.push(format!(
            "p99.9 rests on the slowest {:.0} requests or fewer; a longer --phase makes it firmer",
            beyond.ceil()
        ));
    }
    cautions
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn sentences_cover_measured_phases_only() {
        let mut outcome = fixture::outcome();
        let all = sentences(&outcome).join(" ");
        for part in ["batch class", "30 % headroom", "bursty"] {
            assert!(all.contains(part), "{all}");
        }
        outcome.phases.truncate(2);
        outcome.bursts.clear();
        assert!(sentences(&outcome).is_empty());
    }

    #[test]
    fn cautions_name_noise_interruption_and_thin_tails() {
        let mut outcome = fixture::outcome();
        outcome.interrupted = true;
        outcome.phases[0].others_ratio = 0.4;
        outcome.phases[1].requests = 900;
        let all = cautions(&outcome).join(" ");
        for part in ["ended early", "40 % (`alone`)", "slowest 1 requests"] {
            assert!(all.contains(part), "{all}");
        }
    }
}
