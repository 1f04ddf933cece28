//! Input of all importers: a file or standard input, plain, gzip or zstd, read line by line.
//!
//! The compression is detected from the first bytes, not from the name. The bytes are hashed while
//! reading, so that a trace can identify its source file.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::Event;
use super::file::FileError;

/// Maximum line length in bytes: a commit record may list very many invalidations, but a binary
/// file without line ends must not fill the memory.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// Why an import failed.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The input could not be read.
    #[error("line {line}: cannot read the input: {source}")]
    Read {
        /// The line being read, counted from 1.
        line: u64,
        /// The error of the operating system or the decompressor.
        source: io::Error,
    },
    /// A line that the format does not allow.
    #[error("line {line}: {problem}\n  {excerpt}")]
    Line {
        /// The line number, from 1.
        line: u64,
        /// What is wrong with the line, and what to do.
        problem: String,
        /// The start of the line.
        excerpt: String,
    },
    /// The input as a whole is not valid for this importer.
    #[error("{0}")]
    Whole(String),
    /// The temporary file of a large input cannot be written or read.
    #[error("a temporary file in {}: {}", .0.display(), .1)]
    Temporary(PathBuf, io::Error),
    /// The trace cannot be written.
    #[error(transparent)]
    File(#[from] Box<FileError>),
}

/// Receives the events of a trace in order.
pub type EventSink<'a> = &'a mut dyn FnMut(Event) -> Result<(), ImportError>;

/// The opened input of an importer.
pub struct Input {
    reader: Box<dyn BufRead>,
    seen: Rc<RefCell<Seen>>,
}

struct Seen {
    hash: Sha256,
    bytes: u64,
}

/// Identifies the bytes read from an [`Input`], as stored on disk (possibly compressed).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Length in bytes.
    pub bytes: u64,
}

impl Input {
    /// Opens `path`, or standard input for `-`. `watch` may wrap the raw bytes, for a progress bar;
    /// it receives their number if known.
    pub fn open(
        path: &Path,
        watch: impl FnOnce(Box<dyn Read>, Option<u64>) -> Box<dyn Read>,
    ) -> io::Result<Input> {
        if path == Path::new("-") {
            return Input::new(watch(Box::new(io::stdin()), None));
        }
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "is a directory",
            ));
        }
        let length = meta.is_file().then_some(meta.len());
        Input::new(watch(Box::new(file), length))
    }

    /// Reads from `raw`, and decompresses if its first bytes are those of gzip or zstd.
    pub fn new(raw: impl Read + 'static) -> io::Result<Input> {
        let seen = Rc::new(RefCell::new(Seen {
            hash: Sha256::new(),
            bytes: 0,
        }));
        let mut raw = BufReader::with_capacity(
            1 << 18,
            Hashed {
                raw,
                seen: seen.clone(),
            },
        );
        // From a pipe, `fill_buf` may return fewer bytes than the magic has: read until they are
        // there.
        let mut magic = Vec::new();
        (&mut raw).take(4).read_to_end(&mut magic)?;
        if let Some(problem) = unread(&magic) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let whole = io::Cursor::new(magic.clone()).chain(raw);
        let reader: Box<dyn BufRead> = match magic[..] {
            [0x1f, 0x8b, ..] => Box::new(BufReader::with_capacity(
                1 << 18,
                flate2::bufread::MultiGzDecoder::new(whole),
            )),
            [0x28, 0xb5, 0x2f, 0xfd] => {
                let zstd = zstd::stream::read::Decoder::with_buffer(whole)?;
                Box::new(BufReader::with_capacity(1 << 18, zstd))
            }
            _ => Box::new(whole),
        };
        Ok(Input { reader, seen })
    }

    /// Reads the rest, and returns the fingerprint of the whole input.
    pub fn finish(mut self) -> io::Result<Fingerprint> {
        io::copy(&mut self.reader, &mut io::sink())?;
        drop(self.reader);
        let seen = self.seen.borrow();
        Ok(Fingerprint {
            sha256: hex(&seen.hash.clone().finalize()),
            bytes: seen.bytes,
        })
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
    }
}

/// Advice for an unsupported input format.
fn unread(magic: &[u8]) -> Option<String> {
    let packed = |what: &str, with: &str| {
        format!(
            "it is compressed with {what}: unpack it, as in `{with} FILE | flagstone trace import …`"
        )
    };
    match magic {
        [0xfd, b'7', b'z', b'X', ..] => Some(packed("xz", "xz -dc")),
        [b'B', b'Z', b'h', ..] => Some(packed("bzip2", "bzip2 -dc")),
        [b'P', b'K', 3, 4] => Some(packed("zip", "unzip -p")),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(
            "it is text in UTF-16: make it UTF-8, as in `iconv -f UTF-16 -t UTF-8 FILE | flagstone trace \
             import …`"
                .to_string(),
        ),
        b"PAR1" => Some("it is a Parquet file, perhaps a trace already: see `trace info`".to_string()),
        _ => None,
    }
}

struct Hashed<R> {
    raw: R,
    seen: Rc<RefCell<Seen>>,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.raw.read(into)?;
        let mut seen = self.seen.borrow_mut();
        seen.hash.update(&into[..length]);
        seen.bytes += length as u64;
        Ok(length)
    }
}

/// `bytes` in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Numbered lines of text. Bytes that are not UTF-8 become `U+FFFD`.
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    text: String,
    number: u64,
}

/// One line of [`Lines`], without its end.
pub(crate) struct Line<'a> {
    /// The line number, from 1.
    pub number: u64,
    /// The text.
    pub text: &'a str,
    /// Whether a line end follows; only the last line of a truncated file has none.
    pub ended: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Lines<R> {
        Lines {
            reader,
            buffer: Vec::new(),
            text: String::new(),
            number: 0,
        }
    }

    /// The number of the last line read.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, ImportError> {
        self.buffer.clear();
        self.number += 1;
        let limit = MAX_LINE_BYTES as u64 + 1;
        let length = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut self.buffer)
            .map_err(|source| ImportError::Read {
                line: self.number,
                source,
            })?;
        if length == 0 {
            self.number -= 1;
            return Ok(None);
        }
        let ended = self.buffer.last() == Some(&b'\n');
        if !ended && length as u64 == limit {
            return Err(ImportError::Line {
                line: self.number,
                problem: format!("longer than {MAX_LINE_BYTES} bytes: this is not a text file"),
                excerpt: excerpt(&String::from_utf8_lossy(&self.buffer[..200])),
            });
        }
        if ended {
            self.buffer.pop();
            if self.buffer.last() == Some(&b'\r') {
                self.buffer.pop();
            }
        }
        let text = match std::str::from_utf8(&self.buffer) {
            // Some editors mark text as UTF-8 with a byte order mark.
            Ok(text) if self.number == 1 => text.strip_prefix('\u{feff}').unwrap_or(text),
            Ok(text) => text,
            Err(_) => {
                self.text = String::from_utf8_lossy(&self.buffer).into_owned();
                &self.text
            }
        };
        Ok(Some(Line {
            number: self.number,
            text,
            ended,
        }))
    }
}

/// The fields of a text separated by blanks, and their number; fields beyond `N` are only counted.
pub(crate) fn words<const N: usize>(text: &str) -> ([&str; N], usize) {
    let (mut words, mut count) = ([""; N], 0);
    let bytes = text.as_bytes();
    let blank = |byte: u8| byte <= b' ' && byte.is_ascii_whitespace();
    let mut at = 0;
    loop {
        while at < bytes.len() && blank(bytes[at]) {
            at += 1;
        }
        if at == bytes.len() {
            return (words, count);
        }
        let start = at;
        while at < bytes.len() && !blank(bytes[at]) {
            at += 1;
        }
        if count < N {
            words[count] = &text[start..at];
        }
        count += 1;
    }
}

/// A decimal number, in digits alone.
pub(crate) fn number(text: &str) -> Option<u64> {
    let mut digits = text.bytes().map(|byte| byte.wrapping_sub(b'0'));
    match text.len() {
        0 => None,
        // No number with this few digits overflows.
        1..=19 => digits.try_fold(0, |sum, digit| {
            (digit <= 9).then(|| sum * 10 + u64::from(digit))
        }),
        _ => text.parse().ok(),
    }
}

impl Line<'_> {
    /// Passes on a value that was parsed from this line. If it is `None`, returns an error with the
    /// text `problem`.
    pub(crate) fn read<T>(
        &self,
        part: &str,
        what: &str,
        read: Option<T>,
    ) -> Result<T, ImportError> {
        read.ok_or_else(|| self.wrong(format!("`{part}` is no {what}")))
    }

    /// An error for this line.
    pub(crate) fn wrong(&self, problem: impl Into<String>) -> ImportError {
        ImportError::Line {
            line: self.number,
            problem: problem.into(),
            excerpt: excerpt(self.text),
        }
    }
}

/// The beginning of a line, short enough for a message and without control characters.
fn excerpt(text: &str) -> String {
    let short: String = text
        .chars()
        .take(120)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(120).is_some() {
        format!("{short}…")
    } else {
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn lines(input: impl BufRead) -> Vec<(u64, String, bool)> {
        let mut lines = Lines::new(input);
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push((line.number, line.text.to_string(), line.ended));
        }
        all
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compression_is_told_by_the_first_bytes() {
        let text = "one\ntwo\r\nthree";
        let want: Vec<_> = [(1, "one", true), (2, "two", true), (3, "three", false)]
            .map(|(n, t, e)| (n, t.to_string(), e))
            .into();
        let two_members = [gzip("one\nt"), gzip("wo\r\nthree")].concat();
        let zstd = zstd::encode_all(text.as_bytes(), 3).unwrap();
        for bytes in [text.as_bytes().to_vec(), gzip(text), two_members, zstd] {
            assert_eq!(lines(Input::new(io::Cursor::new(bytes)).unwrap()), want);
        }
        assert_eq!(lines(Input::new(io::empty()).unwrap()), []);
        let marked = format!("\u{feff}{text}\n\u{feff}four");
        let read = lines(Input::new(io::Cursor::new(marked)).unwrap());
        assert_eq!(read[0].1.as_str(), "one");
        assert_eq!(read[3].1.as_str(), "\u{feff}four");
        assert_eq!(
            lines(Input::new(&b"a"[..]).unwrap()),
            [(1, "a".to_string(), false)]
        );
    }

    #[test]
    fn forms_that_are_not_read_say_what_to_do() {
        for (bytes, what) in [
            (&b"\xfd7zXZ\0"[..], "xz -dc FILE | flagstone trace import"),
            (b"BZh91AY", "bzip2 -dc FILE |"),
            (b"PK\x03\x04", "unzip -p FILE |"),
            (b"\xff\xfef\0i\0", "iconv -f UTF-16 -t UTF-8 FILE |"),
            (b"\xfe\xff\0f\0i", "iconv -f UTF-16"),
            (b"PAR1", "see `trace info`"),
        ] {
            let error = Input::new(bytes).err().map(|error| error.to_string());
            assert!(
                error.clone().is_some_and(|error| error.contains(what)),
                "{error:?}"
            );
        }
    }

    #[test]
    fn a_pipe_that_gives_one_byte_at_a_time_is_read_like_a_file() {
        struct Slow(io::Cursor<Vec<u8>>);
        impl Read for Slow {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let length = into.len().min(1);
                self.0.read(&mut into[..length])
            }
        }
        let input = Input::new(Slow(io::Cursor::new(gzip("a\nb\n")))).unwrap();
        assert_eq!(lines(input).len(), 2);
    }

    #[test]
    fn the_fingerprint_is_of_the_bytes_on_disk() {
        // SHA-256 of "abc", FIPS 180-2 appendix B.1.
        let input = Input::new(&b"abc"[..]).unwrap();
        let print = input.finish().unwrap();
        assert_eq!(print.bytes, 3);
        assert_eq!(
            print.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let packed = gzip("abc\n");
        let mut input = Input::new(io::Cursor::new(packed.clone())).unwrap();
        assert_eq!(lines(&mut input).len(), 1);
        assert_eq!(input.finish().unwrap().bytes, packed.len() as u64);
    }

    #[test]
    fn a_cut_gzip_file_is_an_error_with_its_line() {
        let text: String = (0..10_000)
            .map(|n| format!("line {}\n", n * 7919 % 10_007))
            .collect();
        let mut bytes = gzip(&text);
        bytes.truncate(bytes.len() / 2);
        let mut lines = Lines::new(Input::new(io::Cursor::new(bytes)).unwrap());
        let error = loop {
            match lines.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the cut went unnoticed"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(error, ImportError::Read { line, .. } if line > 100),
            "{error}"
        );
    }
}
