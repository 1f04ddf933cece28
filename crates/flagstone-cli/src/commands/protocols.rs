//! `flagstone protocols`: lists the commit protocols.

use super::settings::as_json;
use super::{Failure, plain_table, say};
use flagstone::commit::{Info, Kind};
use flagstone::ftl::header;
use flagstone_host::buffer::PolicyKind;
use flagstone_host::{ManagerInfo, Stack};
use serde_json::json;
use std::process::ExitCode;

/// List the commit protocols: paper, isolation, cells, spare bytes, modes, settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object per protocol, one per line.
    #[arg(long)]
    json: bool,
}

/// The paper and its section, or the document of a protocol without a paper.
fn source_of(info: &Info) -> String {
    match info.paper {
        "-" => info.section.to_string(),
        paper => format!("{paper} {}", info.section),
    }
}

/// Lists the protocols, and the settings of protocols, recovery managers and eviction policies.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let infos: Vec<&Info> = Kind::ALL.iter().map(|kind| kind.info()).collect();
    if args.json {
        for info in infos {
            let settings = info.settings.iter().map(as_json);
            let object = json!({
                "name": info.name,
                "idea": info.idea,
                "paper": info.paper,
                "section": info.section,
                "isolation": info.isolation.name(),
                "cell_types": cells(info),
                "spare_bytes": header::SIZE + info.format.tail_bytes,
                "reprograms": info.reprograms,
                "atomic": info.atomic,
                "as_published": info.published.is_some(),
                "modes": modes(info),
                "settings": settings.collect::<Vec<_>>(),
            });
            say(&object.to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut settings = plain_table();
    settings.set_header(["of", "setting", "default", ""]);
    let mut table = plain_table();
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
        if info.published.is_some() {
            modes.push("as-published");
        }
        table.add_row([
            info.name.to_string(),
            source_of(info),
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
    let mut above = plain_table();
    above.set_header(["of", "setting", "default", ""]);
    let mut managers: Vec<&ManagerInfo> = Vec::new();
    for stack in Stack::all() {
        if !managers
            .iter()
            .any(|known| known.name == stack.manager().name)
        {
            managers.push(stack.manager());
        }
    }
    let of_managers = managers.iter().map(|info| (info.name, info.settings));
    let policies = PolicyKind::ALL.iter().map(|kind| kind.info());
    let of_policies = policies.map(|info| (info.name, info.settings));
    for (name, of) in of_managers.chain(of_policies) {
        for setting in of {
            above.add_row([name, setting.name, setting.default, setting.what]);
        }
    }
    say(&table.to_string());
    say("\nSettings of protocols, given by --set NAME=VALUE:\n");
    say(&settings.to_string());
    say("\nSettings of recovery managers and eviction policies, with `compare --stack`:\n");
    say(&above.to_string());
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
