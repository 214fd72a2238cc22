//! The cost of this operator, compared with other implementations: `make bench`.
//!
//! [`webhook`] measures admission reviews, [`at`] the starts and the waiting of Ats, [`mydaemonset`] roll-outs and rest of
//! MyDaemonSets, [`scale`] whether each of a million objects takes as much as each of a thousand. All build the
//! [`programs`] that they compare, measure them in turns, ask the system for their [`usage`], and make a [`table`] of
//! ratios, of which a [`chart`] is drawn. [`at`] and [`mydaemonset`] run an [`operator`] on a [`plane`], and watch it with
//! [`sightings`].

mod at;
mod chart;
mod mydaemonset;
mod operator;
mod plane;
mod programs;
mod scale;
mod sightings;
mod table;
mod usage;
mod webhook;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use table::{Round, Table};

/// Measures the operator beside other programs, and prints tables of ratios.
#[derive(Debug, Parser)]
#[command(name = "my-operator-bench", version)]
struct Arguments {
    /// What to measure; everything by default.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// How often everything is started and measured, in turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement of the webhook.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How many Ats are due at one instant.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    due: usize,
    /// How many Ats wait. 100000 take half an hour and some gigabytes.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pending: usize,
    /// How many nodes there are for a MyDaemonSet.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    nodes: usize,
    /// How many Ats wait on the simulated API server, at most. A million take 12 GB.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    ats: usize,
    /// Of Ats and MyDaemonSets, measure only this; repeatable.
    #[arg(long, value_enum)]
    only: Vec<Measurement>,
    /// One round of short measurements with fewer objects, for trying out.
    #[arg(long)]
    quick: bool,
    /// Write the results to this folder too: of each part performance/PART.tsv, pictures/performance-PART.svg, and the
    /// aims between its two marker lines in performance.md.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Measure nothing: make pictures and aims of the results that the folder has.
    #[arg(long, requires = "out")]
    redraw: bool,
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Admission reviews, beside a bare HTTPS server and webhooks of kube-rs and controller-runtime.
    Webhook,
    /// Starts and waiting of Ats, beside a bare client, Jobs and a controller-runtime At.
    At,
    /// Roll-outs, memory and rest of MyDaemonSets, beside a bare client, the built-in DaemonSet and a
    /// controller-runtime MyDaemonSet.
    #[value(name = "mydaemonset")]
    MyDaemonSet,
    /// Memory and work for each of a thousand to a million Ats, and of 3,000 to 300,000 pods of MyDaemonSets, on a
    /// simulated API server.
    Scale,
}

/// What of a part can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Of Ats: many due at one instant.
    Burst,
    /// Of Ats: many due at one instant, beside others whose calls hang.
    Beside,
    /// Of Ats: many that wait, and a restart with them.
    Idle,
    /// Of Ats: how late a single one is.
    Late,
    /// Of MyDaemonSets: a fresh one on all nodes, and a change of its image.
    Rollout,
    /// Of MyDaemonSets: the memory of nodes and pods, and heartbeats.
    Memory,
    /// Of MyDaemonSets: many with nothing to do.
    Rest,
    /// Of MyDaemonSets: `kubectl mydaemonset get -w` while the image changes.
    View,
    /// Of `scale`: Ats that wait.
    Ats,
    /// Of `scale`: pods of MyDaemonSets.
    Sets,
}

impl Measurement {
    fn part(self) -> Part {
        match self {
            Self::Burst | Self::Beside | Self::Idle | Self::Late => Part::At,
            Self::Rollout | Self::Memory | Self::Rest | Self::View => Part::MyDaemonSet,
            Self::Ats | Self::Sets => Part::Scale,
        }
    }
}

/// Whether that is measured, of which `only` some things are; everything when empty.
fn is_wanted(only: &[Measurement], measurement: Measurement) -> bool {
    only.is_empty() || only.contains(&measurement)
}

impl Part {
    /// Its name in files.
    fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::At => "at",
            Self::MyDaemonSet => "mydaemonset",
            Self::Scale => "scale",
        }
    }

    /// What lies between these lines of performance.md is replaced.
    fn markers(self) -> [String; 2] {
        ["begin", "end"].map(|what| format!("<!-- make bench {}: {what} -->", self.name()))
    }

    /// The title of its picture, and the figures there with the title of each.
    fn picture(self) -> (&'static str, &'static [[&'static str; 2]]) {
        match self {
            Self::Webhook => (
                "Reviews a second of webhooks with one core each; more is better",
                &[
                    [
                        "validate 2.9 kB, 16 at once: requests/s",
                        "Validate an object of 2.9 kB: reviews a second",
                    ],
                    [
                        "mutate 2.9 kB, 16 at once: requests/s",
                        "Default an object of 2.9 kB",
                    ],
                    [
                        "validate 64 kB, 16 at once: requests/s",
                        "Validate an object of 64 kB",
                    ],
                    [
                        "mutate 64 kB, 16 at once: requests/s",
                        "Default an object of 64 kB",
                    ],
                ],
            ),
            Self::At => (
                "Starts of 2,000 Ats that are due at one instant, and the memory of those that wait",
                &[
                    [
                        "burst of 2000: pods released per second",
                        "Pods released a second; more is better",
                    ],
                    [
                        "20000 waiting, come one by one: memory of each, B",
                        "Memory of each waiting At in bytes; less is better",
                    ],
                ],
            ),
            Self::MyDaemonSet => (
                "A new MyDaemonSet on 2,000 nodes",
                &[
                    [
                        "fresh on 2000 nodes: pods created per second",
                        "Pods created a second; more is better",
                    ],
                    [
                        "fresh: status right after the last Ready, ms",
                        "Milliseconds until the status is right; less is better",
                    ],
                ],
            ),
            Self::Scale => (
                "What each waiting At takes among more and more of them; equal bars are flat",
                &[
                    [
                        "Ats, waiting: memory of each, B",
                        "Memory of each At in bytes",
                    ],
                    [
                        "Ats, a watch event: processor, µs",
                        "Processor time for a watch event in microseconds",
                    ],
                ],
            ),
        }
    }

    fn run(self, arguments: &Arguments) -> Result<Table> {
        let (how, rounds) = match self {
            Self::Webhook => {
                let (rounds, seconds) = if arguments.quick {
                    (1, 1.0)
                } else {
                    (arguments.rounds, arguments.seconds)
                };
                let how = format!("{}, {seconds} s for each measurement", in_words(rounds));
                (how, webhook::bench(rounds, seconds)?)
            }
            Self::At => {
                let plan = arguments.at_plan();
                (in_words(plan.rounds), at::bench(&plan)?)
            }
            Self::MyDaemonSet => {
                let plan = arguments.mydaemonset_plan();
                (
                    format!("{} rounds", plan.rounds),
                    mydaemonset::bench(&plan)?,
                )
            }
            Self::Scale => {
                let plan = arguments.scale_plan();
                (in_words(plan.rounds), scale::bench(&plan)?)
            }
        };
        Ok(Table::new(format!("{how}; {}", machine()), &rounds))
    }
}

impl Arguments {
    fn at_plan(&self) -> at::Plan {
        let mut plan = at::Plan {
            rounds: self.rounds,
            due: self.due,
            pending: self.pending,
            hanging: 1_000,
            idle_seconds: 60,
            single: 20,
            only: self.only.clone(),
        };
        if self.quick {
            plan = at::Plan {
                rounds: 1,
                due: plan.due.min(400),
                pending: plan.pending.min(2_000),
                hanging: 100,
                idle_seconds: 10,
                single: 5,
                ..plan
            };
        }
        plan
    }

    fn mydaemonset_plan(&self) -> mydaemonset::Plan {
        let mut plan = mydaemonset::Plan {
            rounds: self.rounds,
            nodes: self.nodes,
            few_nodes: self.nodes.min(500),
            sets: 20,
            rest_nodes: 1_000,
            rest_seconds: 60,
            beat_seconds: 20,
            only: self.only.clone(),
        };
        if self.quick {
            let nodes = plan.nodes.min(200);
            plan = mydaemonset::Plan {
                rounds: 1,
                nodes,
                few_nodes: nodes.min(100),
                sets: 3,
                rest_nodes: 100,
                rest_seconds: 10,
                beat_seconds: 5,
                ..plan
            };
        }
        plan
    }

    fn scale_plan(&self) -> scale::Plan {
        let mut plan = scale::Plan {
            rounds: self.rounds,
            ats: self.ats,
            nodes: 15_000,
            rest_seconds: 30,
            only: self.only.clone(),
        };
        if self.quick {
            plan = scale::Plan {
                rounds: 1,
                ats: plan.ats.min(100_000),
                nodes: 1_500,
                rest_seconds: 10,
                ..plan
            };
        }
        plan
    }
}

fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match bench(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn in_words(rounds: u32) -> String {
    match rounds {
        1 => "1 round".to_owned(),
        more => format!("{more} rounds"),
    }
}

/// Measures in that many rounds.
fn in_rounds(rounds: u32, measure: impl AsyncFn(u32) -> Result<Round>) -> Result<Vec<Round>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut measured = Vec::new();
        for round in 1..=rounds {
            measured.push(measure(round).await?);
        }
        Ok(measured)
    })
}

fn bench(arguments: &Arguments) -> Result<()> {
    let asked_for = |part: &&Part| match arguments.parts.as_slice() {
        [] => arguments.only.is_empty() || arguments.only.iter().any(|only| only.part() == **part),
        some => some.contains(part),
    };
    let parts: Vec<Part> = Part::value_variants()
        .iter()
        .filter(asked_for)
        .copied()
        .collect();
    if let Some(folder) = &arguments.out {
        // Before the long work, not after it.
        for part in &parts {
            between_markers(&folder.join("performance.md"), *part)?;
        }
    }
    if !arguments.redraw {
        programs::build(parts.contains(&Part::Webhook))?;
    }
    for part in parts {
        let table = match &arguments.out {
            Some(folder) if arguments.redraw => read(folder, part)?,
            _ => part.run(arguments)?,
        };
        writeln!(std::io::stdout(), "{}", table.markdown())?;
        if let Some(folder) = &arguments.out {
            write(folder, part, &table)?;
        }
    }
    Ok(())
}

/// Where the figures of a part are.
fn results(folder: &Path, part: Part) -> PathBuf {
    folder.join(format!("performance/{}.tsv", part.name()))
}

fn read(folder: &Path, part: Part) -> Result<Table> {
    let path = results(folder, part);
    let text = std::fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Table::from_tsv(&text).with_context(|| format!("{} has no results", path.display()))
}

/// Writes the figures, the picture, and the aims on the page.
fn write(folder: &Path, part: Part, table: &Table) -> Result<()> {
    std::fs::create_dir_all(folder.join("performance"))?;
    std::fs::write(results(folder, part), table.to_tsv())?;
    let pictures = folder.join("pictures");
    // All pictures have one style.
    let other = std::fs::read_to_string(pictures.join("architecture.svg"))?;
    let style = other
        .split_once("<style>")
        .and_then(|(_, rest)| rest.split_once("</style>"));
    let (style, _) = style.context("architecture.svg has no style")?;
    let (title, figures) = part.picture();
    let svg = chart::svg(style, title, table, figures);
    std::fs::write(
        pictures.join(format!("performance-{}.svg", part.name())),
        svg,
    )?;
    let page = folder.join("performance.md");
    let [before, after] = between_markers(&page, part)?;
    Ok(std::fs::write(
        page,
        format!("{before}\n{}{after}", table.aims()),
    )?)
}

/// The parts of the page before and behind the table.
fn between_markers(path: &Path, part: Part) -> Result<[String; 2]> {
    let read = || -> Result<[String; 2]> {
        let text = std::fs::read_to_string(path)?;
        let markers = part.markers();
        let [begin, end] = [&markers[0], &markers[1]].map(|marker| text.find(marker));
        let begin = begin.context("no marker line")? + markers[0].len();
        let end = end
            .filter(|end| *end > begin)
            .context("no second marker line")?;
        Ok([text[..begin].to_owned() + "\n", text[end..].to_owned()])
    };
    read().with_context(|| format!("cannot put the table into {}", path.display()))
}

/// What it was measured on, in a line.
fn machine() -> String {
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
        "{} ({cores} cores), Linux {}; {}; {}.",
        model.as_deref().unwrap_or("unknown processor"),
        kernel.trim(),
        version("rustc", "--version"),
        version("go", "version"),
    )
}
