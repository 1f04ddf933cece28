//! A translation layer at rest: its tables as bytes, so that the next start need not find them out.
//!
//! The owner of a device keeps them when it closes the device, and gives them back when it opens
//! the device again. They are true of a flash to which nothing was written since. Nothing depends
//! on them: without them a start reads the blocks.
//!
//! ```text
//!   tables    | rest | entry 4 of each logical page | block 4 of each block | of the protocol |
//!   block     erases, and in the highest bit whether it was written since
//! ```

use super::{BlockState, Ftl, FtlError, Mounted};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Pbn};

layout! {
    /// The head of the tables of a device at rest.
    pub rest: 24 => {
        PAGES:      4, "logical pages";
        BLOCKS:     4, "blocks";
        SEQ:        8, "the last write sequence";
        GENERATION: 8, "the newest root";
    }
}

const WRITTEN: u32 = 1 << 31;

fn foreign<T>(what: &str) -> Result<T, FtlError> {
    Err(FtlError::Foreign(format!(
        "its tables at rest are wrong: {what}"
    )))
}

impl Ftl {
    /// The tables, once everything is durable that they name. The owner adds its own behind them.
    pub fn rest(&self) -> Vec<u8> {
        let words = self.map.len() + self.blocks.len();
        let mut bytes = Vec::with_capacity(rest::SIZE + words * 4);
        bytes.resize(rest::SIZE, 0);
        put(&mut bytes, rest::PAGES, self.map.len() as u64);
        put(&mut bytes, rest::BLOCKS, self.blocks.len() as u64);
        put(&mut bytes, rest::SEQ, self.seq);
        put(&mut bytes, rest::GENERATION, self.meta.generation);
        bytes.extend_from_slice(self.map.as_flattened());
        for (block, &erases) in self.blocks.iter().zip(&self.erases) {
            let written = match block.state {
                BlockState::Free | BlockState::Zone | BlockState::Bad | BlockState::Meta => 0,
                _ => WRITTEN,
            };
            bytes.extend((erases & !WRITTEN | written).to_le_bytes());
        }
        bytes
    }

    /// Takes over, while mounting and instead of a scan, the tables that [`Ftl::rest`] gave, and
    /// ends the mount. Returns what the owner added.
    ///
    /// # Errors
    /// They are of another device, or of another state of this one.
    pub fn resume<'a>(
        &mut self,
        mounted: &Mounted,
        tables: &'a [u8],
    ) -> Result<&'a [u8], FtlError> {
        let (map, blocks, owner) = self.parts(tables)?;
        if get(tables, rest::GENERATION) != self.meta.generation || !mounted.logs.is_empty() {
            return foreign("a root or a log is newer");
        }
        self.seq = self.seq.max(get(tables, rest::SEQ));
        self.map.as_flattened_mut().copy_from_slice(map);
        self.doubt_map()?;
        for (index, word) in blocks.iter().enumerate() {
            let word = u32::from_le_bytes(*word);
            self.erases[index] = word & !WRITTEN;
            let block = &mut self.blocks[index];
            if word & WRITTEN != 0 {
                if block.state != BlockState::Free {
                    return foreign("they have data where roots or bad blocks are");
                }
                block.state = BlockState::Full;
                self.victims.insert(Pbn(index as u32), 0);
            }
        }
        self.revive_mapped()?;
        self.finish_mount();
        Ok(owner)
    }

    /// Compares with the tables of a device at rest what a start has found out without them.
    ///
    /// # Errors
    /// Says what is different.
    pub fn compare_with_rest(&self, tables: &[u8]) -> Result<(), String> {
        let (map, _, _) = self.parts(tables).map_err(|error| error.to_string())?;
        let all = map.as_chunks::<4>().0.iter().zip(&self.map);
        match all.enumerate().find(|(_, (said, is))| said != is) {
            Some((at, _)) => Err(format!(
                "the tables at rest have logical page {} elsewhere",
                Lpn(at as u32)
            )),
            None => Ok(()),
        }
    }

    /// The mapping table, the words of blocks, and what the owner added.
    fn parts<'a>(&self, tables: &'a [u8]) -> Result<Parts<'a>, FtlError> {
        if tables.len() < rest::SIZE {
            return foreign("they end early");
        }
        let (head, tables) = tables.split_at(rest::SIZE);
        let is_of = |field, count: usize| get(head, field) == count as u64;
        if !is_of(rest::PAGES, self.map.len()) || !is_of(rest::BLOCKS, self.blocks.len()) {
            return foreign("they are of a device of another size");
        }
        let of_map = self.map.len() * 4;
        let of_blocks = self.blocks.len() * 4;
        if tables.len() < of_map + of_blocks {
            return foreign("they end early");
        }
        let (map, tables) = tables.split_at(of_map);
        let (blocks, owner) = tables.split_at(of_blocks);
        Ok((map, blocks.as_chunks::<4>().0, owner))
    }
}

type Parts<'a> = (&'a [u8], &'a [[u8; 4]], &'a [u8]);
