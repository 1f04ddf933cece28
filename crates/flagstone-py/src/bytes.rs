//! Keys and values from Python: bytes-like objects only, no lists of small integers.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

/// The contents of a `bytes`, `bytearray` or `memoryview`. A `Vec<u8>` would also accept lists and
/// ranges of integers.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Bytes> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            Ok(Bytes(bytes.as_bytes().to_vec()))
        } else if let Ok(bytes) = object.cast::<PyByteArray>() {
            Ok(Bytes(bytes.to_vec()))
        } else if object.is_instance_of::<PyMemoryView>() {
            object.call_method0("tobytes")?.extract()
        } else {
            let kind = object.get_type().name()?;
            let why = format!("keys and values must be bytes, not {kind}");
            Err(PyTypeError::new_err(why))
        }
    }
}
