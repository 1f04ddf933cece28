//! `flagstone store break --rot`: damages durable pages of stores in memory.

use crate::commands::{Failure, say};
use flagstone_campaign::stores::StoreSubject;
use flagstone_campaign::stores::rot::RotTally;
use flagstone_campaign::stores::rot::{
    Aim, End, Harm, RotCampaign, RotFindings, RotRunId, Silence,
};
use flagstone_terminal::progress_bar;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Repeats a run and prints its steps.
pub(super) fn run_again(id: &RotRunId) -> ExitCode {
    let tally = id.run();
    match (&tally.first, &tally.told) {
        (Some((id, what)), _) => say(&format!("{id}: SILENT: {what}")),
        (None, Some(what)) => say(&format!("{id} holds: {what}")),
        (None, None) => say(&format!("{id} holds: {} damaged stores", tally.damaged())),
    }
    ExitCode::from(u8::from(tally.silent() > 0))
}

/// Writes the medium of a damaged store to a new file, and the undamaged one to another.
pub(super) fn keep(id: &RotRunId, to: &Path) -> Result<(), Failure> {
    let [whole, damaged] = id.media().map_err(Failure::Failed)?;
    let mut beside = to.as_os_str().to_owned();
    beside.push(".whole");
    for (path, bytes) in [(to, damaged), (Path::new(&beside), whole)] {
        let made = File::create_new(path).and_then(|mut file| file.write_all(&bytes));
        made.map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// Runs a campaign and prints its findings. Returns whether there were silent losses.
pub(super) fn carry_out(campaign: &RotCampaign, as_json: bool) -> bool {
    let bar = progress_bar(campaign.damages, &campaign.protocol.to_string());
    let findings = campaign.run(&|damages| bar.inc(damages));
    bar.finish_and_clear();
    if as_json {
        say(&in_json(campaign, &findings).to_string())
    } else {
        print(campaign, &findings)
    }
    findings.work.silent() > 0
}

fn subject(campaign: &RotCampaign) -> String {
    match campaign.subject {
        StoreSubject::Pages => campaign.protocol.to_string(),
        StoreSubject::Tables => "tables".into(),
    }
}

/// The rows of the table of findings: a name, and counts of damaged stores by outcome.
fn rows(tally: &RotTally) -> impl Iterator<Item = (&'static str, [u64; 6])> + '_ {
    let aims = Aim::ALL
        .iter()
        .map(|&(aim, name)| (name, tally.by_aim(aim)));
    let harms = Harm::ALL
        .iter()
        .map(|&(harm, name)| (name, tally.by_harm(harm)));
    aims.chain(harms)
}

/// The findings as a JSON object.
fn in_json(campaign: &RotCampaign, findings: &RotFindings) -> Value {
    let tally = &findings.work;
    let first = findings.violations.first();
    let counted = |[right, opening, reading, undecidable, lost_whole, silent]: [u64; 6]| {
        json!({
            "right": right,
            "at_opening": opening,
            "at_reading": reading,
            "undecidable": undecidable,
            "lost_whole": lost_whole,
            "silent": silent,
        })
    };
    let by_damage = rows(tally).map(|(name, row)| (name.to_string(), counted(row)));
    let silent_by = Aim::ALL.iter().map(|&(aim, name)| {
        let row = Harm::ALL.iter().map(|&(harm, name)| {
            let count = json!(tally.silent_by(aim, harm));
            (name.to_string(), count)
        });
        (name.to_string(), Value::Object(row.collect()))
    });
    json!({
        "subject": match campaign.subject {
            StoreSubject::Pages => "pages",
            StoreSubject::Tables => "tables",
        },
        "protocol": campaign.protocol.info().name,
        "lie": campaign.lie.name(),
        "encrypted": campaign.encrypted,
        "seed": campaign.seed,
        "histories": tally.histories,
        "failed_before_damage": tally.before,
        "commits": tally.commits,
        "collections": tally.collections,
        "damaged": tally.damaged(),
        "outcomes": counted(tally.outcomes()),
        "silent_by": silent_by.collect::<Map<_, _>>(),
        "by_damage": by_damage.collect::<Map<_, _>>(),
        "silent_data": tally.silent_by_way[Silence::Data as usize],
        "silent_check": tally.silent_by_way[Silence::Check as usize],
        "silent_repair": tally.silent_by_way[Silence::Repair as usize],
        "silent_panic": tally.silent_by_way[Silence::Panic as usize],
        "silent_closed": tally.silent_by_end[End::Closed as usize],
        "silent_killed": tally.silent_by_end[End::Killed as usize],
        "silent_begun": tally.silent_by_end[End::KilledInTransaction as usize],
        "silent_cut": tally.silent_by_end[End::Cut as usize],
        "first_run_id": first.map(|(id, _)| id.to_string()),
        "first_silent": first.map(|(_, what)| what),
    })
}

/// Prints the findings: totals, a table by damage, an example of each kind of silent loss, and the
/// first losses with their stories.
fn print(campaign: &RotCampaign, findings: &RotFindings) {
    let tally = &findings.work;
    let [closed, killed, begun, cut] = tally.silent_by_end;
    let [right, opening, reading, undecidable, lost_whole, _] = tally.outcomes();
    say(&format!(
        "{:10} {:>9} damaged stores of {} histories  {:>6} SILENT  {right} right, {opening} errors at \
         opening, {reading} errors at reading, {undecidable} undecidable, {lost_whole} lost whole; {} commits, {} collections",
        subject(campaign),
        tally.damaged(),
        tally.histories,
        tally.silent(),
        tally.commits,
        tally.collections,
    ));
    if tally.silent() > 0 {
        say(&format!(
            "{:10} silent by the end of the history: closed {closed}, killed {killed}, killed in a \
             transaction {begun}, cut {cut}",
            ""
        ));
        let ways = Silence::ALL.iter().zip(tally.silent_by_way);
        let ways: Vec<String> = ways
            .map(|((_, name), count)| format!("{name} {count}"))
            .collect();
        say(&format!("{:10} silent by: {}", "", ways.join(", ")));
    }
    say(&format!(
        "  {:34} {:>8} {:>8} {:>8} {:>8} {:>11} {:>6} {:>8}",
        "damage", "stores", "right", "opening", "reading", "undecidable", "whole", "SILENT"
    ));
    for (name, [right, opening, reading, undecidable, whole, silent]) in rows(tally) {
        let stores = right + opening + reading + undecidable + whole + silent;
        say(&format!(
            "  {name:34} {stores:>8} {right:>8} {opening:>8} {reading:>8} {undecidable:>11} {whole:>6} {silent:>8}"
        ));
    }
    if !tally.examples.is_empty() {
        say("  silent, by kind of page and by outcome:");
        for (aim, name) in Aim::ALL {
            for (harm, harm_name) in Harm::ALL {
                if let Some(id) = tally.examples.get(&(aim, harm)) {
                    let count = tally.silent_by(aim, harm);
                    say(&format!(
                        "    {name:34} {harm_name:10} {count:>6}, as in {id}"
                    ));
                }
            }
        }
    }
    for (id, what) in &findings.violations {
        say(&format!("{id}: {what}"));
    }
}
