//! Two thousand periods of a quota, charge by charge, from `plimsoll debug --trace`.

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_cgroupfs::CpuStat;
use plimsoll_scx::trace::{Line, TraceChange, TraceState};

use crate::common::{Running, is_stopped, nr_cpus, on_cpus, wait_for, wait_until};
use crate::rig::{Rig, all_cpus, binary_word};
use crate::shared::with_command;

const PERIODS: u64 = 2_000;
/// A slice ends at a tick at the latest (SPEC 1).
const TICK_NS: u64 = 4_000_000;

fn change_of(line: &Line) -> Option<&TraceChange> {
    match line {
        Line::Charged(change) | Line::Refilled(change) | Line::Served(change) => Some(change),
        Line::Begin(_) | Line::End(_) => None,
    }
}

/// A whole trace, its changes in their order.
struct Trace {
    begin: TraceState,
    changes: Vec<Line>,
    end: TraceState,
}

impl Trace {
    fn parse(text: &str) -> Self {
        let lines = text.lines().map(|line| {
            let parsed: Line = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            parsed
        });
        let mut lines: Vec<Line> = lines.collect();
        let (Some(Line::End(end)), Line::Begin(begin)) = (lines.pop(), lines.remove(0)) else {
            panic!("begin or end is missing");
        };
        let number = |line: &Line| change_of(line).map_or(0, |change| change.sequence);
        lines.sort_by_key(number);
        let expected = begin.sequence + 1..=end.sequence;
        assert!(
            lines.iter().map(number).eq(expected.clone()),
            "lines were lost: {} of {expected:?}",
            lines.len()
        );
        Self {
            begin,
            changes: lines,
            end,
        }
    }

    fn changes(&self) -> impl Iterator<Item = &TraceChange> {
        self.changes.iter().filter_map(change_of)
    }

    fn ran_ns(&self) -> u64 {
        self.changes().map(|change| change.ran_ns).sum()
    }

    fn refills(&self) -> u64 {
        self.changes().map(|change| change.refilled).sum()
    }

    /// The state at the end, worked out from the changes, but for runtime that a CPU has returned to
    /// the pool since.
    fn worked_out(&self) -> TraceState {
        let mut state = self.begin;
        let mut throttled_since = BTreeMap::new();
        for line in &self.changes {
            let Some(change) = change_of(line) else {
                continue;
            };
            let mut ran_ns = change.ran_ns;
            if change.refilled > 0 {
                let first_ns = state.boundary_ns + state.period_ns;
                state.boundary_ns += change.refilled * state.period_ns;
                assert_eq!(state.boundary_ns, change.boundary_ns, "{change:?}");
                // Time before the boundary belongs to the ended period.
                let behind_ns = ran_ns.min(change.when_ns.saturating_sub(first_ns));
                state.period_usage_ns += ran_ns - behind_ns;
                let is_throttled = !throttled_since.is_empty();
                close_period(&mut state, change.refilled - 1, is_throttled);
                ran_ns = behind_ns;
            }
            state.period_usage_ns += ran_ns;
            match line {
                Line::Charged(change) if change.throttled => {
                    throttled_since.entry(change.cpu).or_insert(change.when_ns);
                }
                Line::Served(change) => {
                    let since_ns = throttled_since.remove(&change.cpu).unwrap();
                    // Two CPUs may read the clock in one order and take the lock in the other.
                    state.throttled_ns += change.when_ns.saturating_sub(since_ns);
                }
                _ => (),
            }
            (state.sequence, state.pool_ns) = (change.sequence, change.pool_ns);
        }
        state
    }

    /// Largest overrun of a CPU's remaining time, in ns.
    fn worst_overrun_ns(&self) -> u64 {
        let over = |run: &TraceChange| {
            run.ran_ns
                .saturating_sub(run.local_ns.max(0).unsigned_abs())
        };
        self.changes().map(over).max().unwrap_or(0)
    }

    /// Largest excess of a window's usage over its initial pool and refills, over all windows that
    /// begin and end with any change.
    fn worst_excess_ns(&self) -> i64 {
        let quota_ns = self.begin.quota_ns.cast_signed();
        // Usage less refills since the begin, and the pool, after each change.
        let mut points = vec![(0, self.begin.pool_ns.cast_signed())];
        let mut sum = 0;
        for change in self.changes() {
            sum += change.ran_ns.cast_signed() - change.refilled.cast_signed() * quota_ns;
            points.push((sum, change.pool_ns.cast_signed()));
        }
        let (mut highest, mut worst) = (i64::MIN, i64::MIN);
        for (sum, pool) in points.into_iter().rev() {
            highest = highest.max(sum);
            worst = worst.max(highest - sum - pool);
        }
        worst
    }
}

/// Counts the end of a period, and of `more` unobserved ones after it.
fn close_period(state: &mut TraceState, more: u64, is_throttled: bool) {
    if is_throttled {
        state.nr_periods += 1 + more;
        state.nr_throttled += 1 + more;
    } else if state.period_usage_ns > 0 {
        state.nr_periods += 1;
    }
    if state.period_usage_ns > state.quota_ns {
        state.nr_bursts += 1;
        state.exceeded_ns += state.period_usage_ns - state.quota_ns;
    }
    state.period_usage_ns = 0;
}

/// A state's counters as `show` has them.
fn as_shown(state: &TraceState) -> CpuStat {
    CpuStat {
        nr_periods: state.nr_periods,
        nr_throttled: state.nr_throttled,
        throttled_usec: state.throttled_ns / 1000,
        nr_bursts: state.nr_bursts,
        burst_usec: state.exceeded_ns / 1000,
    }
}

fn start_trace(rig: &Rig) -> Running {
    let words = ["debug", "--trace", "work", "--duration", "100000s"];
    let tracer = rig.host.start(words);
    wait_until("it is traced", || tracer.stdout().contains('\n'));
    tracer
}

/// Periods that have ended in a trace so far.
fn refills_in(text: &str) -> u64 {
    // The last line may be half written.
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter_map(|line: Line| change_of(&line).map(|change| change.refilled))
        .sum()
}

/// Waits until the trace has all periods. The periods that the group has used are fewer than those
/// that have passed; the trace itself is read rarely, because that takes time from the group.
fn wait_for_periods(rig: &Rig, tracer: &Running) {
    let mut counted = 0;
    let mut look_at = rig.quota("work").nr_periods;
    wait_until("the trace has all periods", || {
        if rig.quota("work").nr_periods >= look_at {
            counted = refills_in(&tracer.stdout());
            look_at += PERIODS.saturating_sub(counted).min(PERIODS / 10);
        }
        counted >= PERIODS
    });
}

fn tell(pids: &[i32], signal: Signal) {
    for pid in pids {
        let told = kill(Pid::from_raw(*pid), signal);
        // The first of two loads may have ended.
        assert!(matches!(told, Ok(()) | Err(Errno::ESRCH)), "{told:?}");
    }
}

/// Stops a group until its counters are constant. A throttled task stops only when it runs again,
/// and its last period ends later.
fn stop(rig: &Rig, pids: &[i32]) {
    tell(pids, Signal::SIGSTOP);
    let group = rig.host.batch("work");
    wait_until("all of it has stopped", || {
        let slot = rig.slot(&group).unwrap();
        let is_at_rest = ["nr_runnable", "nr_running", "nr_throttled_cpus"]
            .iter()
            .all(|name| slot[*name] == 0);
        is_at_rest && pids.iter().all(|pid| is_stopped(*pid))
    });
    let mut before = rig.quota("work");
    let mut equal = 0;
    wait_until("its counters stand still", || {
        // Each look at the slots takes longer than a period.
        rig.slot(&group).unwrap();
        let now = rig.quota("work");
        equal = if now == before { equal + 1 } else { 0 };
        before = now;
        equal == 3
    });
}

/// Traces a group that is stopped before and afterwards, so that its counters are constant when
/// they are read. Also returns its usage by the kernel's count.
fn record(rig: &Rig) -> (Trace, u64) {
    let group = rig.host.batch("work");
    let pids = group.all_processes().unwrap();
    stop(rig, &pids);
    let used_ns = group.usage_ns().unwrap();
    let tracer = start_trace(rig);
    tell(&pids, Signal::SIGCONT);
    wait_for_periods(rig, &tracer);
    stop(rig, &pids);
    let used_ns = group.usage_ns().unwrap() - used_ns;
    let traced = tracer.stop();
    assert_eq!(traced.status.code(), Some(0), "{}", traced.stderr);
    let trace = Trace::parse(&traced.stdout);
    assert_eq!(rig.quota("work"), as_shown(&trace.end), "show");
    tell(&pids, Signal::SIGCONT);
    (trace, used_ns)
}

#[test]
fn no_window_of_2000_periods_exceeds_its_bound_and_counters_match_the_trace() {
    let rig = with_command();
    // First less than the quota, in bursts; then more.
    let script = r#""$0" load steady --percent 18 --grain 10ms --duration 5s
        exec "$0" load steady --percent 70 --grain 10ms --duration 80000s"#;
    let words = ["sh", "-c", script, &binary_word()];
    let knobs = "--quota 1ms/2ms --burst 2ms";
    let work = on_cpus(all_cpus(), || rig.batch("work", knobs, &words));
    let group = rig.host.batch("work");
    // The start of the program and its threads is over by then.
    wait_until("it runs", || {
        group.usage_ns().is_ok_and(|ns| ns > 200_000_000)
    });
    let (trace, used_ns) = record(&rig);
    let begin = trace.begin;
    let slack_ns = u64::from(begin.nr_cpus) * (begin.slice_ns + TICK_NS);
    assert_eq!(begin.nr_throttled_cpus, 0);
    assert!(trace.refills() >= PERIODS);
    assert!(trace.worst_overrun_ns() <= TICK_NS);
    assert!(trace.worst_excess_ns() <= slack_ns.cast_signed());
    let worked_out = trace.worked_out();
    assert!(worked_out.pool_ns <= trace.end.pool_ns);
    assert!(trace.end.pool_ns <= begin.quota_ns + begin.burst_ns);
    let worked_out = TraceState {
        pool_ns: trace.end.pool_ns,
        ..worked_out
    };
    assert_eq!(worked_out, trace.end, "the trace, and the scheduler");
    // The kernel's own is in microseconds, and read a moment before the tasks have stopped.
    assert!(
        trace.ran_ns().abs_diff(used_ns) < 2_000_000,
        "the trace, and the kernel"
    );
    work.stop();
}

/// Nothing traces here, so CPUs charge what they have taken without the pool.
#[test]
fn what_a_quota_dealt_in_2000_periods_is_all_that_was_used() {
    let rig = with_command();
    let work = rig.batch_burners("work", "--quota 1ms/2ms", all_cpus(), 2 * nr_cpus());
    let group = rig.host.batch("work");
    wait_until("the periods have ended", || {
        rig.quota("work").nr_periods >= PERIODS
    });
    let pids = group.all_processes().unwrap();
    // Then no CPU is throttled, so none is in debt.
    stop(&rig, &pids);
    let counted = rig.quota("work");
    // The first quota is there from the begin; that of the present period is not counted yet.
    let dealt_ns = (counted.nr_periods + 2) * 1_000_000;
    assert!(group.usage_ns().unwrap() <= dealt_ns, "{counted:?}");
    assert!(counted.nr_throttled > 0, "{counted:?}");
    tell(&pids, Signal::SIGCONT);
    work.stop();
}

#[test]
fn a_trace_needs_a_group_with_a_quota_and_is_read_by_one_at_a_time() {
    let rig = with_command();
    let work = rig.batch_burners("work", "--quota 30ms/100ms", 1, 1);
    let other = rig.batch_burners("other", "", 1, 1);
    let refused = |group: &str| {
        let words = ["debug", "--trace", group, "--duration", "1s"];
        rig.host.run(words).refusal().to_owned()
    };
    assert!(refused("other").contains("--quota"));
    assert!(refused("nobody").contains("nobody"));
    let tracer = start_trace(&rig);
    assert!(refused("work").contains("one at a time"));
    wait_until("something is traced", || {
        tracer.stdout().lines().count() > 5
    });
    tracer.kill_hard();
    // Without a reader it ends by itself; the next one starts with an empty buffer.
    let words = ["debug", "--trace", "work", "--duration", "10ms"];
    let first = wait_for("the next reader", || {
        let finished = rig.host.run(words);
        (finished.code() == 0).then_some(finished)
    });
    Trace::parse(&first.stdout);
    let next = start_trace(&rig);
    wait_until("a period ends", || refills_in(&next.stdout()) > 0);
    let trace = Trace::parse(&next.stop().good().stdout);
    assert!(trace.refills() > 0, "{} changes", trace.changes.len());
    other.stop();
    work.stop();
}
