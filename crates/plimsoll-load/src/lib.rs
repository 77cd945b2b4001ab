//! plimsoll-load
