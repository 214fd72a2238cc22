//! The cost of an admission review, compared with a bare HTTPS server and with small webhooks of kube-rs and of
//! controller-runtime.
//!
//! [`servers`] starts them, one at a time on a core of its own; [`load`] asks them, from another core, the
//! [`reviews`] that an API server would send, after [`answers`] has compared what they answer.

mod answers;
mod load;
mod reviews;
mod servers;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use my_operator_cluster::{Cluster, Options};
use rustls::HandshakeKind;

use load::{Client, Lines};
use reviews::{Length, Side};
use servers::{BARE, CONTROLLER_RUNTIME, Cores, KUBE_USER, Running, Server, Stage};

use crate::table::{Aim, Column, Figure, Figures, Round};

const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// Where the aims are.
const DEFAULT_CONNECTIONS: usize = 16;
/// Reviews a second for the measurement of latencies: what no server here is busy with.
const OFFERED: u32 = 2_000;

/// Measures in that many rounds.
pub(crate) fn bench(rounds: u32, seconds: f64) -> Result<Vec<Round>> {
    // One thread: it is bound to a core, and so are its child processes.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(rounds, seconds))
}

async fn measure(rounds: u32, seconds: f64) -> Result<Vec<Round>> {
    let cores = Cores::divide()?;
    let cluster = Cluster::start(Options::default()).await?;
    let stage = Stage::set(cluster, cores).await?;
    check_answers(&stage).await?;
    let plan = Plan::new(Duration::try_from_secs_f64(seconds)?);
    let mut measured: Vec<Round> = Vec::new();
    for round in 1..=rounds {
        let mut columns = Round::default();
        for server in Server::ALL {
            eprintln!("round {round} of {rounds}: {}", server.name());
            columns.push(Column {
                name: server.name(),
                figures: plan.measure(&stage, server).await?,
            });
        }
        measured.push(columns);
    }
    stage.clear().await;
    Ok(measured)
}

/// Fails unless all servers that review give the same verdicts and make the same objects.
async fn check_answers(stage: &Stage) -> Result<()> {
    let cases = reviews::cases();
    let first = reviews::request(Side::Validate, Length::Small);
    for server in Server::ALL.into_iter().filter(|server| server.reviews()) {
        let running = stage.start(server, &first)?;
        let checked = answers::check(&running.client, &cases);
        checked.with_context(|| format!("{}: {}", server.name(), running.log_tail()))?;
        running.stop().await;
    }
    Ok(())
}

/// What is measured, and for how long.
struct Plan {
    duration: Duration,
}

impl Plan {
    fn new(duration: Duration) -> Self {
        Self { duration }
    }

    async fn measure(&self, stage: &Stage, server: Server) -> Result<Vec<Figure>> {
        let first = reviews::request(Side::Validate, Length::Small);
        let running = stage.start(server, &first)?;
        let mut figures = Figures::default();
        let measured = self.all(&running, &mut figures);
        measured.with_context(|| format!("{}: {}", server.name(), running.log_tail()))?;
        running.stop().await;
        Ok(figures.0)
    }

    fn all(&self, running: &Running, figures: &mut Figures) -> Result<()> {
        figures.add(
            "start to first answer, ms",
            running.first_answer.as_secs_f64() * 1e3,
            &[],
        );
        if let Some(since) = running.since_reached {
            figures.add(
                "the API server's first answer to ours, ms",
                since.as_secs_f64() * 1e3,
                &[Aim::Most(50.0)],
            );
        }
        std::thread::sleep(self.duration.min(Duration::from_secs(3)));
        let idle = running.memory()?;
        figures.add("memory idle, MiB", idle, MEMORY);

        for length in [Length::Small, Length::Large] {
            for side in [Side::Validate, Side::Mutate] {
                let request = reviews::request(side, length);
                for connections in CONNECTIONS {
                    let what = format!("{} {}, {connections} at once", side.verb(), length.name());
                    let aims = match (connections, length, side) {
                        (DEFAULT_CONNECTIONS, Length::Small, Side::Validate) => VALIDATE,
                        (DEFAULT_CONNECTIONS, Length::Small, Side::Mutate) => MUTATE,
                        (DEFAULT_CONNECTIONS, Length::Large, Side::Validate) => VALIDATE_LARGE,
                        (DEFAULT_CONNECTIONS, Length::Large, Side::Mutate) => MUTATE_LARGE,
                        _ => &[],
                    };
                    self.throughput(running, figures, &what, &request, connections, aims)?;
                }
            }
        }
        for side in [Side::Validate, Side::Mutate] {
            self.latency(running, figures, side)?;
        }
        self.handshakes(running, figures)?;

        let loaded = running.memory()?;
        figures.add("memory after the load, MiB", loaded, MEMORY_LOADED);
        figures.add(
            "memory after the load ÷ idle",
            loaded / idle,
            &[Aim::Most(1.5)],
        );
        Ok(())
    }

    fn throughput(
        &self,
        running: &Running,
        figures: &mut Figures,
        what: &str,
        request: &[u8],
        connections: usize,
        aims: &'static [Aim],
    ) -> Result<()> {
        let mut lines = Lines::open(&running.client, connections)?;
        load::closed(&mut lines, request, self.duration / 5)?;
        running.forget_log()?;
        let before = running.cpu()?;
        let measured = load::closed(&mut lines, request, self.duration)?;
        let cpu = running.cpu()? - before;
        running.forget_log()?;
        figures.add(format!("{what}: requests/s"), measured.rate(), aims);
        let each = cpu / measured.count();
        figures.add(format!("{what}: processor per request, µs"), each, &[]);
        figures.latencies(what, &measured, &[]);
        Ok(())
    }

    fn latency(&self, running: &Running, figures: &mut Figures, side: Side) -> Result<()> {
        let request = reviews::request(side, Length::Small);
        let what = format!(
            "{} {}, {OFFERED} offered/s",
            side.verb(),
            Length::Small.name()
        );
        let mut lines = Lines::open(&running.client, DEFAULT_CONNECTIONS)?;
        load::open(&mut lines, &request, OFFERED, self.duration / 5)?;
        let measured = load::open(&mut lines, &request, OFFERED, self.duration)?;
        figures.latencies(&what, &measured, TAIL);
        running.forget_log()
    }

    fn handshakes(&self, running: &Running, figures: &mut Figures) -> Result<()> {
        let request = reviews::request(Side::Validate, Length::Small);
        let full = "new connection and one call, full handshake: processor, µs";
        let (cost, resumed) = self.calls(running, &running.client, &request)?;
        ensure!(!resumed, "a handshake was resumed that must not be");
        figures.add(full, cost, &[Aim::Most(200.0)]);
        let (cost, resumed) = self.calls(running, &running.client.resuming(), &request)?;
        if resumed {
            let resumed = "new connection and one call, resumed handshake: processor, µs";
            figures.add(resumed, cost, &[]);
        }
        running.forget_log()
    }

    /// Processor time of a call on a connection of its own, in microseconds, and whether its
    /// handshake was a resumed one.
    fn calls(&self, running: &Running, client: &Client, request: &[u8]) -> Result<(f64, bool)> {
        client.call(request)?;
        let (start, before) = (Instant::now(), running.cpu()?);
        let (mut calls, mut resumed) = (0.0, false);
        while start.elapsed() < self.duration {
            resumed = client.call(request)? == HandshakeKind::Resumed;
            calls += 1.0;
        }
        let cpu = running.cpu()? - before;
        Ok((cpu / calls, resumed))
    }
}

const VALIDATE: &[Aim] = &[
    Aim::LeastTimes(0.75, BARE),
    Aim::LeastTimes(3.0, KUBE_USER),
    Aim::LeastTimes(12.0, CONTROLLER_RUNTIME),
];
const MUTATE: &[Aim] = &[
    Aim::LeastTimes(0.7, BARE),
    Aim::LeastTimes(4.0, KUBE_USER),
    Aim::LeastTimes(14.0, CONTROLLER_RUNTIME),
];
const VALIDATE_LARGE: &[Aim] = &[
    Aim::LeastTimes(1.5, KUBE_USER),
    Aim::LeastTimes(20.0, CONTROLLER_RUNTIME),
];
const MUTATE_LARGE: &[Aim] = &[
    Aim::LeastTimes(3.0, KUBE_USER),
    Aim::LeastTimes(20.0, CONTROLLER_RUNTIME),
];
const MEMORY: &[Aim] = &[Aim::Most(13.0)];
const MEMORY_LOADED: &[Aim] = &[Aim::Most(16.0)];
const TAIL: &[Aim] = &[
    Aim::MostTimes(1.0, KUBE_USER),
    Aim::MostTimes(0.15, CONTROLLER_RUNTIME),
];

impl Figures {
    /// `aims` are those of the 99th percentile.
    fn latencies(&mut self, what: &str, measured: &load::Measured, aims: &'static [Aim]) {
        for (name, part, aims) in [
            ("p50", 500, &[][..]),
            ("p99", 990, aims),
            ("p99.9", 999, &[]),
        ] {
            self.add(
                format!("{what}: {name}, µs"),
                measured.per_mille(part),
                aims,
            );
        }
    }
}
