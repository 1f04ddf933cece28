//! `layout!` declares a persistent record once. Field ranges, the check of the size and the table
//! in the documents all come from that declaration.
//!
//! ```
//! use flagstone::layout::{get, put};
//!
//! flagstone::layout! {
//!     /// The head of a page.
//!     pub page_head: 6 => {
//!         COUNT: 2, "entries";
//!         NEXT:  4, "the page behind this one";
//!     }
//! }
//!
//! let mut page = [0; page_head::SIZE];
//! put(&mut page, page_head::NEXT, 7);
//! assert_eq!(page_head::NEXT, 2..6);
//! assert_eq!(get(&page, page_head::NEXT), 7);
//! ```

/// The declaration of a record, as docs/format.md shows it.
///
/// ```
/// use flagstone::layout::Layout;
///
/// flagstone::layout! {
///     /// The head of a page.
///     pub page_head: 6 => {
///         COUNT: 2, "entries";
///         NEXT:  4, "the page behind this one";
///     }
/// }
///
/// let Layout { size, fields, .. } = page_head::RECORD;
/// assert_eq!(size, 6);
/// assert_eq!(fields[1], ("NEXT", 2, 4, "the page behind this one"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The path of the generated module.
    pub path: &'static str,
    /// The description of the record.
    pub doc: &'static str,
    /// Bytes of the whole record.
    pub size: usize,
    /// Name, offset, bytes and meaning of every field, in order.
    pub fields: &'static [(&'static str, usize, usize, &'static str)],
}

/// Declares a record of little-endian fields.
///
/// Gives a module with a `Range<usize>` constant per field, `SIZE`, and a [`Layout`] for the
/// documents. A record whose fields do not add up does not compile.
#[macro_export]
macro_rules! layout {
    ($(#[doc = $doc:literal])* $vis:vis $name:ident: $size:literal => {
        $($field:ident: $bytes:literal, $meaning:literal;)+
    }) => {
        $(#[doc = $doc])*
        // Its parts are as visible as the module, which a macro cannot express for them.
        #[allow(unreachable_pub)]
        $vis mod $name {
            $crate::layout!(@fields 0usize; $($field: $bytes, $meaning;)+);
            /// Bytes of the whole record.
            pub const SIZE: usize = $size;
            /// The record as the documents show it.
            pub const RECORD: $crate::layout::Layout = $crate::layout::Layout {
                path: module_path!(),
                doc: concat!($($doc),*),
                size: SIZE,
                fields: &[$((stringify!($field), $field.start, $bytes, $meaning)),+],
            };
            const _: () = assert!(0 $(+ $bytes)+ == SIZE, "fields must fill the record exactly");
        }
    };
    (@fields $at:expr; $field:ident: $bytes:literal, $meaning:literal; $($rest:tt)*) => {
        #[doc = $meaning]
        pub const $field: ::core::ops::Range<usize> = ($at)..($at + $bytes);
        $crate::layout!(@fields $at + $bytes; $($rest)*);
    };
    (@fields $at:expr;) => {};
}

/// Reads a little-endian number of up to eight bytes.
#[inline]
pub fn get(bytes: &[u8], field: std::ops::Range<usize>) -> u64 {
    let mut word = [0u8; 8];
    let len = field.end - field.start;
    word[..len].copy_from_slice(&bytes[field]);
    u64::from_le_bytes(word)
}

/// Writes a little-endian number of up to eight bytes; the number must fit.
#[inline]
pub fn put(bytes: &mut [u8], field: std::ops::Range<usize>, value: u64) {
    let len = field.end - field.start;
    debug_assert!(
        len == 8 || value >> (len * 8) == 0,
        "{value} does not fit {len} bytes"
    );
    bytes[field].copy_from_slice(&value.to_le_bytes()[..len]);
}

#[cfg(test)]
mod tests {
    layout! {
        /// An example.
        example: 7 => {
            ONE: 1, "a byte";
            SIX: 6, "six bytes";
        }
    }

    #[test]
    fn fields_follow_each_other_and_numbers_come_back() {
        assert_eq!((example::ONE, example::SIX), (0..1, 1..7));
        let mut record = [0xff; example::SIZE];
        super::put(&mut record, example::SIX, 0x0605_0403_0201);
        assert_eq!(record, [0xff, 1, 2, 3, 4, 5, 6]);
        assert_eq!(super::get(&record, example::SIX), 0x0605_0403_0201);
        let super::Layout {
            path, doc, fields, ..
        } = example::RECORD;
        assert_eq!(path, "flagstone::layout::tests::example");
        assert_eq!(doc, " An example.");
        assert_eq!(fields[1], ("SIX", 1, 6, "six bytes"));
    }
}
