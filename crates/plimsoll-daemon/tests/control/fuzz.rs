//! Arbitrary bytes and requests of clients.

use plimsoll_daemon::control::protocol::{Answer, Envelope, Request, VERSION};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_get_an_answer_for_each_line_and_do_not_spoil_the_next_request(
        mut bytes in vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..4000)
    ) {
        bytes.push(b'\n');
        bytes.extend(line(&Request::Reload));
        let rig = Rig::new(Echo::default());
        let mut answers = converse(&rig, &bytes);
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        prop_assert_eq!(answers.len(), lines);
        prop_assert_eq!(answers.pop(), Some(Answer::Text("Reload".into())));
        for answer in &answers {
            let is_refused =
                matches!(answer, Answer::Refused(why) if why.starts_with("not a request"));
            prop_assert!(is_refused, "{answer:?}");
        }
        prop_assert_eq!((rig.handler.answered(), rig.handler.unreadable()), (1, answers.len()));
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
}
