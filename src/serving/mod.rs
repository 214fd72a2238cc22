//! The TLS listener.
