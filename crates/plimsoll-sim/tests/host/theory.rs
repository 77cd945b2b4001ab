//! Queues with known waiting times.

use crate::fixture::{SEC, assert_near, burn, group, latency, of, run, scenario, service};

/// Average of the mean latencies of independent runs, and half the width of
/// their 99 % confidence interval.
fn mean_latency_us(rate: f64, demand: &str, cpus: u32) -> (f64, f64) {
    const RUNS: u64 = 16;
    let means: Vec<f64> = (0..RUNS)
        .map(|seed| {
            let web = group("web", "", vec![service(rate, demand, cpus as usize, seed)]);
            let mut scenario = scenario(cpus, 100 * SEC, vec![web]);
            scenario.warmup_ns = 2 * SEC;
            latency(of(&run(&scenario), "web")).0
        })
        .collect();
    interval(&means, 2.947) // Student's t, 15 degrees of freedom, 99 %.
}

/// Mean of independent runs, and half the width of its confidence interval.
fn interval(values: &[f64], student_t: f64) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, student_t * (variance / n).sqrt())
}

#[test]
fn m_m_1_queue_matches_theory() {
    // Mean time in the system 1 / (µ - λ): µ = 1000/s, λ = 700/s.
    let (mean, half) = mean_latency_us(700.0, "exp:1ms", 1);
    assert_near("time in system, us", mean, 1e6 / 300.0, half);
    assert!(half < 150.0, "too wide to mean anything: {half}");
}

#[test]
fn m_d_1_queue_matches_theory() {
    // Pollaczek-Khinchine: W = λ E(S²) / 2(1 - ρ); S constant 1 ms.
    let (mean, half) = mean_latency_us(700.0, "const:1ms", 1);
    let wait_us = 700.0 * 1e-6 / (2.0 * 0.3) * 1e6;
    assert_near("time in system, us", mean, 1e3 + wait_us, half);
    assert!(half < 60.0, "too wide to mean anything: {half}");
}

#[test]
fn m_g_1_queue_matches_theory() {
    // Bimodal: 5 ms for one request in ten, else 0.5 ms. E(S) = 0.95 ms, E(S²)
    // = 2.725 ms².
    let (mean, half) = mean_latency_us(600.0, "bimodal:500us,5ms,0.1", 1);
    let (rho, second) = (600.0 * 0.95e-3, 2.725e-6);
    let wait_us = 600.0 * second / (2.0 * (1.0 - rho)) * 1e6;
    assert_near("time in system, us", mean, 950.0 + wait_us, half);
    assert!(half < 200.0, "too wide to mean anything: {half}");
}

#[test]
fn m_m_4_queue_matches_erlang_c() {
    // Four servers, ρ = 0.8: offered load a = 3.2.
    let (mean, half) = mean_latency_us(3_200.0, "exp:1ms", 4);
    let a: f64 = 3.2;
    let tail = a.powi(4) / 24.0 / (1.0 - 0.8);
    let head = 1.0 + a + a * a / 2.0 + a.powi(3) / 6.0;
    let erlang_c = tail / (head + tail);
    let wait_us = erlang_c / (4_000.0 - 3_200.0) * 1e6;
    assert_near("time in system, us", mean, 1e3 + wait_us, half);
    assert!(half < 60.0, "too wide to mean anything: {half}");
}

#[test]
fn the_fair_class_shares_by_weight_and_by_nice() {
    let groups = vec![
        group("light", r#""weight": "100""#, vec![burn(3)]),
        group("heavy", r#""weight": "300""#, vec![burn(2)]),
        group("nice", r#""weight": "100", "nice": "5""#, vec![burn(1)]),
    ];
    let report = run(&scenario(1, 20 * SEC, groups));
    for (name, share) in [("light", 0.2), ("heavy", 0.6), ("nice", 0.2)] {
        assert_near(name, of(&report, name).cpus_used, share, 0.003);
    }
}

#[test]
fn fair_tasks_on_many_cpus_share_by_weight() {
    let groups = vec![
        group("light", r#""weight": "100""#, vec![burn(16)]),
        group("heavy", r#""weight": "300""#, vec![burn(16)]),
    ];
    let report = run(&scenario(4, 20 * SEC, groups));
    assert_near("light", of(&report, "light").cpus_used, 1.0, 0.05);
    assert_near("heavy", of(&report, "heavy").cpus_used, 3.0, 0.05);
}

/// A bucket of Q + B, refilled by Q once a period, and one exponential demand a
/// period that waits while the bucket is empty. The deficit of the bucket plus
/// the waiting demand follows Lindley's recursion with a constant: it is the
/// waiting time of a D/M/1 queue, whose time in the system is exponential
/// (Kleinrock, Queueing Systems I, 6.4). So a period is throttled with
/// probability exp(-µ (1 - σ) (Q + B)), where σ = exp(-µ (1 - σ) Q).
#[test]
fn throttling_probability_matches_a_d_m_1_queue() {
    const RUNS: u64 = 8;
    let (quota_ms, burst_ms, mean_ms) = (400.0, 400.0, 300.0);
    let shares: Vec<f64> = (0..RUNS)
        .map(|seed| {
            let mut work = service(1.0, "exp:300ms", 1, seed);
            if let plimsoll_sim::scenario::Workload::Service(config) = &mut work {
                config.arrivals = plimsoll_load::Arrivals::Uniform { rate: 1.0 };
            }
            let knobs = r#""quota": "400ms/1s", "burst": "400ms""#;
            let report = run(&scenario(
                1,
                14_000 * SEC,
                vec![group("g", knobs, vec![work])],
            ));
            let figures = of(&report, "g").bandwidth.expect("the group has a quota");
            figures.nr_throttled as f64 / figures.nr_periods as f64
        })
        .collect();
    let rate = 1.0 / mean_ms;
    let mut sigma: f64 = 0.5;
    for _ in 0..1_000 {
        sigma = (-rate * (1.0 - sigma) * quota_ms).exp();
    }
    let expected = (-rate * (1.0 - sigma) * (quota_ms + burst_ms)).exp();
    let (mean, half) = interval(&shares, 3.499); // Student's t, 7 degrees, 99 %.
    assert_near("throttled periods", mean, expected, half);
    assert!(half < 0.1 * expected, "too wide to mean anything: {half}");
}
