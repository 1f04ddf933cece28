//! Titled scenarios of CFC_ex and AFC_ex.
