//! `flagstone protocols`: the registry.

use super::{Failure, say};
use flagstone::commit::{Info, Kind};
use flagstone::ftl::header;
use serde_json::json;
use std::process::ExitCode;

/// List the commit protocols: paper, isolation, cells, spare bytes, modes.
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
                "modes": info.modes,
            });
            say(&object.to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
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
        let mut modes: Vec<&str> = info.modes.to_vec();
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
    }
    say(&table.to_string());
    Ok(ExitCode::SUCCESS)
}

fn cells(info: &Info) -> Vec<&'static str> {
    if info.reprograms {
        vec!["slc"]
    } else {
        vec!["slc", "mlc"]
    }
}
