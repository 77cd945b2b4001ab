//! Workloads that only the lab has.

/// The lab's own program, which `plimsoll-lab promises` puts into the guest.
pub fn lab() -> String {
    std::env::var("PLIMSOLL_LAB_BIN").expect("PLIMSOLL_LAB_BIN names plimsoll-lab")
}

/// `plimsoll-lab load LOAD`.
pub fn lab_load(load: &str) -> Vec<String> {
    let words = load.split_whitespace().map(str::to_owned);
    [lab(), "load".to_owned()]
        .into_iter()
        .chain(words)
        .collect()
}
