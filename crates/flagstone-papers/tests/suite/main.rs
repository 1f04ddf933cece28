//! Tests over traces, campaigns and experiments together.

mod fuzzing;
mod stops;
