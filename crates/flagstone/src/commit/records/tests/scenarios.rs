//! Titled scenarios.
