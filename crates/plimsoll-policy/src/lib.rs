//! plimsoll-policy
