//! docs/ as a site: which pages there are, in which order, and where links lead.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use my_operator_harness::markdown::Page;

use crate::checkout::{checkout, files, pages, text};

/// What mdBook reads the order of the pages from.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Where the links in a text lead, without those to other sites.
fn links(text: &str) -> Vec<&str> {
    let prose = Page::parse(text).prose.into_iter();
    let after = prose.flat_map(|prose| prose.split("](").skip(1));
    let targets = after.filter_map(|after| after.split_once(')'));
    let targets = targets.map(|(target, _)| target);
    targets.filter(|target| !target.contains(':')).collect()
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|it| it == "md")
}

/// The pages of docs/ that a page at its top links to, in the order of the first links to them.
fn linked_pages(text: &str) -> Vec<&str> {
    let mut linked = Vec::new();
    for link in links(text) {
        let page = link.split('#').next().unwrap();
        if is_page(page) && !page.starts_with("../") && !linked.contains(&page) {
            linked.push(page);
        }
    }
    linked
}

#[test]
fn the_summary_lists_each_page_once() {
    let summary = text(SUMMARY);
    let folder = checkout().join("docs");
    let mut listed: Vec<_> = links(&summary)
        .into_iter()
        .map(|target| folder.join(target))
        .collect();
    let mut expected = files(&folder, "md");
    expected.retain(|page| !page.ends_with("SUMMARY.md"));
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
}

#[test]
fn the_summary_has_the_order_of_the_table_on_the_front_page() {
    let (front, summary) = (text("docs/README.md"), text(SUMMARY));
    let (_, table) = front.split_once("\n## Read on\n").unwrap();
    let table = linked_pages(table);
    let mut summary = linked_pages(&summary);
    summary.retain(|page| table.contains(page));
    assert!(table.len() > 20, "{table:?}");
    assert_eq!(summary, table);
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect()
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).unwrap();
    let lines = Page::parse(&text).prose.into_iter().flat_map(str::lines);
    let headings = lines.filter(|line| line.starts_with('#'));
    headings.map(anchor).collect()
}

/// Why the link leads nowhere.
fn broken(page: &Path, link: &str) -> Option<&'static str> {
    let (path, part) = link.split_once('#').unwrap_or((link, ""));
    let to = if path.is_empty() {
        page.to_owned()
    } else {
        page.with_file_name(path)
    };
    let Ok(to) = fs::canonicalize(to) else {
        return Some("no such file");
    };
    if to.is_dir() && to.starts_with(checkout().join("docs")) {
        return Some("the site has no page of a folder");
    }
    let has_part = part.is_empty() || anchors(&to).contains(part);
    (!has_part).then_some("no such heading")
}

#[test]
fn links_in_pages_lead_to_files_and_headings() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            checked += 1;
            if let Some(why) = broken(&page, link) {
                wrong.push(format!("{}: {link}: {why}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 300, "only {checked} links were found");
}

/// What makes a site of docs/ (hack/docs) finds them by how they begin.
#[test]
fn links_out_of_docs_begin_with_the_way_up() {
    let docs = checkout().join("docs");
    for page in files(&docs, "md") {
        let depth = page.strip_prefix(&docs).unwrap().components().count();
        let up = "../".repeat(depth);
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let leads_out = link.matches("../").count() >= depth;
            let is_found = link.starts_with(&up);
            assert_eq!(leads_out, is_found, "{}: {link}", page.display());
        }
    }
}
