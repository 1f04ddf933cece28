//! The metadata of an index: free pages, roots, directories. It is stored in a chain of pages that
//! begins at page 0. Changed pages are rewritten in parallel.

use super::space::Space;
use super::{Cache, IndexError, Result, damaged};
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::{Lpn, Nanos};

layout! {
    /// The head of a page of an index's metadata.
    pub meta_head: 24 => {
        MAGIC: 8, "the index's name, and zeros";
        BYTES: 8, "bytes of all the metadata, in the first page; 0 in the others";
        NEXT:  4, "the page with what comes next; 0 in the last";
        SHAPE: 4, "bytes of a value";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[meta_head::RECORD];

/// The pages of the metadata.
#[derive(Debug)]
pub(super) struct Meta {
    name: &'static str,
    value_bytes: usize,
    pages: Vec<Lpn>,
    /// Page images as last written.
    images: Vec<Vec<u8>>,
}

fn magic(name: &str) -> u64 {
    let mut bytes = [0; 8];
    let len = name.len().min(8);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    u64::from_le_bytes(bytes)
}

/// The metadata of a store, its free pages, and the index's own part, which a blank store lacks.
pub(super) type Loaded = (Meta, Space, Option<Vec<u8>>);

impl Meta {
    /// Reads the metadata of an index. In a blank store all pages but page 0 are free.
    ///
    /// # Errors
    /// The store has another index or another size of values, or its pages are damaged.
    pub(super) fn load(
        cache: &mut Cache,
        name: &'static str,
        value_bytes: usize,
        mut now: Nanos,
    ) -> Result<(Loaded, Nanos)> {
        let store_pages = cache.store().pages();
        let mut meta = Meta {
            name,
            value_bytes,
            pages: Vec::new(),
            images: Vec::new(),
        };
        let mut bytes = Vec::new();
        let (mut at, mut total) = (Lpn(0), 0);
        loop {
            let mut image = vec![0; cache.page_bytes()];
            now = cache.read_past(now, &[at], &mut image)?;
            if at.0 == 0 {
                let found = get(&image, meta_head::MAGIC);
                if found == 0 {
                    meta.pages.push(at);
                    let space = Space::new(1, store_pages);
                    return Ok(((meta, space, None), now));
                }
                if found != magic(name) {
                    let other = String::from_utf8_lossy(&image[meta_head::MAGIC]).into_owned();
                    return Err(IndexError::Settings(format!(
                        "the store holds an index `{}`, not {name}: open it as that, or use a \
                         blank store",
                        other.trim_end_matches('\0')
                    )));
                }
                let shape = get(&image, meta_head::SHAPE) as usize;
                if shape != value_bytes {
                    return Err(IndexError::Settings(format!(
                        "the index in the store has values of {shape} bytes, not {value_bytes}: \
                         set value_bytes to {shape}"
                    )));
                }
                total = get(&image, meta_head::BYTES) as usize;
            } else if get(&image, meta_head::MAGIC) != magic(name) {
                return damaged(at, "it is no page of metadata");
            }
            let next = Lpn(get(&image, meta_head::NEXT) as u32);
            bytes.extend_from_slice(&image[meta_head::SIZE..]);
            meta.pages.push(at);
            meta.images.push(image);
            if next.0 == 0 {
                break;
            }
            if next.0 >= store_pages || meta.pages.contains(&next) {
                return damaged(at, "it names a next page that cannot be");
            }
            at = next;
        }
        if bytes.len() < total {
            return damaged(at, "the metadata ends early");
        }
        // Pages that are no longer needed stay in the chain.
        bytes.truncate(total);
        match Space::parse(&bytes, store_pages) {
            Some((space, rest)) => {
                let rest = rest.to_vec();
                Ok(((meta, space, Some(rest)), now))
            }
            None => damaged(Lpn(0), "its free pages make no sense"),
        }
    }

    /// Writes changed pages, then changes of the free pages and of `own`, the index's part.
    ///
    /// # Errors
    /// The store has no room or cannot continue.
    pub(super) fn settle(
        &mut self,
        cache: &mut Cache,
        space: &mut Space,
        own: &[u8],
        now: Nanos,
    ) -> Result<Nanos> {
        let now = cache.write_all(now)?;
        let room = cache.page_bytes() - meta_head::SIZE;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            space.emit(&mut bytes);
            bytes.extend_from_slice(own);
            if bytes.len() <= self.pages.len() * room {
                break;
            }
            // Taking a free page shortens the stored list of free pages, so prefer a fresh page.
            self.pages
                .push(space.take_run(1).or_else(|_| space.take())?);
        }
        let mut changed: Vec<usize> = Vec::new();
        for (i, &at) in self.pages.iter().enumerate() {
            let mut image = vec![0; cache.page_bytes()];
            let next = self.pages.get(i + 1).map_or(0, |page| page.0);
            put(&mut image, meta_head::MAGIC, magic(self.name));
            put(&mut image, meta_head::NEXT, u64::from(next));
            if at.0 == 0 {
                put(&mut image, meta_head::BYTES, bytes.len() as u64);
                put(&mut image, meta_head::SHAPE, self.value_bytes as u64);
            }
            let part = bytes.get(i * room..).unwrap_or_default();
            let part = &part[..part.len().min(room)];
            image[meta_head::SIZE..][..part.len()].copy_from_slice(part);
            if self.images.get(i) != Some(&image) {
                changed.push(i);
            }
            match self.images.get_mut(i) {
                Some(old) => *old = image,
                None => self.images.push(image),
            }
        }
        let pages: Vec<(Lpn, &[u8])> = changed
            .iter()
            .map(|&i| (self.pages[i], self.images[i].as_slice()))
            .collect();
        Ok(cache.write_past(now, &pages)?)
    }

    /// The pages of the metadata, for checks.
    pub(super) fn pages(&self) -> &[Lpn] {
        &self.pages
    }
}
