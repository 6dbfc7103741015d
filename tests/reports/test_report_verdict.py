"""The result of a comparison in sentences."""

from test_report_page import logged

from esync.reports.comparison import compare_runs
from esync.reports.report_page.verdict import verdict


def test_verdict_of_three_seeds_says_what_was_reached_and_whether_a_difference_is_chance():
    runs = [logged(seed, overlap) for overlap in (False, True) for seed in (1, 2, 6)]
    first, _, compared = verdict(compare_runs(runs, target=0.4).sections[0])
    assert first == (
        "ESync (overlap off) reached test accuracy 0.4 after 9.0 s ± 0.0 s, ended at 0.489 ± 0.001 and processed "
        "203.4 ± 8.4 samples/s."
    )
    assert compared == (
        "ESync (overlap on) was 1.00 times as fast as ESync (overlap off) to the target, which is no more than chance "
        "would explain (95 % confidence interval of the difference: +0.0 to +0.0 s)."
    )


def test_verdict_of_single_runs_says_that_chance_is_not_known():
    section = compare_runs([logged(1, False), logged(1, True)], target=0.4).sections[0]
    assert verdict(section)[-1] == (
        "ESync (overlap on) was 1.00 times as fast as ESync (overlap off) to the target; with a single run of either, "
        "whether that is more than chance is not known."
    )
