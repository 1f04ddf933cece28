//! `flagstone device`: lists and shows devices, prints the schema of device files, and saves filled
//! devices.

use super::settings::{Given, Owner};
use super::{Failure, mebibytes, named, note, plain_table, runs, say, share};
use flagstone::commit::{Kind, Options};
use flagstone_lab::device::{DEFAULT, DeviceSpec, DeviceSpecError, presets, schema};
use flagstone_lab::effort::Effort;
use flagstone_lab::image;
use flagstone_lab::output::Output;
use flagstone_lab::replay::{Setup, Terms};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List devices, print one as a file, print the schema of device files, or fill and save one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the presets.
    List,
    /// Print a device as a TOML file, each number with its source.
    Show {
        /// A preset (see `flagstone device list`) or a device file.
        device: String,
    },
    /// Print the JSON schema of device files.
    Schema,
    /// Fill a device, overwrite it until garbage collection runs steadily, and save its flash for
    /// `flagstone compare --image`.
    Fill(Fill),
    /// Simulate years of use on cells whose bit errors grow. Restarts the device every month and
    /// reads every page at the end.
    Age(super::age::Age),
}

#[derive(Debug, clap::Args)]
struct Fill {
    /// A preset (see `flagstone device list`) or a device file.
    device: String,
    /// The protocol that runs on it.
    #[arg(long, value_parser = named(Kind::ALL.iter().map(|kind| (*kind, kind.info().name))))]
    protocol: Kind,
    /// Share of the logical pages to fill.
    #[arg(long, default_value_t = 0.7, value_parser = share)]
    fill: f64,
    /// Seed of the overwrites.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use the protocol as published instead of the repaired variant, if the two differ.
    #[arg(long)]
    as_published: bool,
    /// Set a parameter of the protocol; may be repeated. `compare --image` needs the same.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The file to write.
    #[arg(short, long, value_name = "IMAGE")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::List => list(),
        Action::Show { device } => say(load(device)?.to_toml().trim_end()),
        Action::Schema => say(schema().trim_end()),
        Action::Fill(args) => fill(args)?,
        Action::Age(args) => return super::age::run(args),
    }
    Ok(ExitCode::SUCCESS)
}

/// Fills a device under a protocol and saves it. All arguments, and the output, are checked before.
fn fill(args: &Fill) -> Result<(), Failure> {
    let kind = args.protocol;
    let set = Given::parse(&args.set)?;
    set.check(&[Owner::of(kind.info())], &Owner::protocols())?;
    let mut options = Options::default();
    options.as_published = args.as_published;
    options.settings = set.of(kind.info());
    let setup = Setup {
        kind,
        options,
        device: load(&args.device)?,
        isolation: None,
        terms: Terms::on_filled(args.fill, args.seed),
    };
    let refused = |error: flagstone_lab::replay::ReplayError| {
        if error.is_refusal() {
            Failure::Usage(error.to_string())
        } else {
            error.into()
        }
    };
    if args.as_published && setup.kind.info().published.is_none() {
        return Err(Failure::Usage(format!(
            "the published variant of {} does not differ: leave --as-published out",
            setup.kind
        )));
    }
    let fill = setup.fill();
    fill.starts().map_err(refused)?;
    let output = Output::new(&args.out, &[Path::new(&args.device)])?;
    let filling = fill.filling();
    let filled = runs::watched("filling", || {
        let effort = Effort::current();
        effort.plan(filling);
        effort.within(kind.info().name, filling, || fill.filled())
    });
    let (device, _) = filled.map_err(refused)?;
    let bytes = image::save(&output, &device, &setup.saved())?;
    note(&format!(
        "{}: {} on {}, {:.0} % full, {}",
        args.out.display(),
        setup.kind,
        setup.device.name,
        args.fill * 100.0,
        mebibytes(bytes)
    ));
    Ok(())
}

/// Loads a preset or a device file. An unknown name or an invalid file is a usage error.
pub(crate) fn load(name_or_path: &str) -> Result<DeviceSpec, Failure> {
    DeviceSpec::load(name_or_path).map_err(|error| match error {
        DeviceSpecError::Read { ref source, .. } => Failure::Usage(format!("{error}: {source}")),
        error => Failure::Usage(error.to_string()),
    })
}

/// Prints the table of presets.
fn list() {
    let mut table = plain_table();
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
