//! Being asked to stop: SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal is gone).

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask this process to stop. Before this value exists they end the process at once, which is as clean
/// (see the library's `guard`) and only less orderly.
#[derive(Debug)]
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Completes on any of the signals.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }

    /// Like [`Stop::asked`], but Ctrl-C is left to the program in the foreground, which gets it too.
    pub(crate) async fn asked_by_others(&mut self) {
        loop {
            tokio::select! {
                // Consumed here, or it would count later.
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => return,
                _ = self.hangup.recv() => return,
            }
        }
    }

    /// A second signal means that the user does not want to wait: ends the process at once. The watchdog cleans up.
    pub(crate) fn at_once_when_asked_again(mut self) {
        tokio::spawn(async move {
            self.asked().await;
            std::process::exit(130);
        });
    }
}
