//! placeholder

use crate::commands::Failure;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Soak {}

pub(super) fn soak(_: &Soak) -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}
