//! The templates that are there from the first start: `base` and `code-interpreter-v1`.
