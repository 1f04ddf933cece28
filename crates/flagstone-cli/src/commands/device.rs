//! `flagstone device`: which devices there are, what one is, and what a device file may say.

use super::{Failure, say};
use flagstone_lab::device::{DEFAULT, DeviceSpec, DeviceSpecError, presets, schema};
use std::process::ExitCode;

/// List devices, show one as a file, print the schema of device files.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the presets.
    List,
    /// Print a device as a TOML file, each number with its source.
    Show {
        /// A preset, or a device file.
        device: String,
    },
    /// Print the JSON schema of device files.
    Schema,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::List => list(),
        Action::Show { device } => say(load(device)?.to_toml().trim_end()),
        Action::Schema => say(schema().trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

/// A device for a command: an unknown name or a wrong file is wrong use.
pub fn load(name_or_path: &str) -> Result<DeviceSpec, Failure> {
    DeviceSpec::load(name_or_path).map_err(|error| match error {
        DeviceSpecError::Read { ref source, .. } => Failure::Usage(format!("{error}: {source}")),
        error => Failure::Usage(error.to_string()),
    })
}

fn list() {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "device", "capacity", "cells", "planes", "page", "block", "read", "program", "erase", "",
    ]);
    for spec in presets() {
        let (geometry, timing) = (&spec.geometry, &spec.timing);
        let mut about = spec.about.clone();
        if spec.name == DEFAULT {
            about.push_str(" (the default)");
        }
        table.add_row([
            spec.name.clone(),
            spec.capacity(),
            geometry.cell.to_string(),
            geometry.planes().to_string(),
            format!("{}+{} B", geometry.page_bytes, geometry.spare_bytes),
            format!("{} pages", geometry.pages_per_block),
            format!("{} us", timing.read.0 / 1000),
            format!("{} us", timing.program.0 / 1000),
            format!("{} us", timing.erase.0 / 1000),
            about,
        ]);
    }
    say(&table.to_string());
}
