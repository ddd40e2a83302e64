//! The guest's protocol, spoken by the server itself where a backend has no guest that does.
