//! Kinds by their names, and those of an operator. [`my_operator_kinds`] has the list.

#[cfg(test)]
mod tests;

pub use my_operator_kind::{Kind, Permission, Sample, Start};
pub use my_operator_kinds::{REGISTRY, at, count, crontab, foo, foobar, memcached, mydaemonset};

/// The kind of that name.
///
/// # Errors
/// When there is none: which there are.
pub fn of_name(name: &str) -> Result<&'static Kind, String> {
    let mut kinds = REGISTRY.iter().copied();
    kinds.find(|kind| kind.name == name).ok_or_else(|| {
        let names = names(REGISTRY).join(", ");
        format!("the kinds are {names}")
    })
}

/// Their names.
pub fn names(kinds: &[&'static Kind]) -> Vec<&'static str> {
    kinds.iter().map(|kind| kind.name).collect()
}

/// The kinds of these names, which commas or blanks separate: each once, in the order of [`REGISTRY`].
///
/// # Errors
/// When one of them names no kind: which there are.
pub fn named(names: &str) -> Result<Vec<&'static Kind>, String> {
    let names = names.split(|it: char| it == ',' || it.is_whitespace());
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    for name in &names {
        of_name(name).map_err(|words| format!("{name:?} is not a kind: {words}"))?;
    }
    Ok(among(&names))
}

/// The kinds of these names: each once, in the order of [`REGISTRY`]. A name that no kind has is passed over.
fn among(names: &[&str]) -> Vec<&'static Kind> {
    let kinds = REGISTRY.iter().copied();
    kinds.filter(|kind| names.contains(&kind.name)).collect()
}

/// The kinds that an operator serves whose `--kinds` have these names: without any, those that are on by default. Arguments
/// that are added to a Deployment may name a kind again.
pub fn served(names: &[&str]) -> Vec<&'static Kind> {
    let kinds = among(names);
    if kinds.is_empty() {
        return by_default();
    }
    kinds
}

/// The kinds that are installed, served and reconciled by default.
pub fn by_default() -> Vec<&'static Kind> {
    let kinds = REGISTRY.iter().copied();
    kinds.filter(|kind| kind.by_default).collect()
}
