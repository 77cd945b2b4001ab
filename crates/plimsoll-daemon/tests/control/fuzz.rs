//! Arbitrary bytes and requests of clients.

use plimsoll_daemon::control::protocol::{Answer, Envelope, Request, VERSION};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::rig::{Echo, Rig};

/// Every request and every knob, and neighbours that could be confused.
const REQUESTS: [&str; 12] = [
    r#""reload""#,
    r#""debug""#,
    r#""restore""#,
    r#"{"burst": {"enabled": false}}"#,
    r#"{"show": {}}"#,
    r#"{"show": {"target": "/a\u0000\"\\\n\ud83d\ude00", "details": true}}"#,
    r#"{"tasks": {"target": ""}}"#,
    r#"{"reset": {"target": "\u00e4\u2028"}}"#,
    r#"{"end": {"name": "job", "release": true}}"#,
    r#"{"set": {"target": "7", "choice": {"best_effort": true, "dry_run": true}, "knobs": {
        "class": "batch", "nice": "-3", "weight": "97", "cpu-limit": "80%", "host-tuning": true,
        "quota": "5ms/5ms", "burst": "3ns", "tolerance": "0", "headroom": "0.0003%"}}}"#,
    r#"{"set": {"target": "/d", "choice": {"dry_run": true}, "knobs": {
        "class": "normal", "nice": "3", "weight": "103", "quota": "max/3ms"}}}"#,
    r#"{"run": {"name": "job", "is_numbered": true, "subject": "a b", "knobs": {
        "cap": "0.5%", "per-task": true, "half-life": "3s", "soft-cap": "0%",
        "headroom": "3cpus", "tolerance": "1ms/100ms"}}}"#,
];

fn request() -> impl Strategy<Value = Request> {
    select(&REQUESTS[..]).prop_map(|json| serde_json::from_str(json).unwrap())
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
