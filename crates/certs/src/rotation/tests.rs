//! Every decision, one by one.
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use super::*;

const PERIODS: Periods = Periods {
    leaf_validity: TimeDelta::days(7),
    ca_validity: TimeDelta::days(365),
    propagation: TimeDelta::seconds(60),
};

static START: LazyLock<DateTime<Utc>> = LazyLock::new(|| "2026-01-01T00:00:00Z".parse().unwrap());

/// A CA made on this day after the start.
fn made_on(day: i64) -> Arc<Authority> {
    Arc::new(Authority::generate(on(day), PERIODS.ca_validity).unwrap())
}

fn on(day: i64) -> DateTime<Utc> {
    *START + TimeDelta::days(day)
}

fn published(anchors: &[&Arc<Authority>]) -> Published {
    let anywhere: Vec<_> = anchors.iter().map(|a| a.anchor().clone()).collect();
    let everywhere = anywhere.iter().map(Anchor::fingerprint).collect();
    Published {
        everywhere,
        anywhere,
        stray: false,
    }
}

fn leaf(authority: &Authority, issued_at: DateTime<Utc>) -> LeafFacts {
    let issuer = authority.anchor().fingerprint();
    LeafFacts {
        issuer,
        issued_at,
        not_before: issued_at - BACKDATE,
        not_after: issued_at + PERIODS.leaf_validity,
    }
}

/// An observed state with everything in order. Each test changes the part that it is about.
struct World {
    held: Held,
    published: Option<Published>,
    /// How far this machine's clock is ahead of the API server's, if that is known.
    ahead: Option<TimeDelta>,
    trusted_since: Option<DateTime<Utc>>,
    next_trusted_since: Option<DateTime<Utc>>,
    leaf: Option<LeafFacts>,
}

impl World {
    fn of(authorities: Authorities) -> Self {
        let bundle = authorities.bundle();
        Self {
            published: Some(Published {
                everywhere: bundle.iter().map(Anchor::fingerprint).collect(),
                anywhere: bundle,
                stray: false,
            }),
            ahead: Some(TimeDelta::zero()),
            trusted_since: None,
            next_trusted_since: Some(on(-999)),
            leaf: None,
            held: Held::Authorities(authorities),
        }
    }

    fn decide(&self, now: DateTime<Utc>) -> Step {
        let mut trusted = BTreeMap::new();
        if let Held::Authorities(authorities) = &self.held {
            let current = authorities.current.anchor().fingerprint();
            trusted.extend(self.trusted_since.map(|since| (current, now - since)));
            let next = authorities.next.as_ref();
            let next = next.map(|next| next.authority.anchor().fingerprint());
            trusted.extend(next.zip(self.next_trusted_since.map(|since| now - since)));
        }
        let observed = Observed {
            held: &self.held,
            published: self.published.as_ref(),
            trusted: &trusted,
            leaf: self.leaf,
            read_at: self.clocks(now),
        };
        decide(observed, self.clocks(now), &PERIODS)
    }

    fn clocks(&self, now: DateTime<Utc>) -> Clocks {
        Clocks::new(now, self.ahead.map(|ahead| now - ahead))
    }

    fn change(&self, now: DateTime<Utc>) -> Option<Change> {
        self.decide(now).change
    }

    fn after(&self, change: Change, now: DateTime<Utc>) -> Authorities {
        let clocks = self.clocks(now);
        change.apply(&self.held, clocks, &PERIODS).unwrap().unwrap()
    }
}

fn alone(current: &Arc<Authority>) -> Authorities {
    Authorities {
        current: current.clone(),
        next: None,
        previous: None,
    }
}

fn with_next(
    current: &Arc<Authority>,
    next: &Arc<Authority>,
    published_at: Option<DateTime<Utc>>,
) -> Authorities {
    let next = Some(Next {
        authority: next.clone(),
        published_at,
    });
    Authorities {
        next,
        ..alone(current)
    }
}

fn with_previous(
    current: &Arc<Authority>,
    previous: &Arc<Authority>,
    drop_at: DateTime<Utc>,
) -> Authorities {
    let previous = Some(Previous {
        anchors: vec![previous.anchor().clone()],
        drop_at,
    });
    Authorities {
        previous,
        ..alone(current)
    }
}

#[test]
fn missing_secret_leads_to_a_new_ca_and_nothing_else() {
    for published in [None, Some(Published::default())] {
        let world = World {
            held: Held::Missing,
            published,
            ahead: Some(TimeDelta::zero()),
            trusted_since: None,
            next_trusted_since: Some(on(-999)),
            leaf: None,
        };
        let step = world.decide(on(0));
        let change = Some(Change::Begin { keep: Vec::new() });
        assert_eq!(
            step,
            Step {
                change,
                sign: false,
                publish: None,
                next_decision: on(0)
            }
        );
    }
}

#[test]
fn a_lost_secret_is_replaced_and_trusted_cas_that_have_not_expired_are_kept() {
    let (old, dead) = (made_on(0), made_on(-400));
    let published = Some(published(&[&old, &dead]));
    let world = World {
        held: Held::Missing,
        published,
        ahead: Some(TimeDelta::zero()),
        trusted_since: None,
        next_trusted_since: Some(on(-999)),
        leaf: None,
    };
    let change = world.change(on(1)).unwrap();
    assert_eq!(
        change,
        Change::Begin {
            keep: vec![old.anchor().clone()]
        }
    );
    let authorities = world.after(change, on(1));
    let previous = authorities.previous.as_ref().unwrap();
    assert_eq!(previous.drop_at, on(8) + PERIODS.propagation);
    assert_eq!(authorities.bundle().len(), 2);
    assert_eq!(authorities.current.anchor().not_after(), on(366));
}

#[test]
fn garbage_is_replaced_and_a_readable_certificate_stays_trusted() {
    let (read, trusted) = (made_on(0), made_on(1));
    let world = World {
        held: Held::Garbage {
            fault: "no key".into(),
            readable: vec![read.anchor().clone()],
        },
        published: Some(published(&[&trusted, &read])),
        ahead: Some(TimeDelta::zero()),
        trusted_since: None,
        next_trusted_since: Some(on(-999)),
        leaf: None,
    };
    let keep = vec![trusted.anchor().clone(), read.anchor().clone()];
    assert_eq!(world.change(on(2)), Some(Change::Begin { keep }));
}

#[test]
fn a_secret_that_keeps_breaking_does_not_grow_the_bundle_without_bound() {
    let all: Vec<_> = (0..12).map(made_on).collect();
    let published = Some(published(&all.iter().collect::<Vec<_>>()));
    let world = World {
        held: Held::Missing,
        published,
        ahead: Some(TimeDelta::zero()),
        trusted_since: None,
        next_trusted_since: Some(on(-999)),
        leaf: None,
    };
    let Some(Change::Begin { keep }) = world.change(on(20)) else {
        unreachable!()
    };
    assert_eq!(keep.len(), KEPT_AT_MOST);
    assert_eq!(keep.first(), Some(all[11].anchor()));
}

#[test]
fn the_first_leaf_is_signed_at_once_and_the_bundle_published() {
    let current = made_on(0);
    let mut world = World::of(alone(&current));
    world.published = Some(Published::default());
    let step = world.decide(on(0));
    let publish = Some(vec![current.anchor().clone()]);
    assert_eq!(
        step,
        Step {
            change: None,
            sign: true,
            publish,
            next_decision: on(0)
        }
    );
}

#[test]
fn nothing_is_done_if_all_is_in_order_and_the_next_decision_is_due_after_the_propagation_time() {
    let current = made_on(0);
    let mut world = World::of(alone(&current));
    world.leaf = Some(leaf(&current, on(0)));
    let next_decision = on(1) + PERIODS.propagation;
    let expected = Step {
        change: None,
        sign: false,
        publish: None,
        next_decision,
    };
    assert_eq!(world.decide(on(1)), expected);
    world.published = None;
    assert_eq!(world.decide(on(1)), expected);
}

#[test]
fn a_decision_is_due_earlier_if_something_happens_before() {
    let (current, next) = (made_on(0), made_on(1));
    let soon = on(2) + TimeDelta::seconds(7);
    let at = |world: &World| world.decide(on(2)).next_decision;

    let mut world = World::of(alone(&current));
    world.leaf = Some(leaf(&current, soon - PERIODS.leaf_validity / 2));
    assert_eq!(at(&world), soon);

    let mut world = World::of(with_next(&current, &next, Some(soon - PERIODS.propagation)));
    world.leaf = Some(leaf(&current, on(2)));
    assert_eq!(at(&world), soon);

    let mut world = World::of(with_previous(&next, &current, soon));
    world.leaf = Some(leaf(&next, on(2)));
    assert_eq!(at(&world), soon);

    let mut world = World::of(with_previous(&next, &current, on(5)));
    world.leaf = Some(leaf(&current, on(2)));
    world.trusted_since = Some(soon - PERIODS.propagation);
    assert_eq!(at(&world), soon);
}

#[test]
fn a_leaf_is_renewed_at_half_its_life() {
    let current = made_on(0);
    let mut world = World::of(alone(&current));
    let half = on(10) + PERIODS.leaf_validity / 2;
    world.leaf = Some(leaf(&current, on(10)));
    assert!(!world.decide(half - TimeDelta::seconds(1)).sign);
    assert!(world.decide(half).sign);
}

#[test]
fn a_leaf_of_another_ca_is_kept_until_the_current_one_is_known_everywhere() {
    let (old, current) = (made_on(0), made_on(1));
    let mut world = World::of(with_previous(&current, &old, on(9)));
    world.leaf = Some(leaf(&old, on(1)));
    let now = on(2);
    for (since, sign) in [
        (None, false),
        (Some(now), false),
        (
            Some(now - PERIODS.propagation + TimeDelta::seconds(1)),
            false,
        ),
        (Some(now - PERIODS.propagation), true),
    ] {
        world.trusted_since = since;
        assert_eq!(world.decide(now).sign, sign, "{since:?}");
    }
}

#[test]
fn a_leaf_that_no_configuration_trusts_or_that_has_expired_is_replaced_at_once() {
    let (old, current) = (made_on(0), made_on(1));
    let mut world = World::of(alone(&current));
    world.leaf = Some(leaf(&old, on(1)));
    assert!(world.decide(on(2)).sign, "its CA is in no bundle");
    world.published = None;
    assert!(
        world.decide(on(2)).sign,
        "whom others trust is not ours to know"
    );
    let mut world = World::of(with_previous(&current, &old, on(90)));
    world.leaf = Some(leaf(&old, on(1)));
    assert!(world.decide(on(8)).sign, "expired");
}

#[test]
fn a_bundle_that_differs_in_any_way_is_published_again() {
    let (old, current, unknown) = (made_on(0), made_on(1), made_on(2));
    let mut world = World::of(with_previous(&current, &old, on(9)));
    world.leaf = Some(leaf(&current, on(2)));
    assert_eq!(world.decide(on(2)).publish, None);
    let good = world.published.clone().unwrap();
    let one = published(&[&current]);
    for (what, published) in [
        ("emptied", Published::default()),
        ("one is missing", one.clone()),
        ("one is too many", published(&[&old, &current, &unknown])),
        (
            "one is missing in one entry",
            Published {
                everywhere: one.everywhere,
                ..good.clone()
            },
        ),
        (
            "text that is not a certificate",
            Published {
                stray: true,
                ..good
            },
        ),
    ] {
        world.published = Some(published);
        let step = world.decide(on(2));
        let bundle = vec![old.anchor().clone(), current.anchor().clone()];
        assert_eq!(step.publish, Some(bundle), "{what}");
        assert_eq!(step.next_decision, on(2), "{what}");
    }
}

#[test]
fn the_order_of_a_bundle_does_not_matter() {
    let (old, current) = (made_on(0), made_on(1));
    let mut world = World::of(with_previous(&current, &old, on(9)));
    world.published = Some(published(&[&current, &old]));
    assert_eq!(world.decide(on(2)).publish, None);
}

#[test]
fn the_ca_changes_in_three_steps() {
    let current = made_on(0);
    let world = World::of(alone(&current));
    let due = change_due(&current, &PERIODS);
    assert_eq!(due, on(0) + PERIODS.ca_validity * 2 / 3);
    assert_eq!(world.change(due - TimeDelta::seconds(1)), None);
    assert_eq!(world.change(due), Some(Change::AddNext));

    // Step 1: both are to be published; the wait begins once they are.
    let step_1 = world.after(Change::AddNext, due);
    let next = step_1.next.clone().unwrap();
    assert_eq!(next.published_at, None);
    assert_eq!(step_1.current.anchor(), current.anchor());
    let mut world = World::of(step_1);
    world.published = Some(published(&[&current]));
    assert_eq!(world.change(due), None);
    assert_eq!(world.decide(due).publish.unwrap().len(), 2);
    world.published = Some(published(&[&current, &next.authority]));
    assert_eq!(world.change(due), Some(Change::MarkPublished));
    let marked = world.after(Change::MarkPublished, due);
    assert_eq!(marked.next.as_ref().unwrap().published_at, Some(due));

    // Step 2: after the propagation time, the next one signs.
    let world = World::of(marked);
    let known = due + PERIODS.propagation;
    assert_eq!(world.change(known - TimeDelta::seconds(1)), None);
    assert_eq!(world.change(known), Some(Change::Promote));
    let step_2 = world.after(Change::Promote, known);
    assert_eq!(step_2.current.anchor(), next.authority.anchor());
    assert!(step_2.next.is_none());
    assert_eq!(step_2.bundle().len(), 2);
    let drop_at = step_2.previous.as_ref().unwrap().drop_at;
    assert_eq!(drop_at, known + PERIODS.leaf_validity + PERIODS.propagation);

    // Step 3: once no old leaf can be valid, the old one goes.
    let world = World::of(step_2);
    assert_eq!(world.change(drop_at - TimeDelta::seconds(1)), None);
    assert_eq!(world.change(drop_at), Some(Change::DropPrevious));
    let step_3 = world.after(Change::DropPrevious, drop_at);
    assert_eq!(step_3.bundle(), vec![next.authority.anchor().clone()]);
    assert_eq!(World::of(step_3).change(drop_at), None);
}

#[test]
fn the_wait_restarts_when_the_next_ca_vanishes_from_a_bundle() {
    let (current, next) = (made_on(0), made_on(240));
    let mut world = World::of(with_next(&current, &next, Some(on(240))));
    world.published = Some(published(&[&current]));
    assert_eq!(world.change(on(241)), Some(Change::MarkUnpublished));
    let authorities = world.after(Change::MarkUnpublished, on(241));
    assert_eq!(authorities.next.unwrap().published_at, None);
}

#[test]
fn a_mark_from_a_wrong_clock_is_not_waited_for() {
    let (current, next) = (made_on(0), made_on(240));
    let world = World::of(with_next(&current, &next, Some(on(9999))));
    assert_eq!(world.change(on(241)), Some(Change::MarkPublished));
}

#[test]
fn a_mark_from_a_clock_that_is_behind_does_not_shorten_the_wait() {
    let (current, next) = (made_on(0), made_on(240));
    let mut world = World::of(with_next(&current, &next, Some(on(240))));
    for (since, change) in [
        (None, None),
        (Some(on(241)), None),
        (Some(on(241) - PERIODS.propagation), Some(Change::Promote)),
    ] {
        world.next_trusted_since = since;
        assert_eq!(world.change(on(241)), change, "{since:?}");
    }
    // Where the time runs out, the mark must do.
    world.next_trusted_since = None;
    let urgent = change_urgent(&current, &PERIODS);
    assert_eq!(world.change(urgent - TimeDelta::seconds(1)), None);
    assert_eq!(world.change(urgent), Some(Change::Promote));
    // Where the bundle is not ours to know, the mark is all there is.
    (world.published, world.next_trusted_since) = (None, None);
    assert_eq!(world.change(on(241)), Some(Change::Promote));
}

#[test]
fn the_ca_of_a_served_leaf_stays_trusted_when_another_pair_is_put_into_the_secret() {
    let (served, put) = (made_on(1), made_on(0));
    let mut world = World::of(alone(&put));
    world.published = Some(published(&[&served]));
    world.leaf = Some(leaf(&served, on(2)));
    let step = world.decide(on(3));
    assert_eq!(step.change, Some(Change::Keep(served.anchor().clone())));
    assert_eq!((step.sign, step.publish), (false, None));
    let kept = world.after(Change::Keep(served.anchor().clone()), on(3));
    let drop_at = on(3) + PERIODS.leaf_validity + PERIODS.propagation;
    assert_eq!(kept.previous.as_ref().unwrap().drop_at, drop_at);
    assert_eq!(kept.bundle().len(), 2);

    // One that has expired signs nothing, but takes no trust away either.
    let mut expired = World::of(alone(&made_on(-400)));
    expired.published = Some(published(&[&served]));
    expired.leaf = Some(leaf(&served, on(2)));
    let step = expired.decide(on(3));
    let keep = vec![served.anchor().clone()];
    assert_eq!(step.change, Some(Change::Begin { keep }));
    assert_eq!((step.sign, step.publish), (false, None));

    // A CA that no configuration trusts, or whose leaf has expired, is not kept.
    world.published = Some(published(&[]));
    assert_eq!(world.change(on(3)), None);
    world.published = Some(published(&[&served]));
    assert_eq!(world.change(on(10)), None);
}

#[test]
fn a_new_change_waits_until_the_last_one_is_over() {
    let (old, current) = (made_on(0), made_on(1));
    let world = World::of(with_previous(&current, &old, on(300)));
    assert_eq!(world.change(on(299)), None);
    assert_eq!(world.change(on(300)), Some(Change::DropPrevious));
}

#[test]
fn an_expired_ca_is_replaced_at_once_after_months_of_downtime() {
    let (current, next) = (made_on(0), made_on(300));
    let later = on(366);
    assert_eq!(
        World::of(alone(&current)).change(later),
        Some(Change::Begin { keep: vec![] })
    );
    let world = World::of(with_next(&current, &next, None));
    assert_eq!(world.change(later), Some(Change::Promote));
    assert!(!world.decide(later).sign, "an expired CA signs nothing");
    let much_later = on(700);
    assert_eq!(
        world.change(much_later),
        Some(Change::Begin { keep: vec![] })
    );
}

#[test]
fn if_the_bundle_is_unknown_the_rotation_depends_on_time_only() {
    let (current, next) = (made_on(0), made_on(240));
    let mut world = World::of(with_next(&current, &next, None));
    world.published = None;
    assert_eq!(world.change(on(240)), Some(Change::MarkPublished));
    let mut world = World::of(with_next(&current, &next, Some(on(240))));
    world.published = None;
    assert_eq!(world.change(on(240)), None);
    assert_eq!(
        world.change(on(240) + PERIODS.propagation),
        Some(Change::Promote)
    );
    assert_eq!(world.decide(on(240)).publish, None);
}

#[test]
fn a_change_that_does_not_fit_what_is_held_leaves_it_alone() {
    let (current, next) = (made_on(0), made_on(1));
    let alone = Held::Authorities(alone(&current));
    let with_next = Held::Authorities(with_next(&current, &next, None));
    for (change, held) in [
        (Change::AddNext, &with_next),
        (Change::AddNext, &Held::Missing),
        (Change::ReplaceNext, &alone),
        (Change::Promote, &alone),
        (Change::MarkPublished, &alone),
        (Change::MarkUnpublished, &Held::Missing),
        (Change::DropPrevious, &Held::Missing),
    ] {
        let clocks = Clocks::new(on(1), Some(on(1)));
        assert!(change.apply(held, clocks, &PERIODS).unwrap().is_none());
    }
}

#[test]
fn periods_that_cannot_work_together_are_named() {
    let seconds = TimeDelta::seconds;
    let check = |leaf, ca, propagation| {
        let periods = Periods {
            leaf_validity: seconds(leaf),
            ca_validity: seconds(ca),
            propagation: seconds(propagation),
        };
        periods.check()
    };
    assert_eq!(Periods::default().check(), Ok(()));
    assert_eq!(check(6, 24, 2), Ok(()));
    assert_eq!(check(1, 24, 2), Err(PeriodsError::Leaf));
    assert_eq!(check(6, 24, -1), Err(PeriodsError::Propagation));
    assert_eq!(check(6, 17, 2), Err(PeriodsError::Authority));
    assert_eq!(check(6, 18, 2), Ok(()));
    let century = 36_500 * 86_400;
    assert_eq!(check(6, century, 2), Ok(()));
    assert_eq!(check(6, century + 1, 2), Err(PeriodsError::TooLong));
    let longest = TimeDelta::MAX.num_seconds();
    assert_eq!(check(longest, longest, 2), Err(PeriodsError::TooLong));
    assert_eq!(check(6, 24, longest), Err(PeriodsError::TooLong));
}

/// A world in which this machine's clock is ahead by that many hours (negative: behind).
fn ahead_by(hours: i64, authorities: Authorities) -> World {
    let mut world = World::of(authorities);
    world.ahead = Some(TimeDelta::hours(hours));
    world
}

#[test]
fn a_leaf_of_a_clock_that_was_ahead_is_signed_again_once_the_clock_is_right() {
    let current = made_on(0);
    let mut world = World::of(alone(&current));
    for (issued, again) in [
        (on(40), true),
        (on(10) + TimeDelta::hours(3), true),
        (on(10) + TimeDelta::minutes(1), false),
    ] {
        world.leaf = Some(leaf(&current, issued));
        assert_eq!(world.decide(on(10)).sign, again, "{issued}");
    }
    // One that begins with its CA cannot begin sooner.
    let soon =
        Arc::new(Authority::generate(on(11) + TimeDelta::minutes(1), PERIODS.ca_validity).unwrap());
    let mut world = World::of(alone(&soon));
    let not_before = soon.anchor().not_before();
    world.leaf = Some(LeafFacts {
        not_before,
        ..leaf(&soon, on(10))
    });
    assert!(!world.decide(on(10)).sign);
}

#[test]
fn a_leaf_is_signed_to_be_valid_by_both_clocks() {
    let current = made_on(0);
    for (hours, from, until) in [(0, 9, 17), (48, 7, 17), (-48, 9, 19)] {
        let clocks = ahead_by(hours, alone(&current)).clocks(on(10));
        let expected = (on(from), on(until));
        assert_eq!(
            leaf_validity(&current, clocks, &PERIODS),
            expected,
            "{hours}"
        );
    }
    // And signed again if it is not: a clock was set after it was signed.
    let mut world = ahead_by(48, alone(&current));
    world.leaf = Some(leaf(&current, on(10)));
    assert!(world.decide(on(10)).sign);
    // Its CA's life is the limit.
    let mut world = ahead_by(24 * 30, alone(&current));
    let clocks = world.clocks(on(3));
    let (not_before, not_after) = leaf_validity(&current, clocks, &PERIODS);
    assert_eq!(not_before, current.anchor().not_before());
    world.leaf = Some(LeafFacts {
        not_before,
        not_after,
        ..leaf(&current, on(3))
    });
    assert!(!world.decide(on(3)).sign);
}

#[test]
fn no_ca_is_replaced_for_its_time_while_the_clocks_differ() {
    let (current, other) = (made_on(0), made_on(1));
    let day = 24;
    for (what, now, ahead) in [
        ("beyond the CA's life", on(400), 300 * day),
        ("the API server is behind", on(400), 2),
        ("before the CA's life", on(-20), -30 * day),
        ("the API server is ahead", on(200), -300 * day),
    ] {
        let mut world = ahead_by(ahead, alone(&current));
        let step = world.decide(now);
        assert_eq!((step.change, step.publish), (None, None), "{what}");
        // Nor where it would take the place of a readable one.
        world.held = Held::Garbage {
            fault: "no key".into(),
            readable: vec![other.anchor().clone()],
        };
        let step = world.decide(now);
        assert_eq!(
            (step.change, step.next_decision),
            (None, now + PERIODS.propagation),
            "{what}"
        );
    }
    // Both clocks say so, but they differ.
    assert_eq!(ahead_by(2, alone(&current)).change(on(400)), None);
    // Once they agree, it is.
    assert!(matches!(
        World::of(alone(&current)).change(on(400)),
        Some(Change::Begin { .. })
    ));
}

#[test]
fn a_ca_of_the_future_is_replaced_once_the_clocks_agree() {
    let (good, future) = (made_on(0), made_on(300));
    let world = World::of(with_previous(&future, &good, on(310)));
    let Some(Change::Begin { keep }) = world.change(on(10)) else {
        unreachable!()
    };
    assert_eq!(
        keep,
        [good.anchor().clone()],
        "what is not valid yet is not kept"
    );
    assert!(!world.decide(on(10)).sign);
    // Where the API server says no time, this machine's clock must do.
    let mut world = World::of(alone(&future));
    world.ahead = None;
    assert!(matches!(world.change(on(10)), Some(Change::Begin { .. })));
    // A next one that is good takes its place at once.
    let world = World::of(with_next(&future, &good, None));
    assert_eq!(world.change(on(10)), Some(Change::Promote));
    // A next one of the future gives way to another, and is not promoted.
    let mut world = World::of(with_next(&good, &future, Some(on(9))));
    assert_eq!(world.change(on(10)), Some(Change::ReplaceNext));
    let after = world.after(Change::ReplaceNext, on(10)).next.unwrap();
    assert_eq!(
        (after.authority.anchor().not_before(), after.published_at),
        (on(9), None)
    );
    world.ahead = Some(TimeDelta::days(-290));
    assert_eq!(world.change(on(10)), None);
}

#[test]
fn a_ca_is_made_to_be_valid_by_both_clocks() {
    for hours in [30, -30] {
        let world = World {
            held: Held::Missing,
            published: None,
            ahead: Some(TimeDelta::hours(hours)),
            trusted_since: None,
            next_trusted_since: None,
            leaf: None,
        };
        let change = world.change(on(10)).unwrap();
        let made = world.after(change, on(10)).current;
        let server = on(10) - TimeDelta::hours(hours);
        for time in [on(10), server] {
            assert!(made.anchor().not_before() <= time - BACKDATE);
            assert!(made.anchor().not_after() >= time + PERIODS.ca_validity);
        }
        // By clocks that are years apart none is.
        let world = World {
            ahead: Some(TimeDelta::days(366)),
            ..world
        };
        assert_eq!(world.change(on(10)), None);
    }
}

#[test]
fn an_old_ca_is_dropped_only_when_both_clocks_say_so() {
    let (old, current) = (made_on(0), made_on(1));
    for (hours, change) in [(-48, None), (0, Some(Change::DropPrevious)), (48, None)] {
        // Dropped at day 20; it is day 21 here, and there a day earlier or later.
        let world = ahead_by(hours, with_previous(&current, &old, on(20)));
        let expected = if hours < 0 {
            Some(Change::DropPrevious)
        } else {
            change
        };
        assert_eq!(world.change(on(21)), expected, "{hours}");
    }
    let behind = ahead_by(-48, with_next(&old, &current, Some(on(5))));
    assert_eq!(behind.change(on(6)), Some(Change::Promote));
    let after = behind.after(Change::Promote, on(6)).previous.unwrap();
    assert_eq!(
        after.drop_at,
        on(8) + PERIODS.leaf_validity + PERIODS.propagation
    );
}

#[test]
fn a_drop_time_later_than_any_leaf_is_brought_forward() {
    let (old, current) = (made_on(0), made_on(1));
    let latest = on(20) + PERIODS.leaf_validity + PERIODS.propagation;
    for (drop_at, change) in [
        (latest, None),
        (latest + TOLERANCE, None),
        (latest + TimeDelta::hours(2), Some(Change::CapPrevious)),
        (
            "9999-12-31T00:00:00Z".parse().unwrap(),
            Some(Change::CapPrevious),
        ),
    ] {
        let world = World::of(with_previous(&current, &old, drop_at));
        assert_eq!(world.change(on(20)), change, "{drop_at}");
    }
    let world = World::of(with_previous(&current, &old, on(9999)));
    let after = world.after(Change::CapPrevious, on(20));
    assert_eq!(after.previous.unwrap().drop_at, latest);
}

#[test]
fn long_lived_foreign_ca_is_rotated_as_early_as_our_own() {
    let foreign = Arc::new(Authority::generate(on(0), TimeDelta::days(36_500)).unwrap());
    let world = World::of(alone(&foreign));
    let due = on(0) + PERIODS.ca_validity * 2 / 3;
    assert_eq!(world.change(due - TimeDelta::seconds(1)), None);
    assert_eq!(world.change(due), Some(Change::AddNext));
}

#[test]
fn ca_created_while_this_machine_slept_is_not_in_the_future() {
    let current = made_on(10);
    let held = Held::Authorities(alone(&current));
    let published = published(&[&current]);
    let at = |day| Clocks::new(on(day), Some(on(day)));
    let observed = Observed {
        held: &held,
        published: Some(&published),
        trusted: &BTreeMap::new(),
        leaf: None,
        read_at: at(10),
    };
    let step = decide(observed, at(1), &PERIODS);
    assert_eq!((step.change, step.sign), (None, false));
}
