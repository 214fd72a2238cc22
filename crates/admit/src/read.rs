//! Reads files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The maximum size of a file. A stream of many objects may be long, but not endless.
const MAX_FILE_LEN: u64 = 16 * 1024 * 1024;

/// The extensions of the files that kubectl reads from a folder.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// A file, or why it could not be read.
#[derive(Debug)]
pub struct Source {
    /// The name for the report.
    pub name: String,
    /// Its text, or one sentence on why it could not be read.
    pub text: Result<String, String>,
    /// Whether it was named, rather than found in a folder: a folder also has files for other programs.
    pub is_named: bool,
}

impl Source {
    fn named(path: &Path, text: Result<String, String>) -> Self {
        Self {
            name: path.display().to_string(),
            text,
            is_named: true,
        }
    }

    fn found(path: &Path, text: Result<String, String>) -> Self {
        Self {
            is_named: false,
            ..Self::named(path, text)
        }
    }
}

/// Reads every file that a path of the command line means: the file itself, standard input for `-`, and for a folder
/// the manifests in it, in the order of their names.
pub fn sources(path: &Path, recursive: bool, each: &mut dyn FnMut(Source)) {
    if path == Path::new("-") {
        each(Source::named(path, text(&mut io::stdin().lock())));
    } else if path.is_dir() {
        let mut files = 0;
        folder(path, recursive, &mut |source| {
            files += 1;
            each(source);
        });
        if files == 0 {
            let message =
                "a folder without manifests: recognized file extensions are .json .yaml .yml";
            each(Source::named(path, Err(message.to_owned())));
        }
    } else {
        each(Source::named(path, file(path)));
    }
}

fn folder(path: &Path, recursive: bool, each: &mut dyn FnMut(Source)) {
    let mut entries: Vec<PathBuf> = match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) => return each(Source::found(path, Err(error.to_string()))),
    };
    entries.sort();
    for path in entries {
        // Links to folders are not followed: they may form a cycle.
        let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        if is_folder {
            if recursive {
                folder(&path, recursive, each);
            }
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
            continue;
        }
        // Only regular files of a folder are read: reading a pipe could block.
        let text = match path.metadata() {
            Ok(found) if !found.is_file() => Err("not a regular file".to_owned()),
            Ok(_) => file(&path),
            Err(error) => Err(error.to_string()),
        };
        each(Source::found(&path, text));
    }
}

fn file(path: &Path) -> Result<String, String> {
    text(&mut File::open(path).map_err(|error| error.to_string())?)
}

/// What is read, as text, unless it is too long.
pub fn text(from: &mut dyn Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    from.take(MAX_FILE_LEN + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE_LEN {
        return Err(format!("longer than {} MiB", MAX_FILE_LEN / 1024 / 1024));
    }
    decode(bytes)
}

/// UTF-8 or, with a byte order mark, UTF-16, as in kubectl.
pub fn decode(bytes: Vec<u8>) -> Result<String, String> {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks();
        let units = pairs.iter().copied().map(unit);
        let text: Result<String, _> = char::decode_utf16(units).collect();
        text.ok()
            .filter(|_| rest.is_empty())
            .ok_or_else(|| "not valid UTF-16".to_owned())
    };
    match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest.to_vec()),
        _ => utf8(bytes),
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.split(|byte| *byte == b'\n').count() - 1;
        format!("not valid UTF-8, in line {line}")
    })
}
