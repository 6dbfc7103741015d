from esync.membership.failure_detector import FailureDetector

GRACE = 5.0


def detector() -> FailureDetector[str]:
    return FailureDetector(GRACE)


def test_a_peer_is_gone_when_it_has_been_missing_for_longer_than_its_grace():
    detecting = detector()
    assert detecting.look({"a"}, 100.0) == []
    assert detecting.look(set(), 101.0) == []
    assert detecting.look({"a"}, 105.0) == []  # it was there all the time
    assert detecting.look(set(), 106.0) == []
    assert detecting.look(set(), 111.0) == []
    assert detecting.look(set(), 111.5) == ["a"]
    assert detecting.look(set(), 200.0) == ["a"]
    assert detecting.look({"a"}, 201.0) == []


def test_a_process_does_not_take_its_own_pause_for_the_absence_of_others():
    detecting = detector()
    detecting.look({"a"}, 100.0)
    assert detecting.look(set(), 900.0) == []  # it was suspended, and this is its first look since
    assert detecting.look({"a"}, 900.5) == []


def test_who_has_not_been_seen_is_not_missed_unless_it_is_expected():
    detecting = detector()
    assert detecting.look(set(), 100.0) == []
    detecting.expect("a", 120.0)
    detecting.expect("a", 130.0)  # the first one counts
    assert detecting.look(set(), 120.0) == []
    assert detecting.look(set(), 121.0) == ["a"]


def test_who_has_been_seen_need_not_be_expected():
    detecting = detector()
    detecting.look({"a"}, 100.0)
    detecting.expect("a", 101.0)
    assert detecting.look({"a"}, 110.0) == []


def test_who_has_been_gone_longest_comes_first():
    detecting = detector()
    detecting.look({"a", "b"}, 100.0)
    detecting.look({"a"}, 101.0)
    detecting.look(set(), 102.0)
    assert detecting.look(set(), 110.0) == ["b", "a"]


def test_who_is_forgotten_has_to_be_seen_anew():
    detecting = detector()
    detecting.look({"a", "b"}, 100.0)
    detecting.look(set(), 101.0)
    detecting.forget("a")
    detecting.keep({"a", "c"})
    assert len(detecting) == 0
    assert detecting.look(set(), 110.0) == []
