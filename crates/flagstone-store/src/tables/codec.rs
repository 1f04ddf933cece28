//! Encodes typed keys and values as bytes. The bytes of keys sort like the keys, so that ranges of
//! typed keys are ranges of a table.
//!
//! | a key | its bytes |
//! |---|---|
//! | unsigned number | big-endian |
//! | signed number | big-endian, with the sign turned round |
//! | `bool` | one byte |
//! | text, bytes | themselves; inside a tuple each 0 is followed by 255, and 0, 0 ends them |
//! | `Option` | 0, or 1 and the value |
//! | tuple | its parts one behind the other |

use super::Pair;
use super::read::{Source, Table, Value};
use super::table_mut::TableMut;
use crate::error::StoreError;
use std::marker::PhantomData;
use std::ops::Bound;

/// A type that can be stored in a table.
///
/// ```
/// use flagstone_store::medium::Memory;
/// use flagstone_store::tables::Codec;
/// use flagstone_store::{OpenOptions, Store, StoreError};
///
/// #[derive(Debug, PartialEq)]
/// struct Point {
///     x: u32,
///     y: u32,
/// }
///
/// impl Codec for Point {
///     fn encode(&self, into: &mut Vec<u8>) {
///         self.x.encode(into);
///         self.y.encode(into);
///     }
///
///     fn decode(bytes: &[u8]) -> Option<Point> {
///         let (x, y) = bytes.split_at_checked(4)?;
///         let (x, y) = (u32::decode(x)?, u32::decode(y)?);
///         Some(Point { x, y })
///     }
/// }
///
/// let store = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let mut tx = store.write()?;
/// let mut points = tx.table("points")?.typed::<u64, Point>();
/// points.insert(&1, &Point { x: 3, y: 4 })?;
/// assert_eq!(points.get(&1)?, Some(Point { x: 3, y: 4 }));
/// # Ok::<(), StoreError>(())
/// ```
pub trait Codec: Sized {
    /// Appends the encoded value.
    fn encode(&self, into: &mut Vec<u8>);

    /// Decodes a value. `None` if the bytes encode none.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// A key type: its encoded values sort like the values.
///
/// ```
/// use flagstone_store::tables::{Codec, KeyCodec};
///
/// fn bytes(key: impl KeyCodec) -> Vec<u8> {
///     let mut bytes = Vec::new();
///     key.encode(&mut bytes);
///     bytes
/// }
///
/// // The bytes sort like the keys.
/// assert!(bytes(-5i64) < bytes(7i64));
/// assert!(bytes(("a".to_string(), 2u32)) < bytes(("ab".to_string(), 1u32)));
/// assert_eq!(u32::decode_part(&[0, 0, 0, 7, 9]), Some((7, &[9][..])));
/// ```
pub trait KeyCodec: Codec {
    /// Appends the value as part of a longer key. No encoded value is a prefix of another one.
    fn encode_part(&self, into: &mut Vec<u8>);

    /// Decodes the value at the start of `bytes`. Also returns the remaining bytes.
    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])>;
}

macro_rules! numbers {
    ($($number:ty, $unsigned:ty, $turn:expr;)+) => {$(
        impl Codec for $number {
            fn encode(&self, into: &mut Vec<u8>) {
                let turned = *self as $unsigned ^ $turn;
                into.extend_from_slice(&turned.to_be_bytes());
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                let bytes = bytes.try_into().ok()?;
                Some((<$unsigned>::from_be_bytes(bytes) ^ $turn) as $number)
            }
        }

        impl KeyCodec for $number {
            fn encode_part(&self, into: &mut Vec<u8>) {
                self.encode(into);
            }

            fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
                let (number, rest) = bytes.split_at_checked(size_of::<$number>())?;
                Some((Self::decode(number)?, rest))
            }
        }
    )+};
}

numbers! {
    u8, u8, 0;
    u16, u16, 0;
    u32, u32, 0;
    u64, u64, 0;
    u128, u128, 0;
    i8, u8, 1 << 7;
    i16, u16, 1 << 15;
    i32, u32, 1 << 31;
    i64, u64, 1 << 63;
    i128, u128, 1 << 127;
}

impl Codec for bool {
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(u8::from(*self));
    }

    fn decode(bytes: &[u8]) -> Option<bool> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl KeyCodec for bool {
    fn encode_part(&self, into: &mut Vec<u8>) {
        self.encode(into);
    }

    fn decode_part(bytes: &[u8]) -> Option<(bool, &[u8])> {
        let (first, rest) = bytes.split_at_checked(1)?;
        Some((bool::decode(first)?, rest))
    }
}

/// Appends escaped bytes and an end mark, so that the next part cannot be taken for more of them.
fn encode_ended(bytes: &[u8], into: &mut Vec<u8>) {
    for &byte in bytes {
        into.push(byte);
        if byte == 0 {
            into.push(u8::MAX);
        }
    }
    into.extend_from_slice(&[0, 0]);
}

/// Decodes what [`encode_ended`] wrote. Returns the plain bytes, and what follows the end mark.
fn decode_ended(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut plain, mut rest) = (Vec::new(), bytes);
    loop {
        match rest {
            [0, 0, behind @ ..] => return Some((plain, behind)),
            [0, u8::MAX, behind @ ..] => {
                plain.push(0);
                rest = behind;
            }
            [0, ..] | [] => return None,
            [byte, behind @ ..] => {
                plain.push(*byte);
                rest = behind;
            }
        }
    }
}

impl Codec for Vec<u8> {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

impl KeyCodec for Vec<u8> {
    fn encode_part(&self, into: &mut Vec<u8>) {
        encode_ended(self, into);
    }

    fn decode_part(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
        decode_ended(bytes)
    }
}

impl Codec for String {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<String> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

impl KeyCodec for String {
    fn encode_part(&self, into: &mut Vec<u8>) {
        encode_ended(self.as_bytes(), into);
    }

    fn decode_part(bytes: &[u8]) -> Option<(String, &[u8])> {
        let (plain, rest) = decode_ended(bytes)?;
        Some((String::from_utf8(plain).ok()?, rest))
    }
}

impl<const N: usize> Codec for [u8; N] {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
}

impl<const N: usize> KeyCodec for [u8; N] {
    fn encode_part(&self, into: &mut Vec<u8>) {
        self.encode(into);
    }

    fn decode_part(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
        let (first, rest) = bytes.split_first_chunk()?;
        Some((*first, rest))
    }
}

impl<T: KeyCodec> Codec for Option<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.encode_part(into);
    }

    fn decode(bytes: &[u8]) -> Option<Option<T>> {
        whole(bytes)
    }
}

impl<T: KeyCodec> KeyCodec for Option<T> {
    fn encode_part(&self, into: &mut Vec<u8>) {
        into.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode_part(into);
        }
    }

    fn decode_part(bytes: &[u8]) -> Option<(Option<T>, &[u8])> {
        match bytes {
            [0, rest @ ..] => Some((None, rest)),
            [1, rest @ ..] => {
                let (value, rest) = T::decode_part(rest)?;
                Some((Some(value), rest))
            }
            _ => None,
        }
    }
}

/// Decodes a value that must use all of the bytes.
fn whole<T: KeyCodec>(bytes: &[u8]) -> Option<T> {
    let (value, rest) = T::decode_part(bytes)?;
    rest.is_empty().then_some(value)
}

macro_rules! tuples {
    ($($($part:ident)+;)+) => {$(
        impl<$($part: KeyCodec),+> Codec for ($($part,)+) {
            fn encode(&self, into: &mut Vec<u8>) {
                self.encode_part(into);
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                whole(bytes)
            }
        }

        impl<$($part: KeyCodec),+> KeyCodec for ($($part,)+) {
            #[allow(non_snake_case)]
            fn encode_part(&self, into: &mut Vec<u8>) {
                let ($($part,)+) = self;
                $($part.encode_part(into);)+
            }

            #[allow(non_snake_case)]
            fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
                $(let ($part, bytes) = $part::decode_part(bytes)?;)+
                Some((($($part,)+), bytes))
            }
        }
    )+};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
}

fn bytes_of(value: &impl Codec) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// Decodes a stored value of a table. The error names table and key.
fn read<T: Codec>(table: &str, key: &[u8], bytes: &[u8]) -> Result<T, StoreError> {
    T::decode(bytes).ok_or_else(|| {
        let kind = std::any::type_name::<T>();
        let bytes = bytes.len();
        super::read::in_table(table, Some(key))(StoreError::Options(format!(
            "{bytes} bytes are not a valid {kind}: the table was written with other types"
        )))
    })
}

/// A table with typed keys and values: of a snapshot, unless type parameter `T` says otherwise.
///
/// Example: [`Table::typed`].
pub struct Typed<K, V, T = Table> {
    table: T,
    types: PhantomData<fn(K) -> V>,
}

impl<K: KeyCodec, V: Codec, S: Source> Typed<K, V, Table<S>> {
    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// As [`Table::get`], or the bytes do not decode as `V`.
    pub fn get(&self, key: &K) -> Result<Option<V>, StoreError> {
        let key = bytes_of(key);
        let found = self.table.get(&key)?;
        found
            .map(|value| read(self.table.name(), &key, &value))
            .transpose()
    }

    /// The pairs with keys in a range, in ascending order; with `rev`, in descending order.
    ///
    /// # Errors
    /// The table is hashed.
    pub fn range(
        &self,
        low: Bound<&K>,
        high: Bound<&K>,
    ) -> Result<impl DoubleEndedIterator<Item = Result<(K, V), StoreError>>, StoreError> {
        let name = self.table.name().to_string();
        let range = self.table.range((low.map(bytes_of), high.map(bytes_of)))?;
        Ok(range.map(move |pair| typed(&name, pair)))
    }

    /// All pairs, as [`Table::iter`].
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Result<(K, V), StoreError>> {
        let name = self.table.name().to_string();
        self.table.iter().map(move |pair| typed(&name, pair))
    }

    /// The underlying table of bytes.
    pub fn bytes(&self) -> &Table<S> {
        &self.table
    }
}

fn typed<K: Codec, V: Codec>(
    name: &str,
    pair: Result<Pair, StoreError>,
) -> Result<(K, V), StoreError> {
    let (key, value): (Vec<u8>, Value) = pair?;
    Ok((read(name, &key, &key)?, read(name, &key, &value)?))
}

impl<K: KeyCodec, V: Codec> Typed<K, V, TableMut<'_>> {
    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// As [`TableMut::get`], or the bytes do not decode as `V`.
    pub fn get(&self, key: &K) -> Result<Option<V>, StoreError> {
        let key = bytes_of(key);
        let found = self.table.get(&key)?;
        found
            .map(|value| read(self.table.name(), &key, &value))
            .transpose()
    }

    /// Sets the value of a key. Returns whether it had one.
    ///
    /// # Errors
    /// As [`TableMut::insert`].
    pub fn insert(&mut self, key: &K, value: &V) -> Result<bool, StoreError> {
        self.table.insert(&bytes_of(key), &bytes_of(value))
    }

    /// Removes a key and its value. Returns whether the key existed.
    ///
    /// # Errors
    /// As [`TableMut::insert`].
    pub fn remove(&mut self, key: &K) -> Result<bool, StoreError> {
        self.table.remove(&bytes_of(key))
    }
}

impl<S: Source> Table<S> {
    /// Adds types for keys and values to the table.
    ///
    /// ```
    /// use flagstone_store::Store;
    /// use std::ops::Bound;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = Store::open(folder.path().join("log.flag"))?;
    /// let mut tx = store.write()?;
    /// let mut events = tx.table("events")?.typed::<(String, i64), String>();
    /// events.insert(&("door".into(), -5), &"opened".into())?;
    /// events.insert(&("door".into(), 7), &"closed".into())?;
    /// tx.commit()?;
    ///
    /// let events = store.read()?.table("events")?.typed::<(String, i64), String>();
    /// let since = ("door".to_string(), 0);
    /// let last = events.range(Bound::Included(&since), Bound::Unbounded)?.next();
    /// assert_eq!(last.transpose()?, Some((("door".into(), 7), "closed".into())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn typed<K: KeyCodec, V: Codec>(self) -> Typed<K, V, Table<S>> {
        let types = PhantomData;
        Typed { table: self, types }
    }
}

impl<'a> TableMut<'a> {
    /// Adds types for keys and values to the table, as [`Table::typed`].
    pub fn typed<K: KeyCodec, V: Codec>(self) -> Typed<K, V, TableMut<'a>> {
        let types = PhantomData;
        Typed { table: self, types }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    /// Asserts that sorted values survive encoding, and that their bytes sort alike.
    fn assert_ordered<T: KeyCodec + PartialOrd + Debug>(values: &[T]) {
        for pair in values.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
            assert!(bytes_of(&pair[0]) < bytes_of(&pair[1]), "{pair:?}");
            let parts = [0, 1].map(|i| {
                let mut bytes = Vec::new();
                pair[i].encode_part(&mut bytes);
                bytes
            });
            assert!(
                parts[0] < parts[1] && !parts[1].starts_with(&parts[0]),
                "{pair:?}"
            );
        }
        for value in values {
            assert_eq!(T::decode(&bytes_of(value)).as_ref(), Some(value));
            let mut part = Vec::new();
            value.encode_part(&mut part);
            part.push(7);
            assert_eq!(
                T::decode_part(&part),
                Some((T::decode(&bytes_of(value)).expect("it is"), &[7][..]))
            );
        }
    }

    #[test]
    fn keys_are_in_order_as_bytes() {
        assert_ordered(&[0u8, 1, 200, 255]);
        assert_ordered(&[i64::MIN, -300, -1, 0, 1, 255, 256, i64::MAX]);
        assert_ordered(&[i8::MIN, -1, 0, 1]);
        assert_ordered(&[i128::MIN, -1, 0, i128::MAX]);
        assert_ordered(&[false, true]);
        let texts = ["", "\0", "\0\0", "\0a", "a", "a\0", "a\0b", "aa", "b", "é"];
        assert_ordered(&texts.map(String::from));
        let bytes: [&[u8]; 6] = [b"", b"\0", b"\0\xff", b"\x01", b"\xff", b"\xff\0"];
        assert_ordered(&bytes.map(<[u8]>::to_vec));
        assert_ordered(&[None, Some(-1i32), Some(4)]);
        let pair = |text: &str, number: i16| (text.to_string(), number);
        assert_ordered(&[
            pair("", 5),
            pair("a", -5),
            pair("a", 2),
            pair("a\0", -9),
            pair("ab", 0),
        ]);
        assert_ordered(&[[0u8, 1], [0, 2], [1, 0]]);
        assert_eq!(<(u8, u8)>::decode(&[1, 2, 3]), None, "bytes are left");
        assert_eq!(String::decode_part(b"no end"), None);
    }
}
