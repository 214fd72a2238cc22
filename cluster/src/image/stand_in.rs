//! Stand-ins for public images, where there is no registry: their programs are Debian's static ones.

use my_operator_programs::needs::program;

use super::Image;
use crate::error::Error;

/// What a stand-in does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A shell.
    Bash,
    /// Small programs.
    Busybox,
    /// A web server with one page.
    Web { port: u16, user: &'static str },
}

/// The images that there are stand-ins for, of any tag.
const KINDS: [(&str, Kind); 4] = [
    ("bash", Kind::Bash),
    ("busybox", Kind::Busybox),
    ("nginx", Kind::Web { port: 80, user: "" }),
    (
        "nginxinc/nginx-unprivileged",
        Kind::Web {
            port: 8080,
            user: "101",
        },
    ),
];

/// The programs of busybox that are called by their own names.
const LINKS: [&str; 14] = [
    "cat", "date", "echo", "env", "grep", "head", "httpd", "id", "ls", "sh", "sleep", "touch",
    "tr", "wc",
];

impl Image {
    /// An image of the same name as a public one, and enough like it for tests and demonstrations: `bash`, `busybox`,
    /// `nginx` or `nginxinc/nginx-unprivileged`, with any tag.
    ///
    /// # Errors
    ///
    /// If there is none for that image, or this machine lacks a program that it is made of.
    pub fn stand_in(reference: &str) -> Result<Self, Error> {
        let kind = kind(reference).ok_or_else(|| Error::Failed {
            action: format!("make a stand-in for the image {reference}"),
            output: format!(
                "there are only those for {}",
                KINDS.map(|(name, _)| name).join(", ")
            ),
        })?;
        let image = busybox(reference)?;
        Ok(match kind {
            Kind::Bash => {
                let bash = needed("bash-static", "bash-static")?;
                image.file("/bin/bash", bash, 0o755).command(&["bash"])
            }
            Kind::Busybox => image.command(&["sh"]),
            Kind::Web { port, user } => {
                // As the first process it would be deaf to SIGTERM.
                let serve = format!("trap exit TERM; httpd -f -p {port} -h /srv & wait");
                image
                    .text("/srv/index.html", "served\n")
                    .command(&["sh", "-c", &serve])
                    .user(user)
            }
        })
    }

    /// What a stand-in for that image is, in words; none where there is no stand-in.
    pub fn stand_in_words(reference: &str) -> Option<&'static str> {
        Some(match kind(reference)? {
            Kind::Bash => "Debian's bash-static, with busybox for everything else",
            Kind::Busybox => "Debian's busybox-static",
            Kind::Web { .. } => "busybox's httpd, with one page",
        })
    }
}

/// The kind of an image by its name without tag or digest.
fn kind(reference: &str) -> Option<Kind> {
    let name = reference.split([':', '@']).next();
    let mut kinds = KINDS.into_iter();
    kinds
        .find(|(known, _)| Some(*known) == name)
        .map(|(_, kind)| kind)
}

fn busybox(reference: &str) -> Result<Image, Error> {
    let image = Image::new(reference)
        .file("/bin/busybox", needed("busybox", "busybox-static")?, 0o755)
        .directory("/tmp", 0o1777);
    let link = |image: Image, name: &&str| image.link(&format!("/bin/{name}"), "busybox");
    Ok(LINKS.iter().fold(image, link))
}

/// The path of a program of this machine, of a Debian package.
fn needed(name: &str, package: &str) -> Result<std::path::PathBuf, Error> {
    program(name).ok_or_else(|| {
        Error::need(&format!(
            "it needs the program {name} (Debian package {package})"
        ))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Image, Kind, kind};

    #[test]
    fn an_image_is_known_by_its_name() {
        for (reference, expected) in [
            ("bash:5.3", Some(Kind::Bash)),
            ("busybox", Some(Kind::Busybox)),
            ("busybox@sha256:00", Some(Kind::Busybox)),
            ("nginx:1.29", Some(Kind::Web { port: 80, user: "" })),
            ("nginx/nginx:1", None),
            ("memcached:1.6", None),
            ("", None),
        ] {
            assert_eq!(kind(reference), expected, "{reference}");
        }
        let error = Image::stand_in("memcached:1.6").unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot make a stand-in for the image memcached:1.6: there are only those for bash, busybox, nginx, nginxinc/nginx-unprivileged"
        );
    }
}
