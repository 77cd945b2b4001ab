//! Hard and soft caps, of a tree and of each task.

use std::thread;
use std::time::Duration;

use crate::common::{ms, native_or_vm, tasks_below, wait_until};
use crate::rig::{
    SHORT, all_cpus, binary_word, burners, expect_all_within, expect_within, rates_of,
    rates_of_tasks, rig,
};

/// The source's table at 9 %, as far as it takes no more than a quarter of a minute.
#[test]
fn tasks_that_need_50_ms_500_ms_and_1_s_get_9_percent_under_a_cap_of_9() {
    let Some(rig) = rig() else { return };
    // The least and the most, in percent. A virtual machine that stands still for longer than
    // the bucket is deep (4 ms) loses what it could have run; it never gets more.
    let least = |native| native_or_vm(native, 8.0);
    let rows = [
        ("50ms", least(9.0), 11.0),
        ("500ms", least(8.7), 9.3),
        ("1s", least(8.8), 9.2),
    ];
    let mut tries = Vec::new();
    let good = (0..3).any(|_| {
        // Each on a CPU of its own, all at the same time.
        let running: Vec<_> = rows
            .iter()
            .map(|(need, ..)| {
                let load = format!("need {need} --json");
                rig.batch_load(&format!("needs-{need}"), "--cap 9%", all_cpus(), &load)
            })
            .collect();
        let rates: Vec<f64> = running
            .into_iter()
            .map(|one| {
                let report = one.finish(Duration::from_secs(60)).good().json();
                100.0 * report["rate"].as_f64().unwrap()
            })
            .collect();
        let good = rows
            .iter()
            .zip(&rates)
            .all(|((_, least, most), rate)| (*least..=*most).contains(rate));
        tries.push(rates);
        good
    });
    println!("{rows:?}: {tries:.2?}");
    assert!(good, "{tries:.2?}");
    rig.assert_nothing_left();
}

#[test]
fn a_tree_cap_holds_across_a_storm_of_short_processes() {
    let Some(rig) = rig() else { return };
    // What starting and ending processes costs here is unknown: what was used is what counts.
    let load = "storm --processes 1000 --parallel 8 --cpu-total 5s";
    expect_within("tree cap 50 %, in percent of it", 100.0, 3.0, || {
        let work = rig.batch("work", "--cap 50%", &["sleep", "600"]);
        let group = rig.host.batch("work");
        wait_until("it is there", SHORT, || {
            group.is_populated().unwrap_or(false)
        });
        let storm = rig.fair_load(&group, all_cpus(), load);
        thread::sleep(ms(800));
        let rate = rates_of(&[&group], Duration::from_secs(3))[0];
        let mut storm = storm;
        assert!(storm.is_running(), "the storm is over too soon");
        storm.kill_hard();
        work.stop();
        rate / 0.5
    });
    rig.assert_nothing_left();
}

#[test]
fn under_a_cap_per_task_each_task_gets_its_own_also_forked_ones() {
    let Some(rig) = rig() else { return };
    let script = r#""$0" load burn --threads 2 --processes --duration 600s &
        exec "$0" load burn --threads 2 --duration 600s"#;
    let work = rig.batch(
        "work",
        "--cap 20% --per-task",
        &["sh", "-c", script, &binary_word()],
    );
    let group = rig.host.batch("work");
    let mut tids = Vec::new();
    wait_until("four burn", SHORT, || {
        let all = tasks_below(&group);
        let rates = rates_of_tasks(&all, ms(500));
        let busy = all.iter().zip(rates).filter(|(_, rate)| *rate > 15.0);
        tids = busy.map(|(tid, _)| *tid).collect();
        tids.len() == 4
    });
    let what = "threads and processes, percent of a CPU each";
    // No more than 20.4; less in a machine that stands still now and then.
    let least = native_or_vm(19.6, 18.0);
    let (middle, half) = ((20.4 + least) / 2.0, (20.4 - least) / 2.0);
    expect_all_within(what, &[middle; 4], half, || {
        rates_of_tasks(&tids, Duration::from_secs(4))
    });
    rig.end("work", work);
    rig.assert_nothing_left();
}

#[test]
fn over_its_soft_cap_a_group_gets_what_others_leave_and_all_of_it() {
    let Some(rig) = rig() else { return };
    let greedy = rig.batch_burners("greedy", "--soft-cap 10%", 1, 1);
    let (soft, plain) = (rig.host.batch("greedy"), rig.host.batch("plain"));
    wait_until("its rate is above its cap", SHORT, || {
        rig.host.show("greedy")["statistics"]["soft_cap"]["background"] == true
    });
    expect_within("alone, percent of a CPU", 99.0, 1.5, || {
        rates_of(&[&soft], Duration::from_secs(2))[0]
    });
    let modest = rig.batch_burners("plain", "", 1, 1);
    // Until its rate, which decays by half in a second, is its cap again it gets nothing.
    thread::sleep(ms(4000));
    expect_within("with competition, percent of a CPU", 10.0, 2.5, || {
        let seen = rates_of(&[&soft, &plain], Duration::from_secs(6));
        println!("soft {:.2} %, plain {:.2} %", seen[0], seen[1]);
        seen[0]
    });
    modest.stop();
    greedy.stop();
    rig.assert_nothing_left();
}

#[test]
fn with_a_soft_cap_of_0_a_group_gets_nothing_beside_another() {
    let Some(rig) = rig() else { return };
    let last = rig.batch_burners("last", "--soft-cap 0%", 1, 2);
    let first = rig.batch_burners("first", "", 1, 1);
    let groups = [rig.host.batch("last"), rig.host.batch("first")];
    assert_eq!(burners(&groups[0]).len(), 2);
    thread::sleep(ms(300));
    expect_within("percent of a CPU", 0.0, 0.2, || {
        let seen = rates_of(&[&groups[0], &groups[1]], Duration::from_secs(4));
        println!("last {:.2} %, first {:.2} %", seen[0], seen[1]);
        seen[0]
    });
    first.stop();
    last.stop();
    rig.assert_nothing_left();
}
