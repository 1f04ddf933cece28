//! The bytes that clients of power-cut tests write. They name the transaction, the page and the
//! write, so that what a restart finds can be traced to its writer.

/// Contents of a logical page: the bytes of one write; `None` if empty.
pub(crate) type Contents = Option<Payload>;

/// The bytes of one write, unique to that write.
pub(crate) type Payload = [u8; 12];

/// A unit of contents: a logical page, or a record of a page.
pub(crate) type Place = u32;

/// The bytes of transaction `name`'s write number `nth` to a page.
pub(crate) fn payload(name: u64, page: Place, nth: u16) -> Payload {
    let mut bytes = [0; 12];
    bytes[..6].copy_from_slice(&name.to_le_bytes()[..6]);
    bytes[6..10].copy_from_slice(&page.to_le_bytes());
    bytes[10..].copy_from_slice(&nth.to_le_bytes());
    bytes
}

/// The transaction that wrote these bytes, if they are a payload.
pub(crate) fn name_of(bytes: &[u8]) -> Option<u64> {
    write_of(bytes).map(|(name, _)| name)
}

/// The transaction and write number of these bytes, if they are a payload.
pub(crate) fn write_of(bytes: &[u8]) -> Option<(u64, u16)> {
    let payload: &Payload = bytes.try_into().ok()?;
    let mut name = [0; 8];
    name[..6].copy_from_slice(&payload[..6]);
    let nth = u16::from_le_bytes([payload[10], payload[11]]);
    Some((u64::from_le_bytes(name), nth))
}

/// Describes contents: the transaction that wrote them.
pub(crate) fn show(contents: &Contents) -> String {
    match contents {
        None => "nothing".into(),
        Some(bytes) => {
            let mut name = [0; 8];
            name[..6].copy_from_slice(&bytes[..6]);
            let page = u32::from_le_bytes([bytes[6], bytes[7], bytes[8], bytes[9]]);
            let nth = u16::from_le_bytes([bytes[10], bytes[11]]);
            format!(
                "write {nth} of #{} to page {page}",
                u64::from_le_bytes(name)
            )
        }
    }
}
