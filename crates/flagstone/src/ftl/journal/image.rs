//! The contents of a root: what a restart needs to know before it can read other pages.
//!
//! ```text
//!   root                     | log_from |                          | bad | directory | blob |
//!   of a device that grew    | log_from | all ones | pool, a list  | bad | directory | blob |
//! ```
//!
//! A program that does not support pools takes the ones for the length of a list that ends early.
//! So it refuses the device instead of looking for its blocks in the wrong places.

use super::root_contents;
use crate::ftl::Ftl;
use crate::layout;
use crate::units::Pbn;

/// The contents of a root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RootImage {
    pub(in crate::ftl) log_from: u64,
    pub(crate) bad: Vec<Pbn>,
    pub(crate) directory: Vec<u32>,
    pub(crate) blob: Vec<u8>,
    /// The blocks for translation pages and logs, of a device that has grown or is about to.
    pub(crate) pool: Option<Vec<Pbn>>,
}

/// Encodes a list: its length and its words.
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

/// In place of a list's length: the root lists the blocks of the pool.
const NAMED: u32 = u32::MAX;

impl RootImage {
    pub(in crate::ftl) fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.log_from.to_le_bytes());
        if let Some(pool) = &self.pool {
            out.extend_from_slice(&NAMED.to_le_bytes());
            emit_list(&mut out, pool.iter().map(|block| block.0));
        }
        emit_list(&mut out, self.bad.iter().map(|block| block.0));
        emit_list(&mut out, self.directory.iter().copied());
        out.extend_from_slice(&(self.blob.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.blob);
        out
    }

    /// Decodes the contents of a root. `None` if they end early.
    pub(crate) fn parse(bytes: &[u8]) -> Option<RootImage> {
        let rest = &mut &*bytes;
        let log_from = layout::get(take(rest, root_contents::SIZE)?, root_contents::LOG_FROM);
        let pool = match rest.strip_prefix(&NAMED.to_le_bytes()) {
            Some(named) => {
                *rest = named;
                Some(parse_list(rest)?.into_iter().map(Pbn).collect())
            }
            None => None,
        };
        let bad = parse_list(rest)?.into_iter().map(Pbn).collect();
        let directory = parse_list(rest)?;
        let len = layout::get(take(rest, 4)?, 0..4) as usize;
        let blob = take(rest, len)?.to_vec();
        Some(RootImage {
            log_from,
            bad,
            directory,
            blob,
            pool,
        })
    }
}

/// For fuzzing: parses a part of a root, or a whole one, which must encode to the same bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses roots as programs without pools do.
    fn parse_before_pools(bytes: &[u8]) -> Option<RootImage> {
        let rest = &mut &*bytes;
        let log_from = layout::get(take(rest, 8)?, 0..8);
        let (bad, directory) = (parse_list(rest)?, parse_list(rest)?);
        let len = layout::get(take(rest, 4)?, 0..4) as usize;
        Some(RootImage {
            log_from,
            bad: bad.into_iter().map(Pbn).collect(),
            directory,
            blob: take(rest, len)?.to_vec(),
            pool: None,
        })
    }

    #[test]
    fn a_program_that_knows_no_pool_reads_a_root_without_one_and_no_other() {
        let without = RootImage {
            log_from: 7,
            bad: vec![Pbn(3)],
            directory: vec![5, 6],
            blob: vec![1, 2, 3],
            pool: None,
        };
        for pool in [None, Some(vec![]), Some(vec![Pbn(4), Pbn(90)])] {
            let image = RootImage {
                pool,
                ..without.clone()
            };
            // The rest of a page is ignored.
            let bytes = [image.emit(), vec![0; 9]].concat();
            assert_eq!(RootImage::parse(&bytes), Some(image.clone()));
            let read = image.pool.is_none().then(|| without.clone());
            assert_eq!(parse_before_pools(&bytes), read);
        }
    }
}
