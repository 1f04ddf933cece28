//! The contents of a root: what a restart needs to know before it can read anything else.

use super::Ftl;
use crate::layout;
use crate::units::Pbn;

/// The contents of a root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RootImage {
    pub(super) log_from: u64,
    pub(super) bad: Vec<Pbn>,
    pub(super) directory: Vec<u32>,
    pub(super) blob: Vec<u8>,
    /// The blocks for translation pages and logs, of a device that has grown or is about to.
    pub(super) pool: Option<Vec<Pbn>>,
}

/// Writes a list: its length, and its words.
fn emit_list(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = u32>) {
    out.extend_from_slice(&(words.len() as u32).to_le_bytes());
    words.for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(head)
}

fn parse_list(rest: &mut &[u8]) -> Option<Vec<u32>> {
    let len = layout::get(take(rest, 4)?, 0..4) as usize;
    let words = take(rest, len.checked_mul(4)?)?.chunks_exact(4);
    Some(words.map(|word| layout::get(word, 0..4) as u32).collect())
}

impl RootImage {
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.log_from.to_le_bytes());
        emit_list(&mut out, self.bad.iter().map(|block| block.0));
        emit_list(&mut out, self.directory.iter().copied());
        out.extend_from_slice(&(self.blob.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.blob);
        if let Some(pool) = &self.pool {
            emit_list(&mut out, pool.iter().map(|block| block.0));
        }
        out
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<RootImage> {
        let rest = &mut &*bytes;
        let log_from = layout::get(take(rest, 8)?, 0..8);
        let bad = parse_list(rest)?.into_iter().map(Pbn).collect();
        let directory = parse_list(rest)?;
        let len = layout::get(take(rest, 4)?, 0..4) as usize;
        let blob = take(rest, len)?.to_vec();
        let pool = match rest.is_empty() {
            true => None,
            false => Some(parse_list(rest)?.into_iter().map(Pbn).collect()),
        };
        Some(RootImage {
            log_from,
            bad,
            directory,
            blob,
            pool,
        })
    }
}

/// For fuzzing: whether bytes are a part of a root, or a whole one, which comes back as it was.
pub(crate) fn is_root(bytes: &[u8]) -> bool {
    let part = Ftl::parse_root_part(bytes).is_some();
    let Some(image) = RootImage::parse(bytes) else {
        return part;
    };
    assert!(
        bytes.starts_with(&image.emit()),
        "a root that is read is written"
    );
    true
}
