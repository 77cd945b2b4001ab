//! Quota and burst.

use plimsoll_policy::bandwidth::{Cpu, Params, Pool};
use plimsoll_sim::host::{Event, Host, Observer, Span};

use crate::fixture::{
    MSEC, SEC, Spans, assert_near, burn, group, latency, of, run, scenario, service,
};

#[test]
fn quota_is_exact_on_any_number_of_cpus() {
    for cpus in [1, 2, 8] {
        let knobs = r#""quota": "60ms/100ms""#;
        let report = run(&scenario(
            cpus,
            10 * SEC,
            vec![group("g", knobs, vec![burn(12)])],
        ));
        let own = of(&report, "g");
        assert_near("CPUs used", own.cpus_used, 0.6, 0.001);
        let bandwidth = own.bandwidth.unwrap();
        assert_eq!((bandwidth.nr_periods, bandwidth.nr_throttled), (100, 100));
    }
}

#[derive(Default)]
struct Watch {
    spans: Vec<Span>,
    pools: Vec<(u64, u64)>,
    throttled: Vec<u64>,
}

impl Observer for Watch {
    fn ran(&mut self, span: &Span) {
        self.spans.push(*span);
    }

    fn happened(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Refilled { runtime_ns, .. } => self.pools.push((now_ns, runtime_ns)),
            Event::Throttled { .. } => self.throttled.push(now_ns),
            _ => {}
        }
    }
}

/// Direct driver of the core: a pool, its runtime on one CPU, and a task there.
struct Direct {
    pool: Pool,
    cpu: Cpu,
    now_ns: u64,
}

impl Direct {
    /// Runs up to `end_ns`, and asks the core for more runtime whenever the CPU
    /// has used it up.
    fn run(&mut self, end_ns: u64) {
        loop {
            let left_ns = u64::try_from(self.cpu.runtime_ns()).unwrap_or(0);
            if left_ns == 0 || self.now_ns + left_ns >= end_ns {
                break;
            }
            self.now_ns += left_ns;
            assert!(self.pool.charge(&mut self.cpu, left_ns, self.now_ns));
        }
        self.pool.book(&mut self.cpu, end_ns - self.now_ns);
        self.now_ns = end_ns;
    }

    fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        assert!(
            self.pool.charge(&mut self.cpu, 0, now_ns),
            "ran while throttled"
        );
    }

    /// The task sleeps or is throttled.
    fn end(&mut self, throttled: bool) {
        if throttled {
            assert!(!self.pool.charge(&mut self.cpu, 0, self.now_ns));
        } else {
            self.pool.give_back(&mut self.cpu, true);
        }
    }

    fn serve(&mut self) {
        let now_ns = self.now_ns;
        self.pool
            .serve_in_order(std::slice::from_mut(&mut self.cpu), now_ns);
    }
}

/// Accounting of a service of one worker under a quota with burst equals that
/// of the core driven directly with the same run times, to the nanosecond:
/// runtime in the pool after each of 1,000 refills, throttling, and all
/// statistics.
#[test]
fn accounting_equals_the_core_driven_directly() {
    let knobs = r#""quota": "50ms/100ms", "burst": "30ms""#;
    let work = vec![service(450.0, "exp:1ms", 1, 5)];
    let scenario = scenario(1, 100 * SEC, vec![group("g", knobs, work)]);
    let mut host = Host::with_observer(&scenario, Watch::default()).unwrap();
    host.run_until(u64::MAX);
    let figures = host.report().groups[0].bandwidth.unwrap();
    let watch = host.into_observer();
    assert_eq!(watch.pools.len(), 1_000);

    let params = Params {
        quota_ns: Some(50 * MSEC),
        burst_ns: 30 * MSEC,
        ..Params::default()
    };
    let (pool, cpu) = (Pool::new(params, 0).unwrap(), Cpu::default());
    let mut direct = Direct {
        pool,
        cpu,
        now_ns: 0,
    };
    let mut spans = watch.spans.iter().peekable();
    let mut begun = false;
    for &(boundary_ns, runtime_ns) in &watch.pools {
        while let Some(span) = spans.next_if(|span| span.end_ns <= boundary_ns) {
            if !std::mem::take(&mut begun) {
                direct.begin(span.start_ns);
            }
            direct.run(span.end_ns);
            direct.end(watch.throttled.contains(&span.end_ns));
        }
        if let Some(across) = spans.peek().filter(|span| span.start_ns < boundary_ns) {
            if !begun {
                direct.begin(across.start_ns);
            }
            direct.run(boundary_ns);
            begun = true;
        }
        direct.now_ns = boundary_ns;
        direct.pool.refill(true, boundary_ns);
        assert_eq!(
            direct.pool.runtime_ns(),
            runtime_ns,
            "in the pool at {boundary_ns}"
        );
        direct.serve();
    }
    let stats = direct.pool.stats();
    assert_eq!(figures.nr_periods, stats.nr_periods);
    assert_eq!(figures.nr_throttled, stats.nr_throttled);
    assert_eq!(figures.throttled_ns, stats.throttled_ns);
    assert_eq!(figures.nr_bursts, stats.nr_bursts);
    assert_eq!(figures.burst_ns, stats.burst_ns);
    assert!(
        figures.nr_bursts > 10 && figures.nr_throttled >= 10,
        "{figures:?}"
    );
}

#[test]
fn burst_within_the_average_is_not_throttled() {
    let tail = |knobs: &str| {
        let mut bursts = service(0.001, "const:1ms", 2, 1);
        if let plimsoll_sim::scenario::Workload::Service(config) = &mut bursts {
            config.arrivals = plimsoll_load::Arrivals::Bursts {
                size: 24,
                every: std::time::Duration::from_millis(310),
                spread: std::time::Duration::ZERO,
                base_rate: 0.0,
            };
        }
        let report = run(&scenario(
            2,
            30 * SEC,
            vec![group("g", knobs, vec![bursts])],
        ));
        latency(of(&report, "g")).1
    };
    let free = tail("");
    let throttled = tail(r#""quota": "16ms/100ms""#);
    let bursting = tail(r#""quota": "16ms/100ms", "burst": "16ms""#);
    assert!(throttled > 5.0 * free, "{throttled} {free}");
    assert!(bursting <= 1.1 * free, "{bursting} {free}");
}

#[test]
fn switched_off_for_the_machine_a_burst_is_as_none_at_all() {
    let used = |knobs: &str, burst_enabled| {
        let work = vec![service(450.0, "exp:1ms", 1, 5)];
        let mut scenario = scenario(1, 20 * SEC, vec![group("g", knobs, work)]);
        scenario.machine.burst_enabled = burst_enabled;
        let report = run(&scenario).groups.remove(0);
        let stats = report.bandwidth.unwrap();
        (report.cpu_ns, stats.nr_throttled, stats.throttled_ns)
    };
    let burst = r#""quota": "50ms/100ms", "burst": "30ms""#;
    let off = used(burst, false);
    assert_eq!(off, used(r#""quota": "50ms/100ms""#, true));
    assert_ne!(off, used(burst, true));
}

/// Two CPUs share a quota. With a slice as large as the quota the first of them takes it all,
/// and the other has nothing until the next period.
#[test]
fn a_slice_as_large_as_the_quota_goes_to_one_cpu() {
    let most_of_one_cpu = |slice_ns| {
        let knobs = r#""quota": "20ms/100ms""#;
        let mut scenario = scenario(2, SEC, vec![group("g", knobs, vec![burn(2)])]);
        scenario.machine.bandwidth_slice_ns = slice_ns;
        let mut host = Host::with_observer(&scenario, Spans::default()).unwrap();
        host.run_until(99 * MSEC);
        let spans = host.into_observer().0;
        let ran_ns = |cpu| {
            let of_cpu = spans.iter().filter(|span| span.cpu == cpu);
            of_cpu.map(|span| span.end_ns - span.start_ns).sum::<u64>()
        };
        ran_ns(0).max(ran_ns(1))
    };
    assert_eq!(most_of_one_cpu(MSEC), 10 * MSEC);
    assert_eq!(most_of_one_cpu(20 * MSEC), 20 * MSEC);
}
