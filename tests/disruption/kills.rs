//! Operators that are killed at random: how long each lives, and who lives beside it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;
use my_operator_cluster::Cluster;
use rustix::process::{Pid, Signal};

use crate::harness::Operator;

/// Random lengths of time, in the pace of this machine.
pub(crate) struct Times {
    pub(crate) random: Rng,
    /// 1 where an operator starts at once, more where that takes long.
    pub(crate) pace: u64,
}

impl Times {
    /// Long enough to come to its work most times, short enough to die in the middle of it.
    pub(crate) fn life(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(100..1_300) * self.pace)
    }

    pub(crate) fn delay(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(0..500) * self.pace)
    }
}

/// An operator, how long it lives, and in some rounds a second one beside it.
pub(crate) struct Round {
    life: Duration,
    second: Option<Second>,
}

struct Second {
    /// It comes that long after the first.
    delay: Duration,
    life: Duration,
    /// The first is frozen meanwhile, and goes on afterwards with what it knew before.
    freezes: bool,
}

impl Round {
    pub(crate) fn kills(&self) -> usize {
        1 + usize::from(self.second.is_some())
    }

    pub(crate) fn length(&self) -> Duration {
        match &self.second {
            None => self.life,
            Some(second) if second.freezes => second.delay + second.life + self.life,
            Some(second) => self.life.max(second.delay + second.life),
        }
    }
}

/// So many rounds of one operator each.
pub(crate) fn alone(times: &mut Times, kills: usize) -> Vec<Round> {
    let rounds = (0..kills).map(|_| Round {
        life: times.life(),
        second: None,
    });
    rounds.collect()
}

/// Rounds with that many kills in all, some of them with two operators.
pub(crate) fn plan(times: &mut Times, kills: usize) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut left = kills;
    while left > 0 {
        let life = times.life();
        let twice = left > 1 && times.random.bool();
        let second = twice.then(|| {
            let freezes = times.random.u32(0..4) == 0;
            Second {
                freezes,
                // What is frozen is to know something by then.
                delay: if freezes { times.life() } else { times.delay() },
                life: times.life(),
            }
        });
        let round = Round { life, second };
        left -= round.kills();
        rounds.push(round);
    }
    rounds
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

    /// How many times as long as usual an operator takes to come to its work here.
    pub(crate) async fn pace(&self) -> u64 {
        let mut longest = Duration::ZERO;
        // One start may fall into a quiet moment, and those to come into a busy one.
        for _ in 0..3 {
            let start = Instant::now();
            let operator = self.operator("killed");
            operator.until_ready().await;
            operator.process.stop(Duration::from_secs(10)).await;
            longest = longest.max(start.elapsed());
        }
        u64::try_from(longest.as_millis() / 500).unwrap().max(1)
    }

    pub(crate) async fn round(&self, round: &Round) {
        let first = self.operator("killed");
        let Some(second) = &round.second else {
            return end_after(&first, round.life).await;
        };
        let other = async {
            tokio::time::sleep(second.delay).await;
            if second.freezes {
                signal(&first, Signal::STOP);
            }
            end_after(&self.operator("killed-too"), second.life).await;
        };
        if second.freezes {
            other.await;
            signal(&first, Signal::CONT);
            end_after(&first, round.life).await;
        } else {
            tokio::join!(end_after(&first, round.life), other);
        }
    }
}

/// Lets an operator live for that long.
pub(crate) async fn end_after(operator: &Operator, life: Duration) {
    tokio::time::sleep(life).await;
    operator.process.kill();
    operator.process.wait().await;
}

pub(crate) fn signal(operator: &Operator, signal: Signal) {
    let pid = i32::try_from(operator.process.pid()).ok();
    rustix::process::kill_process(pid.and_then(Pid::from_raw).unwrap(), signal).unwrap();
}
