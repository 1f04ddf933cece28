//! `flagstone protocols`: the registry.

use super::{Failure, say};
use flagstone::commit::{Info, Kind};
use flagstone::ftl::header;
use serde_json::json;
use std::process::ExitCode;

/// List the commit protocols: paper, isolation, cells, spare bytes, modes, settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object a protocol, one a line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let infos: Vec<&Info> = Kind::ALL.iter().map(|kind| kind.info()).collect();
    if args.json {
        for info in infos {
            let settings = info.settings.iter().map(|setting| {
                json!({"name": setting.name, "default": setting.default, "what": setting.what})
            });
            let object = json!({
                "name": info.name,
                "idea": info.idea,
                "paper": info.paper,
                "section": info.section,
                "isolation": info.isolation.name(),
                "cell_types": cells(info),
                "spare_bytes": header::SIZE + info.format.tail_bytes,
                "reprograms": info.reprograms,
                "page_written_twice_in_a_transaction": info.rewrites,
                "atomic": info.atomic,
                "as_published": info.as_published,
                "modes": modes(info),
                "settings": settings.collect::<Vec<_>>(),
            });
            say(&object.to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let new_table = || {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table
    };
    let mut settings = new_table();
    settings.set_header(["protocol", "setting", "default", ""]);
    let mut table = new_table();
    table.set_header([
        "protocol",
        "paper",
        "isolation",
        "cells",
        "spare",
        "modes",
        "idea",
    ]);
    for info in infos {
        let mut modes = modes(info);
        if info.as_published {
            modes.push("as-published");
        }
        table.add_row([
            info.name.to_string(),
            format!("{} {}", info.paper, info.section),
            info.isolation.name().to_string(),
            cells(info).join(" "),
            (header::SIZE + info.format.tail_bytes).to_string(),
            modes.join(" "),
            info.idea.to_string(),
        ]);
        for setting in info.settings {
            settings.add_row([info.name, setting.name, setting.default, setting.what]);
        }
    }
    say(&table.to_string());
    say("\nSettings:\n");
    say(&settings.to_string());
    Ok(ExitCode::SUCCESS)
}

fn modes(info: &Info) -> Vec<&'static str> {
    info.modes.iter().map(|mode| mode.name).collect()
}

fn cells(info: &Info) -> Vec<&'static str> {
    if info.reprograms {
        vec!["slc"]
    } else {
        vec!["slc", "mlc"]
    }
}
