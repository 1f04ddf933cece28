//! Where the key of a store is. Programs take its place from their users, and never the key itself:
//! what stands on a command line or in a URI is read by others, and kept in histories and logs.

use crate::error::StoreError;
use crate::pages::OpenOptions;
use std::path::{Path, PathBuf};

/// Where the key of a store that is encrypted is: 32 bytes, or 64 hexadecimal digits.
///
/// A program that was built without encryption has this type as well. There every use of it is an
/// error, which says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file.
    File(PathBuf),
    /// In an environment variable.
    Variable(String),
}

impl KeySource {
    /// What a user named, who may name one of the two at most. `names` are how the user calls the
    /// file and the variable.
    ///
    /// # Errors
    /// Both are named.
    pub fn one_of(
        file: Option<&Path>,
        variable: Option<&str>,
        names: [&str; 2],
    ) -> Result<Option<KeySource>, StoreError> {
        match (file, variable) {
            (Some(_), Some(_)) => Err(StoreError::Key(format!(
                "{} and {} name two keys: leave one of them out",
                names[0], names[1]
            ))),
            (Some(file), None) => Ok(Some(KeySource::File(file.to_path_buf()))),
            (None, Some(name)) => Ok(Some(KeySource::Variable(name.to_owned()))),
            (None, None) => Ok(None),
        }
    }

    /// Reads the key. What was read besides is wiped from memory.
    ///
    /// # Errors
    /// It is not there, or is none.
    #[cfg(feature = "encryption")]
    pub fn read(&self) -> Result<super::Key, StoreError> {
        let wrong = |why: &dyn std::fmt::Display| {
            StoreError::Key(match self {
                KeySource::File(path) => format!("the key file {}: {why}", path.display()),
                KeySource::Variable(name) => format!("the variable {name}: {why}"),
            })
        };
        let bytes = match self {
            KeySource::File(path) => read_file(path).map_err(|error| wrong(&error))?,
            KeySource::Variable(name) => {
                let value = std::env::var(name).map_err(|error| wrong(&error))?;
                zeroize::Zeroizing::new(value.into_bytes())
            }
        };
        super::Key::parse(&bytes).map_err(|error| wrong(&error))
    }
}

/// Bytes of a key file at most: no key with what may stand around it has more.
#[cfg(feature = "encryption")]
const FILE_BYTES_MAX: u64 = 1024;

#[cfg(feature = "encryption")]
fn read_file(path: &Path) -> std::io::Result<zeroize::Zeroizing<Vec<u8>>> {
    use std::io::Read;
    // With all of its room from the beginning, so that no copy is left behind where it grew.
    let room = Vec::with_capacity(FILE_BYTES_MAX as usize);
    let mut bytes = zeroize::Zeroizing::new(room);
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl OpenOptions {
    /// As these, with a key from where it is, if it is anywhere.
    ///
    /// # Errors
    /// It is not there, or is none; or this program was built without encryption.
    pub fn with_key_from(self, source: Option<&KeySource>) -> Result<OpenOptions, StoreError> {
        let Some(source) = source else {
            return Ok(self);
        };
        #[cfg(feature = "encryption")]
        {
            let key = Some(source.read()?);
            Ok(OpenOptions { key, ..self })
        }
        #[cfg(not(feature = "encryption"))]
        {
            let _ = source;
            Err(StoreError::Key(
                "there is a key, and this program was built without encryption: build it again \
                 with `--features encryption`"
                    .into(),
            ))
        }
    }
}
