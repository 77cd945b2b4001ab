//! Programs in the guest.

/// Folder in the guest for the programs.
pub const FOLDER: &str = "/lab";
/// Path of Plimsoll in the guest.
pub const PLIMSOLL: &str = "/lab/plimsoll";
/// Path of this program in the guest.
pub const LAB: &str = "/lab/plimsoll-lab";
