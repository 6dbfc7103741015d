from esync.membership.failure_detector import FailureDetector

GRACE = 5.0


def detector() -> FailureDetector[str]:
    return FailureDetector(GRACE)


def test_failure_detector_reports_a_peer_missing_for_longer_than_its_grace():
    detecting = detector()
    assert detecting.look({"a"}, 100.0) == []
    assert detecting.look(set(), 101.0) == []
    assert detecting.look({"a"}, 105.0) == []  # it was there all the time
    assert detecting.look(set(), 106.0) == []
    assert detecting.look(set(), 111.0) == []
    assert detecting.look(set(), 111.5) == ["a"]
    assert detecting.look(set(), 200.0) == ["a"]
    assert detecting.look({"a"}, 201.0) == []


def test_failure_detector_ignores_absences_during_its_own_pause():
    detecting = detector()
    detecting.look({"a"}, 100.0)
    assert detecting.look(set(), 900.0) == []  # it was suspended, and this is its first look since
    assert detecting.look({"a"}, 900.5) == []


def test_failure_detector_misses_only_peers_seen_or_expected():
    detecting = detector()
    assert detecting.look(set(), 100.0) == []
    detecting.expect("a", 120.0)
    detecting.expect("a", 130.0)  # the first one counts
    assert detecting.look(set(), 120.0) == []
    assert detecting.look(set(), 121.0) == ["a"]


def test_failure_detector_does_not_expect_a_peer_that_was_seen():
    detecting = detector()
    detecting.look({"a"}, 100.0)
    detecting.expect("a", 101.0)
    assert detecting.look({"a"}, 110.0) == []


def test_failure_detector_lists_the_longest_missing_first():
    detecting = detector()
    detecting.look({"a", "b"}, 100.0)
    detecting.look({"a"}, 101.0)
    detecting.look(set(), 102.0)
    assert detecting.look(set(), 110.0) == ["b", "a"]


def test_failure_detector_forgets_a_peer_until_it_is_seen_again():
    detecting = detector()
    detecting.look({"a", "b"}, 100.0)
    detecting.look(set(), 101.0)
    detecting.forget("a")
    detecting.keep({"a", "c"})
    assert len(detecting) == 0
    assert detecting.look(set(), 110.0) == []
