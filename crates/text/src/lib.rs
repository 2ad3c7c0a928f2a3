//! Text to tokens and back. No IO.
