//! The admission protocol, knowing no kind.
