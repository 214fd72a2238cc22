//! The public API of the crates that are for crates.io, held to `api.txt` of each, so that no public item changes or goes
//! unseen. `UPDATE=1 make unit T=public_api` writes the files.
//!
//! It reads the sources alone: what is `pub` can be reached from outside, or the lint `unreachable_pub` would say so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use quote::{ToTokens, quote};
use syn::{Attribute, Ident, ImplItem, Item, TraitItem, Type, Visibility};

use crate::checkout::checkout;

const HEAD: &str = "# The public API. Written by `UPDATE=1 make unit T=public_api`. Do not edit.\n";

/// How tokens are printed, and how rustfmt writes them. What the later ones restore, the earlier ones took away.
const SPACES: [(&str, &str); 18] = [
    (" :: ", "::"),
    (" : ", ": "),
    ("& ", "&"),
    ("# [", "#["),
    (" < ", "<"),
    (" <", "<"),
    (" >", ">"),
    (" ,", ","),
    (" ;", ";"),
    (",)", ")"),
    (",>", ">"),
    (", }", " }"),
    (" (", "("),
    ("->(", "-> ("),
    (":(", ": ("),
    (",(", ", ("),
    ("=(", "= ("),
    ("+(", "+ ("),
];

/// Tokens in one line.
fn text(item: &impl ToTokens) -> String {
    let mut text = item.to_token_stream().to_string();
    for (printed, written) in SPACES {
        text = text.replace(printed, written);
    }
    text
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg") && attr.parse_args::<Ident>().is_ok_and(|arg| arg == "test")
    })
}

/// Whether others see what the attribute does.
fn is_kept(attr: &Attribute) -> bool {
    let kept = ["cfg", "cfg_attr", "derive", "non_exhaustive", "repr"];
    kept.iter().any(|name| attr.path().is_ident(name))
}

fn items(path: &Path) -> Vec<Item> {
    let text = fs::read_to_string(path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    syn::parse_file(&text).unwrap().items
}

/// What others see of a crate.
#[derive(Default)]
struct Api {
    /// Public items and their parts, each behind its module if that is public.
    lines: Vec<String>,
    /// Types and traits, and whether they are public.
    types: BTreeMap<String, bool>,
    impls: Vec<(String, syn::ItemImpl)>,
}

impl Api {
    /// That of the crate with these items in its root, whose other files are in the folder.
    fn read(root: &[Item], folder: &Path) -> String {
        let mut api = Self::default();
        api.module(root, folder, "");
        // Only now it is known which types are public.
        for (path, item) in std::mem::take(&mut api.impls) {
            api.implementation(&item, &path);
        }
        api.lines.sort_unstable();
        api.lines.join("\n") + "\n"
    }

    fn module(&mut self, items: &[Item], folder: &Path, path: &str) {
        for item in items {
            self.item(item, folder, path);
        }
    }

    fn item(&mut self, item: &Item, folder: &Path, path: &str) {
        match item {
            Item::Mod(item) if !is_test(&item.attrs) => self.child(item, folder, path),
            Item::Impl(item) if !is_test(&item.attrs) => {
                self.impls.push((path.to_owned(), item.clone()));
            }
            Item::Struct(item) => self.structure(item, path),
            Item::Enum(item) => self.enumeration(item, path),
            Item::Trait(item) => self.interface(item, path),
            Item::Fn(item) => {
                let sig = &item.sig;
                self.add(path, &item.vis, &item.attrs, &quote!(#sig));
            }
            Item::Const(item) => {
                let (ident, ty) = (&item.ident, &item.ty);
                self.add(path, &item.vis, &item.attrs, &quote!(const #ident: #ty));
            }
            Item::Static(item) => {
                let (ident, ty) = (&item.ident, &item.ty);
                self.add(path, &item.vis, &item.attrs, &quote!(static #ident: #ty));
            }
            Item::Type(item) => {
                let (ident, generics, ty) = (&item.ident, &item.generics, &item.ty);
                let shown = quote!(type #ident #generics = #ty);
                self.add(path, &item.vis, &item.attrs, &shown);
            }
            Item::Use(item) => {
                let tree = &item.tree;
                self.add(path, &item.vis, &item.attrs, &quote!(use #tree));
            }
            Item::Macro(item) if item.attrs.iter().any(|a| a.path().is_ident("macro_export")) => {
                self.lines.push(format!("macro {}", text(&item.ident)));
            }
            _ => {}
        }
    }

    /// Adds an item, if it is public.
    fn add(&mut self, path: &str, vis: &Visibility, attrs: &[Attribute], item: &impl ToTokens) {
        if is_public(vis) && !is_test(attrs) {
            let kept = attrs.iter().filter(|attr| is_kept(attr));
            let shown = text(&quote!(pub #item #(#kept)*));
            self.lines.push(format!("{path}{shown}"));
        }
    }

    /// Items of a private module are others' by a `pub use`, which has a line of its own.
    fn child(&mut self, item: &syn::ItemMod, folder: &Path, path: &str) {
        let ident = &item.ident;
        self.add(path, &item.vis, &item.attrs, &quote!(mod #ident));
        let folder = folder.join(ident.to_string());
        let path = if is_public(&item.vis) {
            format!("{path}{ident}::")
        } else {
            String::new()
        };
        if let Some((_, items)) = &item.content {
            self.module(items, &folder, &path);
            return;
        }
        let flat = folder.with_extension("rs");
        let file = if flat.exists() {
            flat
        } else {
            folder.join("mod.rs")
        };
        self.module(&items(&file), &folder, &path);
    }

    /// Notes a type or trait, and returns whether it is public.
    fn define(&mut self, name: &Ident, vis: &Visibility) -> bool {
        let public = self.types.entry(name.to_string()).or_default();
        *public |= is_public(vis);
        is_public(vis)
    }

    fn structure(&mut self, item: &syn::ItemStruct, path: &str) {
        let (ident, generics) = (&item.ident, &item.generics);
        let conditions = &generics.where_clause;
        let shown = quote!(struct #ident #generics #conditions);
        self.add(path, &item.vis, &item.attrs, &shown);
        if !self.define(ident, &item.vis) {
            return;
        }
        for (place, field) in item.fields.iter().enumerate() {
            if is_public(&field.vis) {
                let name = field.ident.as_ref().map(Ident::to_string);
                let name = name.unwrap_or_else(|| place.to_string());
                let ty = text(&field.ty);
                self.lines.push(format!("{path}{ident}: pub {name}: {ty}"));
            }
        }
        // Others cannot make one, so that another field breaks nothing.
        if item.fields.iter().any(|field| !is_public(&field.vis)) {
            self.lines.push(format!("{path}{ident}: private fields"));
        }
    }

    fn enumeration(&mut self, item: &syn::ItemEnum, path: &str) {
        let (ident, generics) = (&item.ident, &item.generics);
        let conditions = &generics.where_clause;
        let shown = quote!(enum #ident #generics #conditions);
        self.add(path, &item.vis, &item.attrs, &shown);
        if !self.define(ident, &item.vis) {
            return;
        }
        for variant in &item.variants {
            let mut variant = variant.clone();
            variant.attrs.retain(is_kept);
            for field in &mut variant.fields {
                field.attrs.clear();
            }
            self.lines
                .push(format!("{path}{ident}: {}", text(&variant)));
        }
    }

    fn interface(&mut self, item: &syn::ItemTrait, path: &str) {
        let (ident, generics) = (&item.ident, &item.generics);
        let (colon, supertraits) = (&item.colon_token, &item.supertraits);
        let (unsafety, conditions) = (&item.unsafety, &generics.where_clause);
        let shown = quote!(#unsafety trait #ident #generics #colon #supertraits #conditions);
        self.add(path, &item.vis, &item.attrs, &shown);
        if !self.define(ident, &item.vis) {
            return;
        }
        for member in &item.items {
            let shown = match member {
                // Others need not implement one that is given.
                TraitItem::Fn(member) if member.default.is_some() => text(&member.sig) + " { .. }",
                TraitItem::Fn(member) => text(&member.sig),
                TraitItem::Const(member) => {
                    let (ident, ty) = (&member.ident, &member.ty);
                    text(&quote!(const #ident: #ty))
                }
                TraitItem::Type(member) => {
                    let (ident, generics) = (&member.ident, &member.generics);
                    let (colon, bounds) = (&member.colon_token, &member.bounds);
                    text(&quote!(type #ident #generics #colon #bounds))
                }
                _ => continue,
            };
            self.lines.push(format!("{path}{ident}: {shown}"));
        }
    }

    fn implementation(&mut self, item: &syn::ItemImpl, path: &str) {
        let is_private = |path: &syn::Path| {
            let name = path.segments.last().map(|last| last.ident.to_string());
            name.is_some_and(|name| self.types.get(&name) == Some(&false))
        };
        let of_private_trait = item
            .trait_
            .as_ref()
            .is_some_and(|(_, path, _)| is_private(path));
        let of_private_type = matches!(&*item.self_ty, Type::Path(of) if is_private(&of.path));
        if of_private_trait || of_private_type {
            return;
        }
        let (generics, self_ty) = (&item.generics, &item.self_ty);
        let conditions = &generics.where_clause;
        let of = item
            .trait_
            .as_ref()
            .map(|(not, path, _)| quote!(#not #path for));
        let head = text(&quote!(impl #generics #of #self_ty #conditions));
        if of.is_some() {
            self.lines.push(format!("{path}{head}"));
        }
        for member in &item.items {
            let shown = match member {
                ImplItem::Fn(member) if is_public(&member.vis) && !is_test(&member.attrs) => {
                    let sig = &member.sig;
                    text(&quote!(pub #sig))
                }
                ImplItem::Const(member) if is_public(&member.vis) => {
                    let (ident, ty) = (&member.ident, &member.ty);
                    text(&quote!(pub const #ident: #ty))
                }
                // Of a trait.
                ImplItem::Type(member) => {
                    let (ident, generics, ty) = (&member.ident, &member.generics, &member.ty);
                    text(&quote!(type #ident #generics = #ty))
                }
                _ => continue,
            };
            self.lines.push(format!("{path}{head}: {shown}"));
        }
    }
}

/// The folders of the crates that are for crates.io.
fn published() -> Vec<PathBuf> {
    let folders = fs::read_dir(checkout().join("crates")).unwrap();
    let mut published: Vec<PathBuf> = folders
        .map(|folder| folder.unwrap().path())
        .filter(|folder| {
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            manifest.lines().any(|line| line == "publish = true")
        })
        .collect();
    published.sort();
    published
}

/// The lines that only one of the two has.
fn changes(recorded: &str, found: &str) -> Vec<String> {
    let missing = |of: &str, from: &str, sign: char| -> Vec<String> {
        let missing = of
            .lines()
            .filter(|line| !from.lines().any(|other| other == *line));
        missing.map(|line| format!("{sign} {line}")).collect()
    };
    [missing(recorded, found, '-'), missing(found, recorded, '+')].concat()
}

#[test]
fn the_public_api_of_published_crates_is_as_recorded() {
    let crates = published();
    assert!(!crates.is_empty());
    let mut wrong = Vec::new();
    for folder in crates {
        let src = folder.join("src");
        let found = HEAD.to_owned() + &Api::read(&items(&src.join("lib.rs")), &src);
        let file = folder.join("api.txt");
        if env::var_os("UPDATE").is_some() {
            fs::write(&file, &found).unwrap();
        }
        let recorded = fs::read_to_string(&file).unwrap_or_default();
        if recorded != found {
            wrong.push(format!("{}:", file.display()));
            wrong.extend(changes(&recorded, &found));
        }
    }
    assert!(
        wrong.is_empty(),
        "the public API changed: raise the version of the crate as semver asks (docs/releasing.md, Crates), then \
         UPDATE=1 make unit T=public_api\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_reader_of_the_public_api_sees_every_form() {
    let text = r"
        pub struct A<'a, T> where T: Copy { /** x */ pub a: &'a T, b: u8 }
        #[derive(Clone, Debug)] #[must_use] pub enum B { One { /** x */ a: u8, }, Two(String) }
        struct Hidden;
        impl<'a, T: Copy> A<'a, T> {
            pub fn f(&self, g: impl Fn(&T) -> u8,) -> Option<(u8, T)> { None }
            fn hidden() {}
        }
        impl From<Hidden> for B { fn from(_: Hidden) -> Self { todo!() } }
        impl From<B> for Hidden { fn from(_: B) -> Self { Hidden } }
        pub trait C: Send { type E; fn c(&mut self) -> (u8, u8); fn d(&self) {} }
        pub mod inner { pub const D: usize = 1; #[cfg(test)] pub fn hidden() {} }
        #[cfg(test)] mod tests { pub fn hidden() {} }
        pub(crate) fn hidden() {}
        pub use inner::{D, E as F};
    ";
    let items = syn::parse_file(text).unwrap().items;
    let api = Api::read(&items, Path::new(""));
    let lines: Vec<&str> = api.lines().collect();
    assert_eq!(
        lines,
        [
            "A: private fields",
            "A: pub a: &'a T",
            "B: One { a: u8 }",
            "B: Two(String)",
            "C: fn c(&mut self) -> (u8, u8)",
            "C: fn d(&self) { .. }",
            "C: type E",
            "impl From<Hidden> for B",
            "impl<'a, T: Copy> A<'a, T>: pub fn f(&self, g: impl Fn(&T) -> u8) -> Option<(u8, T)>",
            "inner::pub const D: usize",
            "pub enum B #[derive(Clone, Debug)]",
            "pub mod inner",
            "pub struct A<'a, T> where T: Copy",
            "pub trait C: Send",
            "pub use inner::{ D, E as F }",
        ]
    );
}
