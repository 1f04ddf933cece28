//! The log-structured store below the nodes: consecutive fragments of any length, in segments of
//! consecutive pages. The segment being filled is in memory and is written in one request when
//! full. A segment with few live bytes is cleaned (see [`super::residents`]) and reused.

use super::super::space::Space;
use super::super::{Cache, Result, damaged};
use flagstone::units::{Lpn, Nanos};

/// Address of a fragment: its position in the log and its length, in one word. Zero means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link(pub(super) u64);

const LENGTH_BITS: u32 = 20;

impl Link {
    pub(super) const NONE: Link = Link(0);

    fn new(at: usize, length: usize) -> Link {
        Link((at as u64) << LENGTH_BITS | length as u64)
    }

    /// Position of the fragment's first byte.
    pub(super) fn at(self) -> usize {
        (self.0 >> LENGTH_BITS) as usize
    }

    pub(super) fn length(self) -> usize {
        (self.0 & ((1 << LENGTH_BITS) - 1)) as usize
    }
}

/// The longest fragment that a link can name.
pub(super) const LONGEST: usize = (1 << LENGTH_BITS) - 1;

/// Consecutive pages of the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) first: Lpn,
    /// Bytes of fragments that belong to a node.
    pub(super) live: u32,
}

pub(super) struct Log {
    page_bytes: usize,
    pub(super) segment_pages: u32,
    pub(super) segments: Vec<Segment>,
    pub(super) free: Vec<u32>,
    /// The segment that is being filled, and how far it is filled and written.
    pub(super) current: u32,
    pub(super) fill: usize,
    written: usize,
    buffer: Vec<u8>,
    /// The segment that is being cleaned, and its bytes.
    cleaning: Option<u32>,
    image: Vec<u8>,
    /// Bytes of fragments that belong to a node.
    pub(super) live: u64,
    pages: Vec<Lpn>,
    bytes: Vec<u8>,
    pub(super) sealed: u64,
}

impl Log {
    /// An empty log whose segments have `segment_pages` pages.
    pub(super) fn new(page_bytes: usize, segment_pages: u32) -> Log {
        Log {
            page_bytes,
            segment_pages,
            segments: Vec::new(),
            free: Vec::new(),
            current: 0,
            fill: 0,
            written: 0,
            buffer: vec![0; segment_pages as usize * page_bytes],
            cleaning: None,
            image: Vec::new(),
            live: 0,
            pages: Vec::new(),
            bytes: Vec::new(),
            sealed: 0,
        }
    }

    /// Bytes of a segment.
    pub(super) fn segment_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Total size of the segments in use.
    pub(super) fn used(&self) -> u64 {
        ((self.segments.len() - self.free.len()) * self.segment_bytes()) as u64
    }

    /// Starts a new log with its first segment.
    pub(super) fn start(&mut self, space: &mut Space) -> Result<()> {
        self.current = self.next(space)?;
        Ok(())
    }

    /// Resumes with existing segments. Reads the `current` one, of which `fill` bytes are used,
    /// from flash; other segments without live bytes are free.
    pub(super) fn resume(
        &mut self,
        cache: &mut Cache,
        current: u32,
        fill: usize,
        now: Nanos,
    ) -> Result<Nanos> {
        (self.current, self.fill, self.written) = (current, fill, fill);
        let live = self.segments.iter().enumerate();
        self.free = live
            .filter(|&(i, segment)| segment.live == 0 && i != current as usize)
            .map(|(i, _)| i as u32)
            .collect();
        self.live = self.segments.iter().map(|s| u64::from(s.live)).sum();
        let pages: Vec<Lpn> = self.pages_of(current).collect();
        let pages = &pages[..fill.div_ceil(self.page_bytes)];
        if pages.is_empty() {
            return Ok(now);
        }
        Ok(cache.read_past(now, pages, &mut self.buffer)?)
    }

    /// The pages of a segment.
    pub(super) fn pages_of(&self, segment: u32) -> impl Iterator<Item = Lpn> + use<> {
        let first = self.segments[segment as usize].first.0;
        (first..first + self.segment_pages).map(Lpn)
    }

    /// Takes a segment to fill: a free one, or new pages.
    fn next(&mut self, space: &mut Space) -> Result<u32> {
        if let Some(segment) = self.free.pop() {
            return Ok(segment);
        }
        let first = space.take_run(self.segment_pages)?;
        self.segments.push(Segment { first, live: 0 });
        Ok(self.segments.len() as u32 - 1)
    }

    /// Writes the pages appended since the last call, in parallel.
    pub(super) fn write(&mut self, cache: &mut Cache, now: Nanos) -> Result<Nanos> {
        if self.written == self.fill {
            return Ok(now);
        }
        let size = self.page_bytes;
        let first = self.segments[self.current as usize].first.0;
        let pages: Vec<(Lpn, &[u8])> = (self.written / size..self.fill.div_ceil(size))
            .map(|i| (Lpn(first + i as u32), &self.buffer[i * size..][..size]))
            .collect();
        let done = cache.write_past(now, &pages)?;
        self.written = self.fill;
        Ok(done)
    }

    /// Appends a live fragment. If the current segment has no room for it, writes that segment and
    /// starts another.
    pub(super) fn append(
        &mut self,
        cache: &mut Cache,
        space: &mut Space,
        fragment: &[u8],
        mut now: Nanos,
    ) -> Result<(Link, Nanos)> {
        let length = fragment.len();
        if self.fill + length > self.segment_bytes() {
            let next = self.next(space)?;
            now = self.write(cache, now)?;
            (self.current, self.fill, self.written) = (next, 0, 0);
            self.buffer.fill(0);
            self.sealed += 1;
        }
        let at = self.current as usize * self.segment_bytes() + self.fill;
        self.buffer[self.fill..][..length].copy_from_slice(fragment);
        self.fill += length;
        self.segments[self.current as usize].live += length as u32;
        self.live += length as u64;
        Ok((Link::new(at, length), now))
    }

    /// Marks a fragment as dead.
    pub(super) fn kill(&mut self, link: Link) -> Result<()> {
        let (segment, length) = (link.at() / self.segment_bytes(), link.length() as u32);
        let segment = &mut self.segments[segment];
        let Some(left) = segment.live.checked_sub(length) else {
            return damaged(
                segment.first,
                "its segment has more live bytes than it should",
            );
        };
        segment.live = left;
        self.live -= u64::from(length);
        Ok(())
    }

    /// The page with the first byte of a fragment. For a link outside of the log, the first page of
    /// the metadata, where links originate.
    pub(super) fn page_of(&self, link: Link) -> Lpn {
        let (segment, at) = (
            link.at() / self.segment_bytes(),
            link.at() % self.segment_bytes(),
        );
        let pages = (at / self.page_bytes) as u32;
        let segment = self.segments.get(segment);
        segment.map_or(Lpn(0), |segment| Lpn(segment.first.0 + pages))
    }

    /// Whether a link refers to bytes within one segment.
    fn holds(&self, link: Link) -> bool {
        let (segment, at) = (
            link.at() / self.segment_bytes(),
            link.at() % self.segment_bytes(),
        );
        segment < self.segments.len() && at + link.length() <= self.segment_bytes()
    }

    /// Reads the bytes of a fragment from memory or flash; if it spans two pages, in parallel.
    pub(super) fn read(
        &mut self,
        cache: &mut Cache,
        link: Link,
        now: Nanos,
    ) -> Result<(&[u8], Nanos)> {
        let segment = (link.at() / self.segment_bytes()) as u32;
        let at = link.at() % self.segment_bytes();
        if !self.holds(link) {
            return damaged(self.page_of(link), "a link leads out of the log");
        }
        if segment == self.current {
            return Ok((&self.buffer[at..][..link.length()], now));
        }
        if Some(segment) == self.cleaning {
            return Ok((&self.image[at..][..link.length()], now));
        }
        let size = self.page_bytes;
        let (first, end) = (at / size, (at + link.length()).div_ceil(size));
        let pages = self.pages_of(segment);
        self.pages.clear();
        self.pages.extend(pages.skip(first).take(end - first));
        let needed = (end - first) * size;
        self.bytes.resize(self.bytes.len().max(needed), 0);
        let done = cache.read_past(now, &self.pages, &mut self.bytes[..needed])?;
        Ok((&self.bytes[at % size..][..link.length()], done))
    }

    /// Reads the bytes of a fragment for a check, without counting.
    pub(super) fn inspect(&self, cache: &mut Cache, link: Link) -> Result<Vec<u8>, String> {
        let segment = link.at() / self.segment_bytes();
        if link == Link::NONE || !self.holds(link) {
            return Err(format!("position {} is beyond the log", link.at()));
        }
        let at = link.at() % self.segment_bytes();
        if segment as u32 == self.current {
            return Ok(self.buffer[at..][..link.length()].to_vec());
        }
        let (first, end) = (
            at / self.page_bytes,
            (at + link.length()).div_ceil(self.page_bytes),
        );
        let mut bytes = Vec::new();
        for page in self.pages_of(segment as u32).skip(first).take(end - first) {
            let page = cache.inspect(page).map_err(|error| error.to_string())?;
            bytes.extend_from_slice(&page);
        }
        Ok(bytes[at % self.page_bytes..][..link.length()].to_vec())
    }

    /// The full segment with the fewest live bytes.
    pub(super) fn victim(&self) -> Option<u32> {
        let full = (0..self.segments.len() as u32)
            .filter(|&segment| segment != self.current && !self.free.contains(&segment));
        full.min_by_key(|&segment| self.segments[segment as usize].live)
    }

    /// Starts cleaning a segment: keeps its bytes in memory until [`Log::end_cleaning`].
    pub(super) fn begin_cleaning(
        &mut self,
        cache: &mut Cache,
        segment: u32,
        now: Nanos,
    ) -> Result<Nanos> {
        self.pages.clear();
        let pages = self.pages_of(segment);
        self.pages.extend(pages);
        let bytes = self.segment_bytes();
        self.image.resize(bytes, 0);
        let done = cache.read_past(now, &self.pages, &mut self.image)?;
        self.cleaning = Some(segment);
        Ok(done)
    }

    /// The bytes of the segment being cleaned, from an offset on.
    pub(super) fn image(&self, offset: usize) -> &[u8] {
        self.image.get(offset..).unwrap_or_default()
    }

    /// Frees the cleaned segment.
    pub(super) fn end_cleaning(&mut self, segment: u32) {
        debug_assert_eq!(self.segments[segment as usize].live, 0);
        self.cleaning = None;
        self.free.push(segment);
    }

    /// Stops an unsuccessful cleaning; the segment stays as it is.
    pub(super) fn stop_cleaning(&mut self) {
        self.cleaning = None;
    }

    /// Bytes of the append and cleaning buffers, and of the segment table.
    pub(super) fn memory(&self) -> (u64, u64) {
        let table = self.segments.capacity() * size_of::<Segment>() + self.free.capacity() * 4;
        (
            (self.buffer.len() + self.image.len() + self.bytes.len()) as u64,
            table as u64,
        )
    }
}
