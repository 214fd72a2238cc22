//! Container images made from a list of files, without an engine or a registry: an archive as `docker save` writes it.

mod dockerfile;
mod libraries;
mod stand_in;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, json};
use sha2::{Digest, Sha256};

use crate::error::Error;

/// An image of one layer.
#[derive(Debug, Clone)]
pub struct Image {
    reference: String,
    entries: Vec<Entry>,
    user: String,
    entrypoint: Vec<String>,
    command: Vec<String>,
    environment: Vec<String>,
    labels: Vec<(String, String)>,
    architecture: String,
}

#[derive(Debug, Clone)]
struct Entry {
    path: String,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Copy { of: PathBuf, mode: u32 },
    Text { text: String },
    Directory { mode: u32 },
    Link { to: String },
}

impl Image {
    /// An empty image with this name, which a pod must write the same way but for `docker.io/library/` and
    /// `docker.io/`.
    pub fn new(reference: &str) -> Self {
        // As Docker and the kubelet read a name without a registry.
        let first = reference.split('/').next().unwrap_or_default();
        let reference = if !reference.contains('/') {
            format!("docker.io/library/{reference}")
        } else if first.contains('.') || first.contains(':') || first == "localhost" {
            reference.to_owned()
        } else {
            format!("docker.io/{reference}")
        };
        Self {
            reference,
            entries: Vec::new(),
            user: String::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            environment: vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
            labels: Vec::new(),
            architecture: my_operator_programs::platform().1.to_owned(),
        }
    }

    /// The image's full name.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// Adds a copy of a file of this machine, as root's and with these permissions.
    #[must_use]
    pub fn file(mut self, path: &str, of: impl Into<PathBuf>, mode: u32) -> Self {
        let of = of.into();
        self.add(path, Content::Copy { of, mode });
        self
    }

    /// Adds a file with this text, owned by root and readable by all users.
    #[must_use]
    pub fn text(mut self, path: &str, text: &str) -> Self {
        let text = text.to_owned();
        self.add(path, Content::Text { text });
        self
    }

    /// Adds a copy of a file of this machine with the permissions that it has here.
    ///
    /// # Errors
    ///
    /// If there is no such file.
    pub fn copy(self, path: &str, of: impl Into<PathBuf>) -> Result<Self, Error> {
        let of = of.into();
        let metadata = fs::metadata(&of).map_err(Error::file("read", &of))?;
        Ok(self.file(path, of, metadata.permissions().mode() & 0o7777))
    }

    /// Adds a copy of a program of this machine, executable by all users, and of its loader and shared libraries, at
    /// the same paths as here. The program must be trusted: `ldd` may run it.
    ///
    /// # Errors
    ///
    /// If there is no such program, or this machine lacks one of its libraries.
    pub fn program(mut self, path: &str, of: impl Into<PathBuf>) -> Result<Self, Error> {
        let of = of.into();
        let bytes = fs::read(&of).map_err(Error::file("read", &of))?;
        if loader(&bytes).is_some() {
            for library in libraries::of(&of)? {
                let place = library.display().to_string();
                // Another program may have added it.
                if !self.has(&place) {
                    self = self.file(&place, library, 0o755);
                }
            }
        }
        Ok(self.file(path, of, 0o755))
    }

    /// Adds an empty directory, as root's and with these permissions.
    #[must_use]
    pub fn directory(mut self, path: &str, mode: u32) -> Self {
        self.add(path, Content::Directory { mode });
        self
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn link(mut self, path: &str, to: &str) -> Self {
        let to = to.to_owned();
        self.add(path, Content::Link { to });
        self
    }

    /// Sets the user that the program runs as, like `65532:65532`; root by default.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Sets the program and its first arguments.
    #[must_use]
    pub fn entrypoint(mut self, entrypoint: &[&str]) -> Self {
        self.entrypoint = owned(entrypoint);
        self
    }

    /// Sets the arguments that a pod's `args` replace.
    #[must_use]
    pub fn command(mut self, command: &[&str]) -> Self {
        self.command = owned(command);
        self
    }

    /// Sets the architecture of its programs as Go names it, like `arm64`; by default that of this machine.
    #[must_use]
    pub fn architecture(mut self, architecture: &str) -> Self {
        architecture.clone_into(&mut self.architecture);
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes the image as an archive that `ctr images import` and `docker load` read. Nothing in it depends on the
    /// time.
    ///
    /// # Errors
    ///
    /// If one of its files cannot be read, or is a program whose loader the image does not have, or the archive cannot
    /// be written.
    pub fn write(&self, archive: &Path) -> Result<(), Error> {
        let layer = self.layer()?;
        let labels: Map<_, _> = self
            .labels
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let config = json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": {
                "User": self.user,
                "Entrypoint": self.entrypoint,
                "Cmd": self.command,
                "Env": self.environment,
                "Labels": labels,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{:x}", Sha256::digest(&layer))]},
        });
        let manifest = json!([{
            "Config": "config.json",
            "RepoTags": [self.reference],
            "Layers": ["layer.tar"],
        }]);
        let mut tar = Tar::default();
        tar.file("config.json", 0o644, config.to_string().as_bytes())?;
        tar.file("layer.tar", 0o644, &layer)?;
        tar.file("manifest.json", 0o644, manifest.to_string().as_bytes())?;
        fs::write(archive, tar.finish()).map_err(Error::file("write", archive))
    }

    /// Adds an entry, which replaces an earlier one of the same path.
    fn add(&mut self, path: &str, content: Content) {
        let path = path.trim_start_matches('/').to_owned();
        self.entries.retain(|entry| entry.path != path);
        self.entries.push(Entry { path, content });
    }

    /// Whether something was added at that path.
    fn has(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        self.entries.iter().any(|entry| entry.path == path)
    }

    fn layer(&self) -> Result<Vec<u8>, Error> {
        let mut tar = Tar::default();
        let mut known: Vec<String> = Vec::new();
        for entry in &self.entries {
            // Directories that are only parents are readable by all users.
            for (end, _) in entry.path.match_indices('/') {
                let parent = &entry.path[..end];
                if !known.iter().any(|path| path == parent) {
                    tar.entry(&format!("{parent}/"), 0o755, b'5', "", &[])?;
                    known.push(parent.to_owned());
                }
            }
            known.push(entry.path.clone());
            match &entry.content {
                Content::Copy { of, mode } => {
                    let bytes = fs::read(of).map_err(Error::file("read", of))?;
                    if let Some(loader) = loader(&bytes).filter(|loader| !self.has(loader)) {
                        return Err(Error::Failed {
                            action: format!(
                                "put {} into the image {}",
                                of.display(),
                                self.reference
                            ),
                            output: format!(
                                "it is not linked statically, and {loader} is not in the image"
                            ),
                        });
                    }
                    tar.file(&entry.path, *mode, &bytes)?;
                }
                Content::Text { text } => tar.file(&entry.path, 0o644, text.as_bytes())?,
                Content::Directory { mode } => {
                    tar.entry(&format!("{}/", entry.path), *mode, b'5', "", &[])?;
                }
                Content::Link { to } => tar.entry(&entry.path, 0o777, b'2', to, &[])?,
            }
        }
        Ok(tar.finish())
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The loader that an ELF program asks for: what its PT_INTERP segment says (System V ABI, "Program Header"). None for
/// one that needs no libraries, and for a library. Only 64 bit little endian, as all machines here are.
fn loader(bytes: &[u8]) -> Option<String> {
    const PT_INTERP: usize = 3;
    let number = |at: usize, length: usize| {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        let value = bytes
            .iter()
            .rev()
            .fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut headers = (0..count).filter_map(|index| table.checked_add(index * size));
    let header = headers.find(|&header| number(header, 4) == Some(PT_INTERP))?;
    let (at, length) = (number(header + 8, 8)?, number(header + 32, 8)?);
    let path = bytes.get(at..at.checked_add(length)?)?;
    let path = String::from_utf8_lossy(path);
    Some(path.trim_end_matches('\0').to_owned())
}

/// A tar archive in the ustar format (POSIX.1-1988), everything root's and from 1970.
#[derive(Debug, Default)]
struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    const BLOCK: usize = 512;

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<(), Error> {
        self.entry(path, mode, b'0', "", content)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        kind: u8,
        link: &str,
        content: &[u8],
    ) -> Result<(), Error> {
        if path.len() > 100 || link.len() > 100 {
            return Err(Error::Internal(format!(
                "{path} is too long a path for an image"
            )));
        }
        let mut header = [0_u8; Self::BLOCK];
        let mut put =
            |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, path);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", content.len()));
        put(136, "00000000000");
        // The checksum counts itself as blanks.
        put(148, "        ");
        put(157, link);
        put(257, "ustar");
        put(263, "00");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(Self::BLOCK), 0);
        Ok(())
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * Self::BLOCK, 0);
        self.bytes
    }
}
