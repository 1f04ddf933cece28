//! Keys: the user's key, the data key that it wraps, and changing the user's key.

use super::lock;
use super::medium::{Encrypted, is_proven};
use crate::error::{Doing, StoreError};
use crate::identity::random;
use crate::medium::{Disk, Medium};
use crate::pages::{OpenOptions, config, doubt_blank, doubt_head};
use crate::superblock::{ENCRYPTED_VERSIONS, MAGIC, MEDIUM_PAGE_BYTES, Superblock, superblock};
use crate::superblock::{READING_HEAD, read_heads};
use aes_gcm_siv::Aes256GcmSiv;
use aes_gcm_siv::aead::{AeadInOut, KeyInit};
use flagstone::layout::{get, put};
use std::fmt;
use std::path::Path;
use zeroize::Zeroizing;

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 32;
/// Offset of the lock in the page of a superblock.
pub(super) const LOCK_AT: usize = superblock::SIZE;
/// Bytes of the lock before its CRC.
pub(super) const LOCK_BYTES: usize = lock::CRC.start;

pub(super) type Secret = Zeroizing<[u8; KEY_BYTES]>;
/// A lock without its CRC and proof, which differ between the two superblocks.
pub(super) type Lock = [u8; LOCK_BYTES];

const RAW: u64 = 1;
const PASSPHRASE: u64 = 2;

/// Cost of Argon2id for a new lock: memory in KiB, and passes. Takes about a tenth of a second.
const COST: (u32, u32) = if cfg!(test) { (64, 1) } else { (64 << 10, 3) };
/// Maximum cost that a lock may demand, in the same units: 1 GiB (sixteen times a new lock's), and
/// 16 passes. Nothing in a lock can be verified before this work is done.
const COST_MAX: (u64, u64) = (1 << 20, 16);

/// The key of an encrypted store. Wiped from memory when dropped.
///
/// ```
/// use flagstone_store::medium::Recorded;
/// use flagstone_store::{Key, OpenOptions, PageStore, StoreError};
///
/// let medium = Recorded::default();
/// let mut options = OpenOptions::default();
/// options.key = Some(Key::parse(b"a key of exactly thirty-two byte")?);
/// PageStore::on(Box::new(medium.clone()), &options)?.close()?;
///
/// let without = PageStore::on(Box::new(medium.clone()), &OpenOptions::existing());
/// assert!(matches!(without.err(), Some(StoreError::Key(_))));
/// options.key = Some(Key::raw([1; 32]));
/// let wrong = PageStore::on(Box::new(medium), &options);
/// assert!(matches!(wrong.err(), Some(StoreError::Key(_))));
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Raw(Secret),
    Passphrase(Zeroizing<String>),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Raw(_) => "Key(32 bytes)",
            Kind::Passphrase(_) => "Key(passphrase)",
        })
    }
}

impl Key {
    /// A key of 32 random bytes.
    pub fn raw(bytes: [u8; KEY_BYTES]) -> Key {
        Key(Kind::Raw(Zeroizing::new(bytes)))
    }

    /// A key derived from a passphrase.
    pub fn passphrase(text: String) -> Key {
        Key(Kind::Passphrase(Zeroizing::new(text)))
    }

    /// Parses a key file or variable: 32 bytes, or 64 hexadecimal digits with optional spaces.
    ///
    /// # Errors
    /// `bytes` is neither.
    pub fn parse(bytes: &[u8]) -> Result<Key, StoreError> {
        if let Ok(bytes) = bytes.try_into() {
            return Ok(Key::raw(bytes));
        }
        let digits = bytes.trim_ascii();
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let is_right = digits.len() == 2 * KEY_BYTES
            && digits
                .chunks_exact(2)
                .zip(key.iter_mut())
                .all(|(pair, byte)| {
                    let digit = |at: usize| (pair[at] as char).to_digit(16);
                    let value = digit(0).zip(digit(1)).map(|(high, low)| high << 4 | low);
                    value.inspect(|value| *byte = *value as u8).is_some()
                });
        if is_right {
            Ok(Key(Kind::Raw(key)))
        } else {
            Err(StoreError::Key(
                "a key has 32 bytes, or 64 hexadecimal digits: `openssl rand -hex 32` makes one"
                    .into(),
            ))
        }
    }

    /// The key that wraps the data key, derived with the lock's parameters.
    fn wrapping(&self, lock: &Lock) -> Result<Secret, StoreError> {
        let kind = get(lock, lock::KIND);
        match (&self.0, kind) {
            (Kind::Raw(key), RAW) => Ok(key.clone()),
            (Kind::Passphrase(text), PASSPHRASE) => {
                let (memory, passes) = (get(lock, lock::MEMORY), get(lock, lock::PASSES));
                let lanes = get(lock, lock::LANES) as u32;
                let wrong =
                    || StoreError::Damaged("the superblock has invalid Argon2id parameters".into());
                if memory > COST_MAX.0 || passes > COST_MAX.1 {
                    return Err(StoreError::Damaged(format!(
                        "the superblock asks Argon2id for {memory} KiB and {passes} passes, above \
                         the limits of {} KiB and {}: it was changed; restore the store from a \
                         backup",
                        COST_MAX.0, COST_MAX.1
                    )));
                }
                let params = argon2::Params::new(memory as u32, passes as u32, lanes, None);
                let argon = argon2::Argon2::new(
                    argon2::Algorithm::Argon2id,
                    argon2::Version::V0x13,
                    params.map_err(|_| wrong())?,
                );
                let mut key = Zeroizing::new([0; KEY_BYTES]);
                let salt = &lock[lock::SALT];
                let made = argon.hash_password_into(text.as_bytes(), salt, &mut key[..]);
                made.map_err(|_| wrong())?;
                Ok(key)
            }
            (Kind::Raw(_), PASSPHRASE) => Err(StoreError::Key(
                "the store is encrypted with a passphrase, not with a key of 32 bytes".into(),
            )),
            (Kind::Passphrase(_), RAW) => Err(StoreError::Key(
                "the store is encrypted with a key of 32 bytes, not with a passphrase".into(),
            )),
            _ => Err(StoreError::Damaged(format!(
                "the superblock has a lock of kind {kind}"
            ))),
        }
    }

    /// Wraps a data key.
    pub(super) fn lock(&self, data_key: &Secret) -> Result<Lock, StoreError> {
        let mut lock = [0; LOCK_BYTES];
        match self.0 {
            Kind::Raw(_) => put(&mut lock, lock::KIND, RAW),
            Kind::Passphrase(_) => {
                put(&mut lock, lock::KIND, PASSPHRASE);
                put(&mut lock, lock::MEMORY, COST.0.into());
                put(&mut lock, lock::PASSES, COST.1.into());
                put(&mut lock, lock::LANES, 1);
                random(&mut lock[lock::SALT])?;
            }
        }
        random(&mut lock[lock::NONCE])?;
        let cipher = cipher(&self.wrapping(&lock)?);
        let nonce = nonce(&lock[lock::NONCE]);
        let (before, wrapped) = lock.split_at_mut(lock::KEY.start);
        let (key, tag) = wrapped.split_at_mut(KEY_BYTES);
        key.copy_from_slice(&data_key[..]);
        let made = cipher.encrypt_inout_detached(&nonce.into(), before, key.into());
        tag.copy_from_slice(&made.expect("a key is not too long"));
        Ok(lock)
    }

    /// Unwraps the data key. `None` if this key is wrong.
    pub(super) fn unlock(&self, lock: &Lock) -> Result<Option<Secret>, StoreError> {
        let cipher = cipher(&self.wrapping(lock)?);
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        key.copy_from_slice(&lock[lock::KEY]);
        let tag: [u8; 16] = lock[lock::TAG].try_into().expect("it has that size");
        let before = &lock[..lock::KEY.start];
        let nonce = nonce(&lock[lock::NONCE]);
        let done = cipher.decrypt_inout_detached(
            &nonce.into(),
            before,
            (&mut key[..]).into(),
            &tag.into(),
        );
        Ok(done.is_ok().then_some(key))
    }
}

pub(super) fn cipher(key: &Secret) -> Aes256GcmSiv {
    Aes256GcmSiv::new_from_slice(&key[..]).expect("it has that size")
}

fn nonce(bytes: &[u8]) -> [u8; 12] {
    bytes.try_into().expect("it has that size")
}

/// A superblock with a lock. Its checksums are correct, but can be computed without a key: nothing
/// in it is trusted before its proof is verified.
struct Found {
    place: u64,
    page: Vec<u8>,
    lock: Lock,
}

/// The superblocks of a medium.
struct Heads {
    /// Those that have locks, newest first.
    found: Vec<Found>,
    /// Whether the pages of both superblocks are all zeros.
    is_blank: bool,
}

/// Result of unlocking a store: its data key, the lock that wraps it, and the pages per block.
struct Opened {
    data_key: Secret,
    lock: Lock,
    /// `None` if the store is still to be created.
    pages_per_block: Option<u32>,
}

impl Heads {
    /// Reads both superblocks. One that cannot be read counts as damaged if the other has a lock.
    fn read(medium: &dyn Medium) -> Result<Heads, StoreError> {
        let (pages, unread) = read_heads(medium)?;
        let mut found = Vec::new();
        for (place, page) in (0..).zip(pages.chunks_exact(MEDIUM_PAGE_BYTES)) {
            if let Some(lock) = locked(page) {
                let page = page.to_vec();
                found.push(Found { place, page, lock });
            }
        }
        found.sort_by_key(|found| std::cmp::Reverse(get(&found.page, superblock::SEQUENCE)));
        if let (true, Some(error)) = (found.is_empty(), unread) {
            return Err(StoreError::io(READING_HEAD, error));
        }
        let is_blank = pages.iter().all(|&byte| byte == 0);
        Ok(Heads { found, is_blank })
    }

    /// The data key from the newest lock that `key` opens, and the geometry from the newest
    /// superblock that the data key proves.
    fn unlock(&self, key: &Key) -> Result<Opened, StoreError> {
        let mut refused = None;
        for found in &self.found {
            match key.unlock(&found.lock) {
                Ok(Some(data_key)) => match self.proven(&data_key) {
                    Some(head) => {
                        return Ok(Opened {
                            data_key,
                            lock: found.lock,
                            // Without blocks, the creation of the store was interrupted.
                            pages_per_block: (get(&head.page, superblock::BLOCKS) > 0)
                                .then(|| get(&head.page, superblock::PAGES) as u32),
                        });
                    }
                    None => refused = Some(unproven()),
                },
                Ok(None) => {}
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| {
            StoreError::Key("this is not the key of the store: nothing was changed".into())
        }))
    }

    /// The newest superblock that was written with this data key.
    fn proven(&self, data_key: &Secret) -> Option<&Found> {
        let cipher = cipher(data_key);
        let mut found = self.found.iter();
        found.find(|found| is_proven(&cipher, found.place, &found.page))
    }
}

/// The error for a correct key if no superblock is as the store wrote it.
fn unproven() -> StoreError {
    StoreError::Damaged(
        "both superblocks are damaged, although the key is right; nothing was changed: restore the \
         store from a backup"
            .into(),
    )
}

/// The lock in the page of a superblock, if its checksum is correct.
pub(super) fn locked(page: &[u8]) -> Option<Lock> {
    let at = |field: std::ops::Range<usize>| LOCK_AT + field.start..LOCK_AT + field.end;
    let version = get(page, superblock::VERSION);
    let is_right = page[superblock::MAGIC] == *MAGIC
        && ENCRYPTED_VERSIONS
            .iter()
            .any(|&(of_it, _)| of_it == version)
        && get(page, at(lock::CRC)) == u64::from(crate::sum::crc32c(&page[..LOCK_AT + LOCK_BYTES]));
    is_right.then(|| {
        page[LOCK_AT..LOCK_AT + LOCK_BYTES]
            .try_into()
            .expect("it has that size")
    })
}

/// Wraps a medium in an encrypting one, if the store on it is encrypted or will be.
///
/// # Errors
/// The key is missing or wrong, a key is given for a plain store, or the spare areas of a new store
/// are too small for its protocol.
pub(crate) fn dress(
    medium: Box<dyn Medium>,
    options: &OpenOptions,
) -> Result<Box<dyn Medium>, StoreError> {
    let Some(key) = &options.key else {
        // The opening recognises an encrypted store by its version, and asks for the key.
        return Ok(medium);
    };
    let heads = Heads::read(medium.as_ref())?;
    if !heads.found.is_empty() {
        let opened = heads.unlock(key)?;
        if opened.pages_per_block.is_none() {
            has_room(options)?;
        }
        return Ok(Box::new(Encrypted::new(
            medium,
            &opened.data_key,
            opened.lock,
            opened.pages_per_block.unwrap_or(options.pages_per_block),
        )));
    }
    // With `force`, a new store may overwrite other contents, but never a plain store.
    let may_overwrite = options.create && options.force && !options.read_only;
    let may_overwrite = may_overwrite && Superblock::read(medium.as_ref())?.is_none();
    if !heads.is_blank && !may_overwrite {
        return Err(StoreError::Key(
            "there is no encrypted store here, but a key was given: leave the key out, or check \
             the path"
                .into(),
        ));
    }
    if !may_overwrite {
        doubt_blank(medium.as_ref())?;
    }
    has_room(options)?;
    let mut data_key = Zeroizing::new([0; KEY_BYTES]);
    random(&mut data_key[..])?;
    let lock = key.lock(&data_key)?;
    Ok(Box::new(Encrypted::new(
        medium,
        &data_key,
        lock,
        options.pages_per_block,
    )))
}

/// Checks that the spare areas of a new encrypted store suffice.
///
/// # Errors
/// They do not, with the protocol in `options`.
fn has_room(options: &OpenOptions) -> Result<(), StoreError> {
    let info = options.protocol.info();
    let needs = info.format.spare_bytes(&config());
    if needs > Encrypted::SPARE_BYTES {
        return Err(StoreError::Options(format!(
            "{} needs {needs} bytes of spare area, and an encrypted page has {}: use another \
             protocol",
            info.name,
            Encrypted::SPARE_BYTES
        )));
    }
    Ok(())
}

/// Changes the key of a store that no process has open. Writes no data: only the data key is
/// wrapped anew, in both superblocks. Whoever has a copy of an old superblock can still open copies
/// of the store with the old key.
///
/// # Errors
/// The old key is wrong, the store is in use or not encrypted, its newest superblock is lost, or
/// the medium fails. After a failure half-way both keys open the store, and `rekey` can be
/// repeated.
pub fn rekey(path: &Path, old: &Key, new: &Key) -> Result<(), StoreError> {
    let disk = Disk::open(path, false, false)?;
    rekey_on(Box::new(disk), old, new).map_err(|error| error.at(path))
}

/// Implements [`rekey`] on a medium.
pub(super) fn rekey_on(medium: Box<dyn Medium>, old: &Key, new: &Key) -> Result<(), StoreError> {
    let heads = Heads::read(medium.as_ref())?;
    if heads.found.is_empty() {
        return Err(StoreError::Key("there is no encrypted store here".into()));
    }
    let opened = heads.unlock(old)?;
    let pages_per_block = opened.pages_per_block.ok_or_else(|| {
        StoreError::NotAStore("the creation of this store was interrupted; it is empty".into())
    })?;
    let lock = new.lock(&opened.data_key)?;
    let medium = Encrypted::new(medium, &opened.data_key, lock, pages_per_block);
    let head = Superblock::read(&medium)?;
    let head = head.ok_or_else(|| StoreError::Damaged("both superblocks are damaged".into()))?;
    // Both are written from the valid one, which must not be older than the blocks.
    doubt_head(&medium, &head)?;
    let mut superblock = head.superblock;
    if head.damaged.is_some() {
        // The damaged superblock may have been the newer one.
        superblock.closed = Some(false);
    }
    // Tables at rest belong to the superblock that these replace.
    superblock.rested = 0;
    for _ in 0..2 {
        superblock.write(&medium).doing("writing the superblock")?;
    }
    Ok(())
}
