//! Foreign cgroups with knobs: every change is undone, however the process ends.

mod ends;
mod external;
mod knobs;
mod many;
mod refused;
mod rig;
