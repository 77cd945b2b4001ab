//! What bursts of some groups cost the others: a Monte Carlo experiment.
