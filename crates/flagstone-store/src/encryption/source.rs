//! Sources of a store's key. Programs take the place of the key from their users, never the key
//! itself: command lines and URIs are visible to others and end up in histories and logs.

use crate::error::StoreError;
use crate::pages::OpenOptions;
use std::path::{Path, PathBuf};

/// Where the key of an encrypted store is kept: 32 bytes, or 64 hexadecimal digits.
///
/// Also exists in programs built without encryption, where every use of it is an error.
///
/// ```
/// use flagstone_store::{KeySource, StoreError};
/// use std::path::Path;
///
/// let names = ["--key-file", "--key-variable"];
/// let source = KeySource::one_of(None, Some("STORE_KEY"), names)?;
/// assert_eq!(source, Some(KeySource::Variable("STORE_KEY".into())));
/// let both = KeySource::one_of(Some(Path::new("key")), Some("STORE_KEY"), names);
/// assert!(both.is_err());
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file.
    File(PathBuf),
    /// In an environment variable.
    Variable(String),
}

impl KeySource {
    /// Returns the source that the user gave, at most one of the two. `names` are the user's names
    /// for the file and for the variable.
    ///
    /// # Errors
    /// Both are given.
    pub fn one_of(
        file: Option<&Path>,
        variable: Option<&str>,
        names: [&str; 2],
    ) -> Result<Option<KeySource>, StoreError> {
        match (file, variable) {
            (Some(_), Some(_)) => Err(StoreError::Key(format!(
                "{} and {} are two keys: leave one of them out",
                names[0], names[1]
            ))),
            (Some(file), None) => Ok(Some(KeySource::File(file.to_path_buf()))),
            (None, Some(name)) => Ok(Some(KeySource::Variable(name.to_owned()))),
            (None, None) => Ok(None),
        }
    }

    /// Reads the key. Wipes everything else that was read from memory.
    ///
    /// # Errors
    /// The source does not exist, or holds no key.
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
                // Not `var`, whose error shows a value that is not UTF-8.
                let value = std::env::var_os(name);
                let value = value.ok_or_else(|| wrong(&std::env::VarError::NotPresent))?;
                zeroize::Zeroizing::new(value.into_encoded_bytes())
            }
        };
        super::Key::parse(&bytes).map_err(|error| wrong(&error))
    }
}

/// Maximum size of a key file: larger than any key with white space around it.
#[cfg(feature = "encryption")]
const FILE_BYTES_MAX: u64 = 1024;

#[cfg(feature = "encryption")]
fn read_file(path: &Path) -> std::io::Result<zeroize::Zeroizing<Vec<u8>>> {
    use std::io::Read;
    // Full capacity from the start, so that growing leaves no copy of the key behind.
    let room = Vec::with_capacity(FILE_BYTES_MAX as usize);
    let mut bytes = zeroize::Zeroizing::new(room);
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl OpenOptions {
    /// Returns these options with the key from `source`, if given.
    ///
    /// # Errors
    /// The source does not exist or holds no key, or the program was built without encryption.
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
                "a key was given, but this program was built without encryption: build it with \
                 `--features encryption`"
                    .into(),
            ))
        }
    }
}
