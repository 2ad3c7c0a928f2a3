//! Parts of the screen, each a pure function of it.

pub mod ask;
pub mod input;
pub mod pages;
pub mod panes;
pub mod status;
