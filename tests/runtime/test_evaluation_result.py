"""What evaluate may return: a number, or a mapping with one main number and named parts."""

from types import SimpleNamespace

import numpy as np
import pytest

from esync.runtime.errors import EvaluationError
from esync.runtime.evaluation_result import EvaluationResult, lowest_recall, user_result
from esync.runtime.metric import TEST_ACCURACY, Metric

LOSS = Metric("loss", "min")
#: As sklearn.metrics.classification_report(…, output_dict=True, zero_division=np.nan) returns it.
REPORT = {
    "0": {"precision": np.float64("nan"), "recall": np.float64(0.0), "support": np.float64(5.0)},
    "accuracy": 0.5,
    "all": {"recall": 1 / 3},
}


@pytest.mark.parametrize(
    ("returned", "metric", "expected"),
    [
        (np.float32(0.5), TEST_ACCURACY, EvaluationResult(0.5)),
        # Keras: evaluate(return_dict=True); Hugging Face: compute_metrics
        ({"loss": 2.0, "accuracy": np.float32(0.5)}, LOSS, EvaluationResult(2.0, {"accuracy": 0.5})),
        (
            REPORT,
            TEST_ACCURACY,
            EvaluationResult(0.5, {"0/recall": 0.0, "0/support": 5.0, "all/recall": 0.333333}),
        ),
        # several metrics of MXNet, by dict(metric.get_name_value())
        ({"accuracy": 0.5, "recall/1": np.inf}, TEST_ACCURACY, EvaluationResult(0.5)),
        ({"loss": 2.0, "tokens": 10**400}, LOSS, EvaluationResult(2.0)),  # more than a float can hold
        ({"accuracy": 1, "recall": {np.int64(3): True}}, TEST_ACCURACY, EvaluationResult(1.0, {"recall/3": 1.0})),
        # a mean in float32 may be above 1 by its rounding
        (
            {"accuracy": 1, "recall": {"cat": np.float32(1.0000001)}},
            TEST_ACCURACY,
            EvaluationResult(1.0, {"recall/cat": 1.0}),
        ),
    ],
)
def test_numbers_and_mappings_are_evaluation_results(returned, metric, expected):
    assert user_result(returned, metric, "test") == expected


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (("accuracy", 0.5), r"has returned \('accuracy', 0.5\) .*: get\(\)\[1\]"),
        ((["accuracy", "mAP"], [0.5, 0.1]), r"as dict\(zip\(\*get\(\)\)\)"),  # gluoncv: VOCMApMetric.get()
        ([("accuracy", 0.5)], r"as dict\(pairs\)"),  # MXNet: get_name_value()
        ([2.3, 0.5], "numbers of which one is the metric need names"),  # Keras: evaluate()
        ({"eval_accuracy": 0.5}, "with the metric, 'accuracy', but test has returned one of eval_accuracy: name the"),
        ({}, "has returned one of nothing"),
        # torchmetrics: MulticlassRecall(average=None)
        ({"accuracy": 0.5, "recall": np.ones(2)}, r"the 'recall' of test is array.*\{'recall': dict\(enumerate"),
        ({"accuracy": 0.5, "f1": None}, "the 'f1' of test is None$"),
        ({"accuracy": 0.5, ("a", 1): 2.0}, r"returned \('a', 1\) as a name"),
        ({"accuracy": 0.5, "two\nlines": 2.0}, r"returned 'two\\nlines' as a name"),
        ({"accuracy": 0.5, "recall": {"": 2.0}}, "returned 'recall/' as a name"),
        ({"accuracy": 0.5, "a": {"b": 1.0}, "a/b": 1.0}, "named 'a/b' twice"),
        (np.ma.masked, "has returned masked"),
        ({"accuracy": np.ma.mean(np.ma.masked_all(3))}, "the 'accuracy' of test is masked"),
        ({"accuracy": 0.5, True: 1.0}, "has returned True as a name"),
        ({"accuracy": 50, "recall/1": 0.5}, "the accuracy, 0 to 1, but test has returned 50: divide a percentage"),
        # MXNet: Accuracy().get() of an empty test set
        ({"accuracy": np.nan}, "the accuracy, 0 to 1, but test has returned nan: MXNet.s metrics return it where"),
        # labels of MXNet are float32
        ({"accuracy": 0.5, "recall": {np.float32(3): 0.5}}, r"has returned 3.0 as a name: .* by int\(…\)"),
        ({"accuracy": 0.5, " <=50K": {"recall": 0.5}}, "without spaces around it, but test has returned ' <=50K' as"),
        # torchmetrics and COCO: -1 of a class that has no objects
        (
            {"accuracy": 0.5, "recall": {"cat": 0.5, "yak": -1.0}},
            "the 'recall/yak' of test is -1: .* leave out classes",
        ),
        (
            {"accuracy": 0.5, "recall": {"cat": 81.5}},
            "recalls, 0 to 1, but the 'recall/cat' of test is 81.5: divide percentages",
        ),
        # pandas: Series
        (SimpleNamespace(to_dict=dict), r"\(a SimpleNamespace is a mapping as to_dict\(\)\)"),
        ({"accuracy": 0.5, "recall": dict.fromkeys(range(201), 1.0)}, "up to 200 parts .* but test has returned 201"),
    ],
)
def test_what_is_no_evaluation_result_is_refused_by_name(returned, message):
    with pytest.raises(EvaluationError, match=message):
        user_result(returned, TEST_ACCURACY, "test")


def test_lowest_recall_is_that_of_the_known_ones():
    parts = {"recall/1": 0.5, "recall/2": None, "recall/3": 0.5, "recall/4": 0.75, "loss": 0.25}
    assert lowest_recall(parts) == "lowest recall 0.500 (class 1, 3)"
    assert lowest_recall({"recall/2": None, "loss": 0.25}) == ""
