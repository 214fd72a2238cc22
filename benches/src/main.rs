//! What an admission review costs here, beside a bare HTTPS server and a small controller-runtime
//! webhook: `make bench`.
//!
//! [`servers`] builds and starts the three, each on a core of its own; [`load`] asks them, from
//! another core, the [`reviews`] that an API server would send; [`table`] compares.

mod load;
mod reviews;
mod servers;
mod table;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use my_operator_cluster::{Cluster, Options};
use rustls::HandshakeKind;

use load::{Client, Lines};
use reviews::{Length, Side};
use servers::{Cores, Running, Server, Stage, checkout};
use table::{Aim, Figure, Round};

/// Measures the webhook beside a bare HTTPS server and a controller-runtime webhook, and prints a
/// table of ratios.
#[derive(Debug, Parser)]
#[command(name = "my-operator-bench", version)]
struct Arguments {
    /// How often each server is started and measured, in turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// One round of one-second measurements, for trying out.
    #[arg(long)]
    quick: bool,
    /// Put the table into this file too, between its two marker lines.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Of the file that `--out` names, what lies between these lines is replaced.
const MARKERS: [&str; 2] = ["<!-- make bench: begin -->", "<!-- make bench: end -->"];

const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// Where the aims are.
const USUAL: usize = 16;
/// Reviews a second for the measurement of latencies: what no server here is busy with.
const OFFERED: u32 = 2_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match bench(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(arguments: &Arguments) -> Result<()> {
    let (rounds, seconds) = if arguments.quick {
        (1, 1.0)
    } else {
        (arguments.rounds, arguments.seconds)
    };
    let out = match &arguments.out {
        Some(path) => Some((path, between_markers(path)?)),
        None => None,
    };
    build()?;
    let cores = Cores::divide()?;
    let cluster = Cluster::start(Options::default()).await?;
    let stage = Stage::set(cluster, cores).await?;
    let plan = Plan::new(Duration::try_from_secs_f64(seconds)?);
    let mut measured: Vec<Round> = Vec::new();
    for round in 1..=rounds {
        let mut figures = Round::default();
        for server in Server::ALL {
            eprintln!("round {round} of {rounds}: {}", server.name());
            figures[server as usize] = plan.measure(&stage, server).await?;
        }
        measured.push(figures);
    }
    stage.clear().await;
    let page = format!(
        "{}\n\n{}",
        machine(rounds, seconds),
        table::render(&measured)
    );
    writeln!(std::io::stdout(), "{page}")?;
    if let Some((path, [before, after])) = out {
        std::fs::write(path, format!("{before}\n{page}{after}"))?;
    }
    Ok(())
}

/// The release builds, as users make them.
fn build() -> Result<()> {
    for arguments in [
        "build --release --locked --bin my-operator",
        "build --release --locked -p my-operator-bench --bin my-operator-bench-bare",
    ] {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(arguments.split(' ')).current_dir(checkout());
        ensure!(command.status()?.success(), "cannot build the servers");
    }
    Ok(())
}

/// The parts of the file before and behind the table.
fn between_markers(path: &Path) -> Result<[String; 2]> {
    let read = || -> Result<[String; 2]> {
        let text = std::fs::read_to_string(path)?;
        let [begin, end] = MARKERS.map(|marker| text.find(marker));
        let begin = begin.context("no marker line")? + MARKERS[0].len();
        let end = end
            .filter(|end| *end > begin)
            .context("no second marker line")?;
        Ok([text[..begin].to_owned() + "\n", text[end..].to_owned()])
    };
    read().with_context(|| format!("cannot put the table into {}", path.display()))
}

/// What it was measured on, in a line or two.
fn machine(rounds: u32, seconds: f64) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    let cores = cpuinfo.matches("processor\t").count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let version = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.unwrap_or_default().trim().to_owned()
    };
    format!(
        "{rounds} rounds, {seconds} s for each measurement; {} ({cores} cores), Linux {}; {}; {}.",
        model.as_deref().unwrap_or("unknown processor"),
        kernel.trim(),
        version("rustc", "--version"),
        version("go", "version"),
    )
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
            &[Aim::Most(50.0)],
        );
        std::thread::sleep(self.duration.min(Duration::from_secs(3)));
        let idle = running.memory()?;
        figures.add("memory idle, MiB", idle, MEMORY);

        for length in [Length::Small, Length::Large] {
            for side in [Side::Validate, Side::Mutate] {
                let request = reviews::request(side, length);
                for connections in CONNECTIONS {
                    let what = format!("{} {}, {connections} at once", side.verb(), length.name());
                    let aims = match (connections, length, side) {
                        (USUAL, Length::Small, Side::Validate) => VALIDATE,
                        (USUAL, Length::Small, Side::Mutate) => MUTATE,
                        (USUAL, Length::Large, _) => LARGE,
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
        figures.add("memory after the load, MiB", loaded, &[]);
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
        let mut lines = Lines::open(&running.client, USUAL)?;
        load::open(&mut lines, &request, OFFERED, self.duration / 5)?;
        let measured = load::open(&mut lines, &request, OFFERED, self.duration)?;
        figures.latencies(&what, &measured, QUARTER);
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
    Aim::LeastTimes(0.7, Server::Bare),
    Aim::LeastTimes(8.0, Server::ControllerRuntime),
];
const MUTATE: &[Aim] = &[
    Aim::LeastTimes(0.7, Server::Bare),
    Aim::LeastTimes(12.0, Server::ControllerRuntime),
];
const LARGE: &[Aim] = &[Aim::LeastTimes(14.0, Server::ControllerRuntime)];
const MEMORY: &[Aim] = &[Aim::MostTimes(0.4, Server::ControllerRuntime)];
const QUARTER: &[Aim] = &[Aim::MostTimes(0.25, Server::ControllerRuntime)];

/// The figures of one run.
#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn add(&mut self, name: impl Into<String>, value: f64, aims: &'static [Aim]) {
        self.0.push(Figure {
            name: name.into(),
            value,
            aims,
        });
    }

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
