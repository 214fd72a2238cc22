//! What every reconciler uses, knowing no kind.
