//! What a kind is, and the registry.
