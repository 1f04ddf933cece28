//! SEAL's tables of a device at rest: the transactions that still need evidence.

use super::evidence::{Evidence, Undecided, Witness};
use super::recovery::Recovery;
use crate::ftl::{Ftl, FtlError, Mounted, Resting};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Nanos, Pbn, TxId};

layout! {
    /// The head of what SEAL adds to the tables of a device at rest.
    pub head: 10 => {
        LAST_TX: 6, "the last transaction that began";
        COUNT:   4, "transactions that need evidence: a record each follows";
    }
}

layout! {
    /// A transaction that needs evidence, in the tables of a device at rest.
    pub undecided: 21 => {
        XID:     6, "the transaction";
        CV:      6, "its place: the write sequence of its last page";
        WITNESS: 1, "what says that it has committed: 0 its pages, 1 a block, 2 the root";
        BLOCK:   4, "that block";
        COUNT:   4, "blocks without a verdict for it: 4 bytes each follow";
    }
}

const PAGES: u64 = 0;
const BLOCK: u64 = 1;
const ROOT: u64 = 2;

/// Encodes the tables, which are valid once everything that they rely on is durable.
pub(super) fn tables(last_tx: TxId, evidence: &Evidence) -> Vec<u8> {
    let all = evidence.all();
    let mut bytes = vec![0; head::SIZE];
    put(&mut bytes, head::LAST_TX, last_tx.0);
    put(&mut bytes, head::COUNT, all.len() as u64);
    for (tx, open) in all {
        let mut record = [0; undecided::SIZE];
        let (witness, block) = match open.witness {
            Witness::None => (PAGES, Pbn(0)),
            Witness::Block(block) => (BLOCK, block),
            Witness::Root => (ROOT, Pbn(0)),
        };
        put(&mut record, undecided::XID, tx.0);
        put(&mut record, undecided::CV, open.cv);
        put(&mut record, undecided::WITNESS, witness);
        put(&mut record, undecided::BLOCK, block.0.into());
        put(&mut record, undecided::COUNT, open.blocks.len() as u64);
        bytes.extend(record);
        let blocks = open.blocks.iter().flat_map(|block| block.0.to_le_bytes());
        bytes.extend(blocks);
    }
    bytes
}

/// Takes over the tables, and ends the mount.
pub(super) fn resume(
    ftl: &mut Ftl,
    mounted: &Mounted,
    tables: &Resting,
) -> Result<Recovery, FtlError> {
    let own = ftl.resume(mounted, tables)?;
    let blocks = ftl.geometry().blocks();
    let (last_tx, all) = parse(own, blocks).ok_or_else(|| {
        FtlError::Foreign("its tables at rest are wrong: a transaction that cannot be".into())
    })?;
    Ok(Recovery {
        evidence: Evidence::found(all.into_iter()),
        bounds: None,
        with_sums: Vec::new(),
        listing: mounted.blob.clone(),
        last_tx,
        done: mounted.done,
        // No decisions: the tables are used as they are.
        rulings: Vec::new(),
    })
}

/// Decodes the last transaction, and those that need evidence. `None` if no device of `blocks`
/// blocks has such tables.
fn parse(mut bytes: &[u8], blocks: u32) -> Option<(TxId, Vec<(TxId, Undecided)>)> {
    let record = bytes.split_off(..head::SIZE)?;
    let last_tx = TxId(get(record, head::LAST_TX));
    let mut all = Vec::new();
    for _ in 0..get(record, head::COUNT) {
        let record = bytes.split_off(..undecided::SIZE)?;
        let block = |number: u32| (number < blocks).then_some(Pbn(number));
        let named = get(record, undecided::BLOCK) as u32;
        let count = get(record, undecided::COUNT) as usize;
        let list = bytes.split_off(..count.checked_mul(4)?)?;
        let list = list.as_chunks::<4>().0.iter();
        let open = Undecided {
            cv: get(record, undecided::CV),
            durable: Nanos::ZERO,
            blocks: list
                .map(|word| block(u32::from_le_bytes(*word)))
                .collect::<Option<Vec<Pbn>>>()?,
            witness: match get(record, undecided::WITNESS) {
                PAGES => Witness::None,
                BLOCK => Witness::Block(block(named)?),
                ROOT => Witness::Root,
                _ => return None,
            },
        };
        let tx = TxId(get(record, undecided::XID));
        let is_next = all.last().is_none_or(|&(before, _)| before < tx);
        if !is_next || open.blocks.is_empty() {
            return None;
        }
        all.push((tx, open));
    }
    bytes.is_empty().then_some((last_tx, all))
}
