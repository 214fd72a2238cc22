//! Thousands of random schedules of replicas that elect a leader: slow, lost and late calls, processes
//! that are stopped and go on, die, start and give up, clocks of their own, leases edited by hand.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use my_operator_rounds::{cases, given_seed, lengths};

use super::Periods;
use super::decision::{Decision, Election, Record};

/// So long things go wrong, in milliseconds of the true time.
const TROUBLE: u64 = 300_000;
/// So long nothing does, at the end.
const PEACE: u64 = 60_000;

const PERIODS: Periods = Periods {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

/// The Lease as the API server has it: versions, and refused writes over any but the last.
#[derive(Clone, Default)]
struct Server {
    stored: Option<(u64, Record)>,
    version: u64,
    writes: u64,
}

impl Server {
    fn store(&mut self, mut record: Record) {
        self.version += 1;
        self.writes += 1;
        record.mark = format!("mark {}", self.writes);
        self.stored = Some((self.version, record));
    }

    fn write(&mut self, over: Option<u64>, record: Record) -> Answer {
        if self.stored.as_ref().map(|(version, _)| *version) != over {
            return Answer::LostRace;
        }
        self.store(record);
        let (version, record) = self.stored.clone().unwrap();
        Answer::Written(version, record)
    }
}

#[derive(Clone)]
enum Answer {
    Found(Option<(u64, Record)>),
    Written(u64, Record),
    LostRace,
}

#[derive(Clone)]
enum Request {
    Get,
    Write { over: Option<u64>, record: Record },
}

#[derive(Clone)]
enum What {
    /// A pause of a replica is over.
    Wake,
    /// It sends what it decided on a moment ago.
    Send { over: Option<u64>, record: Record },
    /// A request is at the API server.
    Arrive(Request),
    /// Its answer is at the replica.
    Return { answer: Answer, sent: Duration },
    /// No answer came in time.
    GiveUpWaiting,
    /// The replica is told to end.
    Terminate,
}

/// A process, and the clock of its machine.
struct Replica {
    name: String,
    election: Election,
    /// Its clock at the true time 0.
    offset: Duration,
    /// How fast its clock goes: near 1.
    rate: f64,
    /// The step of its work that counts; what belongs to earlier ones comes too late.
    step: u64,
    /// When it was sent, by its own clock.
    sent: Duration,
    known: Option<(u64, Record)>,
    leads_until: Option<Duration>,
    ending: bool,
    /// It does nothing before, in true time.
    stopped_until: u64,
}

impl Replica {
    fn clock(&self, now: u64) -> Duration {
        self.offset + Duration::from_millis(now).mul_f64(self.rate)
    }

    fn leads(&self, now: u64) -> bool {
        self.leads_until
            .is_some_and(|until| self.clock(now) < until)
    }
}

struct World {
    random: Rng,
    server: Server,
    replicas: Vec<Replica>,
    born: usize,
    /// Nobody is born before.
    no_birth_until: u64,
    /// (true time, number) -> (replica, its step, what).
    events: BTreeMap<(u64, u64), (String, u64, What)>,
    number: u64,
    terms: u64,
    log: Vec<String>,
    wrong: Option<String>,
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            random: Rng::with_seed(seed),
            server: Server::default(),
            replicas: Vec::new(),
            born: 0,
            no_birth_until: 0,
            events: BTreeMap::new(),
            number: 0,
            terms: 0,
            log: Vec::new(),
            wrong: None,
        };
        for _ in 0..world.random.usize(2..5) {
            world.give_birth(0);
        }
        if world.random.bool() {
            let holder = ["", "gone"][world.random.usize(0..2)];
            world.server.store(record(holder, 15, 7));
        }
        world
    }

    fn give_birth(&mut self, now: u64) {
        let name = format!("r{}", self.born);
        self.born += 1;
        let offset = Duration::from_secs(self.random.u64(0..10_000_000));
        self.replicas.push(Replica {
            election: Election::new(name.clone(), PERIODS),
            offset,
            rate: 0.98 + self.random.f64() * 0.04,
            step: 0,
            sent: Duration::ZERO,
            known: None,
            leads_until: None,
            ending: false,
            stopped_until: 0,
            name: name.clone(),
        });
        let at = now.max(self.no_birth_until) + self.random.u64(0..3_000);
        self.plan(at, &name, 0, What::Wake);
    }

    fn plan(&mut self, at: u64, name: &str, step: u64, what: What) {
        self.number += 1;
        self.events
            .insert((at, self.number), (name.to_owned(), step, what));
    }

    fn replica(&self, name: &str) -> Option<usize> {
        self.replicas.iter().position(|r| r.name == name)
    }

    fn note(&mut self, now: u64, text: &str) {
        self.log.push(format!("{now} {text}"));
    }

    /// How long a message is on its way.
    fn delay(&mut self) -> u64 {
        match self.random.u32(0..20) {
            0 => self.random.u64(0..30_000),
            1..4 => self.random.u64(0..6_000),
            _ => self.random.u64(0..30),
        }
    }

    fn run(&mut self) {
        while let Some(((now, _), (name, step, what))) = self.events.pop_first() {
            if now > TROUBLE + PEACE || self.wrong.is_some() {
                return;
            }
            if now < TROUBLE && self.random.u32(0..60) == 0 {
                self.disturb(now);
            }
            if let What::Arrive(request) = what {
                self.serve(now, &name, step, request);
                continue;
            }
            let Some(index) = self.replica(&name) else {
                continue;
            };
            let stopped_until = self.replicas[index].stopped_until;
            if now < stopped_until {
                self.plan(stopped_until, &name, step, what);
                continue;
            }
            self.advance(now, index, step, what);
        }
    }

    fn serve(&mut self, now: u64, name: &str, step: u64, request: Request) {
        let answer = match request {
            Request::Get => Answer::Found(self.server.stored.clone()),
            Request::Write { over, record } => {
                let holder = record.holder.clone();
                let answer = self.server.write(over, record);
                let done = matches!(answer, Answer::Written(..));
                self.note(now, &format!("{name} writes holder {holder:?}: {done}"));
                answer
            }
        };
        let lost = now < TROUBLE && self.random.u32(0..30) == 0;
        if let Some(index) = self.replica(name).filter(|_| !lost) {
            let at = now + if now < TROUBLE { self.delay() } else { 5 };
            let sent = self.replicas[index].sent;
            self.plan(at, name, step, What::Return { answer, sent });
        }
    }

    fn send(&mut self, now: u64, index: usize, request: Request) {
        let (at, lost) = if now < TROUBLE {
            (now + self.delay(), self.random.u32(0..30) == 0)
        } else {
            (now + 5, false)
        };
        let replica = &mut self.replicas[index];
        replica.step += 1;
        replica.sent = replica.clock(now);
        let (name, step) = (replica.name.clone(), replica.step);
        if !lost {
            self.plan(at, &name, step, What::Arrive(request));
        }
        let patience = now + milliseconds(PERIODS.call());
        self.plan(patience, &name, step, What::GiveUpWaiting);
    }

    fn pause(&mut self, now: u64, index: usize, pause: u64) {
        let replica = &mut self.replicas[index];
        replica.step += 1;
        let (name, step) = (replica.name.clone(), replica.step);
        self.plan(now + pause, &name, step, What::Wake);
    }

    /// The replica ends, and another process takes its place.
    fn end(&mut self, now: u64, index: usize, why: &str) {
        let replica = self.replicas.remove(index);
        self.note(now, &format!("{} ends: {why}", replica.name));
        self.give_birth(now);
    }

    fn advance(&mut self, now: u64, index: usize, step: u64, what: What) {
        let retry = milliseconds(PERIODS.retry_period);
        if matches!(what, What::Terminate) {
            return self.terminate(now, index);
        }
        if step != self.replicas[index].step {
            return;
        }
        match what {
            What::Wake => {
                let replica = &mut self.replicas[index];
                match replica.known.take() {
                    Some(known) => self.act(now, index, Some(known)),
                    None => self.send(now, index, Request::Get),
                }
            }
            What::Return { answer, sent } => match answer {
                _ if self.replicas[index].ending => self.end(now, index, "gave it up"),
                Answer::Found(found) => {
                    let replica = &mut self.replicas[index];
                    let clock = replica.clock(now);
                    let record = found.as_ref().map(|(_, record)| record);
                    replica.election.see(record, clock);
                    self.act(now, index, found);
                }
                Answer::Written(version, record) => {
                    let replica = &mut self.replicas[index];
                    let until = replica.election.won(&record, sent, replica.clock(now));
                    replica.known = Some((version, record));
                    let before = replica.leads_until.replace(until);
                    self.terms += u64::from(before.is_none());
                    self.check(now);
                    self.pause(now, index, retry);
                }
                Answer::LostRace => self.pause(now, index, 50),
            },
            What::GiveUpWaiting if self.replicas[index].ending => {
                self.end(now, index, "could not give it up");
            }
            What::GiveUpWaiting => self.pause(now, index, retry),
            What::Send { over, record } => {
                let replica = &mut self.replicas[index];
                if replica.election.may_send(replica.clock(now)) {
                    self.send(now, index, Request::Write { over, record });
                } else {
                    self.end(now, index, "late");
                }
            }
            What::Arrive(_) | What::Terminate => {}
        }
    }

    fn act(&mut self, now: u64, index: usize, found: Option<(u64, Record)>) {
        let replica = &self.replicas[index];
        let clock = replica.clock(now);
        let record_found = found.as_ref().map(|(_, record)| record);
        let transitions = match replica.election.decide(record_found, clock) {
            Decision::Wait { until } => {
                let left = until.saturating_sub(clock).div_f64(replica.rate);
                let pause = milliseconds(left.min(PERIODS.retry_period)) + 1;
                return self.pause(now, index, pause);
            }
            Decision::Lost(loss) => return self.end(now, index, &format!("{loss:?}")),
            Decision::Acquire { transitions } | Decision::Renew { transitions } => transitions,
        };
        let seconds = i64::try_from(PERIODS.lease_seconds()).unwrap();
        let record = record(&replica.name, seconds, transitions);
        let over = found.map(|(version, _)| version);
        let (name, step) = (replica.name.clone(), replica.step);
        self.plan(now, &name, step, What::Send { over, record });
    }

    /// A leader's work is over, then it gives the lease up; any other ends.
    fn terminate(&mut self, now: u64, index: usize) {
        if !self.replicas[index].leads(now) {
            return self.end(now, index, "told to");
        }
        let replica = &mut self.replicas[index];
        replica.leads_until = None;
        replica.ending = true;
        // From what it last wrote; else it just ends.
        match replica.known.take() {
            Some((version, mut record)) => {
                record.holder = String::new();
                record.seconds = Some(1);
                let over = Some(version);
                self.send(now, index, Request::Write { over, record });
            }
            None => self.end(now, index, "told to while it renewed"),
        }
    }

    fn disturb(&mut self, now: u64) {
        let index = self.random.usize(0..self.replicas.len());
        let name = self.replicas[index].name.clone();
        match self.random.u32(0..10) {
            0 => self.end(now, index, "killed"),
            1 => self.plan(now, &name, 0, What::Terminate),
            2..7 => {
                let pause = self.random.u64(0..40_000);
                self.note(now, &format!("{name} is stopped for {pause}"));
                let replica = &mut self.replicas[index];
                replica.stopped_until = replica.stopped_until.max(now + pause);
            }
            _ => self.edit(now),
        }
    }

    /// What somebody does to the lease by hand. A replica that comes to a lease that is not there any
    /// more, or is shortened, cannot know what was there.
    fn edit(&mut self, now: u64) {
        let Some((_, mut record)) = self.server.stored.clone() else {
            return;
        };
        let known =
            |replica: &Replica| replica.leads(now) || replica.election.has_seen(&record.mark);
        let everybody_knows = self.replicas.iter().all(known);
        let kind = self.random.u32(0..5);
        if kind > 2 && everybody_knows {
            self.no_birth_until = now + milliseconds(PERIODS.lease_duration);
        }
        match kind {
            0 => record.holder = "garbage".to_owned(),
            1 if record.seconds != Some(1) => record.holder = String::new(),
            2 => {
                let garbage = [None, Some(0), Some(-7), Some(1_000_000_000)];
                record.seconds = garbage[self.random.usize(0..4)];
            }
            3 if everybody_knows && !record.holder.is_empty() => record.seconds = Some(1),
            4 if everybody_knows => {
                self.note(now, "deleted by hand");
                self.server.stored = None;
                return;
            }
            _ => return,
        }
        self.note(now, &format!("edited by hand: {record:?}"));
        self.server.store(record);
    }

    /// Panics with the end of what happened, if something went wrong.
    fn tell(&self, seed: u64) {
        if let Some(wrong) = &self.wrong {
            let from = self.log.len().saturating_sub(60);
            panic!("SEED={seed}: {wrong}\n{}", self.log[from..].join("\n"));
        }
    }

    fn check(&mut self, now: u64) {
        let leaders = self.replicas.iter().filter(|r| r.leads(now));
        let leaders: Vec<&str> = leaders.map(|r| r.name.as_str()).collect();
        if leaders.len() > 1 {
            self.wrong = Some(format!("{leaders:?} lead at {now}"));
        }
    }
}

fn record(holder: &str, seconds: i64, transitions: i64) -> Record {
    Record {
        holder: holder.to_owned(),
        seconds: Some(seconds),
        transitions,
        mark: String::new(),
    }
}

#[test]
fn never_do_two_replicas_lead_at_the_same_instant() {
    let schedules = lengths::elections();
    let mut terms = 0;
    cases(schedules, |seed| {
        let mut world = World::new(seed);
        world.run();
        let now = TROUBLE + PEACE;
        let leaders = world.replicas.iter().filter(|r| r.leads(now)).count();
        if world.wrong.is_none() && leaders != 1 {
            world.wrong = Some(format!("{leaders} lead in the end"));
        }
        world.tell(seed);
        terms += world.terms;
    });
    println!("{schedules} schedules, {terms} terms");
    // Else nothing much happened.
    assert!(given_seed().is_some() || terms > 5 * schedules, "{terms}");
}
