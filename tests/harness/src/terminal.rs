//! A program in a terminal: it runs in a pty, and a terminal emulator reads what it writes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pty_process::Size;
use pty_process::blocking::{self, Pty};
use tokio::sync::watch;
pub use vt100::Screen;
use vt100::{Callbacks, Parser};

use crate::programs::Killed;
use crate::wait::TIMEOUT;

/// So many reads that bring nothing after the end of the program are the end of its output.
const MAX_EMPTY: usize = 100;

/// A program and the terminal that it runs in.
pub struct Terminal {
    pty: Arc<Pty>,
    program: Killed,
    parser: Arc<Mutex<Parser<Effects>>>,
    /// Changes with the screen; closed when nothing holds the terminal any more.
    changes: watch::Receiver<()>,
}

/// How a program ended, and what it left.
#[derive(Debug)]
pub struct Left {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// What the screen shows.
    pub shown: String,
    /// Whether the screen is the second one, or the cursor hidden.
    pub is_unrestored: bool,
    /// Everything that the terminal was made to do but to show text: ring, change its title, use the clipboard.
    pub effects: Vec<String>,
}

impl Left {
    /// What the screen shows after a program that ended with this code, and left the terminal as it was.
    #[track_caller]
    pub fn in_order(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.is_unrestored, "{self:#?}");
        assert_eq!(self.effects, [""; 0], "{}", self.shown);
        self.shown
    }
}

impl Terminal {
    /// Starts the program in a terminal of so many columns and lines.
    pub fn start(mut command: Command, (columns, lines): (u16, u16)) -> Self {
        command.env("TERM", "xterm-256color");
        let (pty, pts) = blocking::open().unwrap();
        pty.resize(Size::new(lines, columns)).unwrap();
        let program = blocking::Command::from(command).spawn(pts).unwrap();
        let parser = Parser::new_with_callbacks(lines, columns, 0, Effects::default());
        let (pty, parser) = (Arc::new(pty), Arc::new(Mutex::new(parser)));
        let (notify, changes) = watch::channel(());
        let (output, to, pid) = (Arc::clone(&pty), Arc::clone(&parser), program.id());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            // The end is an error, or nothing for ever. But ^C discards what is on its way, and reads may then bring
            // nothing although more comes, for as long as the program has not ended.
            let mut empty = 0;
            while empty < MAX_EMPTY {
                match (&*output).read(&mut buffer) {
                    Ok(0) => {
                        empty += usize::from(has_ended(pid));
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok(count) => {
                        to.lock().unwrap().process(&buffer[..count]);
                        notify.send_replace(());
                        empty = 0;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        });
        Self {
            pty,
            program: Killed(program),
            parser,
            changes,
        }
    }

    /// Waits until the screen is as `look` wants it.
    pub async fn until<T>(&self, what: &str, look: impl Fn(&Screen) -> Option<T>) -> T {
        let mut changes = self.changes.clone();
        let found = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = look(self.parser.lock().unwrap().screen()) {
                    return Some(found);
                }
                changes.changed().await.ok()?;
            }
        };
        let found = tokio::time::timeout(TIMEOUT, found).await;
        let shown = self.shown();
        found
            .unwrap_or_else(|_| panic!("timed out waiting for {what}:\n{shown}"))
            .unwrap_or_else(|| panic!("the program ended before {what}:\n{shown}"))
    }

    /// Waits until this text is on the screen; returns all of it.
    pub async fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| {
            let shown = contents(screen);
            shown.contains(text).then_some(shown)
        })
        .await
    }

    /// What the screen shows.
    pub fn shown(&self) -> String {
        contents(self.parser.lock().unwrap().screen())
    }

    /// The screen as it is.
    pub fn screen(&self) -> Screen {
        self.parser.lock().unwrap().screen().clone()
    }

    /// Types text; `\x03` is ^C, `\x04` is ^D.
    pub fn enter(&self, text: &str) {
        (&*self.pty).write_all(text.as_bytes()).unwrap();
    }

    /// Changes the size; the program gets SIGWINCH.
    pub fn resize(&self, (columns, lines): (u16, u16)) {
        // First the screen: what the program writes next is for the new size.
        let mut parser = self.parser.lock().unwrap();
        parser.screen_mut().set_size(lines, columns);
        self.pty.resize(Size::new(lines, columns)).unwrap();
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.program.0.id()
    }

    /// Waits until the program has ended and everything that it wrote is on the screen.
    pub async fn end(mut self) -> Left {
        let ended = async { while self.changes.changed().await.is_ok() {} };
        let ended = tokio::time::timeout(TIMEOUT, ended).await;
        assert!(ended.is_ok(), "it does not end:\n{}", self.shown());
        let status = self.program.0.wait().unwrap();
        let parser = self.parser.lock().unwrap();
        let screen = parser.screen();
        Left {
            code: status.code(),
            shown: contents(screen),
            is_unrestored: screen.alternate_screen() || screen.hide_cursor(),
            effects: parser.callbacks().0.clone(),
        }
    }
}

/// Whether that child has ended, be it waited for or not (proc_pid_stat(5)).
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_none_or(|state| state.starts_with('Z'))
}

/// The text on a screen, without blanks at the ends of lines.
pub fn contents(screen: &Screen) -> String {
    let rows = screen.rows(0, screen.size().1);
    let rows: Vec<String> = rows.map(|row| row.trim_end().to_owned()).collect();
    rows.join("\n").trim_end().to_owned()
}

/// What a terminal was made to do but to show text.
#[derive(Default)]
struct Effects(Vec<String>);

impl Effects {
    fn add(&mut self, what: &str, of: &dyn std::fmt::Debug) {
        self.0.push(format!("{what} {of:?}"));
    }
}

impl Callbacks for Effects {
    fn audible_bell(&mut self, _: &mut Screen) {
        self.add("bell", &());
    }
    fn visual_bell(&mut self, _: &mut Screen) {
        self.add("visual bell", &());
    }
    fn resize(&mut self, _: &mut Screen, size: (u16, u16)) {
        self.add("resize", &size);
    }
    fn set_window_icon_name(&mut self, _: &mut Screen, name: &[u8]) {
        self.add("icon", &name);
    }
    fn set_window_title(&mut self, _: &mut Screen, title: &[u8]) {
        self.add("title", &title);
    }
    fn copy_to_clipboard(&mut self, _: &mut Screen, _: &[u8], data: &[u8]) {
        self.add("copy", &data);
    }
    fn paste_from_clipboard(&mut self, _: &mut Screen, _: &[u8]) {
        self.add("paste", &());
    }
    fn unhandled_char(&mut self, _: &mut Screen, c: char) {
        self.add("character", &c);
    }
    fn unhandled_control(&mut self, _: &mut Screen, b: u8) {
        self.add("control", &b);
    }
    fn unhandled_escape(&mut self, _: &mut Screen, _: Option<u8>, _: Option<u8>, b: u8) {
        self.add("escape", &b);
    }
    fn unhandled_csi(
        &mut self,
        _: &mut Screen,
        _: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        c: char,
    ) {
        self.add("control sequence", &(parameters, c));
    }
    fn unhandled_osc(&mut self, _: &mut Screen, parameters: &[&[u8]]) {
        self.add("command", &parameters);
    }
}
