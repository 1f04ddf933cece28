//! `flagstone explain`: shows a protocol step by step, as text or as an HTML page.

use super::{Failure, note, say, unknown};
use flagstone_campaign::explain::{self, Story};
use flagstone_lab::output::Output;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show step by step how a protocol works: a few transactions, a garbage collection, a power cut,
/// the restart.
///
/// Also shows the same cut on the protocol as published, if that one loses data.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The protocol: one of `flagstone protocols`, or cfc-ex or afc-ex.
    #[arg(value_name = "PROTOCOL")]
    protocol: String,
    /// Write a self-contained HTML page with an animation of the steps.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the steps as one JSON object.
    #[arg(long, conflicts_with = "html")]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  flagstone explain seal                     the story as text
  flagstone explain scc --html scc.html      a page: open it in a browser";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let names = explain::names();
    if !names.contains(&args.protocol.as_str()) {
        return Err(unknown("protocol", &args.protocol, &names));
    }
    let output = args.html.as_deref();
    let output = output.map(|path| page(path, &[])).transpose()?;
    let story = explain::explain(&args.protocol).expect("it was looked up");
    let story = story.map_err(Failure::Failed)?;
    match &output {
        Some(output) => write(&story, output)?,
        None if args.json => {
            say(&serde_json::to_string(&story).expect("a story is plain data"));
        }
        None => explain::text(&story).lines().for_each(say),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prepares the output file of a page, which is none of the `inputs`. This fails early, before the
/// story is computed.
pub(super) fn page(path: &Path, inputs: &[&Path]) -> Result<Output, Failure> {
    Ok(Output::new(path, inputs)?)
}

/// Writes a story as an HTML page.
pub(super) fn write(story: &Story, output: &Output) -> Result<(), Failure> {
    output.write(explain::page(story).as_bytes())?;
    note(&format!(
        "wrote {}: open it in a browser",
        output.path().display()
    ));
    Ok(())
}
