//! A policy as a host writes it: its fields, TOML, presets, and checks of its values.

pub mod approved;
pub mod fields;
pub mod landings;
pub mod lint;
pub mod spec;
pub mod stricter;
pub mod suggested;
pub mod toml_text;
pub mod values;
pub mod widening;
pub mod wording;
