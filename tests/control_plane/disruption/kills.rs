//! Operators that are killed at random: how long each lives, and whether a second one lives beside it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;
use my_operator_cluster::Cluster;
use rustix::process::Signal;

use crate::harness::Operator;

/// When an operator is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// It is ready first: it has come to its work, however slow the machine is.
    works: bool,
    /// And then it has so long.
    then: Duration,
}

impl Life {
    /// Half of the operators come to their work for sure, and the others are killed at any moment of their start.
    pub(crate) fn random(random: &mut Rng) -> Self {
        let works = random.bool();
        let longest = if works { 1_500 } else { 1_300 };
        Self {
            works,
            then: Duration::from_millis(random.u64(0..longest)),
        }
    }

    /// Waits for as long as the operator may live.
    async fn pass(self, operator: &Operator) {
        if self.works {
            operator.until_ready().await;
        }
        tokio::time::sleep(self.then).await;
    }

    /// Lets an operator live for that long.
    pub(crate) async fn end(self, operator: &Operator) {
        self.pass(operator).await;
        kill(operator).await;
    }
}

pub(crate) async fn kill(operator: &Operator) {
    operator.process.kill();
    operator.process.wait().await;
}

/// An operator, how long it lives, and in some rounds a second one beside it.
pub(crate) struct Round {
    life: Life,
    second: Option<Second>,
}

struct Second {
    life: Life,
    starts: Starts,
}

enum Starts {
    /// That long after the first.
    After(Duration),
    /// When the first has lived for that long and was frozen. The first goes on when the second is dead, with what it
    /// knew before.
    WhileFrozen(Life),
}

impl Round {
    /// A round with one operator.
    pub(crate) fn alone(random: &mut Rng) -> Self {
        let life = Life::random(random);
        Self { life, second: None }
    }

    /// A round with one operator or two.
    pub(crate) fn random(random: &mut Rng) -> Self {
        let mut round = Self::alone(random);
        if random.bool() {
            let starts = if random.u32(0..4) == 0 {
                Starts::WhileFrozen(Life::random(random))
            } else {
                Starts::After(Duration::from_millis(random.u64(0..500)))
            };
            let life = Life::random(random);
            round.second = Some(Second { life, starts });
        }
        round
    }

    pub(crate) fn kills(&self) -> usize {
        1 + usize::from(self.second.is_some())
    }
}

/// How the operators of a test are started.
pub(crate) struct Start<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) flags: Vec<String>,
}

impl Start<'_> {
    pub(crate) fn operator(&self, name: &str) -> Operator {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        Operator::spawn(self.cluster, name, &self.kubeconfig, &flags)
    }

    /// Returns for how long an operator was frozen.
    pub(crate) async fn round(&self, round: &Round) -> Duration {
        let first = self.operator("killed");
        match &round.second {
            None => round.life.end(&first).await,
            Some(Second {
                life,
                starts: Starts::After(delay),
            }) => {
                let other = async {
                    tokio::time::sleep(*delay).await;
                    life.end(&self.operator("killed-too")).await;
                };
                tokio::join!(round.life.end(&first), other);
            }
            Some(Second {
                life,
                starts: Starts::WhileFrozen(before),
            }) => {
                before.pass(&first).await;
                first.process.signal(Signal::STOP);
                let frozen = Instant::now();
                life.end(&self.operator("killed-too")).await;
                first.process.signal(Signal::CONT);
                let frozen = frozen.elapsed();
                round.life.end(&first).await;
                return frozen;
            }
        }
        Duration::ZERO
    }
}
