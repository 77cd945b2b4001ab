//! Arbitrary bytes and requests of clients.

use plimsoll_daemon::control::protocol::{Answer, Choice, Envelope, Request, Run, Set, VERSION};
use plimsoll_engine::knobs::Knobs;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::rig::{Echo, Rig};

/// Every knob, and neighbours that could be confused.
const KNOBS: [&str; 8] = [
    "{}",
    r#"{"class": "batch", "nice": "-3", "weight": "97", "cpu-limit": "80%", "host-tuning": true}"#,
    r#"{"class": "normal", "nice": "3", "weight": "103"}"#,
    r#"{"quota": "5ms/5ms", "burst": "3ns"}"#,
    r#"{"quota": "max/3ms"}"#,
    r#"{"cap": "0.5%", "per-task": true, "half-life": "3s"}"#,
    r#"{"soft-cap": "0.5%", "headroom": "3cpus", "tolerance": "1ms/100ms"}"#,
    r#"{"cap": "0.1%", "soft-cap": "0%", "headroom": "0.0003%", "tolerance": "0"}"#,
];

fn knobs() -> impl Strategy<Value = Knobs> {
    select(&KNOBS[..]).prop_map(|json| serde_json::from_str(json).unwrap())
}

/// Any request, with two choices for each.
fn request() -> impl Strategy<Value = Request> {
    let parts = (
        0..10,
        any::<String>(),
        knobs(),
        any::<bool>(),
        any::<bool>(),
    );
    parts.prop_map(|(kind, target, knobs, one, other)| {
        let choice = Choice {
            best_effort: one,
            dry_run: other,
            ..Choice::default()
        };
        match kind {
            0 => Request::Set(Box::new(Set {
                target,
                knobs,
                choice,
            })),
            1 => Request::Run(Box::new(Run {
                subject: target.clone(),
                name: target,
                is_numbered: one,
                knobs,
                choice,
            })),
            2 => Request::Show {
                target: one.then_some(target),
                details: other,
            },
            3 => Request::Tasks { target },
            4 => Request::Burst { enabled: one },
            5 => Request::Reset { target },
            6 => Request::End {
                name: target,
                release: one,
            },
            7 => Request::Reload,
            8 => Request::Debug,
            _ => Request::Restore,
        }
    })
}

/// Returns the answers of a server to a client that sends these bytes and nothing else.
fn converse(rig: &Rig, bytes: &[u8]) -> Vec<Answer> {
    let text = rig.exchange(bytes);
    let answer = |line| serde_json::from_str(line).unwrap();
    text.lines().map(answer).collect()
}

fn line(request: &Request) -> Vec<u8> {
    let envelope = Envelope {
        version: VERSION,
        request: request.clone(),
    };
    let mut line = serde_json::to_vec(&envelope).unwrap();
    line.push(b'\n');
    line
}

fn lines_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// One way to spoil a request.
#[derive(Debug, Clone)]
enum Fault {
    Replace(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Repeat(Index, usize),
    Cut(Index),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Fault::Replace(at, byte)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Fault::Insert(at, byte)),
        any::<Index>().prop_map(Fault::Remove),
        (any::<Index>(), 2usize..200).prop_map(|(at, times)| Fault::Repeat(at, times)),
        any::<Index>().prop_map(Fault::Cut),
    ]
}

fn spoil(bytes: &mut Vec<u8>, fault: &Fault) {
    if bytes.is_empty() {
        return;
    }
    match fault {
        Fault::Replace(at, byte) => *at.get_mut(bytes) = *byte,
        Fault::Insert(at, byte) => bytes.insert(at.index(bytes.len()), *byte),
        Fault::Remove(at) => drop(bytes.remove(at.index(bytes.len()))),
        Fault::Repeat(at, times) => {
            let at = at.index(bytes.len());
            let piece = vec![bytes[at]; *times];
            bytes.splice(at..at, piece);
        }
        Fault::Cut(at) => bytes.truncate(at.index(bytes.len())),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_get_an_answer_for_each_line_and_no_more(
        bytes in vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..4000)
    ) {
        let rig = Rig::new(Echo::default());
        let answers = converse(&rig, &bytes);
        prop_assert_eq!(answers.len(), lines_in(&bytes));
        for answer in &answers {
            let is_refused =
                matches!(answer, Answer::Refused(why) if why.starts_with("not a request"));
            prop_assert!(is_refused, "{answer:?}");
        }
        prop_assert_eq!((rig.handler.answered(), rig.handler.unreadable()), (0, answers.len()));
    }

    #[test]
    fn every_request_arrives_as_it_was_sent(requests in vec(request(), 1..5)) {
        let bytes: Vec<u8> = requests.iter().flat_map(line).collect();
        let rig = Rig::new(Echo::default());
        let answers = converse(&rig, &bytes);
        let echoes = requests.iter().map(|request| Answer::Text(format!("{request:?}")));
        prop_assert_eq!(answers, echoes.collect::<Vec<_>>());
        prop_assert_eq!(rig.handler.answered(), requests.len());
    }

    #[test]
    fn a_spoilt_request_does_not_spoil_the_next(
        request in request(), faults in vec(fault(), 1..4)
    ) {
        let mut bytes = line(&request);
        faults.iter().for_each(|fault| spoil(&mut bytes, fault));
        bytes.push(b'\n');
        bytes.extend(line(&Request::Reload));
        let answers = converse(&Rig::new(Echo::default()), &bytes);
        prop_assert_eq!(answers.len(), lines_in(&bytes));
        prop_assert_eq!(answers.last(), Some(&Answer::Text("Reload".into())));
    }
}
