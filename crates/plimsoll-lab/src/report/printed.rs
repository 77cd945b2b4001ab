//! Published figures of the sources.

/// Average latencies at the source's loads 1.0 to 1.6: alone, beside an encoder, with headroom of
/// 30 and of 20 % (the table of the headroom patches, 2019).
pub const PRINTED_LATENCY: [(u8, [Option<f64>; 4]); 7] = [
    (100, [Some(1.00), Some(1.82), Some(1.26), Some(1.14)]),
    (110, [Some(1.10), Some(2.74), Some(1.26), Some(1.32)]),
    (120, [Some(1.10), None, Some(1.29), Some(1.38)]),
    (130, [Some(1.10), None, Some(1.32), Some(1.49)]),
    (140, [Some(1.15), None, Some(1.29), Some(1.85)]),
    (150, [Some(1.24), None, Some(1.32), None]),
    (160, [Some(1.74), None, Some(1.50), None]),
];
