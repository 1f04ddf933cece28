//! Memory buffers aligned to 4096 bytes, as direct I/O requires.

/// The strictest alignment that any device requires.
pub(super) const ALIGNMENT: usize = 4096;

/// A growable buffer that is reused between requests.
#[derive(Debug, Default)]
pub(super) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Resizes the buffer to `len` bytes. The contents are unspecified.
    pub(super) fn resize(&mut self, len: usize) {
        if self.bytes.len() < len + ALIGNMENT {
            self.bytes = vec![0; len + ALIGNMENT];
            self.start = self.bytes.as_ptr().align_offset(ALIGNMENT);
        }
        self.len = len;
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_also_after_it_has_grown() {
        let mut buffer = Aligned::default();
        for len in [512, 4096, 100_000, 8192] {
            buffer.resize(len);
            assert_eq!(buffer.as_slice().len(), len);
            assert_eq!(buffer.as_mut().as_ptr() as usize % ALIGNMENT, 0);
        }
    }
}
