from esync.membership.failure_detector import FailureDetector

GRACE = 5.0


def detector() -> FailureDetector[str]:
    return FailureDetector(GRACE)


def test_failure_detector_reports_a_peer_missing_for_longer_than_its_grace():
    detecting = detector()
    assert detecting.observe({"a"}, 100.0) == []
    assert detecting.observe(set(), 101.0) == []
    assert detecting.observe({"a"}, 105.0) == []  # it was there all the time
    assert detecting.observe(set(), 106.0) == []
    assert detecting.observe(set(), 111.0) == []
    assert detecting.observe(set(), 111.5) == ["a"]
    assert detecting.observe(set(), 200.0) == ["a"]
    assert detecting.observe({"a"}, 201.0) == []


def test_failure_detector_ignores_absences_during_its_own_pause():
    detecting = detector()
    detecting.observe({"a"}, 100.0)
    assert detecting.observe(set(), 900.0) == []  # it was suspended, and this is its first observation since
    assert detecting.observe({"a"}, 900.5) == []


def test_failure_detector_misses_only_peers_seen_or_expected():
    detecting = detector()
    assert detecting.observe(set(), 100.0) == []
    detecting.expect("a", 120.0)
    detecting.expect("a", 130.0)  # the first one counts
    assert detecting.observe(set(), 120.0) == []
    assert detecting.observe(set(), 121.0) == ["a"]


def test_failure_detector_does_not_expect_a_peer_that_was_seen():
    detecting = detector()
    detecting.observe({"a"}, 100.0)
    detecting.expect("a", 101.0)
    assert detecting.observe({"a"}, 110.0) == []


def test_failure_detector_lists_the_longest_missing_first():
    detecting = detector()
    detecting.observe({"a", "b"}, 100.0)
    detecting.observe({"a"}, 101.0)
    detecting.observe(set(), 102.0)
    assert detecting.observe(set(), 110.0) == ["b", "a"]


def test_failure_detector_forgets_a_peer_until_it_is_seen_again():
    detecting = detector()
    detecting.observe({"a", "b"}, 100.0)
    detecting.observe(set(), 101.0)
    detecting.forget("a")
    detecting.keep({"a", "c"})
    assert len(detecting) == 0
    assert detecting.observe(set(), 110.0) == []
