//! The state of tables, and its comparison with what a reader sees.

use flagstone_store::StoreError;
use flagstone_store::tables::{Pair, ReadTx, TableKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of a write, which determines its bytes.
pub(in crate::stores) type Tag = u64;
pub(in crate::stores) type Rows = BTreeMap<Vec<u8>, Tag>;
/// The existing tables and their contents.
pub(in crate::stores) type State = BTreeMap<&'static str, Rows>;

fn word_of(tag: Tag) -> u64 {
    tag.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Length of the value of a write.
pub(super) fn len_of(tag: Tag) -> usize {
    let word = word_of(tag);
    let most = match word >> 54 {
        0 => 600_000,
        1..20 => 30_000,
        20..200 => 3_000,
        200..300 => 8,
        _ => 200,
    };
    (word >> 20) as usize % (most + 1)
}

/// The value of a write.
pub(in crate::stores) fn bytes_of(tag: Tag) -> Vec<u8> {
    let mut bytes = vec![word_of(tag) as u8; len_of(tag)];
    for (byte, known) in bytes.iter_mut().zip(tag.to_le_bytes()) {
        *byte = known;
    }
    bytes
}

/// The state that a reader sees, if its snapshot still exists.
pub(super) enum Seen {
    State(Arc<State>),
    /// The snapshot ended because its space was needed.
    Ended,
}

fn has_ended(error: &StoreError) -> bool {
    match error {
        StoreError::Table { error, .. } => has_ended(error),
        StoreError::SnapshotEnded => true,
        _ => false,
    }
}

/// Finds the state that a reader sees among the allowed ones. The error describes the difference
/// from the newest of them.
pub(super) fn compare(read: &ReadTx, states: &[Arc<State>]) -> Result<Seen, String> {
    let mut why = "there is no state that it may see".to_string();
    for state in states {
        match is_in(read, state) {
            Ok(Ok(())) => return Ok(Seen::State(state.clone())),
            Ok(Err(what)) => why = what,
            Err(error) if has_ended(&error) => return Ok(Seen::Ended),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(why)
}

/// Compares the tables of a reader with a state. The inner error describes the difference.
fn is_in(read: &ReadTx, state: &State) -> Result<Result<(), String>, StoreError> {
    let found: Vec<String> = read.tables()?.into_iter().map(|(name, _)| name).collect();
    let wanted: Vec<&str> = state.keys().copied().collect();
    if found != wanted {
        return Ok(Err(format!("the tables are {found:?}, not {wanted:?}")));
    }
    for (name, rows) in state {
        let table = read.table(name)?;
        let differs = |what: String| Ok(Err(format!("table `{name}`: {what}")));
        let mut pairs = table.iter().collect::<Result<Vec<Pair>, _>>()?;
        let mut back = table.iter().rev().collect::<Result<Vec<Pair>, _>>()?;
        if table.kind() == TableKind::Hashed {
            pairs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            back.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        }
        back.reverse();
        let keys = |pairs: &[Pair]| pairs.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        if keys(&pairs) != keys(&back) {
            return differs("it has other keys from the end than from the begin".into());
        }
        if table.len()? != rows.len() as u64 || pairs.len() != rows.len() {
            return differs(format!("it has {} keys, not {}", pairs.len(), rows.len()));
        }
        let all: Vec<&Vec<u8>> = rows.keys().collect();
        let many = table.get_many(&all)?;
        for (((key, value), (wanted, tag)), again) in pairs.iter().zip(rows).zip(many) {
            let bytes = bytes_of(*tag);
            let same = key == wanted && **value == *bytes;
            if !same || again.as_deref() != Some(&bytes[..]) {
                let key = wanted.escape_ascii();
                return differs(format!(
                    "key `{key}` does not have the value of write {tag}"
                ));
            }
        }
    }
    Ok(Ok(()))
}
