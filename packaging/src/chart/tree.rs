//! Objects of which parts depend on components.
//!
//! A tree starts as an object of config/default. [`Tree::merge`] then takes in what one component makes of that object,
//! as conditions on the parts that differ. [`Tree::evaluate`] is the way back: what the conditions leave of the tree with
//! some components. The generator compares that with what kustomize renders, so that a difference which conditions cannot
//! express is found here and not in a cluster.
//!
//! The same for kinds: the tree is of all of them, and [`Tree::limit`] makes its parts depend on the kinds that have
//! them. What is rendered for several kinds is what is rendered for each of them, together.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The name of a folder of config/components, or of a kind.
pub(super) type Component = &'static str;

/// What a part of an object depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    With(Component),
    Without(Component),
    /// With at least one of these kinds.
    AnyOf(BTreeSet<Component>),
    /// An expression of Go templates on the chart's values.
    Value(&'static str),
}

/// All of them must hold.
pub(super) type Condition = Vec<Literal>;

/// A node of an object.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Scalar(Value),
    Map(Vec<Entry>),
    List(Vec<Item>),
    /// Lines of a template in place of a value, its key included. `@n` becomes the column, plus n.
    Lines(&'static [&'static str]),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) when: Condition,
    pub(super) key: String,
    pub(super) tree: Tree,
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) when: Condition,
    pub(super) tree: Tree,
}

impl From<&Value> for Tree {
    fn from(value: &Value) -> Self {
        match value {
            Value::Object(map) => Self::Map(
                map.iter()
                    .map(|(key, value)| Entry {
                        when: Vec::new(),
                        key: key.clone(),
                        tree: value.into(),
                    })
                    .collect(),
            ),
            Value::Array(items) => Self::List(
                items
                    .iter()
                    .map(|value| Item {
                        when: Vec::new(),
                        tree: value.into(),
                    })
                    .collect(),
            ),
            scalar => Self::Scalar(scalar.clone()),
        }
    }
}

/// Whether the condition holds with those components and kinds.
pub(super) fn holds(condition: &Condition, with: &BTreeSet<Component>) -> bool {
    condition.iter().all(|literal| match literal {
        Literal::With(component) => with.contains(component),
        Literal::Without(component) => !with.contains(component),
        Literal::AnyOf(kinds) => !kinds.is_disjoint(with),
        Literal::Value(_) => true,
    })
}

impl Tree {
    /// The value that the conditions leave with those components and kinds.
    pub(super) fn evaluate(&self, with: &BTreeSet<Component>) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::Map(entries) => entries
                .iter()
                .filter(|entry| holds(&entry.when, with))
                .map(|entry| (entry.key.clone(), entry.tree.evaluate(with)))
                .collect::<Map<_, _>>()
                .into(),
            Self::List(items) => items
                .iter()
                .filter(|item| holds(&item.when, with))
                .map(|item| item.tree.evaluate(with))
                .collect(),
            Self::Lines(_) => Value::Null,
        }
    }

    /// Takes in what `component` makes of the tree: `after`, where it is `self.evaluate(with)` without it.
    pub(super) fn merge(
        &mut self,
        component: Component,
        with: &BTreeSet<Component>,
        after: &Value,
    ) {
        match (self, after) {
            (Self::Map(entries), Value::Object(after)) => {
                merge_map(entries, component, with, after);
            }
            (Self::List(items), Value::Array(after)) => merge_list(items, component, with, after),
            // The callers replace what has another shape.
            _ => {}
        }
    }

    /// Makes the parts that only some of the kinds have depend on those. `of_kinds` has the tree's value for kinds that are
    /// alone, each perhaps several times: with different components.
    pub(super) fn limit(&mut self, of_kinds: &[(Component, &Value)]) {
        match self {
            Self::Map(entries) => {
                for entry in entries {
                    let found = each(of_kinds, |value| value.get(&entry.key));
                    entry.tree.limit(&found);
                    entry.when.extend(only(&found, of_kinds));
                }
            }
            Self::List(items) => {
                for item in items {
                    let this = item.tree.evaluate(&BTreeSet::new());
                    let found = each(of_kinds, |value| {
                        let mut others = value.as_array()?.iter();
                        others.find(|other| is_same(&this, other, this["name"].is_string()))
                    });
                    item.tree.limit(&found);
                    item.when.extend(only(&found, of_kinds));
                }
            }
            Self::Scalar(_) | Self::Lines(_) => {}
        }
    }

    /// Whether [`merge`](Self::merge) can take in the difference. An emptied list is one that another value replaces:
    /// a list whose items all have conditions would be null without any.
    fn merges(&self, after: &Value) -> bool {
        match (self, after) {
            (Self::Map(_), Value::Object(after)) => !after.is_empty(),
            (Self::List(_), Value::Array(after)) => !after.is_empty(),
            _ => false,
        }
    }
}

/// A part of the value of each kind that has it.
fn each<'a>(
    of_kinds: &[(Component, &'a Value)],
    part: impl Fn(&'a Value) -> Option<&'a Value>,
) -> Vec<(Component, &'a Value)> {
    let found = of_kinds.iter();
    found
        .filter_map(|(kind, value)| Some((*kind, part(value)?)))
        .collect()
}

/// The condition of a part that was found for those kinds, of all that have the whole. A part that was found for none is
/// there only with some components, and no kind decides on it.
pub(super) fn only(
    found: &[(Component, &Value)],
    whole: &[(Component, &Value)],
) -> Option<Literal> {
    let kinds = |of: &[(Component, &Value)]| -> BTreeSet<Component> {
        of.iter().map(|(kind, _)| *kind).collect()
    };
    let (found, whole) = (kinds(found), kinds(whole));
    (found != whole && !found.is_empty()).then_some(Literal::AnyOf(found))
}

/// Whether two items of a list are the same one: by their names, if they are `named`, else by equality.
fn is_same(a: &Value, b: &Value, named: bool) -> bool {
    if named {
        a["name"] == b["name"]
    } else {
        a == b
    }
}

fn merge_map(
    entries: &mut Vec<Entry>,
    component: Component,
    with: &BTreeSet<Component>,
    after: &Map<String, Value>,
) {
    let mut added = Vec::new();
    let mut known = BTreeSet::new();
    for entry in entries.iter_mut().filter(|entry| holds(&entry.when, with)) {
        known.insert(entry.key.clone());
        let Some(value) = after.get(&entry.key) else {
            entry.when.push(Literal::Without(component));
            continue;
        };
        if entry.tree.evaluate(with) == *value {
            continue;
        }
        if entry.tree.merges(value) {
            entry.tree.merge(component, with, value);
        } else {
            let mut when = entry.when.clone();
            when.push(Literal::With(component));
            entry.when.push(Literal::Without(component));
            added.push(Entry {
                when,
                key: entry.key.clone(),
                tree: value.into(),
            });
        }
    }
    let new = after.iter().filter(|(key, _)| !known.contains(*key));
    added.extend(new.map(|(key, value)| Entry {
        when: vec![Literal::With(component)],
        key: key.clone(),
        tree: value.into(),
    }));
    entries.extend(added);
    entries.sort_by(|a, b| a.key.cmp(&b.key));
}

/// Items with a name, such as containers and webhooks, are matched by it, and their differences merged; others by
/// equality. What is not matched is added or left out.
fn merge_list(
    items: &mut Vec<Item>,
    component: Component,
    with: &BTreeSet<Component>,
    after: &[Value],
) {
    let old = std::mem::take(items);
    let before: Vec<Value> = old
        .iter()
        .filter(|item| holds(&item.when, with))
        .map(|item| item.tree.evaluate(with))
        .collect();
    let named = before.iter().chain(after).all(|it| it["name"].is_string());
    let same = |a: &Value, b: &Value| is_same(a, b, named);
    let mut matched = common(&before, after, same).into_iter().peekable();
    let (mut index, mut taken) = (0, 0);
    let add = |items: &mut Vec<Item>, values: &[Value]| {
        items.extend(values.iter().map(|value| Item {
            when: vec![Literal::With(component)],
            tree: value.into(),
        }));
    };
    for mut item in old {
        if holds(&item.when, with) {
            if let Some((_, to)) = matched.next_if(|(from, _)| *from == index) {
                add(items, &after[taken..to]);
                taken = to + 1;
                if before[index] != after[to] {
                    item.tree.merge(component, with, &after[to]);
                }
            } else {
                item.when.push(Literal::Without(component));
            }
            index += 1;
        }
        items.push(item);
    }
    add(items, &after[taken..]);
}

/// The longest common subsequence, as pairs of indices.
fn common(
    before: &[Value],
    after: &[Value],
    same: impl Fn(&Value, &Value) -> bool,
) -> Vec<(usize, usize)> {
    let mut lengths = vec![vec![0; after.len() + 1]; before.len() + 1];
    for (i, a) in before.iter().enumerate().rev() {
        for (j, b) in after.iter().enumerate().rev() {
            lengths[i][j] = if same(a, b) {
                lengths[i + 1][j + 1] + 1
            } else {
                lengths[i + 1][j].max(lengths[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < before.len() && j < after.len() {
        if same(&before[i], &after[j]) {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[i + 1][j] >= lengths[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(components: &[Component]) -> BTreeSet<Component> {
        components.iter().copied().collect()
    }

    #[test]
    fn differences_of_every_shape_come_back() {
        let base = json!({
            "gone": 1, "scalar": "a", "emptied": ["x"], "args": ["run", "--a"],
            "containers": [{"name": "manager", "env": {"x": 1}}, {"name": "other"}],
        });
        let one = json!({
            "scalar": "b", "emptied": [], "args": ["run", "--a", "--b"], "new": {"k": "v"},
            "containers": [{"name": "manager", "env": {"x": 1, "y": 2}}, {"name": "added"}, {"name": "other"}],
        });
        let mut two = one.clone();
        two["args"] = json!(["run", "--a", "--b", "--c"]);
        let mut tree = Tree::from(&base);
        tree.merge("one", &with(&[]), &one);
        tree.merge("two", &with(&["one"]), &two);
        assert_eq!(tree.evaluate(&with(&[])), base);
        assert_eq!(tree.evaluate(&with(&["one"])), one);
        assert_eq!(tree.evaluate(&with(&["one", "two"])), two);
        let mut alone = base.clone();
        alone["args"] = json!(["run", "--a", "--c"]);
        assert_eq!(tree.evaluate(&with(&["two"])), alone);
    }

    #[test]
    fn parts_depend_on_the_kinds_that_have_them() {
        let all = json!({
            "rules": [["pods"], ["ats"], ["foos"], ["events"]],
            "webhooks": [{"name": "mat", "path": "/at"}, {"name": "mfoo", "path": "/foo"}],
            "metadata": {"name": "x", "labels": {"of-foo": "y"}},
        });
        let at = json!({
            "rules": [["pods"], ["ats"], ["events"]],
            "webhooks": [{"name": "mat", "path": "/at"}],
            "metadata": {"name": "x", "labels": {}},
        });
        let foo = json!({
            "rules": [["foos"], ["events"]],
            "webhooks": [{"name": "mfoo", "path": "/foo"}],
            "metadata": {"name": "x", "labels": {"of-foo": "y"}},
        });
        let mut tree = Tree::from(&all);
        tree.limit(&[("at", &at), ("foo", &foo)]);
        assert_eq!(tree.evaluate(&with(&["at"])), at);
        assert_eq!(tree.evaluate(&with(&["foo"])), foo);
        assert_eq!(tree.evaluate(&with(&["at", "foo"])), all);
        // What all have depends on none; what none has here depends on components.
        assert_eq!(tree.evaluate(&with(&[]))["rules"], json!([["events"]]));
        assert_eq!(only(&[], &[("at", &at)]), None);
    }

    #[test]
    fn what_a_kind_has_with_a_component_is_found_there() {
        let (plain, more) = (
            json!({"args": ["run"]}),
            json!({"args": ["run", "--of-foo"]}),
        );
        let mut tree = Tree::from(&plain);
        tree.merge("one", &with(&["at", "foo"]), &more);
        tree.limit(&[
            ("at", &plain),
            ("at", &plain),
            ("foo", &plain),
            ("foo", &more),
        ]);
        assert_eq!(tree.evaluate(&with(&["one", "foo"])), more);
        assert_eq!(tree.evaluate(&with(&["one", "at"])), plain);
        assert_eq!(tree.evaluate(&with(&["foo"])), plain);
    }
}
