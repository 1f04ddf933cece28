//! The tables of SEAL and its recovery table, for display.

use super::Seal;
use super::evidence::Witness;
use crate::commit::Table;
use crate::commit::show::{LIVE, Row, live_row, places, rows};
use crate::ftl::Ftl;

/// The rows of the header's recovery table.
pub(super) const RECOVERY: &[Row] = rows! {
    "@A": "the summary of its block has a verdict for it" => "counts, its place is said there";
    "@B": "it belongs to no transaction, or is alone in its own" => "counts, at its sequence";
    "@C": "the newest root lists its transaction" => "counts, its place is said there";
    "@D": "the summary of another block has a verdict for its transaction"
        => "counts, at that place";
    "@E": "as many pages of its transaction are there as the last one says, and their newest \
           versions have the sum that it says, if it says one"
        => "counts, at the sequence of the last";
    "@F": "none of these, and the mapping table on flash (of seal-r) has it"
        => "counts, in the mapping table";
    "@G": "otherwise" => "does not count";
};

/// The tables for display: live transactions, evidence, and blocks that wait for a summary.
pub(super) fn tables(seal: &Seal, ftl: &Ftl) -> Vec<Table> {
    let live = seal
        .live
        .iter()
        .map(|(tx, active)| live_row(tx, "live", places(&active.writes), active.held.lpn()));
    let evidence = seal.evidence.all().into_iter().map(|(tx, undecided)| {
        let blocks = undecided.blocks.iter().map(|block| format!("b{block}"));
        let witness = match undecided.witness {
            Witness::None => "nothing: its pages are counted".to_string(),
            Witness::Block(block) => format!("the summary of b{block}"),
            Witness::Root => "the root".to_string(),
        };
        vec![
            tx.to_string(),
            blocks.collect::<Vec<_>>().join(" "),
            witness,
        ]
    });
    let closing = ftl.writer.closing().map(|(block, _)| {
        let waiting = seal.waiting.get(&block).copied().unwrap_or_default();
        vec![format!("b{block}"), waiting.live.to_string()]
    });
    vec![
        Table::sorted("active_tx_table", LIVE, live.collect()),
        Table::sorted(
            "evidence",
            &[
                "committed",
                "pages in blocks that do not say so yet",
                "what else says so",
            ],
            evidence.collect(),
        ),
        Table {
            name: "waiting_blocks",
            columns: &[
                "full, without a summary",
                "live transactions with pages in it",
            ],
            rows: closing.collect(),
        },
    ]
}
