//! The pictures of the pages: each is an SVG that can be read on a light and on a dark page, without motion, with
//! another font, or aloud.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::successors;
use std::path::{Path, PathBuf};

use crate::checkout::{checkout, files};

/// Where the pictures are that are drawn by hand. The others are recorded by tests/harness/src/picture.rs: terminals,
/// with colours of their own.
const DRAWN: &str = "docs/pictures";

/// All that a picture is made of: nothing that runs, moves, or loads anything.
const ELEMENTS: [&str; 11] = [
    "circle", "defs", "desc", "g", "marker", "path", "rect", "style", "svg", "text", "title",
];

/// How a picture says what a dark page shows in place of its attributes, which are for a light one.
const DARK: &str = "@media (prefers-color-scheme: dark)";

/// The widest picture that a page shows without making it smaller.
const MAX_WIDTH: i64 = 860;

/// The font size of the recorded pictures, which their style sets.
const RECORDED_FONT_SIZE: i64 = 14;

/// The shortest text that says what a picture shows.
const MIN_ALT: usize = 20;

/// An element of a picture.
#[derive(Debug)]
struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
    /// The position of the element around it.
    parent: Option<usize>,
    /// Its own text, without that of its children.
    text: String,
}

/// The elements in the order of their start tags, or what is not well-formed. Of XML it knows what pictures need: no
/// comments, no declarations, and values in double quotes.
fn elements(xml: &str) -> Result<Vec<Element>, String> {
    let mut elements: Vec<Element> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut pieces = xml.split('<');
    if pieces.next() != Some("") {
        return Err("text before the root".to_owned());
    }
    for piece in pieces {
        let tag = piece.split_once('>');
        let (tag, after) = tag.ok_or_else(|| format!("<{piece} has no end"))?;
        if let Some(name) = tag.strip_prefix('/') {
            let started = open.pop().map(|nth| elements[nth].name.as_str());
            if started != Some(name) {
                return Err(format!("</{name}> ends {started:?}"));
            }
        } else {
            if open.is_empty() && !elements.is_empty() {
                return Err(format!("<{tag}> is a second root"));
            }
            let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |it| (it, true));
            let (name, rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
            elements.push(Element {
                name: checked(name)?,
                attributes: attributes(rest)?,
                parent: open.last().copied(),
                text: String::new(),
            });
            if !is_empty {
                open.push(elements.len() - 1);
            }
        }
        let text = unescaped(after)?;
        match open.last() {
            Some(nth) => elements[*nth].text.push_str(&text),
            None if text.trim().is_empty() => {}
            None => return Err(format!("{text:?} is outside of the root")),
        }
    }
    if open.is_empty() {
        Ok(elements)
    } else {
        Err(format!("{} elements have no end", open.len()))
    }
}

/// The name of an element or attribute.
fn checked(name: &str) -> Result<String, String> {
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if is_name {
        Ok(name.to_owned())
    } else {
        Err(format!("{name:?} is not a name"))
    }
}

fn attributes(mut rest: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(found);
        }
        let parts = rest.split_once("=\"");
        let parts = parts.and_then(|(name, after)| Some((name, after.split_once('"')?)));
        let (name, (value, after)) = parts.ok_or_else(|| format!("{rest} has no value"))?;
        if !after.is_empty() && !after.starts_with(char::is_whitespace) {
            return Err(format!("{after} follows a value"));
        }
        if found.insert(checked(name)?, unescaped(value)?).is_some() {
            return Err(format!("{name} is there twice"));
        }
        rest = after;
    }
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut pieces = text.split('&');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let entity = piece.split_once(';');
        let (entity, after) = entity.ok_or_else(|| format!("&{piece} is not an entity"))?;
        plain.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => return Err(format!("&{entity}; is unknown")),
        });
        plain.push_str(after);
    }
    Ok(plain)
}

/// A picture that was read.
struct Picture {
    path: PathBuf,
    is_drawn: bool,
    elements: Vec<Element>,
}

impl Picture {
    fn read(path: PathBuf) -> Self {
        let read = elements(&fs::read_to_string(&path).unwrap());
        let elements = read.unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
        Self {
            is_drawn: path.starts_with(checkout().join(DRAWN)),
            path,
            elements,
        }
    }

    /// The text of the only element of that name.
    fn text_of(&self, name: &str) -> Option<&str> {
        let mut found = self.elements.iter().filter(|it| it.name == name);
        let text = found.next()?.text.trim();
        (found.next().is_none() && !text.is_empty()).then_some(text)
    }

    /// An attribute of the element, or of the nearest one around it that has it.
    fn inherited<'a>(&'a self, element: &'a Element, name: &str) -> Option<&'a str> {
        let around = |it: &&'a Element| Some(&self.elements[it.parent?]);
        let mut all = successors(Some(element), around);
        all.find_map(|it| it.attributes.get(name))
            .map(String::as_str)
    }

    /// Width and height.
    fn size(&self) -> (i64, i64) {
        let root = &self.elements[0].attributes;
        let (width, height) = (&root["width"], &root["height"]);
        let path = self.path.display();
        assert_eq!(root["viewBox"], format!("0 0 {width} {height}"), "{path}");
        (width.parse().unwrap(), height.parse().unwrap())
    }

    /// From where to where a text reaches, from left to right and from top to bottom: where it does not say so itself,
    /// each character takes six tenths of the font's size, which few fonts exceed.
    fn extent(&self, text: &Element) -> [i64; 4] {
        let number = |name: &str| Some(text.attributes.get(name)?.parse::<i64>().unwrap());
        let size = self.inherited(text, "font-size");
        let size = size.map_or(RECORDED_FONT_SIZE, |size| size.parse().unwrap());
        let characters = i64::try_from(text.text.chars().count()).unwrap();
        let width = number("textLength").unwrap_or(characters * size * 6 / 10);
        let before = match self.inherited(text, "text-anchor") {
            None | Some("start") => 0,
            Some("middle") => width / 2,
            Some("end") => width,
            Some(other) => panic!("{}: text-anchor {other}", self.path.display()),
        };
        let (left, y) = (number("x").unwrap() - before, number("y").unwrap());
        [left, left + width, y - size, y + size * 3 / 10]
    }
}

fn pictures() -> Vec<Picture> {
    let found = files(&checkout().join("docs"), "svg");
    let pictures: Vec<_> = found.into_iter().map(Picture::read).collect();
    let drawn = pictures.iter().filter(|picture| picture.is_drawn).count();
    assert!(drawn > 0, "no picture is drawn");
    pictures
}

#[test]
fn pictures_have_a_title_and_nothing_that_runs_or_loads() {
    for picture in pictures() {
        let path = picture.path.display();
        assert!(picture.text_of("title").is_some(), "{path}: no title");
        let style = picture.text_of("style").unwrap_or_default();
        for element in &picture.elements {
            let name = element.name.as_str();
            assert!(ELEMENTS.contains(&name), "{path}: <{name}>");
            for (name, value) in &element.attributes {
                let is_handler = name.starts_with("on");
                assert!(!is_handler && !name.ends_with("href"), "{path}: {name}");
                let loads = value.contains("url(") && !value.starts_with("url(#");
                assert!(!loads, "{path}: {name}={value:?}");
            }
        }
        for loads in ["url(", "@import", "@font-face"] {
            assert!(!style.contains(loads), "{path}: {loads}");
        }
    }
}

#[test]
fn drawn_pictures_are_described_and_do_not_move() {
    let mut styles = BTreeSet::new();
    for picture in pictures().iter().filter(|picture| picture.is_drawn) {
        let path = picture.path.display();
        assert!(picture.text_of("desc").is_some(), "{path}: no description");
        assert_eq!(picture.elements[0].attributes["role"], "img", "{path}");
        assert!(picture.size().0 <= MAX_WIDTH, "{path}: too wide");
        let style = picture.text_of("style").unwrap_or_default();
        for moves in ["animation", "keyframes", "transition"] {
            assert!(!style.contains(moves), "{path}: {moves}");
        }
        styles.insert(style.to_owned());
    }
    assert_eq!(styles.len(), 1, "pictures have one style: {styles:#?}");
}

/// A light page needs no style: where none is applied, the attributes give a picture on a light ground.
#[test]
fn drawn_pictures_have_the_colours_of_a_light_and_of_a_dark_page() {
    for picture in pictures().iter().filter(|picture| picture.is_drawn) {
        let path = picture.path.display();
        let style = picture.text_of("style").unwrap_or_default();
        assert!(style.starts_with(DARK), "{path}: {style}");
        assert_eq!(style.matches('@').count(), 1, "{path}: {style}");
        for element in &picture.elements {
            let of = |name: &str| element.attributes.get(name).map(String::as_str);
            for property in ["fill", "stroke"] {
                if of(property).is_some_and(|colour| colour != "none") {
                    let class = of("class").unwrap_or_default();
                    let rule = style.split_once(&format!(".{class} {{"));
                    let rule = rule.and_then(|(_, rest)| rest.split('}').next());
                    let is_set = rule.is_some_and(|it| it.contains(&format!("{property}: ")));
                    assert!(is_set, "{path}: {property} of {element:?} on a dark page");
                }
            }
            let is_shown = ["circle", "path", "rect", "text"].contains(&element.name.as_str());
            let fill = picture.inherited(element, "fill");
            assert!(!is_shown || fill.is_some(), "{path}: {element:?} is black");
        }
    }
}

#[test]
fn the_texts_of_a_picture_lie_within_it() {
    let mut wrong = Vec::new();
    for picture in pictures() {
        let (width, height) = picture.size();
        let is_moved = |it: &Element| it.attributes.contains_key("transform");
        let path = picture.path.display();
        assert!(!picture.elements.iter().any(is_moved), "{path}: transform");
        let texts: Vec<_> = picture
            .elements
            .iter()
            .filter(|it| it.name == "text")
            .collect();
        assert!(!texts.is_empty(), "{path}: no text");
        for text in texts {
            let [left, right, top, bottom] = picture.extent(text);
            if left < 0 || right > width || top < 0 || bottom > height {
                wrong.push(format!("{path}: {:?}: {left} to {right}", text.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The pictures of a page: the text in place of each, and its file.
fn shown(page: &Path) -> Vec<(String, PathBuf)> {
    let text = fs::read_to_string(page).unwrap();
    let after = text.split("![").skip(1);
    let shown = after.filter_map(|after| {
        let (alt, rest) = after.split_once(']')?;
        let (target, _) = rest.strip_prefix('(')?.split_once(')')?;
        (!target.contains("://")).then(|| (alt.to_owned(), page.with_file_name(target)))
    });
    shown.collect()
}

#[test]
fn pages_say_what_their_pictures_show_and_no_picture_is_left_over() {
    let checkout = checkout();
    let mut pages = vec![checkout.join("README.md"), checkout.join("CONTRIBUTING.md")];
    for folder in [
        "cluster", "config", "contrib", "crates", "docs", "kubectl", "tests",
    ] {
        pages.extend(files(&checkout.join(folder), "md"));
    }
    let mut used = BTreeSet::new();
    for page in pages {
        for (alt, file) in shown(&page) {
            let page = page.display();
            assert!(alt.trim().chars().count() >= MIN_ALT, "{page}: {alt:?}");
            let found = fs::canonicalize(&file);
            used.insert(
                found.unwrap_or_else(|error| panic!("{page}: {}: {error}", file.display())),
            );
        }
    }
    for picture in files(&checkout.join("docs"), "svg") {
        let is_used = used.contains(&fs::canonicalize(&picture).unwrap());
        assert!(is_used, "{} is on no page", picture.display());
    }
}

#[test]
fn a_picture_that_is_not_well_formed_is_found() {
    let read = elements("<svg a=\"b &amp; 'c'\">\n<g>x &lt; y<path/></g> z</svg>\n").unwrap();
    let names: Vec<_> = read
        .iter()
        .map(|it| (it.name.as_str(), it.parent))
        .collect();
    assert_eq!(names, [("svg", None), ("g", Some(0)), ("path", Some(1))]);
    assert_eq!(read[0].attributes["a"], "b & 'c'");
    assert_eq!(read[0].text, "\n z");
    assert_eq!(read[1].text, "x < y");
    for bad in [
        "x<svg/>",
        "<svg/>x",
        "<svg/><svg/>",
        "<svg>",
        "<svg></g>",
        "</svg>",
        "<svg><g></svg></g>",
        "<svg a></svg>",
        "<svg a=b></svg>",
        "<svg a='b'></svg>",
        "<svg a=\"b></svg>",
        "<svg a=\"b\"c=\"d\"></svg>",
        "<svg a=\"b\" a=\"c\"></svg>",
        "<svg 1=\"b\"></svg>",
        "<svg>a & b</svg>",
        "<svg>&nbsp;</svg>",
        "<svg>a < b</svg>",
    ] {
        assert!(elements(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_text_reaches_to_both_sides_of_its_anchor() {
    let of = |attributes: &str| {
        let text = "<text x=\"100\" y=\"50\">0123456789</text>";
        let svg = format!("<svg font-size=\"10\"><g {attributes}>{text}</g></svg>");
        let picture = Picture {
            path: PathBuf::new(),
            is_drawn: true,
            elements: elements(&svg).unwrap(),
        };
        picture.extent(&picture.elements[2])
    };
    assert_eq!(of(""), [100, 160, 40, 53]);
    assert_eq!(of("text-anchor=\"middle\""), [70, 130, 40, 53]);
    assert_eq!(
        of("text-anchor=\"end\" font-size=\"20\""),
        [-20, 100, 30, 56]
    );
}
